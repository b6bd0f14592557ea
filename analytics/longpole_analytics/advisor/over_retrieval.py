"""Over-retrieval: searches whose result no outcome uses, and passages that change no outcome."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.advisor._doses import doses
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._prefixes import cached_faster
from longpole_analytics.advisor._replay import WHOLE, Change, shorter
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
    money,
    numbers,
    of,
    same,
    text,
)
from longpole_analytics.weighted import part as part_of

_REFERENCE: Final = "segment_reference_length"


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    return [*_unused(pop, rules), *_uncited(pop, rules), *_too_long(pop, rules)]


def _unused(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Searches that workflows name among what they used, or do not."""
    steps = pop.steps.filter(pl.col("stage") == Stage.RETRIEVAL.value).with_columns(
        short=pl.col("name").str.strip_prefix("retrieval ")
    )
    told = pop.told_used(steps, "name", "short", "data_source", "branch")
    # only workflows that name a search at all say something of searches
    told = told.filter(pl.col("is_used").any().over("route"))
    found = []
    for where, rows in groups(told, ("route", "name"), rules.min_calls):
        used = part_of(rows.filter("is_used"), rows)
        if (used.high or 1.0) >= rules.least_used:
            continue
        idle = rows.filter(~pl.col("is_used"))
        found.append(
            Candidate(
                where=where,
                title=f"{text(where['name'])}: {idle.height} of {rows.height} results are not used "
                "by the outcome",
                change=f"search {text(where['name'])} only when the question needs it (route by "
                "intent, or ask it after the others found too little)",
                verify=ask(
                    "count(*) AS searches, sum(end_ns - start_ns) / 1e6 AS ms",
                    "spans",
                    same("name", where["name"]),
                    condition(where),
                ),
                evidence=(of("used_share", used),),
                touched=idle["trace"].unique().to_numpy(),
                replayed=shorter(idle["row"], WHOLE, idle["length_ns"]),
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


def _uncited(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Outcomes that say how many passages they had, and how many they used."""
    told = pop.spans.filter(
        (pl.col("all_passages") > 0) & pl.col("used_passages").is_not_null() & pl.col("is_sound")
    )
    found = []
    for where, rows in groups(told, ("route",), rules.min_calls):
        had, used = numbers(rows, "all_passages"), numbers(rows, "used_passages")
        part = median(used / had, rows)
        if part >= rules.least_used:
            continue
        calls = pop.calls.filter(pl.col("trace").is_in(rows["trace"].implode()))
        change, pace = Change(), None
        if _REFERENCE in calls.columns and 2 * calls[_REFERENCE].count() > calls.height:
            passages = calls.with_columns(passages=_passages(calls))
            extra = (1 - part) * numbers(passages, "passages")
            change, pace = cached_faster(pop, calls, extra)
        found.append(
            Candidate(
                where=where,
                title=f"outcomes use {100 * part:.0f} % of the passages that were found",
                change=f"ask for fewer passages: about {2 * median(used, rows):.0f} instead of "
                f"{median(had, rows):.0f} (lower top_k, or rerank and keep the best)",
                verify=ask(
                    "quantile_disc(input_tokens, 0.5) AS input_tokens_p50, "
                    "quantile_disc(ttft_ms, 0.5) AS ttft_p50_ms",
                    "calls",
                    condition(where),
                ),
                evidence=(
                    Fact("used_passages_share_p50", part, rows.height),
                    Fact("passages_p50", median(had, rows), rows.height),
                    Fact("ms_per_1000_tokens", pace, calls.height),
                ),
                touched=rows["trace"].unique().to_numpy(),
                replayed=change,
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


def _passages(calls: pl.DataFrame) -> pl.Expr:
    """Tokens of the passages in a prompt, by their share of its characters."""
    lengths = [n for n in calls.columns if n.startswith("segment_") and n.endswith("_length")]
    return pl.col("input_tokens") * pl.col(_REFERENCE) / pl.sum_horizontal(lengths)


def _too_long(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Prompts whose passages grow without more outcomes being accepted."""
    if _REFERENCE not in pop.calls.columns:
        return []
    outcomes = pop.traces.select("trace", said="outcome")
    known = (
        pop.calls.filter((pl.col(_REFERENCE) > 0) & (pl.col("input_tokens") > 0))
        .join(outcomes, on="trace", how="left", maintain_order="left")
        .with_columns(outcome=pl.col("said"), passages=_passages(pop.calls))
    )
    found = []
    for where, calls in groups(known, ("route", "model"), 3 * rules.min_calls):
        dose = doses(calls, "passages", rules)
        if dose is None or dose.high < rules.min_reference_tokens:
            continue
        if dose.loss > rules.dose_points:
            continue
        extra = (numbers(calls, "passages") - dose.low).clip(min=0)
        change, pace = cached_faster(pop, calls, extra)
        price = calls.with_columns(lost=pl.Series(extra) * pl.col("input_usd_per_mtok") / 1e6)
        found.append(
            Candidate(
                where=where,
                title=f"prompts with {dose.high:.0f} tokens of passages are accepted no more often "
                f"than those with {dose.low:.0f}",
                change=f"ask the search for fewer passages, about {dose.low:.0f} tokens in all "
                "(lower top_k, or rerank and keep the best)",
                verify=ask(
                    "outcome, count(*) AS calls, quantile_disc(input_tokens, 0.5) AS "
                    "input_tokens_p50",
                    "calls",
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    Fact(
                        "passage_tokens_p50",
                        median(numbers(calls, "passages"), calls),
                        calls.height,
                    ),
                    of("accepted_with_least", dose.accepted_low),
                    of("accepted_with_most", dose.accepted_high),
                    Fact("ms_per_1000_tokens", pace, calls.height),
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=change,
                usd=money(price, "lost"),
                confidence=MEDIUM,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(80, "over-retrieval", _find)
