"""Unstable prefix: what stands first changes from call to call, so no cache can be hit.

Seen in three ways: a segment meant to be stable has another hash in nearly every call; so has
the stable prefix as a whole; or a newer prompt version reads from the cache hardly anything
while an older one of the same length did.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._prefixes import (
    Prompts,
    cached_faster,
    cached_usd,
    prompts_of,
    segment_names,
)
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    MEDIUM,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    median,
    numbers,
    text,
)
from longpole_analytics.weighted import totals


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = [
        one
        for prompt in prompts_of(pop, rules)
        if prompt.changing and (one := _of_segments(pop, prompt, rules)) is not None
    ]
    seen = {one.where["route"] for one in found}
    others = [*_of_prefixes(pop, rules), *_of_versions(pop, rules)]
    for one in others:
        if one.where["route"] not in seen:
            seen.add(one.where["route"])
            found.append(one)
    return found


def _candidate(
    pop: Population,
    calls: pl.DataFrame,
    lost: np.ndarray,
    where: dict[str, str | None],
    words: tuple[str, str, str],
    facts: Sequence[Fact],
) -> Candidate:
    title, change, confidence = words
    change_of, pace = cached_faster(pop, calls, lost)
    return Candidate(
        where=where,
        title=title,
        change=change,
        verify=ask(
            "prompt_version, count(*) AS calls, sum(cached_input_tokens) / sum(input_tokens) "
            "AS cached_share, quantile_disc(ttft_ms, 0.5) AS ttft_p50_ms",
            "calls",
            condition(where),
            by_all=True,
        ),
        evidence=(
            *facts,
            Fact("lost_tokens_p50", median(lost, calls), calls.height),
            Fact("ms_per_1000_tokens", pace, calls.height),
        ),
        touched=calls.filter(pl.Series(lost > 0))["trace"].unique().to_numpy(),
        replayed=change_of,
        usd=cached_usd(calls, lost),
        confidence=confidence,
        is_load=True,
    )


def _of_segments(pop: Population, prompt: Prompts, rules: AdvisorRules) -> Candidate | None:
    calls = prompt.calls
    cached = np.nan_to_num(numbers(calls, "cached_input_tokens"))
    lost = (prompt.stable_tokens - cached).clip(min=0)
    if median(lost, calls) < rules.min_lost_tokens:
        return None
    segment = prompt.changing[0]
    if prompt.is_reordered and set(prompt.changing) == {"tools"}:
        words = (
            "the tools come in another order from call to call, so the prefix is never the same",
            "sort the tool definitions, by name for example, before each call",
            HIGH,
        )
    else:
        words = (
            f"segment '{text(segment)}' is meant to be stable and differs in nearly every call",
            f"take what changes (a time, an id, a user's name) out of '{text(segment)}' and put "
            "it at the end of the prompt, after everything stable",
            HIGH,
        )
    where = {name: prompt.where[name] for name in ("route", "prompt_version")}
    values = calls[f"segment_{segment}_hash"]
    facts = (Fact("different_values_share", values.n_unique() / len(values), len(values)),)
    return _candidate(pop, calls, lost, where, words, facts)


def _of_prefixes(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Of calls of which only the hash of the stable prefix is known."""
    known = [pl.col(f"segment_{n}_hash").is_not_null() for n in segment_names(pop.calls)]
    only = pop.calls.filter(pl.col("prefix_hash").is_not_null() & ~pl.any_horizontal(False, *known))
    found = []
    for where, calls in groups(only, ("route", "prompt_version"), rules.min_calls):
        part = calls["prefix_hash"].n_unique() / calls.height
        size = np.nan_to_num(numbers(calls, "input_tokens"))
        lost = (size - np.nan_to_num(numbers(calls, "cached_input_tokens"))).clip(min=0) * 0.8
        if part < rules.volatile_share or median(lost, calls) < rules.min_lost_tokens:
            continue
        words = (
            "the stable prefix of the prompt differs in nearly every call",
            "take what changes (a time, an id, a user's name) out of the prefix and put it at "
            "the end of the prompt",
            MEDIUM,
        )
        facts = (Fact("different_prefixes_share", part, calls.height),)
        found.append(_candidate(pop, calls, lost, where, words, facts))
    return found


def _of_versions(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Of routes where one prompt version hits the cache and another does not."""
    known = pop.calls.drop_nulls(["cached_input_tokens", "prompt_version"])
    known = known.filter(pl.col("input_tokens") > 0)
    by_route: dict[tuple[str | None, str | None], list[tuple[str | None, pl.DataFrame]]] = {}
    by = ("route", "model", "prompt_version")
    for where, calls in groups(known, by, rules.min_calls):
        key = (where["route"], where["model"])
        by_route.setdefault(key, []).append((where["prompt_version"], calls))
    found = []
    for (route, _), versions in by_route.items():
        shares = [_cached_share(calls) for _, calls in versions]
        best = int(np.argmax(shares))
        if shares[best] < rules.cached_before:
            continue
        usual = median(numbers(versions[best][1], "input_tokens"), versions[best][1])
        for (version, calls), part in zip(versions, shares, strict=True):
            size = numbers(calls, "input_tokens")
            is_alike = 0.67 * usual <= median(size, calls) <= 1.5 * usual
            if part > rules.cached_after or not is_alike:
                continue
            cached = numbers(calls, "cached_input_tokens")
            lost = (shares[best] * size - cached).clip(min=0)
            was = text(versions[best][0])
            words = (
                f"prompt version {text(version)} reads {100 * part:.0f} % of its input from the "
                f"cache, version {was} {100 * shares[best]:.0f} %: its prefix is not stable",
                f"compare the first lines of {text(version)} with those of {was}: move what "
                "changes from call to call (a time, an id) to the end of the prompt",
                HIGH if calls.height >= 3 * rules.min_calls else MEDIUM,
            )
            facts = (
                Fact("cached_share", part, calls.height),
                Fact("cached_share_of_better_version", shares[best], versions[best][1].height),
            )
            at = {"route": route, "prompt_version": version}
            found.append(_candidate(pop, calls, lost, at, words, facts))
    return found


def _cached_share(calls: pl.DataFrame) -> float:
    cached, given = totals(calls, pl.col("cached_input_tokens"), pl.col("input_tokens"))
    return float(cached) / float(given)


ADVICE: Final = Rule(60, "unstable prefix", _find)
