"""Hedges that only add load: the duplicate hardly ever wins."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.vocab import keys
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
    lowest,
    milliseconds,
    money,
    of,
    text,
)
from longpole_analytics.advisor.unused_fanout import branches
from longpole_analytics.weighted import part as part_of


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    rows = branches(pop, hedged=True).sort("parent", "start_ns", "row")
    rows = rows.with_columns(
        is_first=pl.col("row") == pl.col("row").first().over("parent"),
        has_won=pl.col("id") == pl.col("won"),
    ).filter(pl.len().over("parent") > 1)
    parents = pop.spans.select(parent="row", group="name")
    rows = rows.join(parents, on="parent", how="left", maintain_order="left")
    found = []
    for where, kept in groups(rows, ("route", "group"), 2 * rules.min_calls):
        groups_of = kept.group_by("parent").agg(
            pl.col("weight").first(), won=(pl.col("has_won") & ~pl.col("is_first")).any()
        )
        wins = part_of(groups_of.filter("won"), groups_of)
        if wins.n < rules.min_calls or (wins.high or 1.0) >= rules.least_wins:
            continue
        extra = kept.filter(~pl.col("is_first"))
        delay_ms = lowest(kept.filter("is_first"), "length_ns", 0.95) / 1e6
        inside = pop.calls.filter(pl.col("branch_row").is_in(extra["row"].implode()))
        name = text(where["group"])
        found.append(
            Candidate(
                where=where,
                title=f"{name}: the duplicate won {wins.k} of {wins.n} times, so it only adds load",
                change=f"send the duplicate of {name} later, after {delay_ms:.0f} ms (the first "
                "one's p95), or not at all; cancel the loser when one has won",
                verify=ask(
                    "count(*) AS branches, sum(end_ns - start_ns) / 1e6 AS ms",
                    "spans",
                    f"attributes['{keys.BRANCH_NAME}'] IS NOT NULL",
                    condition(where),
                ),
                evidence=(
                    of("duplicate_wins", wins),
                    Fact("duplicate_ms", milliseconds(extra), extra.height),
                ),
                touched=extra["trace"].unique().to_numpy(),
                replayed=shorter(extra["row"], WHOLE, extra["length_ns"]),
                usd=money(inside),
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(95, "hedges that only add load", _find)
