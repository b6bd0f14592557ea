"""Endpoints not streamed: the user waits for the whole answer though its start is there early."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._pace import CONFIDENCE, making_ns
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import DECODE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    FIRST_CONTENT,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    median,
    numbers,
)

_BY: Final = ("route", "name", "model")
_TEXT: Final = ("chat", "text_completion", "generate_content")
MAX_AFTER: Final = 0.2
"""Share of the wall time after the call; with more, its answer is not what the user is shown."""


def shown(pop: Population) -> pl.DataFrame:
    """The last call of each workflow where its answer is what the user waits for."""
    waits = pop.traces.filter(
        ~pl.col("is_patient").fill_null(False) & (pl.col("wall_ms") > 0)
    ).select("trace", "wall_ms", began="start_ns")
    return (
        pop.calls.filter(pl.col("error_type").is_null())
        .join(waits, on="trace", how="inner", maintain_order="left")
        .filter(pl.col("end_ns") == pl.col("end_ns").max().over("trace"))
        .filter(
            (pl.col("began") + pl.col("wall_ms") * 1e6 - pl.col("end_ns"))
            <= MAX_AFTER * 1e6 * pl.col("wall_ms")
        )
        .filter(
            pl.col("operation").fill_null("chat").is_in(_TEXT)
            & (pl.col("finish_reason").fill_null("stop") != "tool_call")
        )
    )


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    streams = pop.calls.filter("is_streamed")
    whole = shown(pop).filter(
        pl.col("is_streamed").eq(False) & pl.col("output_tokens").is_not_null()
    )
    for where, calls in groups(whole, _BY, rules.min_calls):
        tokens = median(numbers(calls, "output_tokens"), calls)
        if tokens < rules.min_streamable_tokens:
            continue
        times, source = making_ns(pop, calls, streams)
        less = np.minimum(times, calls["length_ns"].to_numpy())
        found.append(
            Candidate(
                where=where,
                title=f"the answer ({tokens:.0f} tokens) comes in one piece: the user waits for "
                "the last word to see the first",
                change="call with stream=True and pass each chunk on to the page as it comes",
                verify=ask(
                    "is_streamed, count(*) AS calls, quantile_disc(coalesce(ttft_ms, "
                    "e2e_ms), 0.5) AS first_content_p50_ms",
                    "calls",
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    Fact("output_tokens_p50", tokens, calls.height),
                    Fact("making_ms_p50", median(times, calls) / 1e6, calls.height),
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=shorter(calls["row"], DECODE, less),
                confidence=CONFIDENCE[source],
                metric=FIRST_CONTENT,
            )
        )
    return found


ADVICE: Final = Rule(70, "endpoints not streamed", _find)
