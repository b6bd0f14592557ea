"""Cacheable order: what changes stands before what is stable, so the stable part is never read."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._prefixes import cached_faster, cached_usd, prompts_of
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    median,
    numbers,
)


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    for prompt in prompts_of(pop, rules):
        stable, shared = prompt.stable_tokens, prompt.shared_tokens
        if prompt.changing or not np.isfinite(shared).any():
            continue
        cached = np.nan_to_num(numbers(prompt.calls, "cached_input_tokens"))
        lost = (stable - np.maximum(np.nan_to_num(shared), cached)).clip(min=0)
        if median(lost, prompt.calls) < rules.min_lost_tokens or median(
            shared, prompt.calls
        ) > 0.5 * median(stable, prompt.calls):
            continue
        change, pace = cached_faster(pop, prompt.calls, lost)
        where = {name: prompt.where[name] for name in ("route", "prompt_version")}
        found.append(
            Candidate(
                where=where,
                title="the prompt's stable parts stand after something that changes: "
                f"{median(stable, prompt.calls):.0f} tokens are always the same, the first "
                f"{median(shared, prompt.calls):.0f} are shared",
                change="send the stable segments first (tools, system, schema, examples), then "
                "what changes: passages, the user's data, the messages",
                verify=ask(
                    "prompt_version, sum(cached_input_tokens) / sum(input_tokens) AS "
                    "cached_share, quantile_disc(ttft_ms, 0.5) AS ttft_p50_ms",
                    "calls",
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    Fact("stable_tokens_p50", median(stable, prompt.calls), prompt.calls.height),
                    Fact("shared_tokens_p50", median(shared, prompt.calls), prompt.calls.height),
                    Fact("lost_tokens_p50", median(lost, prompt.calls), prompt.calls.height),
                    Fact("ms_per_1000_tokens", pace, prompt.calls.height),
                ),
                touched=prompt.calls.filter(pl.Series(lost > 0))["trace"].unique().to_numpy(),
                replayed=change,
                usd=cached_usd(prompt.calls, lost),
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(65, "volatile before stable in the prompt", _find)
