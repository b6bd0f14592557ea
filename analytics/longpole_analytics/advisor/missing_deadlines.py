"""Missing deadlines: steps that hang, and nothing that ends the wait."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole.vocab import Stage, keys
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import WHOLE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    MEDIUM,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    lowest,
    median,
    numbers,
    same,
    text,
)
from longpole_analytics.weighted import mean_of, weights_of

_STAGES: Final = (Stage.TOOL.value, Stage.RETRIEVAL.value, Stage.VALIDATION.value)
_FAR: Final = 1.5
"""The middle one of those that hang is so far beyond the threshold: a tail of one kind is not."""


def bounded(rows: pl.DataFrame) -> pl.Series:
    """Whether each step had a deadline, its own or one around it."""
    return rows["deadline"].is_not_null() | rows["deadline_remaining"].is_not_null()


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    columns = ["row", "trace", "route", "name", "start_ns", "length_ns", "weight"]
    columns += ["deadline", "deadline_remaining", "scope", "stage"]
    steps = pop.steps.filter(pl.col("stage").is_in(_STAGES))
    every = pl.concat([steps.select(columns), pop.calls.select(columns)])
    found = []
    # only the SDK tells of deadlines; of other senders their absence says nothing
    own = every.filter(pl.col("scope") == keys.SCOPE_SDK)
    for where, rows in groups(own, ("route", "name"), rules.min_calls):
        if bounded(rows).any():
            continue
        length = numbers(rows, "length_ns")
        usual, p90 = (lowest(rows, "length_ns", q) for q in (0.5, 0.9))
        limit = max(rules.hang_ratio * usual, rules.hang_p95_ratio * p90)
        hangs = length > limit
        if (
            hangs.sum() < rules.min_hangs
            or median(length[hangs], rows.filter(hangs)) < _FAR * limit
        ):
            continue
        # the deadline is set well above what is usual; after it the step is tried once more
        deadline = max(rules.hang_p95_ratio * p90, 1e6)
        less = np.where(hangs, length - deadline - usual, 0.0).clip(min=0)
        name = text(where["name"])
        found.append(
            Candidate(
                where=where,
                title=f"{int(hangs.sum())} of {len(rows)} times {name} hangs, up to "
                f"{length.max() / 1e9:.1f} s, and no deadline ends it",
                change=f"give {name} a deadline of {deadline / 1e6:.0f} ms (three times its p90), "
                "then try once more or answer without it",
                verify=ask(
                    "count(*) AS n, max(end_ns - start_ns) / 1e6 AS max_ms, "
                    "quantile_disc(end_ns - start_ns, 0.99) / 1e6 AS p99_ms",
                    "spans",
                    same("name", where["name"]),
                    condition(where),
                ),
                evidence=(
                    Fact(
                        "hanging_share",
                        mean_of(hangs.astype(np.float64), weights_of(rows)),
                        len(rows),
                    ),
                    Fact("p50_ms", usual / 1e6, len(rows)),
                    Fact("p90_ms", p90 / 1e6, len(rows)),
                    Fact("max_ms", float(length.max()) / 1e6, len(rows)),
                ),
                touched=rows.filter(pl.Series(hangs))["trace"].unique().to_numpy(),
                replayed=shorter(rows["row"].to_numpy()[hangs], WHOLE, less[hangs]),
                confidence=MEDIUM,
            )
        )
    return found


ADVICE: Final = Rule(120, "missing deadlines", _find)
