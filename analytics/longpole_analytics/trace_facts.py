"""What spans tell of a trace beyond the views: drafts, preemptions, branches, guesses, replica.

These facts stand in the spans' attributes; one query sums them up by trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from longpole.vocab import Span, keys
from longpole_analytics.step_measures import is_used_in_time

if TYPE_CHECKING:
    import polars as pl

    from longpole_collector.stores.base import Reader, Value

PAGE_ROWS: Final = 50_000
_SUMMED: Final = {
    "num_steps": keys.ENGINE_NUM_STEPS,
    "num_drafted_tokens": keys.ENGINE_NUM_DRAFTED,
    "num_accepted_tokens": keys.ENGINE_NUM_ACCEPTED,
    "num_preemptions": keys.ENGINE_NUM_PREEMPTIONS,
}


_SLACK_NS: Final = 24 * 3600 * 10**9
"""Spans of a trace are looked for so long before and after the window."""
_OPEN: Final = 1 << 62


def _of(key: str) -> str:
    return f"attributes['{key}']"


_USED: Final = f"string_agg({_of(keys.BRANCH_USED)}, ' ')"
_IS_FRESH: Final = (
    f"coalesce(TRY_CAST({_of(keys.SPECULATION_AGE)} AS DOUBLE) <= "
    f"TRY_CAST({_of(keys.SPECULATION_TTL)} AS DOUBLE), true)"
)
_SUMS: Final = ", ".join(
    f"sum(TRY_CAST({_of(key)} AS BIGINT))::BIGINT AS {name}" for name, key in _SUMMED.items()
)
_ANY: Final = "is_engine OR " + " OR ".join(
    f"{_of(key)} IS NOT NULL"
    for key in (keys.SERVER_ADDRESS, keys.BRANCH_NAME, keys.BRANCH_USED, keys.SPECULATION_STATE)
)
# A branch is used if the root lists its name or its span's id, in quotes where it is a list.
_QUERY: Final = f"""
WITH facts AS (
    SELECT trace_id, span_id, is_engine, instance_id, attributes FROM spans
    WHERE start_ns >= ? AND start_ns <= ? AND ($which)
    AND trace_id IN (SELECT trace_id FROM traces WHERE $where)
),
sums AS (
    SELECT trace_id, {_SUMS},
        {_USED} AS used,
        count({_of(keys.SPECULATION_STATE)}) AS num_guesses,
        count(*) FILTER ({_of(keys.SPECULATION_STATE)} = 'used' AND {_IS_FRESH})
            AS num_used_guesses,
        min(instance_id) FILTER (is_engine) AS replica,
        max(instance_id) FILTER (is_engine) AS other_replica,
        min({_of(keys.SERVER_ADDRESS)}) AS host,
        max({_of(keys.SERVER_ADDRESS)}) AS other_host
    FROM facts GROUP BY trace_id
),
branches AS (
    SELECT trace_id, count(*) AS num_branches,
        count(*) FILTER (
            contains(used, '"' || {_of(keys.BRANCH_NAME)} || '"')
            OR contains(used, span_id) OR used = {_of(keys.BRANCH_NAME)}
        ) AS num_used_branches
    FROM facts JOIN sums USING (trace_id)
    WHERE {_of(keys.BRANCH_NAME)} IS NOT NULL AND used IS NOT NULL GROUP BY trace_id
)
SELECT trace_id, num_steps, num_drafted_tokens, num_accepted_tokens, num_preemptions,
    num_branches, num_used_branches,
    nullif(num_guesses, 0) AS num_guesses,
    CASE WHEN num_guesses > 0 THEN num_used_guesses END AS num_used_guesses,
    CASE WHEN replica = other_replica THEN replica END AS replica,
    CASE WHEN host = other_host THEN host END AS host
FROM sums LEFT JOIN branches USING (trace_id)
WHERE trace_id > ? ORDER BY trace_id LIMIT {PAGE_ROWS}
"""  # noqa: S608 - keys of ours


def load_facts(
    reader: Reader,
    between: tuple[int | None, int | None] = (None, None),
    *,
    where: str = "true",
    given: Sequence[Value] = (),
    engine_only: bool = False,
) -> pl.DataFrame:
    """The facts of the traces of a window that meet a condition, a row for each that tells one.

    Columns are ``trace_id``, those of :data:`longpole_analytics.requests.FACTS`, and as text
    ``replica`` (the engine's instance) and ``host`` (the address that was called), unknown where
    a trace has several.

    Args:
        reader: a store.
        between: when the traces began, [since, until) in Unix epoch nanoseconds.
        where: an SQL condition over the view ``traces``.
        given: values for its question marks.
        engine_only: look at the engines' spans alone: of many spans that is much faster.
    """
    import polars as pl

    from longpole_analytics.loading import time_window
    from longpole_analytics.requests import FACTS

    conditions, times = time_window("traces", *between)
    since_ns, until_ns = between
    around: list[Value] = [
        -_OPEN if since_ns is None else since_ns - _SLACK_NS,
        _OPEN if until_ns is None else until_ns + _SLACK_NS,
    ]
    chosen = " AND ".join([*conditions, f"({where})"])
    query = _QUERY.replace("$where", chosen)
    query = query.replace("$which", "is_engine" if engine_only else _ANY)
    pages: list[pl.DataFrame] = []
    after = ""
    while True:
        page = pl.from_arrow(reader.sql(query, [*around, *times, *given, after]))
        assert isinstance(page, pl.DataFrame)  # noqa: S101 - a table is a frame
        pages.append(page)
        if page.height < PAGE_ROWS:
            return pl.concat(pages).cast(dict.fromkeys(FACTS, pl.Int64()))
        after = page["trace_id"][-1]


def with_facts(requests: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """A table of requests with the facts of its traces; what it tells itself stays."""
    from longpole_analytics.requests import FACTS

    own = [name for name in ("replica", "host") if name not in requests.columns]
    kept = requests.drop(FACTS)
    return kept.join(
        facts.select("trace_id", *FACTS, *own), on="trace_id", how="left", maintain_order="left"
    ).select(*requests.columns, *own)


def facts_of(spans: Sequence[Span]) -> dict[str, Any]:
    """The same facts of one trace, from its spans; what nobody told is not in it."""
    found: dict[str, Any] = {}
    for name, key in _SUMMED.items():
        told = [
            number for span in spans if (number := _whole(span.attributes.get(key))) is not None
        ]
        if told:
            found[name] = sum(told)
    used = [span.attributes[keys.BRANCH_USED] for span in spans
            if keys.BRANCH_USED in span.attributes]  # fmt: skip
    branches = [span for span in spans if keys.BRANCH_NAME in span.attributes]
    if used and branches:
        words = " ".join(used)
        found["num_branches"] = len(branches)
        found["num_used_branches"] = sum(
            f'"{span.attributes[keys.BRANCH_NAME]}"' in words
            or span.span_id in words
            or span.attributes[keys.BRANCH_NAME] in used
            for span in branches
        )
    guesses = [span for span in spans if keys.SPECULATION_STATE in span.attributes]
    if guesses:
        found["num_guesses"] = len(guesses)
        found["num_used_guesses"] = sum(map(is_used_in_time, guesses))
    for name, places in (
        ("replica", {span.instance_id for span in spans if span.is_engine}),
        ("host", {span.attributes.get(keys.SERVER_ADDRESS) for span in spans} - {None}),
    ):
        if len(places) == 1:
            found[name] = places.pop()
    return found


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(float(text))
    except (ValueError, OverflowError):
        return None
