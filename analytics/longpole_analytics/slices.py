"""A metric's quantiles by slice: by any recorded dimension, by length, concurrency and local time.

Every quantile comes with how many requests carry it and its 95 % interval, and is left out where
there are too few. From single requests it is exact; from rolled up ones within 1 %. A request that
stands for several (column ``weight``) counts as many.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole_analytics import minutes
from longpole_analytics.stats import is_shown, rank, rank_interval

SCHEMA: Final = "longpole.slices/1"
EXACT: Final = "exact"
OTHER: Final = "__other__"
"""Values of a dimension beyond the most frequent."""
TIMES: Final = {
    "minute": "%Y-%m-%d %H:%M %z",
    "hour": "%Y-%m-%d %H:00 %z",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
    "weekday": "%u %a",
    "hour_of_day": "%H",
}
"""Stretches of local time to slice by, and how one is written."""
_CYCLES: Final = ("weekday", "hour_of_day")
_EDGES: Final = np.array([math.nextafter(0.0, -1.0), 0.0, *(2.0**k for k in range(53))])
"""Upper edges of buckets: below zero, zero, then each twice the one before."""
_DERIVED: Final = {"uncached_input_tokens": ("input_tokens", "cached_input_tokens")}
_ORDER: Final = "__order_"


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
    """One quantile and its interval; ``None`` where the requests are too few for it."""

    q: float
    value: float | None
    low: float | None
    high: float | None


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
                    "quantiles": [
                        {"q": found.q, "value": found.value, "ci95": [found.low, found.high]}
                        for found in each.quantiles
                    ],
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
    if metric not in requests.columns or not requests.schema[metric].is_numeric():
        known = [name for name in requests.columns if name.endswith("_ms")]
        raise BadInput(f"no metric '{metric}'; there are: {', '.join(known)}")
    value = pl.col(metric).cast(pl.Float64)
    frame, not_sent = _labelled(requests, by, tz, rules)
    frame = frame.with_columns(
        pl.when(value.is_finite()).then(value).alias("__value"), _weight(requests)
    )
    if frame.filter((pl.col("__weight") < 0) | ~pl.col("__weight").is_finite()).height:
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
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
    frame, not_sent = _labelled(rows.filter(pl.col("metric") == metric), by, tz, rules)
    num = pl.col("num").sum().alias("__n")
    orders = [pl.col(name).min() for name in frame.columns if name.startswith(_ORDER)]
    totals = frame.group_by(by).agg(num, *orders) if by else frame.select(num)
    totals, num_left_out = _largest(totals, by, rules)
    parts = dict(minutes.counts(frame, by))
    found = tuple(
        _rolled(dict(zip(by, names, strict=True)), parts[names], rules)
        for names in (tuple(row[name] for name in by) for row in totals.iter_rows(named=True))
        if parts[names].num
    )
    return Slices(metric, tuple(by), minutes.ERROR, found, not_sent, num_left_out)


# --- slices ------------------------------------------------------------------------------------
def _weight(requests: pl.DataFrame) -> pl.Expr:
    if "weight" not in requests.columns:
        return pl.lit(1.0).alias("__weight")
    return pl.col("weight").cast(pl.Float64).fill_null(1.0).alias("__weight")


def _groups(
    frame: pl.DataFrame, by: Sequence[str], rules: SliceRules
) -> tuple[list[tuple[dict[str, str | None], list[float | None], list[float]]], int]:
    """Keys, sorted values (unknown last) and their weights of each slice; and how many more."""
    orders = [name for name in frame.columns if name.startswith(_ORDER)]
    if by:
        grouped = frame.group_by(by, maintain_order=True).agg(
            pl.col("__value", "__weight"),
            pl.len().alias("__n"),
            *(pl.col(name).min() for name in orders),
        )
    else:
        grouped = frame.select(pl.col("__value", "__weight").implode(), pl.len().alias("__n"))
    kept, num_left_out = _largest(grouped, by, rules)
    found = [
        ({name: row[name] for name in by}, row["__value"], row["__weight"])
        for row in kept.iter_rows(named=True)
        if row["__n"]
    ]
    return found, num_left_out


def _largest(
    grouped: pl.DataFrame, by: Sequence[str], rules: SliceRules
) -> tuple[pl.DataFrame, int]:
    largest = grouped.sort(["__n", *by], descending=[True, *(False for _ in by)], nulls_last=True)
    kept = largest.head(rules.max_slices)
    ordered = [f"{_ORDER}{name}" for name in by if f"{_ORDER}{name}" in grouped.columns]
    if ordered:
        keys = [f"{_ORDER}{name}" if f"{_ORDER}{name}" in ordered else name for name in by]
        kept = kept.sort(keys, nulls_last=True)
    return kept, grouped.height - kept.height


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
    total = float(weights.sum())
    quantiles = tuple(
        SliceQuantile(q, *_quantile(values, weights, total, q)) for q in rules.quantiles
    )
    greatest = float(values[-1]) if known else None
    return Slice(dict(where), known, total, num_unknown, quantiles, greatest)


def _rolled(where: dict[str, str | None], counted: minutes.Counts, rules: SliceRules) -> Slice:
    n, weight = sum(counted.num), sum(counted.weight_e6) / minutes.SCALE
    quantiles: list[SliceQuantile] = []
    for q in rules.quantiles:
        told = minutes.read(counted, q) if is_shown(n, q) else None
        ends = (None, None, None) if told is None else (told.value, told.low, told.high)
        quantiles.append(SliceQuantile(q, *ends))
    return Slice(where, n, weight, 0, tuple(quantiles), max(counted.max_ms))


def _quantile(
    values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]", total: float, q: float
) -> tuple[float | None, float | None, float | None]:
    n = len(values)
    if not is_shown(n, q):
        return None, None, None
    if np.all(weights == 1):
        low, high = rank_interval(n, q)
        ends = [None if at is None else float(values[at - 1]) for at in (low, high)]
        return float(values[rank(n, q) - 1]), ends[0], ends[1]
    upto = np.cumsum(weights)
    # as many equal ones would tell as much: Kish, Survey Sampling (1965), 11.7
    told = max(int(total**2 / float((weights**2).sum())), 1)
    low, high = rank_interval(told, q)

    def at_weight(weight: float) -> float:
        place = int(np.searchsorted(upto, weight * (1 - 1e-12), "left"))
        return float(values[min(place, n - 1)])

    ends = [None if at is None else at_weight(at * total / told) for at in (low, high)]
    return at_weight(q * total), ends[0], ends[1]


# --- labels ------------------------------------------------------------------------------------
def _labelled(
    frame: pl.DataFrame, by: Sequence[str], tz: str, rules: SliceRules
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The table with a text for each dimension, and a column to order derived ones by."""
    if len(set(by)) < len(by):
        raise BadInput(f"a dimension is named twice: {', '.join(by)}")
    for name, (whole, part) in _DERIVED.items():
        if name in by and name not in frame.columns and {whole, part} <= set(frame.columns):
            frame = frame.with_columns((pl.col(whole) - pl.col(part)).alias(name))
    columns: list[pl.Series] = []
    for name in by:
        if name in frame.columns and not frame.schema[name].is_numeric():
            columns.append(_frequent(frame[name].cast(pl.String), rules.max_values))
        elif name in frame.columns:
            columns += _buckets(frame[name].cast(pl.Float64))
        elif name in TIMES:
            columns += _local(frame["start_ns"], name, tz)
        else:
            known = ", ".join([*frame.columns, *TIMES])
            raise BadInput(f"no dimension '{name}'; there are: {known}")
    not_sent = tuple(
        column.name
        for column in columns
        if column.name in by and len(column) and column.null_count() == len(column)
    )
    return frame.with_columns(columns), not_sent


def _frequent(column: pl.Series, max_values: int) -> pl.Series:
    """The values, those beyond the most frequent as one."""
    if column.n_unique() <= max_values:
        return column
    counts = column.drop_nulls().value_counts(name="__n")
    kept = counts.sort(["__n", column.name], descending=[True, False]).head(max_values)
    is_kept = column.is_in(kept[column.name].implode()) | column.is_null()
    return column.zip_with(is_kept, pl.Series([OTHER])).alias(column.name)


def _buckets(column: pl.Series) -> list[pl.Series]:
    """A number's bucket, each twice as wide as the one before, and its place among them."""
    values = column.to_numpy()
    known = ~np.isnan(values)
    places = np.searchsorted(_EDGES, np.where(known, values, 0.0), "left")
    labels = {0: "<0", 1: "0", 2: "1", 3: "2"}
    labels |= {k: f"{2 ** (k - 3) + 1}-{2 ** (k - 2)}" for k in range(4, len(_EDGES) + 1)}
    texts = [
        labels[place] if is_known else None
        for place, is_known in zip(places.tolist(), known.tolist(), strict=True)
    ]
    order = [place if text is not None else None for place, text in zip(places, texts, strict=True)]
    return [
        pl.Series(column.name, texts, pl.String),
        pl.Series(f"{_ORDER}{column.name}", order, pl.Int64),
    ]


def _local(starts: pl.Series, name: str, tz: str) -> list[pl.Series]:
    """The stretch of local time a request starts in, and its place among them."""
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"no time zone '{tz}': name one as Europe/Berlin") from error
    local = starts.cast(pl.Datetime("ns")).dt.replace_time_zone("UTC").dt.convert_time_zone(tz)
    labels = local.dt.strftime(TIMES[name]).alias(name)
    order = labels.rank("dense").cast(pl.Int64) if name in _CYCLES else starts.cast(pl.Int64)
    if name == "weekday":
        labels = labels.str.slice(2)
    return [labels, order.alias(f"{_ORDER}{name}")]
