"""The Overview's numbers from what is counted by the minute and the hour, in a moment.

Quantiles are to within 1 %, sums and numbers exact, of all minutes that are over.

Reading ten million calls to sort them takes longer than anybody waits. What is rolled up already
is read instead where it holds nearly all of the window. A collector that samples counts before it
drops, so of what it sampled the counts know more than what was kept, however little that is.
"""

from math import sqrt
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics import minutes
from longpole_analytics.minutes import Counts
from longpole_analytics.stats import bucket_value
from longpole_analytics.weighted import Z_95
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.grid import Grid
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.sampled import Size
from longpole_dashboard.model.window import Filters

FROM_CALLS: Final = 200_000
"""Windows with fewer calls, all of them kept, are read exactly."""
MIN_COVERED: Final = 0.95
"""Part of the window's workflows that must be rolled up: the last minutes are not."""
NUM_POINTS: Final = 24
"""Points of a line of a slice."""
_SLICE: Final = ("route", "prompt_version")


def counted(filters: Filters, size: Size, reader: Reader) -> pl.DataFrame | None:
    """The counts of a large or a sampled window by slice and metric.

    Args:
        filters: the window.
        size: what it holds.
        reader: the store.

    Returns:
        ``None`` where all calls can be read instead, or the counts lack a part of the window.
    """
    if not filters.fits_minutes(of_calls=False):
        return None
    if not (_is_even(filters) if size.is_sampled else size.num_calls >= FROM_CALLS):
        return None
    rows = _rows(filters, reader)
    num = rows.filter(pl.col("metric") == "wall_ms")["num"].sum() or 0
    return rows if _is_whole(int(num), size) else None


def _is_even(filters: Filters) -> bool:
    """Whether the whole minutes around a window are hardly longer than it."""
    minute_ns = minutes.MINUTE_NS
    more_ns = filters.start_ns % minute_ns + -filters.end_ns % minute_ns
    return more_ns <= (1 - MIN_COVERED) * (filters.end_ns - filters.start_ns)


def _is_whole(num: int, size: Size) -> bool:
    """Whether so many counted workflows are nearly all that came.

    How many came is known but by chance where they were sampled. What a sender dropped is not
    counted either: then the counts are as many as were kept.
    """
    least = MIN_COVERED * size.stood_for
    if size.is_sampled:
        least -= Z_95 * sqrt(max(size.variance, 0.0))
        least = max(least, (size.num_kept + size.stood_for) / 2)
    return num >= least


def whole(filters: Filters, reader: Reader) -> pl.DataFrame:
    """As :func:`counted`, however much of the window is."""
    return _rows(filters, reader)


def measured(rows: pl.DataFrame) -> dict[str, Counts]:
    """The counted values of each metric, of all slices; metrics without values are absent."""
    return {
        str(metric): found
        for (metric,), part in _counts(rows).group_by("metric")
        for _, found in minutes.counts(part, ())
    }


def sliced(rows: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, Counts]]:
    """The same of each route and prompt version."""
    found: dict[tuple[Any, ...], dict[str, Counts]] = {}
    for (metric,), part in _counts(rows).group_by("metric"):
        for slice_, of_slice in minutes.counts(part, _SLICE):
            found.setdefault(slice_, {})[str(metric)] = of_slice
    return found


_STAGES: Final = """
SELECT {number} AS bin, stage,
       sum(num)::BIGINT AS num, sum(critical_ns)::HUGEINT / 1e6 AS ms
FROM ({rows}) WHERE {matches} GROUP BY ALL ORDER BY bin
"""


def stages(
    filters: Filters, places: Grid, size: Size, reader: Reader
) -> list[dict[str, Any]] | None:
    """Sums of the critical path by number of the stretch (``bin``) and ``stage``, exactly.

    The row without a stage counts all workflows of the stretch. Times are in ms.

    Args:
        filters: the window.
        places: the stretches.
        size: what the window holds.
        reader: the store.

    Returns:
        ``None`` where the stretches are no whole minutes, or the counts lack a part of the window.
    """
    if not places.has_grain(minutes.MINUTE_NS) or not filters.fits_minutes(of_calls=False):
        return None
    if size.is_sampled and not _is_even(filters):
        return None
    matches, params = filters.matching("minutes")
    rows = minutes.stretch(
        filters.start_ns,
        filters.end_ns,
        grain=None if places.has_grain(60 * minutes.MINUTE_NS) else "minutes",
        views=("stage_minutes", "stage_hours"),
    )
    asked = _STAGES.format(number=places.number, rows=rows, matches=matches)
    found: list[dict[str, Any]] = reader.sql(asked, params).to_pylist()
    num = sum(row["num"] for row in found if row["stage"] is None)
    return found if _is_whole(num, size) else None


def quantile(found: Counts | None, per_mille: int) -> Quantile:
    """A quantile of counted values, to within 1 %; of none where there are no values."""
    told = None if found is None else minutes.read(found, per_mille / 1000)
    if found is None or told is None:
        return Quantile(per_mille, 0, None, None, None, None)
    return Quantile(per_mille, told.n, told.value, told.low, told.high, max(found.max_ms))


def lines(
    rows: pl.DataFrame, filters: Filters
) -> tuple[dict[tuple[Any, ...], list[tuple[int, float | None]]], int]:
    """p50 TTFT of each slice by stretch of the window, from :func:`counted`; and the stretches.

    At most :data:`NUM_POINTS`, each of whole minutes, or hours where the window is long.
    """
    found: dict[tuple[Any, ...], list[tuple[int, float | None]]] = {}
    points = rows.filter(pl.col("place").is_not_null()).select(*_SLICE, "place", "bucket")
    for *slice_, place, bucket in points.iter_rows():
        value = None if bucket is None else bucket_value(bucket)
        found.setdefault(tuple(slice_), []).append((place, value))
    return found, _stretches(filters).num


def _counts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("place").is_null())


class _Stretches(NamedTuple):
    """Where the points of a line lie."""

    first_ns: int
    width_ns: int
    num: int


def _stretches(filters: Filters) -> _Stretches:
    length_ns = filters.end_ns - filters.start_ns
    is_long = length_ns > 2 * NUM_POINTS * 60 * minutes.MINUTE_NS
    grain_ns = 60 * minutes.MINUTE_NS if is_long else minutes.MINUTE_NS
    first_ns = filters.start_ns // grain_ns * grain_ns
    grains = -(-(filters.end_ns - first_ns) // grain_ns)
    width = max(1, -(-grains // NUM_POINTS))
    return _Stretches(first_ns, width * grain_ns, -(-grains // width))


_ROWS: Final = f"""
WITH b AS MATERIALIZED (
    SELECT route, prompt_version, metric, bucket,
           CASE WHEN metric = 'ttft_ms' THEN (start_ns - $first) // $width END AS place,
           sum(num)::BIGINT AS num, max(max_ms) AS max_ms
    FROM ({{rows}}) WHERE {{matches}} GROUP BY ALL),
c AS (
    SELECT route, prompt_version, place, bucket,
           sum(num) OVER (PARTITION BY route, prompt_version, place
                          ORDER BY bucket NULLS FIRST) AS upto,
           sum(num) OVER (PARTITION BY route, prompt_version, place) AS total
    FROM b WHERE place IS NOT NULL)
SELECT route, prompt_version, metric, bucket, NULL AS place, sum(num)::BIGINT AS num,
       sum(num)::BIGINT * {minutes.SCALE} AS weight_e6,
       sum(num)::BIGINT * {minutes.SCALE} AS squares_e6, max(max_ms) AS max_ms
FROM b GROUP BY ALL
UNION ALL BY NAME
SELECT route, prompt_version, place,
       CASE WHEN count(bucket) = count(*) THEN min(bucket) END AS bucket
FROM c WHERE upto >= ceil(total * 0.5) GROUP BY ALL
"""  # noqa: S608 - our own words
"""A row with a place is no count: its bucket is the median TTFT of that stretch."""


def _rows(filters: Filters, reader: Reader) -> pl.DataFrame:
    """The counts by slice, metric and bucket; and the median TTFT by slice and stretch."""
    matches, params = filters.matching("minutes")
    first_ns, width_ns, _ = _stretches(filters)
    rows = minutes.stretch(filters.start_ns, filters.end_ns)
    asked = _ROWS.format(rows=rows, matches=matches)
    frame = pl.from_arrow(reader.sql(asked, {**params, "first": first_ns, "width": width_ns}))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
