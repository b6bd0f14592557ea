"""What the keyed hashes of prompts say of their order and of what changes in them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole.prefix import EVERY, NUM_FIRST
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import FIRST, Change, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import groups, median, numbers, slope
from longpole_analytics.cache.prompts import MESSAGES
from longpole_analytics.weighted import weights_of

MEANT_STABLE: Final = ("tools", "system", "schema", "examples")
"""Segments that are meant to be the same in all calls of a prompt's version."""
TOOLS: Final = "tools"
_DIGITS: Final = 16
_MAX_HASHES: Final = 64
"""Hashes of a chain that are compared: of 288 blocks."""
BY: Final = ("route", "model", "prompt_version", "key_id")


class Prompts(NamedTuple):
    """The calls of one prompt.

    ``changing`` are segments meant to be stable that differ from call to call; ``is_reordered``
    says of tools that they are the same ones in another order. ``stable_tokens`` are those of the
    segments that do not change (or would not, if it were not for a few changing words),
    ``shared_tokens`` those of the longest prefix that an earlier call had too, by call.
    """

    where: Mapping[str, str | None]
    calls: pl.DataFrame
    changing: tuple[str, ...]
    is_reordered: bool
    stable_tokens: Any
    shared_tokens: Any


def prompts_of(pop: Population, rules: AdvisorRules) -> list[Prompts]:
    """The prompts whose segments are known, found once for a population."""
    if "prompts" not in pop.memo:
        pop.memo["prompts"] = list(_prompts(pop, rules))
    found: list[Prompts] = pop.memo["prompts"]
    return found


def _prompts(pop: Population, rules: AdvisorRules) -> Iterator[Prompts]:
    segments = segment_names(pop.calls)
    if not segments:
        return
    known = pop.calls.filter(
        pl.col("key_id").is_not_null()
        & (pl.col("input_tokens") > 0)
        & pl.any_horizontal(pl.col(f"segment_{n}_hash").is_not_null() for n in segments)
    )
    known = known.sort("start_ns", "row").tail(rules.max_calls)
    known = known.with_columns(shared_blocks=_shared_blocks(known))
    for where, calls in groups(known, BY, rules.min_calls):
        lengths = np.stack([
            numbers(calls, f"segment_{n}_length") if f"segment_{n}_length" in calls.columns
            else np.full(calls.height, np.nan)
            for n in segments
        ])  # fmt: skip
        lengths = np.nan_to_num(lengths)
        total = lengths.sum(axis=0)
        kept = [n for n in segments if n in MEANT_STABLE or _is_constant(calls, n, rules)]
        changing = tuple(n for n in segments if n in MEANT_STABLE and _changes(calls, n, rules))
        stable = sum((lengths[segments.index(n)] for n in kept), np.zeros(calls.height))
        tokens = numbers(calls, "input_tokens")
        share = np.divide(stable, total, out=np.zeros(calls.height), where=total > 0)
        blocks = numbers(calls, "num_blocks")
        shared = numbers(calls, "shared_blocks") / np.maximum(blocks, 1)
        yield Prompts(
            where,
            calls,
            changing,
            TOOLS in changing and _is_reordered(calls, rules),
            tokens * share,
            tokens * np.minimum(shared, 1.0),
        )


def segment_names(calls: pl.DataFrame) -> list[str]:
    """The segments of which hashes are known, by name."""
    return sorted(
        n.removeprefix("segment_").removesuffix("_hash")
        for n in calls.columns
        if n.startswith("segment_") and n.endswith("_hash") and not n.endswith("_set_hash")
    )


def _changes(calls: pl.DataFrame, segment: str, rules: AdvisorRules) -> bool:
    """Whether a segment hardly ever comes again."""
    known = calls[f"segment_{segment}_hash"].drop_nulls()
    return len(known) >= rules.min_calls and known.n_unique() >= rules.volatile_share * len(known)


def _is_constant(calls: pl.DataFrame, segment: str, rules: AdvisorRules) -> bool:
    known = calls[f"segment_{segment}_hash"].drop_nulls()
    few = max(2, (1 - rules.volatile_share) * len(known) / 2)
    return segment != MESSAGES and len(known) >= rules.min_calls and known.n_unique() <= few


def _is_reordered(calls: pl.DataFrame, rules: AdvisorRules) -> bool:
    name = f"segment_{TOOLS}_set_hash"
    if name not in calls.columns:
        return False
    known = calls[name].drop_nulls()
    return len(known) >= rules.min_calls and known.n_unique() <= max(2, 0.1 * len(known))


def _shared_blocks(calls: pl.DataFrame) -> pl.Series:
    """Blocks of the longest prefix that an earlier call of the table had as well, by call."""
    chain = calls["chain"]
    num = np.zeros(calls.height, np.int64)
    longest = int(chain.str.len_bytes().max() or 0) // _DIGITS  # type: ignore[arg-type]
    for at in range(min(longest, _MAX_HASHES)):
        # a hash takes in all blocks before it, so equal hashes are equal prefixes
        part = chain.str.slice(_DIGITS * at, _DIGITS)
        seen = part.is_not_null() & (part.str.len_bytes() == _DIGITS) & ~part.is_first_distinct()
        num += seen.fill_null(False).to_numpy()
    blocks = np.where(num <= NUM_FIRST, num, NUM_FIRST + EVERY * (num - NUM_FIRST))
    return pl.Series(blocks).set(chain.is_null(), None)


def cached_faster(pop: Population, calls: pl.DataFrame, lost: Any) -> tuple[Change, float | None]:
    """What calls would save if so many more input tokens came from the cache.

    Returns:
        The change, and milliseconds of a thousand tokens; ``None`` where that is not known and
        nothing changes. Where the engine tells its prefill, that is shared out; else the time to
        the first content must be seen to grow with the tokens that were not cached.
    """
    first = calls["first_ns"].to_numpy()
    fresh = numbers(calls, "input_tokens") - np.nan_to_num(numbers(calls, "cached_input_tokens"))
    prefill = numbers(calls, "prefill_ns")
    if np.isfinite(prefill).mean() > 0.5 and median(fresh, calls) > 0:
        pace = prefill / np.maximum(fresh, 1)
        less = np.minimum(np.nan_to_num(lost * pace), first)
        return shorter(calls["row"], FIRST, less), median(pace, calls) * 1e3 / 1e6
    model = calls["model"].drop_nulls()
    same = pop.calls.filter(pl.col("model") == model[0]) if len(model) else calls
    x = numbers(same, "input_tokens") - np.nan_to_num(numbers(same, "cached_input_tokens"))
    found = slope(x, numbers(same, "first_ns"))
    if found is None:
        return Change(), None
    less = np.minimum(np.nan_to_num(lost) * found, first)
    return shorter(calls["row"], FIRST, less), found * 1e3 / 1e6


def cached_usd(calls: pl.DataFrame, lost: Any) -> float | None:
    """Money saved if so many more tokens were read from the cache; ``None`` without prices."""
    plain, read = (numbers(calls, f"{name}_usd_per_mtok") for name in ("input", "cached_input"))
    worth = lost * (plain - read) / 1e6
    known = np.isfinite(worth)
    return float((worth * weights_of(calls))[known].sum()) if known.any() else None
