"""Buffered streams: asked for in chunks, and held back on the way until the end."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._pace import CONFIDENCE, making_ns
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import FIRST, shorter
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
    of,
)
from longpole_analytics.weighted import part as part_of

_BY: Final = ("route", "name", "model")


def marked(calls: pl.DataFrame, rules: AdvisorRules) -> pl.DataFrame:
    """The streams that tell, with ``is_buffered``: their answer came in one burst.

    The first content came when nearly all the time was over, in chunks of many tokens. Hidden
    reasoning also comes late, but then the rest comes in small chunks.
    """
    chunk = pl.coalesce("tokens_per_chunk", pl.col("output_tokens") / pl.col("num_chunks"))
    late = pl.col("ttft_ns") / pl.col("length_ns")
    return calls.filter(
        pl.col("is_streamed").fill_null(False)
        & pl.col("ttft_ns").is_not_null()
        & (pl.col("length_ns") > 0)
        & (pl.col("output_tokens") >= rules.min_streamable_tokens)
        & chunk.is_not_null()
    ).with_columns(
        chunk=chunk, is_buffered=(late >= rules.burst_share) & (chunk >= rules.burst_tokens)
    )


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    told = marked(pop.calls, rules)
    sound = pop.calls.join(told.filter("is_buffered"), on="row", how="anti").filter("is_streamed")
    found = []
    for where, calls in groups(told, _BY, rules.min_calls):
        held = calls.filter("is_buffered")
        part = part_of(held, calls)
        if held.height < rules.min_calls or (part.value or 0.0) < 0.5:
            continue
        times, source = making_ns(pop, held, sound)
        less = np.minimum(times, held["first_ns"].to_numpy())
        found.append(
            Candidate(
                where=where,
                title=f"{held.height} of {calls.height} streams come in one burst at the end: "
                "something on the way holds them back",
                change="turn off buffering between model and client: nginx `proxy_buffering "
                "off` or the header `X-Accel-Buffering: no`, no compression of "
                "text/event-stream, flush after each chunk, no middleware that collects bodies",
                verify=ask(
                    "quantile_disc(tokens_per_chunk, 0.5) AS tokens_per_chunk_p50, "
                    "quantile_disc(ttft_ms / e2e_ms, 0.5) AS first_content_at_share",
                    "calls",
                    condition(where),
                    "is_streamed",
                ),
                evidence=(
                    of("buffered_share", part),
                    Fact("tokens_per_chunk_p50", median(numbers(held, "chunk"), held), held.height),
                    Fact("making_ms_p50", median(times, held) / 1e6, held.height),
                ),
                touched=held["trace"].unique().to_numpy(),
                replayed=shorter(held["row"], FIRST, less),
                confidence=CONFIDENCE[source],
                metric=FIRST_CONTENT,
            )
        )
    return found


ADVICE: Final = Rule(75, "buffered streams", _find)
