"""Calls and workflows of which not all were kept, read row by row with what each stands for.

Of more than a query may return as many as fit are drawn, each for as many more. What they tell is
summed up by :mod:`longpole_analytics.weighted`; a store of which all was kept is never asked this.
"""

from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa

from longpole_analytics import weighted
from longpole_analytics.wording import sampled_text
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.window import Filters

MAX_READ: Final = 60_000
"""Rows read: one query of a store returns 100,000."""


class Size(NamedTuple):
    """How much a window holds.

    Attributes:
        num_kept: workflows that are there.
        stood_for: how many workflows came, estimated where not all were kept.
        variance: of that estimate; 0 where all were.
        num_calls: calls of those that are there; 0 where nobody asked.
    """

    num_kept: int
    stood_for: float
    variance: float
    num_calls: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether a workflow stands for more than itself."""
        return self.stood_for != self.num_kept or self.variance != 0

    @property
    def num_traces(self) -> float:
        """How many workflows came; a whole number where all were kept."""
        return self.stood_for if self.is_sampled else self.num_kept


SIZE: Final = (
    "count(*) AS num_kept, coalesce(sum(weight), 0) AS stood_for, "
    "coalesce(sum(weight * (weight - 1)), 0) AS variance"
)
"""What to SELECT from traces for :class:`Size`."""
CALLS: Final = "coalesce(sum(num_calls), 0)::BIGINT AS num_calls"
"""The same for the number of calls, where that is wanted."""


def size_of(row: dict[str, Any]) -> Size:
    """The size that a row of :data:`SIZE` tells, and perhaps :data:`CALLS`."""
    return Size(row["num_kept"], row["stood_for"], row["variance"], row.get("num_calls", 0))


def whole(num: int) -> Size:
    """The size of a window of which all was kept."""
    return Size(num, num, 0.0)


_CALLS: Final = """
SELECT route, prompt_version, start_ns, ttft_ms, tpot_ms, weight, size
FROM (SELECT route, prompt_version, start_ns, ttft_ms, tpot_ms, weight,
             trace_id || span_id AS id
      FROM calls WHERE {calls}) AS c,
     (SELECT count(*) AS size FROM calls WHERE {calls}) AS s
WHERE size <= $most OR hash(id) < $most::DOUBLE / size * 18446744073709e6
"""
_WORKFLOWS: Final = """
SELECT route, prompt_version, wall_ms, outcome, weight, size
FROM (SELECT route, prompt_version, wall_ms, outcome, weight, trace_id
      FROM traces WHERE {traces}) AS t,
     (SELECT count(*) AS size FROM traces WHERE {traces}) AS s
WHERE size <= $most OR hash(trace_id) < $most::DOUBLE / size * 18446744073709e6
"""


def calls(filters: Filters, reader: Reader) -> pl.DataFrame:
    """The calls of a window: slice, start, times in ms, and ``weight``."""
    return _drawn(_CALLS, filters, reader)


def workflows(filters: Filters, reader: Reader) -> pl.DataFrame:
    """The workflows of a window: slice, wall time in ms, outcome, and ``weight``."""
    return _drawn(_WORKFLOWS, filters, reader)


def _drawn(query: str, filters: Filters, reader: Reader) -> pl.DataFrame:
    asked = query.format(calls=filters.on("calls"), traces=filters.on("traces"))
    return spread(reader.sql(asked, {**filters.params, "most": MAX_READ}))


def spread(table: pa.Table) -> pl.DataFrame:
    """Rows that were drawn of ``size``, with ``weight``: each stands for as many as were not."""
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return found.with_columns(pl.col("weight") * pl.col("size") / pl.len()).drop("size")


def quantile(rows: pl.DataFrame, column: str, per_mille: int) -> Quantile:
    """A quantile of the known values of a column, by weight.

    Only the greatest where they do not carry it.
    """
    values = pl.col(column).cast(pl.Float64)
    known = rows.select(values.alias("value"), "weight").filter(pl.col("value").is_finite())
    known = known.sort("value")
    weights = known["weight"].to_numpy()
    found = weighted.quantile(known["value"].to_numpy(), weights, per_mille / 1000)
    if found is None:
        return Quantile(per_mille, 0, None, None, None, None)
    num, greatest = weighted.num_of(weights), known["value"][-1]
    kept = None if num == known.height else known.height
    if not weighted.is_shown(weights, per_mille / 1000):
        return Quantile(per_mille, num, None, None, None, greatest, kept)
    return Quantile(per_mille, num, found.value, found.low, found.high, greatest, kept)


def sentence(num_kept: int, stood_for: float, noun: str, *of_kept: str) -> str:
    """How traces were sampled, as pages say it.

    Args:
        num_kept: how many are there.
        stood_for: how many these stand for.
        noun: what they are, in the plural.
        of_kept: parts of the page that tell of the kept alone.
    """
    told = {"num_kept": num_kept, "num_stood_for": stood_for, "of_kept": of_kept}
    return f"{sampled_text(told, noun)}."
