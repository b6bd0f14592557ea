"""What engines tell of themselves by their spans, model by model; never summed over models.

One span a request. How many run or wait is the mean over a stretch of time: the time that
requests spent so in it, by its length (Little, Operations Research 9, 1961). A request waits from
the end of its tokenisation for the time it says it queued, and runs from then to its end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakSet

from longpole.vocab import keys
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import quantiles
from longpole_dashboard.model.clock import Clock
from longpole_dashboard.model.grid import Grid, grid
from longpole_dashboard.model.overview import TRACES_PER_BIN, bin_width_s
from longpole_dashboard.model.quantiles import P50, Quantile
from longpole_dashboard.model.window import SECOND_NS, Filters

P95: Final = 950
MAX_MODELS: Final = 6
MAX_REQUESTS: Final = 50
MEDIANS: Final = 4
"""Stretches are so much longer than those of the Overview, so that most carry a median."""
MIN_BINS: Final = 10
"""Of few requests there are so many stretches all the same."""
MAX_DRAFT_SPANS: Final = 100_000
"""More spans are not asked for their drafts, which stand in their attributes."""
MIN_LAST_NS: Final = 3_600 * SECOND_NS
"""Requests that began so long before the window may still run in it."""
UNNAMED: Final = "unnamed"
_MODEL: Final = f"coalesce(response_model, request_model, '{UNNAMED}')"


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
    num_requests: int
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
    num_requests: int
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
    """

    filters: Filters
    bin_s: int
    models: tuple[Model, ...]
    num_left_out: int


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
    where, params = _where(filters)
    extent = reader.sql(
        f"SELECT {_MODEL} AS model, count(*) AS n, min(start_ns) AS first_ns, "  # noqa: S608 - ours
        f"max(start_ns) AS last_ns FROM spans WHERE {where} GROUP BY model ORDER BY n DESC, model",
        params,
    ).to_pylist()
    if not extent:
        return EngineView(filters, 1, (), 0)
    num = sum(row["n"] for row in extent)
    first, last = min(row["first_ns"] for row in extent), max(row["last_ns"] for row in extent)
    bin_s = bin_width_s(last - first, max(num // MEDIANS, min(num, TRACES_PER_BIN * MIN_BINS)))
    names = [row["model"] for row in extent[:MAX_MODELS]]
    places = grid(clock, bin_s, filters.start_ns, filters.end_ns)
    whole = {row["model"]: row for row in reader.sql(_stats(where, ""), params).to_pylist()}
    rows = reader.sql(_stats(where, places.number), params).to_pylist()
    busy = {
        (row["model"], row["bin"]): row
        for row in reader.sql(_busy(filters, places), _around(filters)[1]).to_pylist()
    }
    by_bin = {(row["model"], row["bin"]): row for row in rows}
    drafts = _drafts(where, params, reader) if num <= MAX_DRAFT_SPANS else None
    models = [
        _model(
            name,
            whole[name],
            None if drafts is None else drafts.get(name, Share(0, 0, 0)),
            _points(name, by_bin, busy, filters, places),
        )
        for name in names
    ]
    return EngineView(filters, bin_s, tuple(models), len(extent) - len(names))


def requests(
    filters: Filters, model: str, start_ns: int, bin_s: int, clock: Clock, reader: Reader
) -> tuple[EngineRequest, ...]:
    """A model's requests that began in a stretch of time, the longest first, at most 50."""
    where, params = _where(filters)
    places = grid(clock, bin_s, start_ns, start_ns)
    until_ns = places.start_ns(places.number_of(start_ns) + 1)
    found = reader.sql(
        "SELECT trace_id, start_ns, (end_ns - start_ns) / 1e6 AS e2e_ms, queue_ns / 1e6 AS "  # noqa: S608 - ours
        "queue_ms, prefill_ns / 1e6 AS prefill_ms, engine_ttft_ns / 1e6 AS ttft_ms, input_tokens, "
        f"cached_input_tokens, output_tokens, error_type FROM spans WHERE {where} "
        f"AND {_MODEL} = $model AND start_ns >= $from AND start_ns < $to "
        f"ORDER BY e2e_ms DESC NULLS LAST, span_id LIMIT {MAX_REQUESTS}",
        {**params, "model": model, "from": start_ns, "to": until_ns},
    )
    return tuple(EngineRequest(**row) for row in found.to_pylist())


def statement(filters: Filters) -> str:
    """SQL for ``longpole query`` that gives the medians and the shares of the table."""
    where, params = _where(filters)
    where = re.sub(r"\$(\w+)", lambda found: _literal(params[found[1]]), where)
    medians = ", ".join(
        f"quantile_disc({column}, 0.5) AS p50_{name}_ms"
        for column, name in (
            ("queue_ns / 1e6", "queue"),
            ("engine_ttft_ns / 1e6", "ttft"),
            ("engine_decode_ns / 1e6 / nullif(greatest(output_tokens - 1, 0), 0)", "itl"),
        )
    )
    return (
        f"SELECT coalesce(response_model, request_model) AS model, count(*) AS num, {medians}, "  # noqa: S608 - ours
        "sum(cached_input_tokens) FILTER (input_tokens IS NOT NULL) / "
        "sum(input_tokens) FILTER (cached_input_tokens IS NOT NULL) AS prefix_hits "
        f"FROM spans WHERE {where} GROUP BY model ORDER BY num DESC, model"
    )


def _literal(value: Value) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


# --- conditions ---------------------------------------------------------------------------------
_IS_REQUEST: Final = "is_engine AND is_model_call"


def _where(filters: Filters) -> tuple[str, dict[str, Value]]:
    """The condition on engines' spans that began in the window, and its parameters.

    The model is theirs, what else must hold is their trace's.
    """
    of_trace = tuple(match for match in filters.where if match.column != "request_model")
    parts = [f"{_IS_REQUEST} AND start_ns >= $start AND start_ns < $end"]
    params: dict[str, Value] = {"start": filters.start_ns, "end": filters.end_ns}
    if of_trace:
        chosen = replace(filters, start_ns=filters.start_ns - MIN_LAST_NS, where=of_trace)
        told = chosen.on("traces").replace("$start", "$since")
        parts.append(f"trace_id IN (SELECT trace_id FROM traces WHERE {told})")  # noqa: S608 - ours
        params |= {**chosen.params, "start": filters.start_ns, "since": chosen.start_ns}
    for number, match in enumerate(m for m in filters.where if m.column == "request_model"):
        same = f"coalesce(request_model, response_model, '') = $model{number}"
        parts.append(f"NOT ({same})" if match.is_not else same)
        params[f"model{number}"] = match.value or ""
    return " AND ".join(parts), params


def _around(filters: Filters) -> tuple[str, dict[str, Value]]:
    """The same for those that may run or wait in the window."""
    where, params = _where(filters)
    early = where.replace("start_ns >= $start AND", "start_ns >= $early AND end_ns > $start AND", 1)
    return early, {**params, "early": filters.start_ns - MIN_LAST_NS}


# --- statements ---------------------------------------------------------------------------------
def _stats(where: str, by: str) -> str:
    """Quantiles and sums by model, and by ``by`` where it is something."""
    named = f", {by} AS bin" if by else ""
    keys_of = "model, bin" if by else "model"
    lists = ", ".join(
        quantiles.sorted_list(column, name)
        for column, name in (("queue_ms", "queue"), ("ttft_ms", "ttft"), ("itl_ms", "itl"))
    )
    read = ", ".join(quantiles.columns(name, P50, P95) for name in ("queue", "ttft", "itl"))
    return f"""
WITH e AS (
    SELECT {_MODEL} AS model{named}, queue_ns / 1e6 AS queue_ms, engine_ttft_ns / 1e6 AS ttft_ms,
           engine_decode_ns / 1e6 / nullif(greatest(output_tokens - 1, 0), 0) AS itl_ms,
           input_tokens, cached_input_tokens
    FROM spans WHERE {where}),
lists AS (
    SELECT {keys_of}, count(*) AS num_requests, {lists},
           sum(cached_input_tokens) FILTER (input_tokens IS NOT NULL) AS cached,
           sum(input_tokens) FILTER (cached_input_tokens IS NOT NULL) AS input,
           count(input_tokens + cached_input_tokens) AS num_cached
    FROM e GROUP BY {keys_of})
SELECT {keys_of}, num_requests, {read}, cached::BIGINT AS cached, input::BIGINT AS input, num_cached
FROM lists ORDER BY {keys_of}
"""  # noqa: S608 - our own constants only


def _busy(filters: Filters, places: Grid) -> str:
    """Nanoseconds that requests ran and waited in each stretch of time."""
    where, _ = _around(filters)
    width = places.width_ns
    return f"""
WITH e AS (
    SELECT {_MODEL} AS model, start_ns, end_ns, queue_ns, {places.ahead} AS ahead,
           start_ns + coalesce(engine_admission_ns, 0) + coalesce(tokenize_ns, 0) AS queued_ns
    FROM spans WHERE {where}),
parts AS (
    SELECT model, queue_ns, start_ns, end_ns, queued_ns, ahead,
           least(queued_ns + coalesce(queue_ns, 0), end_ns) AS ran_ns,
           unnest(generate_series((greatest(start_ns, $start) + ahead) // {width},
                                  (least(end_ns, $end) - 1 + ahead) // {width})) AS bin
    FROM e),
placed AS (
    SELECT *, greatest(bin * {width} - ahead, $start) AS from_ns,
           least((bin + 1) * {width} - ahead, end_ns, $end) AS to_ns
    FROM parts)
SELECT model, bin, sum(greatest(0, to_ns - greatest(ran_ns, from_ns)))::BIGINT AS run_ns,
       sum(greatest(0, least(ran_ns, to_ns) - greatest(queued_ns, from_ns)))
           FILTER (queue_ns IS NOT NULL)::BIGINT AS wait_ns
FROM placed GROUP BY model, bin ORDER BY model, bin
"""  # noqa: S608 - our own constants only


def _drafts(where: str, params: dict[str, Value], reader: Reader) -> dict[str, Share]:
    accepted, drafted = (
        f"TRY_CAST(attributes['{key}'] AS BIGINT)"
        for key in (keys.ENGINE_NUM_ACCEPTED, keys.ENGINE_NUM_DRAFTED)
    )
    rows = reader.sql(
        f"SELECT {_MODEL} AS model, sum({accepted})::BIGINT AS part, "  # noqa: S608 - ours
        f"sum({drafted})::BIGINT AS whole, count({drafted}) AS n FROM spans "
        f"WHERE {where} AND {drafted} IS NOT NULL GROUP BY model",
        params,
    ).to_pylist()
    return {row["model"]: Share(row["part"] or 0, row["whole"] or 0, row["n"]) for row in rows}


# --- view ---------------------------------------------------------------------------------------
def _model(
    name: str, row: Mapping[str, Any], drafts: Share | None, points: tuple[Point, ...]
) -> Model:
    queue, ttft, itl = (
        (quantiles.read(row, key, P50), quantiles.read(row, key, P95))
        for key in ("queue", "ttft", "itl")
    )
    return Model(name, row["num_requests"], queue, ttft, itl, _prefix(row), drafts, points)


def _points(
    name: str,
    by_bin: Mapping[tuple[str, int], Mapping[str, Any]],
    busy: Mapping[tuple[str, int], Mapping[str, Any]],
    filters: Filters,
    places: Grid,
) -> tuple[Point, ...]:
    """Every stretch in which a request began, ran or waited."""
    found = []
    for number in sorted({number for model, number in (*by_bin, *busy) if model == name}):
        row, load = by_bin.get((name, number)), busy.get((name, number))
        ran, waited = (None, None) if load is None else (load["run_ns"], load["wait_ns"])
        at, until = places.start_ns(number), places.start_ns(number + 1)
        # the first and the last reach beyond the window
        begin, end = max(at, filters.start_ns), min(until, filters.end_ns)
        length = end - begin
        found.append(
            Point(
                at,
                (begin + end) // 2,
                length / SECOND_NS,
                row["num_requests"] if row else 0,
                None if ran is None else ran / length,
                None if waited is None else waited / length,
                quantiles.read(row, "queue", P50),
                quantiles.read(row, "ttft", P50),
                quantiles.read(row, "itl", P50),
                _prefix(row),
            )
        )
    return tuple(found)


def _prefix(row: Mapping[str, Any] | None) -> Share:
    if row is None:
        return Share(0, 0, 0)
    return Share(row["cached"] or 0, row["input"] or 0, row["num_cached"])
