"""What engines tell of themselves by their spans, model by model; never summed over models.

One span a request. How many run or wait is the mean over a stretch of time: the time that
requests spent so in it, by its length (Little, Operations Research 9, 1961). A request waits from
the end of its tokenisation for the time it says it queued, and runs from then to its end. Where
traces were sampled a request counts as often as it stands for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import polars as pl

from longpole_analytics.weighted import num_of, totals
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import engine_asked, quantiles, sampled
from longpole_dashboard.model.clock import Clock
from longpole_dashboard.model.engine_asked import P95, TIMES
from longpole_dashboard.model.grid import Grid, grid
from longpole_dashboard.model.overview import TRACES_PER_BIN, bin_width_s
from longpole_dashboard.model.quantiles import P50, Quantile
from longpole_dashboard.model.window import SECOND_NS, Filters

MAX_MODELS: Final = 6
MAX_REQUESTS: Final = 50
MEDIANS: Final = 4
"""Stretches are so much longer than those of the Overview, so that most carry a median."""
MIN_BINS: Final = 10
"""Of few requests there are so many stretches all the same."""
MAX_DRAFT_SPANS: Final = 100_000
"""More spans are not asked for their drafts, which stand in their attributes."""


@dataclass(frozen=True)
class Share:
    """A part of a whole, summed over requests; ``None`` where none tells it."""

    part: int
    whole: int
    n: int

    @property
    def ratio(self) -> float | None:
        """The share, 0..1."""
        return self.part / self.whole if self.whole else None


@dataclass(frozen=True)
class Point:
    """One model in one stretch of time; ``None`` is unknown.

    Attributes:
        start_ns: where the stretch begins.
        middle_ns: the middle of what of it is in the window.
        length_s: how long that is.
        num_requests: requests that began in it.
        running: mean number that ran.
        waiting: mean number that waited; ``None`` where nobody tells.
        queue_ms: median of those that began in it; under 20 their maximum.
        ttft_ms: likewise.
        itl_ms: likewise.
        prefix: cached of input tokens.
    """

    start_ns: int
    middle_ns: int
    length_s: float
    num_requests: float
    running: float | None
    waiting: float | None
    queue_ms: Quantile
    ttft_ms: Quantile
    itl_ms: Quantile
    prefix: Share


@dataclass(frozen=True)
class Model:
    """One model over the whole window, and over time.

    ``drafts`` is accepted of drafted tokens; ``None`` where they were too many to ask.
    """

    name: str
    num_requests: float
    queue: tuple[Quantile, Quantile]
    ttft: tuple[Quantile, Quantile]
    itl: tuple[Quantile, Quantile]
    prefix: Share
    drafts: Share | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class EngineView:
    """The page: at most six models, those of most requests first.

    Attributes:
        filters: of the bar.
        bin_s: seconds of a stretch.
        models: by number of requests.
        num_left_out: models that are not shown.
        num_kept: how many requests tell all this, where not all were kept.
        num_came: for how many they stand.
    """

    filters: Filters
    bin_s: int
    models: tuple[Model, ...]
    num_left_out: int
    num_kept: int | None = None
    num_came: float = 0

    @property
    def sampled(self) -> str | None:
        """How requests were sampled, a sentence; ``None`` where all are here."""
        if self.num_kept is None:
            return None
        return sampled.sentence(self.num_kept, self.num_came, "requests")


@dataclass(frozen=True)
class EngineRequest:
    """One request as its engine tells it."""

    trace_id: str
    start_ns: int
    e2e_ms: float | None
    queue_ms: float | None
    prefill_ms: float | None
    ttft_ms: float | None
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    error_type: str | None


_seen: WeakSet[Reader] = WeakSet()
"""Stores that hold a span of an engine: they are not asked again."""


def has_engine(since_ns: int, reader: Reader) -> bool:
    """Whether an engine told of something from ``since_ns`` on, or ever since we first looked."""
    if reader not in _seen:
        asked = "SELECT 1 AS one FROM spans WHERE is_engine AND start_ns >= ? LIMIT 1"
        if not reader.sql(asked, [since_ns]).num_rows:
            return False
        _seen.add(reader)
    return True


def engine(filters: Filters, clock: Clock, reader: Reader) -> EngineView:
    """The engines' requests in the window, model by model, by stretches of the clock's time."""
    extent = _rows(engine_asked.extent(filters), reader)
    if not extent:
        return EngineView(filters, 1, (), 0)
    num = sum(row["n"] for row in extent)
    is_weighed = any(row["num_weighed"] for row in extent)
    first, last = min(row["first_ns"] for row in extent), max(row["last_ns"] for row in extent)
    bin_s = bin_width_s(last - first, max(num // MEDIANS, min(num, TRACES_PER_BIN * MIN_BINS)))
    places = grid(clock, bin_s, filters.start_ns, filters.end_ns)
    told = (_told_weighed if is_weighed else _told)(filters, places, reader)
    names = [row["model"] for row in extent]
    if is_weighed:
        names.sort(key=lambda name: -_of(told.models, name).num_requests)
    loads = _rows(engine_asked.busy(filters, places, is_weighed=is_weighed), reader)
    busy = {(row["model"], row["bin"]): row for row in loads}
    drafts: dict[str, Share] | None = None
    if num <= MAX_DRAFT_SPANS:
        drafted = _rows(engine_asked.drafts(filters, is_weighed=is_weighed), reader)
        drafts = {
            row["model"]: Share(row["part"] or 0, row["whole"] or 0, row["n"]) for row in drafted
        }
    models = [
        _model(
            name,
            _of(told.models, name),
            None if drafts is None else drafts.get(name, Share(0, 0, 0)),
            _points(name, told.bins, busy, filters, places),
        )
        for name in names[:MAX_MODELS]
    ]
    num_left_out = len(names) - len(models)
    num_came = sum(each.num_requests for each in told.models.values())
    num_kept = None if num_came == num else num
    return EngineView(filters, bin_s, tuple(models), num_left_out, num_kept, num_came)


def _rows(asked: tuple[str, dict[str, Value]], reader: Reader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.sql(*asked).to_pylist()
    return found


def requests(
    filters: Filters, model: str, start_ns: int, bin_s: int, clock: Clock, reader: Reader
) -> tuple[EngineRequest, ...]:
    """A model's requests that began in a stretch of time, the longest first, at most 50."""
    where, params = engine_asked.where_of(filters)
    places = grid(clock, bin_s, start_ns, start_ns)
    until_ns = places.start_ns(places.number_of(start_ns) + 1)
    found = reader.sql(
        "SELECT trace_id, start_ns, (end_ns - start_ns) / 1e6 AS e2e_ms, queue_ns / 1e6 AS "  # noqa: S608 - ours
        "queue_ms, prefill_ns / 1e6 AS prefill_ms, engine_ttft_ns / 1e6 AS ttft_ms, input_tokens, "
        f"cached_input_tokens, output_tokens, error_type FROM spans WHERE {where} "
        f"AND {engine_asked.MODEL} = $model AND start_ns >= $from AND start_ns < $to "
        f"ORDER BY e2e_ms DESC NULLS LAST, span_id LIMIT {MAX_REQUESTS}",
        {**params, "model": model, "from": start_ns, "to": until_ns},
    )
    return tuple(EngineRequest(**row) for row in found.to_pylist())


# --- what requests tell -------------------------------------------------------------------------
class _Stats(NamedTuple):
    """Some requests: how many, their times (p50 and p95 of each), what came from the cache."""

    num_requests: float
    times: Mapping[str, tuple[Quantile, Quantile]]
    prefix: Share


class _Told(NamedTuple):
    """What the requests of a window tell, by model, and by model and stretch of time."""

    models: Mapping[str, _Stats]
    bins: Mapping[tuple[str, int], _Stats]


_NONE: Final = _Stats(
    0, {name: (quantiles.read(None, name, P50),) * 2 for name in TIMES}, Share(0, 0, 0)
)


def _of(models: Mapping[str, _Stats], name: str) -> _Stats:
    """What a model's requests tell; none of a rare one may have been drawn."""
    return models.get(name, _NONE)


def _told(filters: Filters, places: Grid, reader: Reader) -> _Told:
    """By the store itself, where all was kept."""
    where, params = engine_asked.where_of(filters)
    models, bins = (
        _rows((engine_asked.stats(where, by), params), reader) for by in ("", places.number)
    )
    return _Told(
        {row["model"]: _stats_of(row) for row in models},
        {(row["model"], row["bin"]): _stats_of(row) for row in bins},
    )


def _stats_of(row: Mapping[str, Any]) -> _Stats:
    times = {
        name: (quantiles.read(row, name, P50), quantiles.read(row, name, P95)) for name in TIMES
    }
    prefix = Share(row["cached"] or 0, row["input"] or 0, row["num_cached"])
    return _Stats(row["num_requests"], times, prefix)


def _told_weighed(filters: Filters, places: Grid, reader: Reader) -> _Told:
    """By requests read one by one, each by what it stands for."""
    rows = engine_asked.rows(filters, places, reader)
    models = {str(model): _weighed(part) for (model,), part in rows.group_by("model")}
    by_bin = rows.group_by("model", "bin")
    return _Told(
        models, {(str(model), int(str(bin_))): _weighed(part) for (model, bin_), part in by_bin}
    )


def _weighed(rows: pl.DataFrame) -> _Stats:
    times = {
        name: (sampled.quantile(rows, f"{name}_ms", P50), sampled.quantile(rows, f"{name}_ms", P95))
        for name in TIMES
    }
    known = rows.drop_nulls(["input_tokens", "cached_input_tokens"])
    cached, whole = totals(known, pl.col("cached_input_tokens"), pl.col("input_tokens"))
    prefix = Share(round(cached), round(whole), round(_num(known)))
    return _Stats(_num(rows), times, prefix)


def _num(rows: pl.DataFrame) -> float:
    return num_of(rows["weight"].to_numpy())


# --- view ---------------------------------------------------------------------------------------
def _model(name: str, told: _Stats, drafts: Share | None, points: tuple[Point, ...]) -> Model:
    queue, ttft, itl = (told.times[each] for each in TIMES)
    return Model(name, told.num_requests, queue, ttft, itl, told.prefix, drafts, points)


def _points(
    name: str,
    by_bin: Mapping[tuple[str, int], _Stats],
    busy: Mapping[tuple[str, int], Mapping[str, Any]],
    filters: Filters,
    places: Grid,
) -> tuple[Point, ...]:
    """Every stretch in which a request began, ran or waited."""
    found = []
    for number in sorted({number for model, number in (*by_bin, *busy) if model == name}):
        told, load = by_bin.get((name, number), _NONE), busy.get((name, number))
        ran, waited = (None, None) if load is None else (load["run_ns"], load["wait_ns"])
        at, until = places.start_ns(number), places.start_ns(number + 1)
        queue, ttft, itl = (told.times[each][0] for each in TIMES)
        # the first and the last reach beyond the window
        begin, end = max(at, filters.start_ns), min(until, filters.end_ns)
        length = end - begin
        found.append(
            Point(
                at,
                (begin + end) // 2,
                length / SECOND_NS,
                told.num_requests,
                None if ran is None else ran / length,
                None if waited is None else waited / length,
                queue,
                ttft,
                itl,
                told.prefix,
            )
        )
    return tuple(found)
