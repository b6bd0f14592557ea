"""Premium tier where the model is not the long pole: a faster model call that nobody feels."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole_analytics.advisor._population import Population
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
    text,
)
from longpole_analytics.cost import priced

TIERS: Final = ("priority", "premium", "fast", "turbo")
"""Tiers that cost more to be faster."""


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    facts = pop.traces.select("trace", "model_share", "is_patient")
    tier = pl.coalesce("service_tier", "service_tier_requested").str.to_lowercase()
    dear = (
        pop.calls.with_columns(tier=tier)
        .filter(pl.col("tier").is_in(TIERS))
        .join(facts, on="trace", how="left", maintain_order="left")
    )
    found = []
    for where, calls in groups(dear, ("route", "model", "tier"), rules.min_calls):
        part = median(numbers(calls, "model_share"), calls)
        is_patient = 2 * int(calls["is_patient"].fill_null(False).sum()) > calls.height
        if part >= rules.model_share and not is_patient:
            continue
        reason = (
            "nobody waits for these requests"
            if is_patient
            else f"model calls are {100 * part:.0f} % of the time"
        )
        found.append(
            Candidate(
                where=where,
                title=f"tier {text(where['tier'])} is paid for where {reason}",
                change=f"ask for the standard tier on route {text(where['route'])}, and spend the "
                "effort on the long pole (`longpole top`)",
                verify=ask(
                    "service_tier, count(*) AS calls, quantile_disc(e2e_ms, 0.5) AS p50_ms",
                    "calls",
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    Fact("model_share_p50", part, calls.height),
                    Fact("premium_calls", calls.height, calls.height),
                ),
                touched=calls["trace"].unique().to_numpy(),
                usd=_saved(pop, calls),
                confidence=HIGH if is_patient or part < rules.model_share / 2 else MEDIUM,
                is_load=True,
            )
        )
    return found


def _saved(pop: Population, calls: pl.DataFrame) -> float | None:
    """What the calls cost more than at the standard tier; ``None`` where a price is unknown."""
    plain = priced(calls.with_columns(service_tier=pl.lit("default")), pop.prices)
    more = calls["cost_usd"] - plain["cost_usd"]
    return money(calls.with_columns(more=more), "more") if more.count() == calls.height else None


ADVICE: Final = Rule(100, "premium tier where the model is not the long pole", _find)
