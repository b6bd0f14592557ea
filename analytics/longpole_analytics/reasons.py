"""Why a slice is slow, in facts, and what to do about it, in one sentence."""

from typing import Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.stats import quantile
from longpole_analytics.wording import milliseconds, percent, where_text

COLLAPSE_RATIO: Final = 0.5
"""A cached share below this part of what the others have has collapsed."""
MIN_CACHED_SHARE: Final = 0.1
"""Below this share there was no cache to lose."""
LONGER_RATIO: Final = 1.25
VOLATILE_SHARE: Final = 0.8
MIN_PREFIXES: Final = 5
_BEFORE_FIRST_TOKEN: Final = (Stage.QUEUE, Stage.PREFILL, Stage.TTFT_OPAQUE)
"""Where lost caching shows: prefill itself, and what waits behind it."""


def reasons(
    inside: pl.DataFrame,
    rest: pl.DataFrame,
    calls: pl.DataFrame,
    stage: Stage,
    where: dict[str, str],
) -> tuple[tuple[str, ...], str]:
    """Facts that set the slice apart, and the sentence that says what to do.

    Every fact compares the slice with the other traces; what is unknown on one side is not said.

    Args:
        inside: the traces of the slice, rows of a table of ``longpole_analytics.requests``.
        rest: the other traces of the route.
        calls: rows of the view ``calls``.
        stage: where the slice loses its time.
        where: the slice; empty when no slice explains the time.
    """
    own, others = (calls.join(side, on="trace_id", how="semi") for side in (inside, rest))
    facts = []
    usual, now = (_median(side, f"{stage.value}_ms") for side in (rest, inside))
    if usual is not None and now is not None:
        facts.append(f"{stage.value} p50 {milliseconds(usual)} -> {milliseconds(now)}")
    cached_before, cached_now = _cached_share(others), _cached_share(own)
    has_collapsed = (
        cached_before is not None
        and cached_now is not None
        and cached_before >= MIN_CACHED_SHARE
        and cached_now < COLLAPSE_RATIO * cached_before
    )
    if cached_before is not None and cached_now is not None:
        facts.append(f"cached tokens {percent(cached_before)} -> {percent(cached_now)}")
    if _has_volatile_prefix(own) and not _has_volatile_prefix(others):
        facts.append("the prefix differs from call to call")
    longer = {}
    for column, word in (("input_tokens", "prompt"), ("output_tokens", "answer")):
        usual, now = _median(others, column), _median(own, column)
        longer[column] = usual is not None and now is not None and now > LONGER_RATIO * usual
        if longer[column]:
            facts.append(f"{word} tokens p50 {usual:.0f} -> {now:.0f}")
    slice_name = where_text(where) or "the slow traces"
    if has_collapsed and stage in _BEFORE_FIRST_TOKEN:
        do = f"the prefix changed with {slice_name}: move what varies behind the stable prefix"
    elif longer["input_tokens"] and stage in _BEFORE_FIRST_TOKEN:
        do = f"prompts grew with {slice_name}: shorten them, or keep their beginning stable"
    elif longer["output_tokens"] and stage == Stage.LATER_DECODE:
        do = f"answers grew with {slice_name}: ask for less, or cap them"
    else:
        do = NEXT_CHECK[stage]
    return tuple(facts), do


def _median(frame: pl.DataFrame, column: str) -> float | None:
    return quantile(frame[column].drop_nulls().to_list(), 0.5) if column in frame.columns else None


def _cached_share(calls: pl.DataFrame) -> float | None:
    """Cached part of the prompt tokens; ``None`` when no call knows both numbers."""
    if not {"input_tokens", "cached_input_tokens"} <= set(calls.columns):
        return None
    known = calls.select("input_tokens", "cached_input_tokens").drop_nulls()
    total = int(known["input_tokens"].sum())
    return int(known["cached_input_tokens"].sum()) / total if total else None


def _has_volatile_prefix(calls: pl.DataFrame) -> bool:
    if "prefix_hash" not in calls.columns:
        return False
    known = calls["prefix_hash"].drop_nulls()
    return len(known) >= MIN_PREFIXES and known.n_unique() >= VOLATILE_SHARE * len(known)
