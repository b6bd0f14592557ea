"""What is asked of engines' spans, for the page of engines: the SQL.

A request stands for as many as its trace, or as itself says where its sender drew it again: what
two kept was kept with the smaller of their probabilities.
"""

import re
from dataclasses import replace
from typing import Final

import polars as pl

from longpole.vocab import keys
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import quantiles, sampled
from longpole_dashboard.model.grid import Grid
from longpole_dashboard.model.quantiles import P50
from longpole_dashboard.model.window import SECOND_NS, Filters

P95: Final = 950
MIN_LAST_NS: Final = 3_600 * SECOND_NS
"""Requests that began so long before the window may still run in it, and traces with requests."""
MODEL: Final = "coalesce(response_model, request_model, 'unnamed')"
_MS_OF: Final = {
    "queue": "queue_ns / 1e6",
    "ttft": "engine_ttft_ns / 1e6",
    "itl": "engine_decode_ns / 1e6 / nullif(greatest(output_tokens - 1, 0), 0)",
}
TIMES: Final = tuple(_MS_OF)
"""Times of a request, by what they are called."""
_MS: Final = ", ".join(f"{ms} AS {name}_ms" for name, ms in _MS_OF.items())


# --- conditions ---------------------------------------------------------------------------------
_IS_REQUEST: Final = "is_engine AND is_model_call"


def where_of(filters: Filters) -> tuple[str, dict[str, Value]]:
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
    where, params = where_of(filters)
    early = where.replace("start_ns >= $start AND", "start_ns >= $early AND end_ns > $start AND", 1)
    return early, {**params, "early": filters.start_ns - MIN_LAST_NS}


# --- requests -----------------------------------------------------------------------------------
def _weighed(where: str, names: str, columns: str = "") -> str:
    """SELECT of requests with what each stands for; wants ``$early``.

    Args:
        where: which.
        names: what to select of the ``columns``.
        columns: expressions over spans, with names; the names themselves if they are columns.
    """
    return f"""
    SELECT {names}, greatest(coalesce(weight, 1.0), coalesce(of_trace, 1.0)) AS weight
    FROM (SELECT trace_id, weight, {columns or names} FROM spans WHERE {where}) AS s
    LEFT JOIN (SELECT trace_id, weight AS of_trace FROM traces
               WHERE start_ns >= $early AND start_ns < $end) AS t USING (trace_id)"""  # noqa: S608 - ours


def extent(filters: Filters) -> tuple[str, dict[str, Value]]:
    """By model how many requests, the first and the last start, and whether any is weighed."""
    where, params = where_of(filters)
    asked = f"""
SELECT {MODEL} AS model, count(*) AS n, min(start_ns) AS first_ns, max(start_ns) AS last_ns,
       count(*) FILTER (weight <> 1)
       + (SELECT count(*) FROM traces
          WHERE start_ns >= $early AND start_ns < $end AND weight <> 1) AS num_weighed
FROM spans WHERE {where} GROUP BY model ORDER BY n DESC, model
"""  # noqa: S608 - our own constants only
    return asked, {**params, "early": filters.start_ns - MIN_LAST_NS}


def stats(where: str, by: str) -> str:
    """Quantiles and sums by model, and by ``by`` where it is something, of requests all kept."""
    named = f", {by} AS bin" if by else ""
    keys_of = "model, bin" if by else "model"
    lists = ", ".join(quantiles.sorted_list(f"{name}_ms", name) for name in TIMES)
    read = ", ".join(quantiles.columns(name, P50, P95) for name in TIMES)
    return f"""
WITH e AS (
    SELECT {MODEL} AS model{named}, {_MS}, input_tokens, cached_input_tokens
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


_NAMES: Final = "model, bin, queue_ms, ttft_ms, itl_ms, input_tokens, cached_input_tokens"


def rows(filters: Filters, places: Grid, reader: Reader) -> pl.DataFrame:
    """Requests of a sampled window: model, stretch (``bin``), times, tokens, and ``weight``.

    Of more than ``sampled.MAX_READ`` as many are drawn, each for as many more.
    """
    where, params = where_of(filters)
    columns = (
        f"trace_id || span_id AS id, {MODEL} AS model, {places.number} AS bin, {_MS}, "
        "input_tokens, cached_input_tokens"
    )
    asked = f"""
SELECT {_NAMES}, weight, size
FROM ({_weighed(where, f"id, {_NAMES}", columns)}) AS e,
     (SELECT count(*) AS size FROM spans WHERE {where}) AS n
WHERE size <= $most OR hash(id) < $most::DOUBLE / size * 18446744073709e6
"""  # noqa: S608 - our own constants only
    given = {**params, "early": filters.start_ns - MIN_LAST_NS, "most": sampled.MAX_READ}
    return sampled.spread(reader.sql(asked, given))


def busy(filters: Filters, places: Grid, *, is_weighed: bool) -> tuple[str, dict[str, Value]]:
    """Nanoseconds that requests ran and waited in each stretch of time."""
    where, params = _around(filters)
    width = places.width_ns
    names = "model, start_ns, end_ns, queue_ns, ahead, queued_ns"
    columns = (
        f"{MODEL} AS model, start_ns, end_ns, queue_ns, {places.ahead} AS ahead, "
        "start_ns + coalesce(engine_admission_ns, 0) + coalesce(tokenize_ns, 0) AS queued_ns"
    )
    chosen = f"SELECT {columns} FROM spans WHERE {where}"  # noqa: S608 - ours
    weight, times = "", ""
    if is_weighed:
        chosen, weight, times = _weighed(where, names, columns), ", weight", " * weight"
    asked = f"""
WITH e AS ({chosen}),
parts AS (
    SELECT model, queue_ns, start_ns, end_ns, queued_ns, ahead{weight},
           least(queued_ns + coalesce(queue_ns, 0), end_ns) AS ran_ns,
           unnest(generate_series((greatest(start_ns, $start) + ahead) // {width},
                                  (least(end_ns, $end) - 1 + ahead) // {width})) AS bin
    FROM e),
placed AS (
    SELECT *, greatest(bin * {width} - ahead, $start) AS from_ns,
           least((bin + 1) * {width} - ahead, end_ns, $end) AS to_ns
    FROM parts)
SELECT model, bin, sum(greatest(0, to_ns - greatest(ran_ns, from_ns)){times})::BIGINT AS run_ns,
       sum(greatest(0, least(ran_ns, to_ns) - greatest(queued_ns, from_ns)){times})
           FILTER (queue_ns IS NOT NULL)::BIGINT AS wait_ns
FROM placed GROUP BY model, bin ORDER BY model, bin
"""  # noqa: S608 - our own constants only
    return asked, params


def drafts(filters: Filters, *, is_weighed: bool) -> tuple[str, dict[str, Value]]:
    """By model accepted tokens (``part``), drafted ones (``whole``), and of how many requests."""
    where, params = where_of(filters)
    accepted, drafted = (
        f"TRY_CAST(attributes['{key}'] AS BIGINT)"
        for key in (keys.ENGINE_NUM_ACCEPTED, keys.ENGINE_NUM_DRAFTED)
    )
    where = f"{where} AND {drafted} IS NOT NULL"
    if not is_weighed:
        asked = (
            f"SELECT {MODEL} AS model, sum({accepted})::BIGINT AS part, "  # noqa: S608 - ours
            f"sum({drafted})::BIGINT AS whole, count({drafted}) AS n FROM spans "
            f"WHERE {where} GROUP BY model"
        )
        return asked, params
    columns = f"{MODEL} AS model, {accepted} AS accepted, {drafted} AS drafted"
    asked = (
        "SELECT model, sum(accepted * weight)::BIGINT AS part, "  # noqa: S608 - ours
        "sum(drafted * weight)::BIGINT AS whole, sum(weight)::BIGINT AS n "
        f"FROM ({_weighed(where, 'model, accepted, drafted', columns)}) AS e GROUP BY model"
    )
    return asked, {**params, "early": filters.start_ns - MIN_LAST_NS}


# --- for longpole query -------------------------------------------------------------------------
def statement(filters: Filters, *, is_weighed: bool = False) -> str:
    """SQL for ``longpole query`` that gives the medians and the shares of prefixes of the table."""
    where, params = where_of(filters)
    made = _weighed_statement(where) if is_weighed else _statement(where)
    given = {**params, "early": filters.start_ns - MIN_LAST_NS}
    return re.sub(r"\$(\w+)", lambda found: _literal(given[found[1]]), " ".join(made.split()))


def _statement(where: str) -> str:
    medians = ", ".join(f"quantile_disc({ms}, 0.5) AS p50_{name}_ms" for name, ms in _MS_OF.items())
    return (
        f"SELECT coalesce(response_model, request_model) AS model, count(*) AS num, {medians}, "  # noqa: S608 - ours
        "sum(cached_input_tokens) FILTER (input_tokens IS NOT NULL) / "
        "sum(input_tokens) FILTER (cached_input_tokens IS NOT NULL) AS prefix_hits "
        f"FROM spans WHERE {where} GROUP BY model ORDER BY num DESC, model"
    )


def _weighed_statement(where: str) -> str:
    names = "model, queue_ms, ttft_ms, itl_ms, input_tokens, cached_input_tokens"
    columns = f"{MODEL} AS model, {_MS}, input_tokens, cached_input_tokens"
    times = " UNION ALL ".join(
        f"SELECT model, 'p50_{name}_ms' AS what, {name}_ms AS ms, weight FROM e "  # noqa: S608 - ours
        f"WHERE {name}_ms IS NOT NULL"
        for name in _MS_OF
    )
    return f"""
WITH e AS ({_weighed(where, names, columns)}),
u AS (SELECT *, sum(weight) OVER (PARTITION BY model, what ORDER BY ms) AS upto,
             sum(weight) OVER (PARTITION BY model, what) AS total FROM ({times}))
SELECT model, what, max(total) AS num,
       min(ms) FILTER (upto >= 0.5 * total * (1 - 1e-12)) AS value
FROM u GROUP BY model, what
UNION ALL
SELECT model, 'prefix_hits' AS what, sum(weight) AS num,
       sum(cached_input_tokens * weight) / sum(input_tokens * weight) AS value
FROM e WHERE input_tokens IS NOT NULL AND cached_input_tokens IS NOT NULL GROUP BY model
ORDER BY model, what
"""  # noqa: S608 - our own constants only


def _literal(value: Value) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
