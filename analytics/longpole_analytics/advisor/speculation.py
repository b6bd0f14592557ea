"""Speculation below its break-even: work on guesses that hardly ever come true."""

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
    milliseconds,
    money,
    of,
    same,
    text,
)
from longpole_analytics.weighted import part as part_of


def guesses(pop: Population) -> pl.DataFrame:
    """The guesses with a verdict, with ``is_hit``: used, and before they expired."""
    is_old = (pl.col("guess_age") > pl.col("guess_ttl")).fill_null(False)
    told = pop.spans.filter(pl.col("guess").is_not_null() & pl.col("is_node") & pl.col("is_sound"))
    return told.with_columns(is_hit=(pl.col("guess") == "used") & ~is_old)


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    for where, rows in groups(guesses(pop), ("route", "name"), rules.min_calls):
        hits = part_of(rows.filter("is_hit"), rows)
        if (hits.high or 1.0) >= rules.least_hits:
            continue
        missed = rows.filter(~pl.col("is_hit"))
        inside = pop.calls.filter(pl.col("guess_row").is_in(missed["row"].implode()))
        name = text(where["name"])
        found.append(
            Candidate(
                where=where,
                title=f"{name}: {hits.k} of {hits.n} guesses were used, below the "
                f"{100 * rules.least_hits:.0f} % from which on they pay",
                change=f"turn {name} off, or start it only where its hit rate is above "
                f"{100 * rules.least_hits:.0f} % (slice the hits by route and by what was guessed)",
                verify=ask(
                    f"attributes['{keys.SPECULATION_STATE}'] AS state, count(*) AS guesses",
                    "spans",
                    same("name", where["name"]),
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    of("hit_rate", hits),
                    Fact("wasted_ms", milliseconds(missed), missed.height),
                ),
                touched=missed["trace"].unique().to_numpy(),
                replayed=shorter(missed["row"], WHOLE, missed["length_ns"]),
                usd=money(inside),
                confidence=HIGH,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(90, "speculation below its break-even", _find)
