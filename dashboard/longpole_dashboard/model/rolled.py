"""The Overview's numbers from the views ``minutes`` and ``hours``: to within 1 %, in a moment.

Reading ten million calls to sort them takes longer than anybody waits. What is rolled up already
is read instead where it holds nearly all of the window.
"""

from typing import Any, Final

import polars as pl

from longpole_analytics import minutes
from longpole_analytics.minutes import Counts
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.window import Filters

FROM_CALLS: Final = 200_000
"""Windows with fewer calls are read exactly."""
MIN_COVERED: Final = 0.95
"""Part of the window's workflows that must be rolled up: the last minutes are not."""
NUM_POINTS: Final = 24
"""Points of a line of a slice."""
_SLICE: Final = ("route", "prompt_version")


def covers(filters: Filters, num_traces: int, num_calls: int, reader: Reader) -> bool:
    """Whether the rolled up views hold nearly all of a window that is large."""
    if num_calls < FROM_CALLS or not filters.fits_minutes(of_calls=False):
        return False
    rows = _rows(filters, (), reader, "metric = 'wall_ms'")
    return int(rows["num"].sum() or 0) >= MIN_COVERED * num_traces


def measured(filters: Filters, reader: Reader) -> dict[str, Counts]:
    """The counted values of each metric of a window; metrics without values are absent."""
    rows = _rows(filters, (), reader)
    return {
        str(metric): found
        for (metric,), part in rows.group_by("metric")
        for _, found in minutes.counts(part.drop("metric"), ())
    }


def sliced(filters: Filters, reader: Reader) -> dict[tuple[Any, ...], dict[str, Counts]]:
    """The same of each route and prompt version."""
    found: dict[tuple[Any, ...], dict[str, Counts]] = {}
    for (metric,), part in _rows(filters, _SLICE, reader).group_by("metric"):
        for slice_, counted in minutes.counts(part.drop("metric"), _SLICE):
            found.setdefault(slice_, {})[str(metric)] = counted
    return found


def quantile(found: Counts | None, per_mille: int) -> Quantile:
    """A quantile of counted values, to within 1 %; of none where there are no values."""
    told = None if found is None else minutes.read(found, per_mille / 1000)
    if found is None or told is None:
        return Quantile(per_mille, 0, None, None, None, None)
    return Quantile(per_mille, told.n, told.value, told.low, told.high, max(found.max_ms))


_LINES: Final = """
WITH b AS (
    SELECT route, prompt_version, (start_ns - $first) // $width AS place, bucket, sum(num) AS n
    FROM {view} WHERE metric = 'ttft_ms' AND start_ns >= $first AND start_ns < $last AND {matches}
    GROUP BY ALL),
c AS (
    SELECT *, sum(n) OVER (PARTITION BY route, prompt_version, place
                           ORDER BY bucket NULLS FIRST) AS upto,
           sum(n) OVER (PARTITION BY route, prompt_version, place) AS total
    FROM b)
SELECT route, prompt_version, place, log_value(min(bucket)) AS value
FROM c WHERE upto >= ceil(total * 0.5) GROUP BY route, prompt_version, place
"""


def lines(filters: Filters, reader: Reader) -> tuple[list[dict[str, Any]], int]:
    """p50 TTFT of each slice (``value``) by stretch of the window (``place``), and the stretches.

    At most :data:`NUM_POINTS`, each of whole minutes, or hours where the window is long.
    """
    matches, params = filters.matching("minutes")
    length_ns = filters.end_ns - filters.start_ns
    is_long = length_ns > 2 * NUM_POINTS * 60 * minutes.MINUTE_NS
    grain_ns = 60 * minutes.MINUTE_NS if is_long else minutes.MINUTE_NS
    first_ns = filters.start_ns // grain_ns * grain_ns
    grains = -(-(filters.end_ns - first_ns) // grain_ns)
    width = -(-grains // NUM_POINTS)
    given = {**params, "first": first_ns, "last": filters.end_ns, "width": width * grain_ns}
    asked = _LINES.format(view="hours" if is_long else "minutes", matches=matches)
    rows: list[dict[str, Any]] = reader.sql(asked, given).to_pylist()
    return rows, -(-grains // width)


def _rows(
    filters: Filters, by: tuple[str, ...], reader: Reader, also: str = "true"
) -> pl.DataFrame:
    matches, params = filters.matching("minutes")
    asked = minutes.query(
        by,
        is_timed=False,
        where=f"{matches} AND {also}",
        since_ns=filters.start_ns,
        until_ns=filters.end_ns,
    )
    frame = pl.from_arrow(reader.sql(asked, params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
