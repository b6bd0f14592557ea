"""The workflows that a selection on the map is compared within: all, or a weighted sample.

A window of a million workflows is not read one by one. Of those that lie high, and of the rest,
so many are drawn by a hash of their id that their sum is bounded; each stands for as many as were
not drawn, which the comparison weighs (``longpole_analytics.cohort``).
"""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from longpole_analytics.requests import from_views
from longpole_analytics.weighted import is_sampled
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.heatmap import METRICS, box_condition, points
from longpole_dashboard.model.window import AMONG, STAGES_AMONG, Filters, overlapping

MAX_HIGH: Final = 5_000
"""Workflows read of those that lie high."""
MAX_REST: Final = 9_000
"""Workflows read of the rest."""
MAX_CALLS: Final = 90_000
"""Their calls: what one query of a store may return."""
VALUE: Final = "box_value"
"""The column of the metric's values."""
_HIGH: Final = 0.95


@dataclass(frozen=True)
class Population:
    """Workflows with a metric; a table of requests with ``box_value``, weighted where it must be.

    Attributes:
        requests: one row a workflow, by start.
        num: workflows that are there.
        metric: of the map.
    """

    requests: pl.DataFrame
    num: int
    metric: str

    @property
    def is_drawn(self) -> bool:
        """Whether not all that are there were read."""
        return self.num > self.requests.height

    @property
    def is_weighed(self) -> bool:
        """Whether a row stands for more than itself: not all were read, or not all were kept."""
        return is_sampled(self.requests)

    def num_inside(self, box: Box) -> int:
        """How many of the rows lie in a box."""
        return int(self.requests.select(inside(box).sum()).item() or 0)


def inside(box: Box) -> pl.Expr:
    """Whether a row lies in a box."""
    value, start = pl.col(VALUE), pl.col("start_ns")
    parts = [value.is_not_null()]
    parts += [] if box.start_ns is None else [start >= box.start_ns]
    parts += [] if box.end_ns is None else [start < box.end_ns]
    parts += [] if box.low is None else [value > box.low]
    parts += [] if box.high is None else [value <= box.high]
    return pl.all_horizontal(parts)


_DRAWN: Final = """
WITH p AS MATERIALIZED ({points}),
q AS (SELECT quantile_disc(value, {high}) AS cut FROM p),
m AS (SELECT p.*, {is_high} AS is_high FROM p, q),
s AS (SELECT is_high, count(*) AS size FROM m GROUP BY is_high),
d AS (
    SELECT m.trace_id, value, is_high, size
    FROM m JOIN s USING (is_high)
    WHERE size <= CASE WHEN is_high THEN $most_high ELSE $most_rest END
       OR hash(m.trace_id) <
          (CASE WHEN is_high THEN $most_high ELSE $most_rest END)::DOUBLE / size * 18446744073709e6)
SELECT d.trace_id, value, is_high, size, greatest(coalesce(t.num_calls, 0), 1) AS num_calls
FROM d JOIN (SELECT trace_id, num_calls FROM traces WHERE {traces}) AS t USING (trace_id)
ORDER BY hash(d.trace_id), d.trace_id
"""


def population(filters: Filters, name: str, box: Box | None, reader: Reader) -> Population:
    """The workflows of a window that have a metric.

    Args:
        filters: which workflows.
        name: of the metric.
        box: what shall be read densely; ``None`` is what lies highest.
        reader: the store.
    """
    metric = METRICS[name]
    is_high, params = "value >= cut", dict[str, Any]()
    if box is not None:
        is_high, params = box_condition(box)
    asked = _DRAWN.format(
        points=points(filters, metric), high=_HIGH, is_high=is_high, traces=filters.on("traces")
    )
    params |= {**filters.params, "most_high": MAX_HIGH, "most_rest": MAX_REST}
    drawn = _fitting(_frame(reader, asked, params))
    sizes = drawn.group_by("is_high").agg(pl.col("size").first())["size"]
    value = pl.col("value").cast(pl.Float64).alias(VALUE)
    values = drawn.select("trace_id", value, pl.col("weight").alias("drawn"))
    requests = _requests(filters, values["trace_id"].to_list(), reader)
    found = requests.join(values, on="trace_id", how="inner", maintain_order="left")
    # what is drawn from a sampled store stands for others twice over
    both = pl.coalesce(pl.col("weight") * pl.col("drawn"), "weight", "drawn").alias("weight")
    return Population(found.with_columns(both).drop("drawn"), int(sizes.sum() or 0), name)


def _fitting(drawn: pl.DataFrame) -> pl.DataFrame:
    """So many rows of each part that their calls can be read, with what each stands for."""
    total = int(drawn["num_calls"].sum() or 0)
    share = min(1.0, MAX_CALLS / total) if total else 1.0
    place = pl.int_range(pl.len()).over("is_high")
    kept = drawn.filter(place < (pl.len().over("is_high") * share).floor().clip(1))
    weight = pl.col("size") / pl.len().over("is_high")
    is_whole = (kept["size"].unique().sum() or 0) == kept.height
    told = pl.lit(None, pl.Float64) if is_whole else weight
    return kept.with_columns(told.alias("weight"))


_OF_STAGES: Final = """
SELECT trace_id, list(stage) AS stage, list(critical_ms) AS critical_ms
FROM trace_stages WHERE {among} AND critical_ms > 0 GROUP BY trace_id
"""


def _requests(filters: Filters, ids: list[str], reader: Reader) -> pl.DataFrame:
    """The table of requests of these workflows."""
    window = {"ids": ",".join(ids), "start": filters.start_ns, "end": filters.end_ns}
    inside_window = "start_ns >= $start AND start_ns < $end"
    traces = _frame(reader, f"SELECT * FROM traces WHERE {inside_window} AND {AMONG}", window)  # noqa: S608
    calls = _frame(
        reader,
        # prices take long to find, and are no dimension
        f"SELECT * EXCLUDE (cost_usd, price_version) FROM calls WHERE {overlapping()} AND {AMONG}",  # noqa: S608
        window,
    )
    stages = _frame(reader, _OF_STAGES.format(among=STAGES_AMONG), window)
    return from_views(traces, stages.explode("stage", "critical_ms"), calls)


def _frame(reader: Reader, query: str, params: dict[str, Any]) -> pl.DataFrame:
    frame = pl.from_arrow(reader.sql(query, params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
