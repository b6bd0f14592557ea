"""Requests labelled by slice: values of dimensions, buckets of numbers, stretches of local time."""

import math
from collections.abc import Sequence
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from longpole.errors import BadInput

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
ORDER: Final = "__order_"
"""How the columns begin that derived labels are ordered by."""
_CYCLES: Final = ("weekday", "hour_of_day")
_EDGES: Final = np.array([math.nextafter(0.0, -1.0), 0.0, *(2.0**k for k in range(53))])
"""Upper edges of buckets: below zero, zero, then each twice the one before."""
DERIVED: Final = {"uncached_input_tokens": ("input_tokens", "cached_input_tokens")}
"""Numbers to slice by that are the difference of two columns."""


def labelled(
    frame: pl.DataFrame, by: Sequence[str], tz: str, max_values: int
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The table with a text for each dimension, and a column to order derived ones by.

    Args:
        frame: rows with the columns that are asked for.
        by: dimensions, numbers or stretches of local time.
        tz: the time zone of the latter.
        max_values: values of one dimension that are kept apart, the most frequent ones.

    Returns:
        The table, and the dimensions of which no row has a value.

    Raises:
        BadInput: a column or the zone is not there.
    """
    if len(set(by)) < len(by):
        raise BadInput(f"a dimension is named twice: {', '.join(by)}")
    for name, (whole, part) in DERIVED.items():
        if name in by and name not in frame.columns and {whole, part} <= set(frame.columns):
            frame = frame.with_columns((pl.col(whole) - pl.col(part)).alias(name))
    columns: list[pl.Series] = []
    for name in by:
        if name in frame.columns and not frame.schema[name].is_numeric():
            columns.append(_frequent(frame[name].cast(pl.String), max_values))
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
        pl.Series(f"{ORDER}{column.name}", order, pl.Int64),
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
    return [labels, order.alias(f"{ORDER}{name}")]


def largest(grouped: pl.DataFrame, by: Sequence[str], max_slices: int) -> tuple[pl.DataFrame, int]:
    """The slices with most rows (``__n``), derived ones in their own order, and how many more."""
    ranked = grouped.sort(["__n", *by], descending=[True, *(False for _ in by)], nulls_last=True)
    kept = ranked.head(max_slices)
    ordered = [f"{ORDER}{name}" for name in by if f"{ORDER}{name}" in grouped.columns]
    if ordered:
        keys = [f"{ORDER}{name}" if f"{ORDER}{name}" in ordered else name for name in by]
        kept = kept.sort(keys, nulls_last=True)
    return kept, grouped.height - kept.height


def weights(requests: pl.DataFrame) -> pl.Expr:
    """How many requests each row stands for, as ``__weight``; 1 where it does not say.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    if "weight" not in requests.columns:
        return pl.lit(1.0).alias("__weight")
    weight = pl.col("weight").cast(pl.Float64).fill_null(1.0)
    if requests.filter((weight < 0) | ~weight.is_finite()).height:
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
    return weight.alias("__weight")


def checked_metric(requests: pl.DataFrame, metric: str) -> None:
    """Refuse what is no column of numbers.

    Raises:
        BadInput: it is none; says what there is.
    """
    if metric not in requests.columns or not requests.schema[metric].is_numeric():
        known = [name for name in requests.columns if name.endswith("_ms")]
        raise BadInput(f"no metric '{metric}'; there are: {', '.join(known)}")
