"""A metric's quantiles by slice: by any recorded dimension, by length, concurrency and local time.

Every quantile comes with how many requests carry it and its 95 % interval, and is left out where
there are too few. From single requests it is exact; from rolled up ones within 1 %. A request that
stands for several (column ``weight``) counts as many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole_analytics import minutes
from longpole_analytics.slice_labels import ORDER, checked_metric, labelled, largest, weights
from longpole_analytics.stats import is_shown
from longpole_analytics.weighted import Estimate
from longpole_analytics.weighted import is_shown as is_carried
from longpole_analytics.weighted import quantile as weighted_quantile

SCHEMA: Final = "longpole.slices/1"
EXACT: Final = "exact"


@dataclass(frozen=True)
class SliceRules:
    """What a table of slices holds.

    Attributes:
        quantiles: which quantiles.
        max_values: values of one dimension that are kept apart, the most frequent ones.
        max_slices: slices, the largest ones.
    """

    quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)
    max_values: int = 1000
    max_slices: int = 1000


class SliceQuantile(NamedTuple):
    """One quantile and its interval; ``None`` where the requests are too few for it.

    Attributes:
        q: which.
        value: its value.
        low: lower end of the 95 % interval for the traffic behind the requests.
        high: its upper end.
        all_ends: the ends for all requests that came, where not all of them were kept; ``None``
            where they were.
    """

    q: float
    value: float | None
    low: float | None
    high: float | None
    all_ends: tuple[float | None, float | None] | None = None

    def document(self) -> dict[str, Any]:
        """As ``longpole.slices/1`` has it; ``all_ci95`` is there only of sampled requests."""
        found = {"q": self.q, "value": self.value, "ci95": [self.low, self.high]}
        return found if self.all_ends is None else {**found, "all_ci95": list(self.all_ends)}


@dataclass(frozen=True)
class Slice:
    """The requests of one slice: ``n`` have the metric, ``num_unknown`` have not.

    ``weight`` is how many the ``n`` stand for; ``greatest`` is ``None`` of none.
    """

    where: dict[str, str | None]
    n: int
    weight: float
    num_unknown: int
    quantiles: tuple[SliceQuantile, ...]
    greatest: float | None


@dataclass(frozen=True)
class Slices:
    """Slices of one metric; in order of time and size of buckets, else the largest first.

    ``not_sent`` are dimensions of which no request has a value; ``num_left_out`` is how many
    further slices there are. ``precision`` is ``exact`` or ``+-1 %``.
    """

    metric: str
    by: tuple[str, ...]
    precision: str
    slices: tuple[Slice, ...]
    not_sent: tuple[str, ...]
    num_left_out: int

    def document(self) -> dict[str, Any]:
        """The document ``longpole.slices/1``."""
        return {
            "schema": SCHEMA,
            "metric": self.metric,
            "by": list(self.by),
            "precision": self.precision,
            "slices": [
                {
                    "where": each.where,
                    "n": each.n,
                    "weight": each.weight,
                    "num_unknown": each.num_unknown,
                    "quantiles": [found.document() for found in each.quantiles],
                    "max": each.greatest,
                }
                for each in self.slices
            ],
            "not_sent": list(self.not_sent),
            "num_left_out": self.num_left_out,
        }


def slices(
    requests: pl.DataFrame,
    by: Sequence[str],
    metric: str = "e2e_ms",
    *,
    tz: str = "UTC",
    rules: SliceRules | None = None,
) -> Slices:
    """The quantiles of a metric by slice, exactly.

    Args:
        requests: a table of requests.
        by: dimensions; numbers (``input_tokens``, ``in_flight``), which are put in buckets that
            double; stretches of local time (:data:`TIMES`).
        metric: a column of numbers.
        tz: the time zone whose days and hours are meant.
        rules: what the table holds; ``None`` for the defaults.

    Raises:
        BadInput: a column or the zone is not there.
    """
    rules = rules or SliceRules()
    checked_metric(requests, metric)
    value = pl.col(metric).cast(pl.Float64)
    frame, not_sent = labelled(requests, by, tz, rules.max_values)
    frame = frame.with_columns(
        pl.when(value.is_finite()).then(value).alias("__value"), weights(requests)
    )
    frame = frame.filter(pl.col("__weight") > 0).sort("__value", nulls_last=True)
    groups, num_left_out = _groups(frame, by, rules)
    found = tuple(
        _slice(keys, np.asarray(values), np.asarray(weights), rules)
        for keys, values, weights in groups
    )
    return Slices(metric, tuple(by), EXACT, found, not_sent, num_left_out)


def rolled_slices(
    rows: pl.DataFrame,
    by: Sequence[str],
    metric: str = "e2e_ms",
    *,
    tz: str = "UTC",
    rules: SliceRules | None = None,
) -> Slices:
    """As :func:`slices`, from rolled up values: within 1 %, and never reads a request.

    Args:
        rows: rows of the view ``minutes`` or of :func:`longpole_analytics.minutes.roll_up`.
        by: dimensions that the rows have, or stretches of local time.
        metric: one that the rows have.
        tz: the time zone.
        rules: what the table holds.

    Raises:
        BadInput: a column or the zone is not there.
    """
    rules = rules or SliceRules()
    numbers = [name for name in by if name in rows.columns and rows.schema[name].is_numeric()]
    if numbers:
        raise BadInput(f"{', '.join(numbers)} is not kept with rolled up values")
    frame, not_sent = labelled(rows.filter(pl.col("metric") == metric), by, tz, rules.max_values)
    num = pl.col("num").sum().alias("__n")
    orders = [pl.col(name).min() for name in frame.columns if name.startswith(ORDER)]
    totals = frame.group_by(by).agg(num, *orders) if by else frame.select(num)
    totals, num_left_out = largest(totals, by, rules.max_slices)
    parts = dict(minutes.counts(frame, by))
    found = tuple(
        _rolled(dict(zip(by, names, strict=True)), parts[names], rules)
        for names in (tuple(row[name] for name in by) for row in totals.iter_rows(named=True))
        if parts[names].num
    )
    return Slices(metric, tuple(by), minutes.ERROR, found, not_sent, num_left_out)


# --- slices ------------------------------------------------------------------------------------
def _groups(
    frame: pl.DataFrame, by: Sequence[str], rules: SliceRules
) -> tuple[list[tuple[dict[str, str | None], list[float | None], list[float]]], int]:
    """Keys, sorted values (unknown last) and their weights of each slice; and how many more."""
    orders = [name for name in frame.columns if name.startswith(ORDER)]
    if by:
        grouped = frame.group_by(by, maintain_order=True).agg(
            pl.col("__value", "__weight"),
            pl.len().alias("__n"),
            *(pl.col(name).min() for name in orders),
        )
    else:
        grouped = frame.select(pl.col("__value", "__weight").implode(), pl.len().alias("__n"))
    kept, num_left_out = largest(grouped, by, rules.max_slices)
    found = [
        ({name: row[name] for name in by}, row["__value"], row["__weight"])
        for row in kept.iter_rows(named=True)
        if row["__n"]
    ]
    return found, num_left_out


def _slice(
    where: Mapping[str, str | None],
    values: "np.ndarray[Any, Any]",
    weights: "np.ndarray[Any, Any]",
    rules: SliceRules,
) -> Slice:
    """One slice; ``values`` are sorted, the unknown (NaN or ``None``) last."""
    values = values.astype(np.float64)
    known = int(np.count_nonzero(~np.isnan(values)))
    num_unknown = len(values) - known
    values, weights = values[:known], weights[:known]
    quantiles = tuple(_quantile(values, weights, q) for q in rules.quantiles)
    greatest = float(values[-1]) if known else None
    return Slice(dict(where), known, float(weights.sum()), num_unknown, quantiles, greatest)


def _rolled(where: dict[str, str | None], counted: minutes.Counts, rules: SliceRules) -> Slice:
    n, weight = sum(counted.num), sum(counted.weight_e6) / minutes.SCALE
    quantiles: list[SliceQuantile] = []
    for q in rules.quantiles:
        told = minutes.read(counted, q) if is_shown(n, q) else None
        ends = (None, None, None) if told is None else (told.value, told.low, told.high)
        quantiles.append(SliceQuantile(q, *ends))
    return Slice(where, n, weight, 0, tuple(quantiles), max(counted.max_ms))


def _quantile(
    values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]", q: float
) -> SliceQuantile:
    found = weighted_quantile(values, weights, q) if is_carried(weights, q) else None
    if found is None:
        return SliceQuantile(q, None, None, None)
    return SliceQuantile(q, found.value, found.low, found.high, _all_ends(found, weights))


def _all_ends(
    found: Estimate, weights: "np.ndarray[Any, Any]"
) -> tuple[float | None, float | None] | None:
    return None if np.all(weights == 1) else (found.all_low, found.all_high)
