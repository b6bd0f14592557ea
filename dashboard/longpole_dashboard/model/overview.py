"""What the Overview shows: cards, slices, where the time went over time, the slowest traces."""

from dataclasses import dataclass
from typing import Final

from longpole_collector.stores.base import Reader
from longpole_dashboard.model import quantiles
from longpole_dashboard.model.cards import Card, cards
from longpole_dashboard.model.quantiles import P50, P99, Quantile
from longpole_dashboard.model.window import IN_WINDOW, SECOND_NS, Filters

MAX_SLICES: Final = 50
MAX_SLOWEST: Final = 50
MAX_BINS: Final = 120
TRACES_PER_BIN: Final = 5
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 28)),
)


@dataclass(frozen=True)
class Slice:
    """One route and prompt version: how many, how fast; ``None`` where the name is unknown."""

    route: str | None
    prompt_version: str | None
    num_workflows: int
    num_calls: int
    ttft_p50: Quantile
    ttft_p99: Quantile
    wall_p50: Quantile
    wall_p99: Quantile


@dataclass(frozen=True)
class Bin:
    """Traces that start in one stretch of time: mean critical ms per stage (absent: none)."""

    start_ns: int
    num_traces: int
    mean_ms: dict[str, float]


@dataclass(frozen=True)
class SlowTrace:
    """One row of the slowest traces."""

    trace_id: str
    start_ns: int
    route: str | None
    prompt_version: str | None
    wall_ms: float
    long_pole: str
    long_pole_ratio: float | None
    outcome: str | None


@dataclass(frozen=True)
class Overview:
    """Everything on the page; ``num_traces`` 0 means there is nothing in the window."""

    filters: Filters
    num_traces: int
    cards: tuple[Card, ...]
    slices: tuple[Slice, ...]
    bin_s: int
    bins: tuple[Bin, ...]
    slowest: tuple[SlowTrace, ...]


def overview(filters: Filters, reader: Reader) -> Overview:
    """The page's content for these filters; empty lists where nothing matches."""
    extent = reader.sql(
        "SELECT count(*) AS n, min(start_ns) AS first_ns, max(start_ns) AS last_ns "  # noqa: S608
        f"FROM traces WHERE {IN_WINDOW}",
        filters.params,
    ).to_pylist()[0]
    num_traces = extent["n"]
    if not num_traces:
        return Overview(filters, 0, (), (), 1, (), ())
    bin_s = bin_width_s(extent["last_ns"] - extent["first_ns"], num_traces)
    return Overview(
        filters,
        num_traces,
        cards(filters, reader),
        slices(filters, reader),
        bin_s,
        stage_bins(filters, bin_s, reader),
        slowest(filters, reader),
    )


_SLICES = f"""
WITH calls_of AS (
    SELECT route, prompt_version, {quantiles.sorted_list("ttft_ms", "ttft")}, count(*) AS num_calls
    FROM calls WHERE {IN_WINDOW} GROUP BY route, prompt_version),
traces_of AS (
    SELECT route, prompt_version, {quantiles.sorted_list("wall_ms", "wall")}
    FROM traces WHERE {IN_WINDOW} GROUP BY route, prompt_version)
SELECT coalesce(c.route, t.route) AS route,
       coalesce(c.prompt_version, t.prompt_version) AS prompt_version,
       coalesce(num_calls, 0) AS num_calls,
       {quantiles.columns("ttft", P50, P99)}, {quantiles.columns("wall", P50, P99)}
FROM calls_of AS c FULL OUTER JOIN traces_of AS t
  ON c.route IS NOT DISTINCT FROM t.route
 AND c.prompt_version IS NOT DISTINCT FROM t.prompt_version
ORDER BY coalesce(ttft_max, wall_max) DESC NULLS LAST LIMIT {MAX_SLICES}
"""  # noqa: S608 - our own constants only


def slices(filters: Filters, reader: Reader) -> tuple[Slice, ...]:
    """Route by prompt version, worst TTFT first (p99, or the maximum where n is too small)."""
    found = [
        Slice(
            row["route"],
            row["prompt_version"],
            row["wall_n"],
            row["num_calls"],
            quantiles.read(row, "ttft", P50),
            quantiles.read(row, "ttft", P99),
            quantiles.read(row, "wall", P50),
            quantiles.read(row, "wall", P99),
        )
        for row in reader.sql(_SLICES, filters.params).to_pylist()
    ]
    return tuple(sorted(found, key=lambda s: -(s.ttft_p99.tail or 0.0)))


def bin_width_s(extent_ns: int, num_traces: int) -> int:
    """Seconds per bin: at most 120 bins, about 5 traces in each, edges on round clock times."""
    num_bins = max(1, min(MAX_BINS, num_traces // TRACES_PER_BIN))
    for width_s in _WIDTHS_S:
        # One more bin than the quotient may be touched, as the first edge is aligned.
        if extent_ns // (width_s * SECOND_NS) + 2 <= max(2, num_bins):
            return width_s
    return max(_WIDTHS_S[-1], extent_ns // (SECOND_NS * (MAX_BINS - 2)) + 1)


_BINS = f"""
WITH t AS (SELECT trace_id, start_ns - start_ns % $width AS bin FROM traces WHERE {IN_WINDOW}),
     n AS (SELECT bin, count(*) AS num_traces FROM t GROUP BY bin)
SELECT bin, num_traces, stage, sum(critical_ms) / num_traces AS mean_ms
FROM t JOIN n USING (bin) JOIN trace_stages USING (trace_id)
WHERE critical_ms > 0
GROUP BY bin, num_traces, stage ORDER BY bin
"""  # noqa: S608 - our own constants only


def stage_bins(filters: Filters, width_s: int, reader: Reader) -> tuple[Bin, ...]:
    """Mean critical-path ms by stage over time; a stretch without traces has no bin."""
    params = {**filters.params, "width": width_s * SECOND_NS}
    bins: dict[int, Bin] = {}
    for row in reader.sql(_BINS, params).to_pylist():
        at = bins.setdefault(row["bin"], Bin(row["bin"], row["num_traces"], {}))
        at.mean_ms[row["stage"]] = row["mean_ms"]
    return tuple(bins.values())


_SLOWEST = f"""
SELECT trace_id, start_ns, route, prompt_version, wall_ms, long_pole,
       long_pole_ms / nullif(wall_ms, 0) AS long_pole_ratio, outcome
FROM traces WHERE {IN_WINDOW} ORDER BY wall_ms DESC, trace_id LIMIT {MAX_SLOWEST}
"""  # noqa: S608 - our own constants only


def slowest(filters: Filters, reader: Reader) -> tuple[SlowTrace, ...]:
    """The slowest traces of the window, slowest first, at most 50."""
    return tuple(SlowTrace(**row) for row in reader.sql(_SLOWEST, filters.params).to_pylist())
