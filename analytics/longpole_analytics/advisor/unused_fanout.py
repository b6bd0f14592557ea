"""Unused fan-out: branches that are started side by side and that no outcome uses."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import WHOLE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    milliseconds,
    money,
    of,
    same,
    text,
)
from longpole_analytics.weighted import part as part_of


def branches(pop: Population, *, hedged: bool) -> pl.DataFrame:
    """The branches of groups: of hedges (one wins), or of fan-outs (results are put together)."""
    winners = pop.spans.filter(pl.col("winner").is_not_null())
    hedges = winners.select(parent="row", won="winner")
    rows = pop.steps.filter(pl.col("branch").is_not_null())
    if hedged:
        return rows.join(hedges, on="parent", how="inner", maintain_order="left")
    return rows.join(hedges, on="parent", how="anti", maintain_order="left")


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    told = pop.told_used(branches(pop, hedged=False), "branch", "name")
    told = told.filter(pl.col("stage").fill_null("") != Stage.RETRIEVAL.value)
    found = []
    for where, rows in groups(told, ("route", "branch"), rules.min_calls):
        used = part_of(rows.filter("is_used"), rows)
        if (used.high or 1.0) >= rules.least_used:
            continue
        idle = rows.filter(~pl.col("is_used"))
        inside = pop.calls.filter(pl.col("branch_row").is_in(idle["row"].implode()))
        name = text(where["branch"])
        found.append(
            Candidate(
                where=where,
                title=f"branch {name}: {idle.height} of {rows.height} results are not used by the "
                "outcome",
                change=f"do not start branch {name} for every request: start it when the others "
                "are not enough, or cancel it as soon as the outcome is decided",
                verify=ask(
                    "count(*) AS branches, sum(end_ns - start_ns) / 1e6 AS ms",
                    "spans",
                    same("name", rows["name"][0]),
                    condition(where),
                ),
                evidence=(
                    of("used_share", used),
                    Fact("unused_ms", milliseconds(idle), idle.height),
                ),
                touched=idle["trace"].unique().to_numpy(),
                replayed=shorter(idle["row"], WHOLE, idle["length_ns"]),
                usd=money(inside),
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(85, "unused fan-out", _find)
