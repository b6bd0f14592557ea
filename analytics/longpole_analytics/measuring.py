"""Where ``measures`` gets what it counts: the calls of a source, and the spans that tell more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from longpole.vocab import Span, keys
from longpole_analytics.frames import spans_from_table
from longpole_analytics.loading import (
    Source,
    all_rows,
    flat_table,
    opened,
    select,
    time_window,
    view_rows,
)
from longpole_analytics.measures import (
    ColdStarts,
    Drafts,
    MeasureRules,
    Reasoning,
    Retries,
    cold_starts,
    drafts,
    reasoning,
    retries,
)
from longpole_analytics.step_measures import FanOut, Guesses, fan_out, guesses
from longpole_analytics.trace_facts import load_facts
from longpole_analytics.weighted import is_sampled, num_of, totals, weights_of

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader

MAX_STEP_SPANS: Final = 200_000
"""Spans of traces with branches or guesses that are read, the latest."""
_COLUMNS: Final = {
    **dict.fromkeys(("start_ns", "end_ns", "num_attempts"), pl.Int64()),
    **dict.fromkeys(("input_tokens", "output_tokens", "reasoning_tokens"), pl.Int64()),
    **dict.fromkeys(("retry_ms", "e2e_ms", "ttft_ms", "ttfv_ms"), pl.Float64()),
    **dict.fromkeys(("error_type", "service", "provider", "request_model"), pl.String()),
    "is_cold_start": pl.Boolean(),
}
_IS_STEP: Final = " OR ".join(
    f"attributes['{key}'] IS NOT NULL"
    for key in (keys.BRANCH_NAME, keys.BRANCH_USED, keys.SPECULATION_STATE, keys.SPECULATION_TTL)
)


class Told(NamedTuple):
    """What a source tells: calls, spans of workflows with branches or guesses, facts by trace.

    ``spans`` and ``facts`` are ``None`` where there are no spans. Facts have a ``weight`` where
    traces were sampled.
    """

    calls: pl.DataFrame
    spans: list[Span] | None
    facts: pl.DataFrame | None


@dataclass(frozen=True)
class Measured:
    """The remaining measures; ``None`` is what the source cannot tell."""

    num_calls: float
    retries: Retries
    cold_starts: ColdStarts
    reasoning: Reasoning
    fan_out: FanOut | None
    guesses: Guesses | None
    drafts: Drafts | None


def load(
    source: Source,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> Told:
    """What a source tells of calls that began in [since, until) and meet a condition.

    Args:
        source: a flat table of calls (one Parquet or CSV file without spans), trace files, a
            folder or an address.
        where: an SQL condition over the calls' columns.
        since_ns: Unix epoch nanoseconds; ``None`` is from the beginning.
        until_ns: likewise, to the end.

    Raises:
        BadInput: a file or the condition cannot be read.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    flat = flat_table(source.files)
    if flat is not None:
        if "cold" in flat.columns and "is_cold_start" not in flat.columns:
            flat = flat.rename({"cold": "is_cold_start"})
        return Told(select(_typed(flat), where, since_ns, until_ns), None, None)
    reader = opened(source)
    try:
        calls = select(view_rows(reader, "calls", since_ns, until_ns), where)
        facts = load_facts(reader, (since_ns, until_ns))
        if is_sampled(calls):
            weights = _weights(reader, since_ns, until_ns)
            facts = facts.join(weights, on="trace_id", how="left", maintain_order="left")
        spans = _step_spans(reader, since_ns, until_ns)
    finally:
        reader.close()
    if where:
        kept = set(calls["trace_id"])
        spans = [span for span in spans if span.trace_id in kept]
        facts = facts.filter(pl.col("trace_id").is_in(list(kept)))
    return Told(_typed(calls), spans, facts)


def measure(told: Told, draft_cost: float, rules: MeasureRules | None = None) -> Measured:
    """All measures of what a source tells.

    Args:
        told: calls, spans and facts.
        draft_cost: time of one drafted token over that of one step of the model.
        rules: thresholds.
    """
    drafted = None
    if told.facts is not None:
        known = told.facts.drop_nulls(["num_drafted_tokens", "num_accepted_tokens", "num_steps"])
        names = ("num_accepted_tokens", "num_drafted_tokens", "num_steps")
        drafted = drafts(*totals(known, *map(pl.col, names)), cost_ratio=draft_cost, rules=rules)
    return Measured(
        num_of(weights_of(told.calls)),
        retries(told.calls, rules),
        cold_starts(told.calls, rules),
        reasoning(told.calls),
        None if told.spans is None else fan_out(told.spans, rules),
        None if told.spans is None else guesses(told.spans, rules),
        drafted,
    )


def _weights(reader: Reader, since_ns: int | None, until_ns: int | None) -> pl.DataFrame:
    """How many each trace of a window stands for."""
    conditions, given = time_window("traces", since_ns, until_ns)
    asked = "SELECT trace_id, weight FROM traces"
    return pl.DataFrame(all_rows(reader, asked, conditions, given, ("trace_id",)))


def _typed(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls with every column that is measured, unknown where it is missing."""
    return calls.with_columns(
        pl.col(name).cast(kind) if name in calls.columns else pl.lit(None, kind).alias(name)
        for name, kind in _COLUMNS.items()
    )


def _step_spans(reader: Reader, since_ns: int | None, until_ns: int | None) -> list[Span]:
    """The whole traces that have a branch or a guess."""
    low, high = since_ns or 0, (1 << 62) if until_ns is None else until_ns
    found = reader.sql(
        f"""SELECT * FROM spans WHERE trace_id IN (
            SELECT trace_id FROM spans WHERE start_ns >= ? AND start_ns < ? AND ({_IS_STEP})
        ) ORDER BY start_ns DESC, span_id LIMIT {MAX_STEP_SPANS}""",  # noqa: S608 - keys of ours
        [low, high],
    )
    return spans_from_table(found)
