"""What the Overview shows: cards, slices, where the time went over time, the slowest traces."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from longpole_analytics.weighted import num_of, quantile
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import quantiles, rolled, sampled
from longpole_dashboard.model.cards import OUTCOMES, Card, Outcomes, cards, period
from longpole_dashboard.model.clock import Clock, stretch_words
from longpole_dashboard.model.grid import Grid, grid
from longpole_dashboard.model.quantiles import P50, P99, Quantile
from longpole_dashboard.model.sampled import CALLS, SIZE, Size, size_of
from longpole_dashboard.model.window import SECOND_NS, Filters

MAX_SLICES: Final = 50
MAX_SLOWEST: Final = 50
MAX_BINS: Final = 120
MAX_BINNED: Final = 100_000
"""Traces whose stages are read."""
TRACES_PER_BIN: Final = 5
MIN_ON_LINE: Final = 3
"""Calls of a point of a slice's line."""
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
    """One route and prompt version: how many, how fast; ``None`` where the name is unknown.

    ``line`` is its p50 TTFT over the window, ``None`` for a stretch with too few calls.
    """

    route: str | None
    prompt_version: str | None
    num_workflows: float
    num_calls: float
    ttft_p50: Quantile
    ttft_p99: Quantile
    wall_p50: Quantile
    wall_p99: Quantile
    line: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Bin:
    """Traces that start in one stretch of time: mean critical ms per stage (absent: none)."""

    start_ns: int
    end_ns: int
    num_traces: float
    mean_ms: dict[str, float]


@dataclass(frozen=True)
class Binned:
    """The bins of a window; a stretch without traces has none.

    Attributes:
        bins: in order of time.
        num_traces: workflows in them all.
        is_sample: they are a random sample of the window's.
    """

    bins: tuple[Bin, ...]
    num_traces: float
    is_sample: bool = False


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
    """What the page begins with; ``num_traces`` 0 means there is nothing in the window.

    Attributes:
        filters: the window.
        size: what it holds.
        cards: the numbers on top.
        slices: worst first.
        bin_s: the width of the bins that :func:`stage_bins` should have.
        is_rolled: latencies are of what is counted by the minute.
    """

    filters: Filters
    size: Size
    cards: tuple[Card, ...]
    slices: tuple[Slice, ...]
    bin_s: int
    is_rolled: bool = False

    @property
    def num_traces(self) -> float:
        """How many workflows came in the window."""
        return self.size.num_traces

    @property
    def sampled(self) -> str | None:
        """How workflows were sampled, a sentence; ``None`` where all are here."""
        size = self.size
        if not size.is_sampled:
            return None
        return sampled.sentence(size.num_kept, size.stood_for, "workflows", "slowest workflows")


_SLICE: Final = ("route", "prompt_version")
_EXTENT = f"""
SELECT {OUTCOMES}, {SIZE}, {CALLS}, min(start_ns) AS first_ns, max(start_ns) AS last_ns
FROM traces WHERE {{traces}}
"""  # noqa: S608 - our own constants only


def overview(filters: Filters, reader: Reader) -> Overview:
    """The page's content for these filters; empty lists where nothing matches."""
    (extent,) = _rows(_EXTENT, filters, reader)
    size, outcomes = size_of(extent), Outcomes(*(extent[name] for name in Outcomes._fields))
    if not size.num_kept:
        return Overview(filters, size, (), (), 1)
    bin_s = bin_width_s(extent["last_ns"] - extent["first_ns"], size.num_kept)
    counted = rolled.counted(filters, size, reader)
    now = period(filters, size, outcomes, counted, reader)
    if counted is not None:
        found = rolled_slices(filters, counted)
    elif now.kept is not None and now.kept.calls is not None:
        found = sampled_slices(filters, now.kept.calls, now.kept.workflows)
    else:
        found = slices(filters, reader)
    return Overview(filters, size, cards(filters, now, reader), found, bin_s, counted is not None)


_SLICES = f"""
WITH calls_of AS (
    SELECT route, prompt_version, {quantiles.sorted_list("ttft_ms", "ttft")}, count(*) AS num_calls
    FROM calls WHERE {{calls}} GROUP BY route, prompt_version),
traces_of AS (
    SELECT route, prompt_version, {quantiles.sorted_list("wall_ms", "wall")}
    FROM traces WHERE {{traces}} GROUP BY route, prompt_version)
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
    points: dict[tuple[Any, ...], list[tuple[int, float | None]]] = {}
    for row in _rows(_LINES, filters, reader, width=_line_ns(filters)):
        its = points.setdefault((row["route"], row["prompt_version"]), [])
        its.append((row["place"], row["value"]))
    lines = {slice_: _line(its, rolled.NUM_POINTS) for slice_, its in points.items()}
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
            lines.get((row["route"], row["prompt_version"]), ()),
        )
        for row in _rows(_SLICES, filters, reader)
    ]
    return tuple(sorted(found, key=lambda s: -(s.ttft_p99.tail or 0.0)))


def rolled_slices(filters: Filters, counted: pl.DataFrame) -> tuple[Slice, ...]:
    """As :func:`slices`, from what ``rolled.counted`` has of them, to within 1 %."""
    points, num = rolled.lines(counted, filters)
    lines = {slice_: _line(its, num) for slice_, its in points.items()}
    found = []
    for (route, version), metrics in rolled.sliced(counted).items():
        walls = rolled.quantile(metrics.get("wall_ms"), P99)
        found.append(
            Slice(
                route,
                version,
                walls.n,
                rolled.quantile(metrics.get("e2e_ms"), P50).n,
                rolled.quantile(metrics.get("ttft_ms"), P50),
                rolled.quantile(metrics.get("ttft_ms"), P99),
                rolled.quantile(metrics.get("wall_ms"), P50),
                walls,
                lines.get((route, version), ()),
            )
        )
    return tuple(sorted(found, key=lambda s: -(s.ttft_p99.tail or 0.0))[:MAX_SLICES])


def sampled_slices(
    filters: Filters, calls: pl.DataFrame, workflows: pl.DataFrame
) -> tuple[Slice, ...]:
    """As :func:`slices`, from rows of a sampled window, each by what it stands for."""
    ends = [
        rows.group_by(_SLICE).agg(pl.col(of).max().alias(name))
        for rows, of, name in ((calls, "ttft_ms", "ttft_max"), (workflows, "wall_ms", "wall_max"))
    ]
    worst = pl.coalesce("ttft_max", "wall_max")
    both = ends[0].join(ends[1], on=_SLICE, how="full", coalesce=True, nulls_equal=True)
    largest = both.sort(worst, descending=True, nulls_last=True).head(MAX_SLICES)
    found = []
    for route, version in largest.select(_SLICE).iter_rows():
        is_own = pl.col("route").eq_missing(route) & pl.col("prompt_version").eq_missing(version)
        own, own_workflows = calls.filter(is_own), workflows.filter(is_own)
        walls = sampled.quantile(own_workflows, "wall_ms", P99)
        found.append(
            Slice(
                route,
                version,
                walls.n,
                num_of(own["weight"].to_numpy()),
                sampled.quantile(own, "ttft_ms", P50),
                sampled.quantile(own, "ttft_ms", P99),
                sampled.quantile(own_workflows, "wall_ms", P50),
                walls,
                _sampled_line(filters, own),
            )
        )
    return tuple(sorted(found, key=lambda s: -(s.ttft_p99.tail or 0.0)))


def _sampled_line(filters: Filters, calls: pl.DataFrame) -> tuple[float | None, ...]:
    """p50 TTFT of a slice by stretch of the window."""
    place = ((pl.col("start_ns") - filters.start_ns) // _line_ns(filters)).alias("place")
    known = calls.filter(pl.col("ttft_ms").is_not_null()).with_columns(place).sort("ttft_ms")
    points: list[tuple[int, float | None]] = []
    for (number,), part in known.group_by("place", maintain_order=True):
        median = quantile(part["ttft_ms"].to_numpy(), part["weight"].to_numpy(), 0.5)
        if part.height >= MIN_ON_LINE and median is not None:
            points.append((int(str(number)), median.value))
    return _line(points, rolled.NUM_POINTS)


def command(filters: Filters, where: str | None) -> str:
    """The command that gives the quantiles of each slice's workflows."""
    words = ["longpole", "slices", "--by", "route,prompt_version", "--metric", "e2e_ms"]
    words += stretch_words(filters.start_ns, filters.end_ns)
    words += ["--where", where] if where else []
    return shlex.join([*words, "--json"])


_LINES = f"""
SELECT route, prompt_version, (start_ns - $start) // $width AS place,
       quantile_disc(ttft_ms, 0.5) AS value
FROM calls WHERE {{calls}} AND ttft_ms IS NOT NULL
GROUP BY route, prompt_version, place HAVING count(*) >= {MIN_ON_LINE}
"""  # noqa: S608 - our own constants only


def _line_ns(filters: Filters) -> int:
    return max(1, -(-(filters.end_ns - filters.start_ns) // rolled.NUM_POINTS))


def _line(points: list[tuple[int, float | None]], num: int) -> tuple[float | None, ...]:
    """The ``num`` values of a line, from those that are there with their places."""
    known = dict(points)
    return tuple(known.get(place) for place in range(num))


def bin_width_s(extent_ns: int, num_traces: int) -> int:
    """Seconds per bin: at most 120 bins, about 5 traces in each, edges on round clock times."""
    num_bins = max(1, min(MAX_BINS, num_traces // TRACES_PER_BIN))
    for width_s in _WIDTHS_S:
        # One more bin than the quotient may be touched, as the first edge is aligned.
        if extent_ns // (width_s * SECOND_NS) + 2 <= max(2, num_bins):
            return width_s
    return max(_WIDTHS_S[-1], extent_ns // (SECOND_NS * (MAX_BINS - 2)) + 1)


_BINS = """
WITH t AS (
         SELECT trace_id, {number} AS bin{weight} FROM traces
         WHERE {traces} AND trace_id < $below),
     n AS (SELECT bin, {num} AS num_traces FROM t GROUP BY bin)
SELECT bin, num_traces, stage, sum({ms}) / num_traces AS mean_ms
FROM t JOIN n USING (bin)
JOIN (SELECT * FROM trace_stages WHERE trace_id < $below) USING (trace_id)
WHERE critical_ms > 0
GROUP BY bin, num_traces, stage ORDER BY bin
"""
_PLAIN: Final = {"weight": "", "num": "count(*)", "ms": "critical_ms"}
_WEIGHED: Final = {"weight": ", weight", "num": "sum(weight)", "ms": "critical_ms * weight"}


def stage_bins(filters: Filters, width_s: int, size: Size, clock: Clock, reader: Reader) -> Binned:
    """Mean critical-path ms by stage over time, in bins that begin at round times of the clock.

    Of more than ``MAX_BINNED`` traces, and of sampled ones, what is counted by the minute is read:
    the last minutes are not yet. Where that is not enough a sample is drawn: ids are random, so
    those with the lowest.
    """
    places = grid(clock, width_s, filters.start_ns, filters.end_ns)
    if size.num_kept > MAX_BINNED or size.is_sampled:
        counted = rolled.stages(filters, places, size, reader)
        if counted is not None:
            return _counted_bins(counted, places)
    share = min(1.0, MAX_BINNED / size.num_kept) if size.num_kept else 1.0
    below = "g" if share == 1.0 else f"{int(share * 16**8):08x}"
    bins: dict[int, Bin] = {}
    parts = {"number": places.number, **(_WEIGHED if size.is_sampled else _PLAIN)}
    for row in _rows(_BINS, filters, reader, parts, below=below):
        if row["bin"] not in bins:
            bins[row["bin"]] = _bin(row["bin"], row["num_traces"], places)
        bins[row["bin"]].mean_ms[row["stage"]] = row["mean_ms"]
    return Binned(tuple(bins.values()), sum(b.num_traces for b in bins.values()), share < 1.0)


def _bin(number: int, num_traces: float, places: Grid) -> Bin:
    return Bin(places.start_ns(number), places.start_ns(number + 1), num_traces, {})


def _counted_bins(rows: list[dict[str, Any]], places: Grid) -> Binned:
    sizes = {row["bin"]: row["num"] for row in rows if row["stage"] is None}
    bins = {at: _bin(at, num, places) for at, num in sizes.items()}
    for row in rows:
        if row["stage"] is not None:
            bins[row["bin"]].mean_ms[row["stage"]] = row["ms"] / sizes[row["bin"]]
    return Binned(tuple(bins.values()), sum(sizes.values()))


_LEAST = f"""
SELECT min(wall_ns) AS ns FROM (
    SELECT wall_ns FROM traces WHERE {{traces}} AND wall_ns IS NOT NULL
    ORDER BY wall_ns DESC LIMIT {MAX_SLOWEST})
"""  # noqa: S608 - our own constants only
_SLOWEST = f"""
SELECT trace_id, start_ns, route, prompt_version, wall_ms, long_pole,
       long_pole_ms / nullif(wall_ms, 0) AS long_pole_ratio, outcome
FROM traces WHERE {{traces}} AND wall_ns >= $least ORDER BY wall_ms DESC, trace_id
LIMIT {MAX_SLOWEST}
"""  # noqa: S608 - our own constants only


def slowest(filters: Filters, reader: Reader) -> tuple[SlowTrace, ...]:
    """The slowest traces of the window, slowest first, at most 50."""
    # first how slow the last one is: the ids of all others need not be written out
    least = _rows(_LEAST, filters, reader)[0]["ns"]
    if least is None:
        return ()
    return tuple(SlowTrace(**row) for row in _rows(_SLOWEST, filters, reader, least=least))


def _rows(
    query: str,
    filters: Filters,
    reader: Reader,
    parts: Mapping[str, str] = MappingProxyType({}),
    **more: Value,
) -> list[dict[str, Any]]:
    """The rows of a query whose conditions on ``{calls}`` and ``{traces}`` are still to be set."""
    asked = query.format(calls=filters.on("calls"), traces=filters.on("traces"), **parts)
    rows: list[dict[str, Any]] = reader.sql(asked, {**filters.params, **more}).to_pylist()
    return rows
