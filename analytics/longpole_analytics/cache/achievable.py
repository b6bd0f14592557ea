"""What calls could have read from an ideal cache, by the keyed hashes of their prompts."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from longpole_analytics.cache.prompts import prompts
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.weighted import counts_of


class Achievable(NamedTuple):
    """An ideal cache with one time to live against what was observed, over the same calls.

    Shares and tokens are weighed where traces were sampled. What an ideal cache holds is what the
    kept calls put there: it would read at least that.

    Attributes:
        ttl_s: seconds a prefix lives after its last use.
        num_calls: calls whose prompt, time and counts are known.
        hit_token_share: what the ideal cache reads; ``None`` of no input.
        observed_token_share: what was read.
        gap_tokens: tokens between the two; below 0 where prefixes lived longer than assumed.
    """

    ttl_s: float
    num_calls: float
    hit_token_share: float | None
    observed_token_share: float | None
    gap_tokens: float


def achievable(costs: pl.DataFrame, rules: CacheRules, ttls_s: Sequence[float]) -> list[Achievable]:
    """The ideal cache of infinite size, for each time to live.

    Calls of one provider, model and hash key share it; prompts, and prefixes, below the
    provider's minimum are no hits.
    """
    names = ("start_ns", "input_tokens", "cached_input_tokens", "model_key", "provider")
    table = costs.with_columns(
        pl.lit(None).alias(name) for name in names if name not in costs.columns
    ).with_columns(model=_model(costs))
    rows = []
    known = prompts(costs, rules.stable_segments)
    for (start, size, cached, key, provider, model), prompt, num in zip(
        table.select(*names, "model").iter_rows(), known, counts_of(costs), strict=True
    ):
        is_sound = None not in (start, size, cached) and 0 <= cached <= size
        if is_sound and prompt.hashes and prompt.num_blocks:
            home = key.split("/")[0] if key else provider
            rows.append((start, size, cached, (home, model, prompt.key_id), prompt, home, num))
    rows.sort(key=lambda row: row[0])
    total = sum(size * num for _, size, *_, num in rows)
    observed = sum(cached * num for _, _, cached, *_, num in rows)
    num_calls = sum(row[-1] for row in rows)
    answers = []
    for ttl_s in ttls_s:
        since: dict[tuple[object, ...], int] = {}
        hits: float = 0
        for start, size, _, home, prompt, provider, num in rows:
            shared, is_there = 0, True
            for at, each in zip(prompt.blocks, prompt.hashes, strict=True):
                key = (*home, each)
                last = since.get(key)
                is_there = is_there and last is not None and start - last <= ttl_s * 1e9
                shared = at if is_there else shared
                since[key] = start
            tokens = prompt.tokens(shared, size)
            hits += tokens * num if tokens >= rules.min_of(provider) else 0
        share = hits / total if total else None
        seen = observed / total if total else None
        answers.append(Achievable(ttl_s, num_calls, share, seen, hits - observed))
    return answers


def _model(costs: pl.DataFrame) -> pl.Expr:
    there = [n for n in ("model_key", "response_model", "request_model") if n in costs.columns]
    return pl.coalesce(there) if there else pl.lit(None, pl.String)
