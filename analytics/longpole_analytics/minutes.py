"""Quantiles that merge: values counted in logarithmic buckets, by minute and slice.

One row holds how many values of a metric fell in one bucket in one minute of one slice, with their
sum, least and greatest (DDSketch, Masson, Rim & Lee, VLDB 2019). All counts and sums are whole
numbers, so rows of any shards merge to the same rows, bit by bit, in any order. A quantile is read
from merged rows to within 1 %, and its interval from the edges of the buckets in which the order
statistics lie. The store keeps such rows: its views ``minutes`` and ``hours``.

A request that stands for several (column ``weight``: traces were sampled) counts as many.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.errors import BadInput
from longpole_analytics.stats import BUCKET_GAMMA, bucket_value, rank_interval

MINUTE_NS: Final = 60_000_000_000
SCALE: Final = 1_000_000
"""Weights are kept in millionths, sums in nanoseconds: whole numbers."""
LONGEST_MS: Final = 1e12
"""What is longer (30 years) is no duration: a clock was not set."""
ERROR: Final = "+-1 %"
"""What is said beside a quantile of rolled up values."""
_COUNTS: Final = ("num", "weight_e6", "squares_e6", "sum_ns")


class Estimate(NamedTuple):
    """A quantile of rolled up values, to within 1 %.

    Attributes:
        n: values seen.
        weight: how many they stand for.
        value: the quantile.
        low: lower end of its 95 % interval; ``None`` where the sample is too small.
        high: its upper end.
    """

    n: int
    weight: float
    value: float
    low: float | None
    high: float | None


def bucket(column: str) -> pl.Expr:
    """The buckets of a column's values, as :func:`longpole_analytics.stats.bucket` has them."""
    value = pl.col(column)
    near = (value.log() / math.log(BUCKET_GAMMA)).ceil()
    gamma = pl.lit(BUCKET_GAMMA)
    index = (
        pl.when(value <= gamma.pow(near - 1))
        .then(near - 1)
        .when(value > gamma.pow(near))
        .then(near + 1)
        .otherwise(near)
    )
    return pl.when(value > 0).then(index.cast(pl.Int32)).alias("bucket")


def roll_up(frame: pl.DataFrame, metrics: Sequence[str], by: Sequence[str] = ()) -> pl.DataFrame:
    """The rows of a table of calls or requests; unknown, endless and absurd values are left out.

    Args:
        frame: has ``start_ns``, the metrics in milliseconds, the dimensions and perhaps
            ``weight``; a weight that is unknown counts 1.
        metrics: its columns to count.
        by: its columns that make a slice.

    Returns:
        ``start_ns`` of the minute, the dimensions, ``metric``, ``bucket`` (null: zero and less),
        ``num``, ``weight_e6``, ``squares_e6`` (of weights), ``sum_ns``, ``min_ms``, ``max_ms``.

    Raises:
        BadInput: a column is not there, or a weight is below zero.
    """
    missing = [name for name in ("start_ns", *metrics, *by) if name not in frame.columns]
    if missing:
        raise BadInput(f"no column {', '.join(missing)}: roll up what has it")
    weight = pl.lit(1.0) if "weight" not in frame.columns else pl.col("weight").cast(pl.Float64)
    long = (
        frame.with_columns(
            (pl.col("start_ns").cast(pl.Int64) // MINUTE_NS * MINUTE_NS).alias("start_ns"),
            weight.fill_nan(None).fill_null(1.0).alias("weight"),
        )
        .unpivot(
            on=list(metrics),
            index=["start_ns", *by, "weight"],
            variable_name="metric",
            value_name="value",
        )
        .with_columns(pl.col("value").cast(pl.Float64))
        .filter(pl.col("value").abs() < LONGEST_MS, pl.col("start_ns").is_not_null())
    )
    if long.filter((pl.col("weight") < 0) | pl.col("weight").is_infinite()).height:
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
    keys = ["start_ns", *by, "metric", "bucket"]
    weighted = pl.col("value") * pl.col("weight")
    rows = long.with_columns(bucket("value")).group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("num"),
        _whole(pl.col("weight")).sum().alias("weight_e6"),
        _whole(pl.col("weight") ** 2).sum().alias("squares_e6"),
        _whole(weighted).cast(pl.Int128).sum().alias("sum_ns"),
        pl.col("value").min().alias("min_ms"),
        pl.col("value").max().alias("max_ms"),
    )  # fmt: skip
    return rows.sort(keys, nulls_last=False)


def query(
    by: Sequence[str],
    *,
    is_timed: bool,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
    grain: str | None = None,
) -> str:
    """SQL over the store's views for the rows that :func:`estimate` and ``merge`` take.

    Whole hours are read as such, the minutes at both ends one by one, so that a month is read as
    fast as a day. A window that begins or ends within a minute has all of that minute.

    Args:
        by: columns to keep apart beside metric and bucket.
        is_timed: keep the hours apart too (the minutes at the ends are).
        where: a condition over the columns.
        since_ns: where the window begins; ``None`` is the beginning.
        until_ns: where it ends.
        grain: ``minutes`` reads minutes alone, as slices by the minute need.
    """
    rows = stretch(since_ns, until_ns, grain=grain)
    keys = ", ".join([*(["start_ns"] if is_timed else []), *by, "metric", "bucket"])
    sums = "sum(num)::BIGINT AS num, sum(sum_ms) AS sum_ms"
    ends = "min(min_ms) AS min_ms, max(max_ms) AS max_ms"
    return (
        f"SELECT {keys}, {sums}, {ends} FROM ({rows}) "  # noqa: S608 - a reader may ask anything
        f"WHERE ({where or 'true'}\n) GROUP BY {keys}"
    )


def stretch(
    since_ns: int | None,
    until_ns: int | None,
    *,
    grain: str | None = None,
    views: tuple[str, str] = ("minutes", "hours"),
) -> str:
    """SELECT of the rows of a window, as :func:`query` reads them.

    Args:
        since_ns: where the window begins; ``None`` is the beginning.
        until_ns: where it ends.
        grain: ``minutes`` reads minutes alone.
        views: by the minute and by the hour; ``stage_minutes`` and ``stage_hours`` are such too.
    """
    hour_ns = 60 * MINUTE_NS
    first = None if since_ns is None else since_ns // MINUTE_NS * MINUTE_NS
    end = None if until_ns is None else -(-until_ns // MINUTE_NS) * MINUTE_NS
    whole_since = None if first is None else -(-first // hour_ns) * hour_ns
    whole_until = None if end is None else end // hour_ns * hour_ns
    by_minute, by_hour = views
    parts: list[str] = []
    if grain == "minutes":
        parts.append(_part(by_minute, first, end))
    elif whole_since is None or whole_until is None or whole_since < whole_until:
        parts.append(_part(by_hour, whole_since, whole_until))
        if first != whole_since:
            parts.append(_part(by_minute, first, whole_since))
        if end != whole_until:
            parts.append(_part(by_minute, whole_until, end))
    else:
        parts.append(_part(by_minute, first, end))
    return " UNION ALL ".join(parts)


def _part(view: str, since_ns: int | None, until_ns: int | None) -> str:
    inside = [f"start_ns >= {since_ns}"] if since_ns is not None else []
    inside += [f"start_ns < {until_ns}"] if until_ns is not None else []
    return f"SELECT * FROM {view} WHERE {' AND '.join(inside) or 'true'}"  # noqa: S608 - our own words


def merge(shards: Sequence[pl.DataFrame], by: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of several shards as one, in order; all minutes of a slice as one with ``by``.

    Args:
        shards: rows as :func:`roll_up` gives them, or the store has them.
        by: what to keep apart beside metric and bucket; ``None`` keeps all that is apart.
    """
    rows = pl.concat([_complete(shard) for shard in shards])
    if by is None:
        counted = {*_COUNTS, "min_ms", "max_ms"}
        keys = [name for name in rows.columns if name not in counted]
    else:
        keys = [*by, "metric", "bucket"]
    sums = [pl.col(name).sum() for name in _COUNTS]
    merged = rows.group_by(keys).agg(*sums, pl.col("min_ms").min(), pl.col("max_ms").max())
    return merged.sort(keys, nulls_last=False)


class Counts(NamedTuple):
    """What is needed of a slice: its buckets in order, the null one first, and what is in each."""

    bucket: Sequence[int | None]
    num: Sequence[int]
    weight_e6: Sequence[int]
    squares_e6: Sequence[int]
    max_ms: Sequence[float]


def counts(rows: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Counts]]:
    """The counts of each slice of rows of one metric, with the values that make the slice."""
    sums = [pl.col(name).sum() for name in ("num", "weight_e6", "squares_e6")]
    merged = _complete(rows).group_by([*by, "bucket"]).agg(*sums, pl.col("max_ms").max())
    merged = merged.sort([*by, "bucket"], nulls_last=False)
    listed = [pl.col(name) for name in Counts._fields]
    if by:
        merged = merged.group_by(by, maintain_order=True).agg(listed)
    else:
        merged = merged.select(column.implode() for column in listed)
    for row in merged.iter_rows():
        yield row[: len(by)], Counts(*row[len(by) :])


def estimate(rows: pl.DataFrame, q: float) -> Estimate | None:
    """A quantile of the values that rows of one metric hold; ``None`` of no values."""
    ((_, found),) = counts(rows, ())
    return read(found, q)


def read(found: Counts, q: float) -> Estimate | None:
    """A quantile of counted values; ``None`` of no values."""
    upto = list(accumulate(found.weight_e6))
    if not upto or upto[-1] == 0:
        return None
    weight = upto[-1]

    def place(rank_e6: int) -> int:
        return bisect_left(upto, min(max(rank_e6, 1), weight))

    def edge(index: int, step: int) -> float:
        at = found.bucket[index]
        # what is zero or less lies in no bucket and is told by its greatest
        return found.max_ms[index] if at is None else BUCKET_GAMMA ** (at + step)

    middle = place(_rank_e6(weight, q))
    at = found.bucket[middle]
    value = edge(middle, 0) if at is None else bucket_value(at)
    # how many equal values tell as much: Kish, Survey Sampling (1965), 11.7
    told = max(weight**2 // (sum(found.squares_e6) * SCALE), 1)
    low, high = rank_interval(told, q)
    per_rank = weight / told
    return Estimate(
        sum(found.num),
        weight / SCALE,
        value,
        None if low is None else edge(place(math.ceil(low * per_rank)), -1),
        None if high is None else edge(place(math.ceil(high * per_rank)), 0),
    )


def mean_ms(rows: pl.DataFrame) -> float | None:
    """The mean of the values that rows of one metric hold, exactly; ``None`` of no values."""
    rows = _complete(rows)
    weight = int(rows["weight_e6"].sum())
    return int(rows["sum_ns"].sum()) / weight if weight else None


def _rank_e6(weight_e6: int, q: float) -> int:
    """Nearest rank, in millionths; of whole weights as :func:`longpole_analytics.stats.rank`."""
    rank = round(q * weight_e6 / SCALE, 9)
    return math.ceil(rank) * SCALE if weight_e6 % SCALE == 0 else math.ceil(rank * SCALE)


def _complete(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the store count requests of weight 1."""
    if "weight_e6" in rows.columns:
        return rows
    whole = (pl.col("num") * SCALE).cast(pl.Int64)
    sums = (pl.col("sum_ms") * SCALE).round().cast(pl.Int128)
    return rows.with_columns(
        whole.alias("weight_e6"), whole.alias("squares_e6"), sums.alias("sum_ns")
    ).drop("sum_ms")


def _whole(value: pl.Expr) -> pl.Expr:
    return (value * SCALE).round().cast(pl.Int64)
