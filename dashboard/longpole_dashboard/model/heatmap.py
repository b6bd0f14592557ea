"""The map of time by metric: how many workflows began when and took how long.

A workflow counts by its slowest call where the metric is a call's, as everywhere that single
workflows are looked at; one that is not complete does not count. One that stands for several, as
traces were sampled, counts as many.
"""

from dataclasses import dataclass, field
from math import exp, log
from time import time_ns
from typing import Any, Final

from longpole_collector.stores.base import Reader
from longpole_dashboard.model import sampled
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.sampled import CALLS, SIZE, size_of
from longpole_dashboard.model.window import Filters, overlapping

MAX_COLUMNS: Final = 160
MAX_ROWS: Final = 48
MAX_CALLS: Final = 1_500_000
"""A call's metric is looked for among so many calls at most: more take too long."""
MIN_BOXED: Final = 30
"""Fewer workflows than that say nothing in per cent."""
_LEAST_STEP: Final = 0.01
_NEVER: Final = 1e308
_QUANTILES: Final = (0.99, 0.95, 0.9, 0.5)


@dataclass(frozen=True)
class Metric:
    """What the map may show.

    Attributes:
        name: as requests, objectives and addresses call it.
        label: as the page does.
        unit: ``ms`` or ``USD``.
        column: of the view.
        is_of_calls: it is a call's, and a workflow counts by its slowest one.
    """

    name: str
    label: str
    unit: str
    column: str
    is_of_calls: bool = False


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("ttft_ms", "TTFT", "ms", "ttft_ms", is_of_calls=True),
        Metric("tpot_ms", "TPOT, per token", "ms", "tpot_ms", is_of_calls=True),
        Metric("e2e_ms", "workflow", "ms", "wall_ms"),
        Metric("ttfv_ms", "first visible text", "ms", "ttfv_ms", is_of_calls=True),
        Metric("time_to_useful_ms", "time to useful output", "ms", "time_to_useful_ms"),
        Metric("time_to_accepted_ms", "time to acceptance", "ms", "time_to_accepted_ms"),
        Metric("cost_usd", "cost", "USD", "cost_usd"),
    )
}
ALIASES: Final = {"wall_ms": "e2e_ms"}


@dataclass(frozen=True)
class Heat:
    """The map.

    Attributes:
        filters: what was looked at.
        metric: its name.
        num: workflows that have the metric.
        num_flat: those of them at zero, which a logarithmic axis cannot show.
        num_unknown: workflows of the window that have it not, or are not complete.
        width_ns: of a column.
        low: value where the first row begins.
        step: ratio of a row's edges.
        cells: (column, row, workflows) from 0.
        objective: what the metric should stay under; ``None`` without an objective.
        quantile: the highest quantile above which enough workflows lie to compare them; ``None``
            of too few.
        threshold: the value there.
        num_above: workflows above the objective.
        num_calls: calls of the window, where they are too many for the map; else 0.
        num_kept: how many workflows the ``num`` are told by, where not all were kept.
        read_ns: when it was read.
    """

    filters: Filters
    metric: str
    num: float = 0
    num_flat: float = 0
    num_unknown: int = 0
    width_ns: int = 1
    low: float = 1.0
    step: float = 1.0
    cells: tuple[tuple[int, int, float], ...] = ()
    objective: float | None = None
    quantile: float | None = None
    threshold: float | None = None
    num_above: float = 0
    num_calls: int = 0
    num_kept: int | None = None
    read_ns: int = field(default_factory=time_ns, compare=False)

    @property
    def slow(self) -> Box | None:
        """The slow region: above the objective if some are, else above the quantile."""
        if self.objective is not None and self.num_above:
            return Box(low=self.objective)
        return None if self.threshold is None else Box(low=self.threshold)

    @property
    def sampled(self) -> str | None:
        """How workflows were sampled, a sentence; ``None`` where all are here."""
        if self.num_kept is None:
            return None
        return sampled.sentence(self.num_kept, self.num, "workflows")

    @property
    def num_rows(self) -> int:
        """Rows of the map."""
        return 1 + max((row for _, row, _ in self.cells), default=0)


def points(
    filters: Filters, metric: Metric, *, is_above: bool = False, is_weighed: bool = False
) -> str:
    """SQL: ``trace_id``, ``start_ns`` and ``value`` of each complete workflow with the metric.

    ``is_above``: of those only that lie above ``$box_low``. What is not above it need not be
    gathered by workflow, which takes longest: the slowest of all calls is the slowest of these.
    ``is_weighed``: with its ``weight``.
    """
    known = f"{metric.column} > $box_low" if is_above else f"{metric.column} IS NOT NULL"
    whole = "NOT coalesce(list_contains(flags, 'incomplete_trace'), false)"
    chosen = f"FROM traces WHERE {filters.on('traces')} AND {whole}"
    weight = ", weight" if is_weighed else ""
    if not metric.is_of_calls:
        value = f"{metric.column} AS value{weight}"
        return f"SELECT trace_id, start_ns, {value} {chosen} AND {known}"
    slowest = (
        f"SELECT trace_id, max({metric.column}) AS value FROM calls WHERE {overlapping()} "  # noqa: S608 - our own words
        f"AND {known} GROUP BY trace_id"
    )
    return (
        f"SELECT trace_id, t.start_ns, c.value{weight} "  # noqa: S608
        f"FROM (SELECT trace_id, start_ns{weight} {chosen}) AS t "
        f"JOIN ({slowest}) AS c USING (trace_id)"
    )


_CELLS: Final = """
WITH p AS MATERIALIZED ({points}),
e AS ({extent}),
c AS (
    SELECT (p.start_ns - $start) // $width AS x,
           least(floor(ln(value / low) / greatest(ln(high / low) / $rows, $least)),
                 $rows - 1)::BIGINT AS y,
           {num} AS n
    FROM p, e WHERE value > 0 GROUP BY x, y)
SELECT e.*, x, y, n FROM e LEFT JOIN c ON true ORDER BY x, y
"""
_EXTENT: Final = """
    SELECT count(*) AS num, count(*) FILTER (value <= 0) AS num_flat,
           min(value) FILTER (value > 0) AS low, max(value) AS high,
           count(*) FILTER (value > $objective) AS num_above,
           quantile_disc(value, [0.99, 0.95, 0.9, 0.5]) AS quantiles
    FROM p
"""
_REACHED: Final = "upto >= {q} * total * (1 - 1e-12)"
_WEIGHED_EXTENT: Final = f"""
    SELECT max(total) AS num, count(*) AS num_kept,
           coalesce(sum(weight) FILTER (value <= 0), 0) AS num_flat,
           min(value) FILTER (value > 0) AS low, max(value) AS high,
           coalesce(sum(weight) FILTER (value > $objective), 0) AS num_above,
           [{", ".join(f"min(value) FILTER ({_REACHED.format(q=q)})" for q in _QUANTILES)}]
               AS quantiles,
           [{", ".join(f"min(place) FILTER ({_REACHED.format(q=q)})" for q in _QUANTILES)}]
               AS places
    FROM (SELECT value, weight, sum(weight) OVER (ORDER BY value) AS upto,
                 count(*) OVER (ORDER BY value) AS place, sum(weight) OVER () AS total
          FROM p)
"""  # noqa: S608 - our own words
"""Quantiles are elements of nearest rank by weight, as ``longpole_analytics.weighted`` has them; a
place is how many workflows lie up to one."""


def heatmap(filters: Filters, name: str, objective: float | None, reader: Reader) -> Heat:
    """The map of a metric, at most 160 by 48 cells; without cells where nothing has the metric.

    Args:
        filters: which workflows.
        name: a key of :data:`METRICS`.
        objective: what the metric should stay under.
        reader: the store.
    """
    metric = METRICS[name]
    width_ns = max(1, -(-(filters.end_ns - filters.start_ns) // MAX_COLUMNS))
    params = {
        **filters.params,
        "objective": _NEVER if objective is None else objective,
        "width": width_ns,
        "rows": MAX_ROWS,
        "least": _LEAST_STEP,
    }
    asked = f"SELECT {SIZE}, {CALLS} FROM traces WHERE {filters.on('traces')}"  # noqa: S608 - ours
    size = size_of(reader.sql(asked, filters.params).to_pylist()[0])
    if metric.is_of_calls and size.num_calls > MAX_CALLS:
        return Heat(filters, name, num_unknown=round(size.num_traces), num_calls=size.num_calls)
    query = _CELLS.format(
        points=points(filters, metric, is_weighed=size.is_sampled),
        extent=_WEIGHED_EXTENT if size.is_sampled else _EXTENT,
        num="sum(weight)" if size.is_sampled else "count(*)",
    )
    rows = reader.sql(query, params).to_pylist()
    first = rows[0]
    num = first["num"] or 0
    kept = first["num_kept"] if size.is_sampled else None
    quantile, threshold = _supported(num, first["quantiles"])
    if kept is not None:
        quantile, threshold = _carried(kept, first["places"], first["quantiles"])
    low = first["low"] or 1.0
    step = max(log((first["high"] or low) / low) / MAX_ROWS, _LEAST_STEP)
    return Heat(
        filters,
        name,
        num,
        first["num_flat"],
        max(0, round(size.num_traces - num)),
        width_ns,
        low,
        exp(step),
        tuple((row["x"], row["y"], row["n"]) for row in rows if row["n"] is not None),
        objective,
        quantile,
        threshold,
        first["num_above"],
        num_kept=kept,
    )


def _supported(num: int, values: Any) -> tuple[float | None, float | None]:
    """The highest quantile above which enough lie, and the value there."""
    for q, value in zip(_QUANTILES, values or (), strict=False):
        if round(num * (1 - q), 9) >= MIN_BOXED:
            return q, value
    return None, None


def _carried(num_kept: int, places: Any, values: Any) -> tuple[float | None, float | None]:
    """The same where not all were kept: those that are there are compared."""
    for q, place, value in zip(_QUANTILES, places, values, strict=True):
        if place is not None and num_kept - place >= MIN_BOXED:
            return q, value
    return None, None


def edge(heat: Heat, row: int) -> float:
    """The value at which a row begins."""
    return heat.low * heat.step**row


def column_ns(heat: Heat, column: int) -> int:
    """When a column begins."""
    return heat.filters.start_ns + column * heat.width_ns


def box_condition(box: Box) -> tuple[str, dict[str, int | float]]:
    """SQL on :func:`points` for a box, and its parameters."""
    parts = {
        "start_ns >= $box_start": ("box_start", box.start_ns),
        "start_ns < $box_end": ("box_end", box.end_ns),
        "value > $box_low": ("box_low", box.low),
        "value <= $box_high": ("box_high", box.high),
    }
    given = {part: pair for part, pair in parts.items() if pair[1] is not None}
    params = {name: value for name, value in given.values() if value is not None}
    return " AND ".join(given) or "true", params
