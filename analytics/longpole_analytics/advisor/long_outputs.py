"""Outputs longer than what was used: tokens that were made and that nobody read.

What was used is known in four ways: the application says it (``run.accept(used_tokens=...)``);
the outcome was accepted while the answer was still being made; the next call, which needs this
answer, was given fewer tokens in all; the application closed the stream before its end.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import DECODE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    LOW,
    MEDIUM,
    MODEL,
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
)
from longpole_analytics.weighted import part as part_of

_BY: Final = ("route", "name", "model")
_TITLES: Final = {
    "told": ("the application says that it used fewer tokens", HIGH),
    "accepted": ("the outcome was accepted before the answer ended", MEDIUM),
    "passed_on": ("the next call was given fewer tokens than this one made", HIGH),
}


def _unused(pop: Population) -> pl.DataFrame:
    """The calls with ``unused_tokens`` and ``how`` that is known; null where it is not."""
    calls = pop.calls.sort("trace", "start_ns", "row")
    roots = (
        pop.spans.filter(pl.col("used_tokens").is_not_null())
        .group_by("trace")
        .agg(pl.col("used_tokens").first().alias("said"))
    )
    facts = pop.traces.select("trace", began="start_ns", accepted_ns="time_to_accepted_ns")
    calls = (
        calls.drop("used_tokens")
        .join(roots, on="trace", how="left", maintain_order="left")
        .join(facts, on="trace", how="left", maintain_order="left")
    )
    is_last = pl.col("row") == pl.col("row").last().over("trace")
    out = pl.col("output_tokens").cast(pl.Float64)
    told = pl.when(is_last & pl.col("said").is_not_null()).then(out - pl.col("said"))
    at = pl.col("began") + pl.col("accepted_ns") - pl.col("start_ns")
    length = pl.col("last_content_ns") - pl.col("ttft_ns")
    part = (pl.col("last_content_ns") - at) / length
    accepted = pl.when(is_last & (at > pl.col("ttft_ns")) & (part > 0.05)).then(out * part)
    needed = pl.any_horizontal(
        pl.col("inputs").shift(-1).str.contains(pl.col(name), literal=True).fill_null(False)
        for name in ("output_hash",)
    )
    is_next = (pl.col("trace") == pl.col("trace").shift(-1)) & needed
    passed = pl.when(is_next).then(out - pl.col("input_tokens").shift(-1))
    return calls.with_columns(
        unused=pl.coalesce(told, accepted, passed),
        how=pl.when(told.is_not_null())
        .then(pl.lit("told"))
        .when(accepted.is_not_null())
        .then(pl.lit("accepted"))
        .when(passed.is_not_null())
        .then(pl.lit("passed_on")),
    )


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    known = _unused(pop).filter(pl.col("output_tokens") > 0)
    for where, calls in groups(known.drop_nulls("unused"), _BY, rules.min_calls):
        wasted = numbers(calls, "unused").clip(min=0)
        made = numbers(calls, "output_tokens")
        part = median(wasted / made, calls)
        if part < rules.unused_share:
            continue
        how = str(calls["how"].mode().sort()[0])
        title, confidence = _TITLES[how]
        keep = median(made - wasted, calls)
        less = calls["decode_ns"].to_numpy() * (wasted / made)
        cost = money(calls.with_columns(
            lost=pl.col("output_cost_usd") * pl.Series(wasted / made)), "lost")  # fmt: skip
        found.append(
            Candidate(
                where=where,
                title=f"answers are longer than what is used: {title}",
                change=f"ask for less: set max_tokens near {max(1.5 * keep, 1):.0f}, say in the "
                "prompt how long the answer may be, or stop the stream once enough is there",
                verify=ask(
                    "quantile_disc(output_tokens, 0.5) AS output_tokens_p50, "
                    "quantile_disc(decode_ms, 0.5) AS decode_p50_ms",
                    "calls",
                    condition(where),
                    same(MODEL, where["model"]),
                ),
                evidence=(
                    Fact("unused_share_p50", part, calls.height),
                    Fact("output_tokens_p50", median(made, calls), calls.height),
                    Fact("used_tokens_p50", keep, calls.height),
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=shorter(calls["row"], DECODE, less),
                usd=cost,
                confidence=confidence,
                is_load=True,
            )
        )
    return [*found, *_closed(known, rules)]


def _closed(calls: pl.DataFrame, rules: AdvisorRules) -> list[Candidate]:
    """Streams that the application left: what came after was for nobody."""
    found = []
    streamed = calls.filter(pl.col("stream_state").is_not_null())
    for where, rows in groups(streamed, _BY, rules.min_calls):
        left = rows.filter(pl.col("stream_state").is_in(["closed_early", "abandoned"]))
        part = part_of(left, rows)
        if (part.low or 0.0) < rules.close_share:
            continue
        kept = median(numbers(left, "output_tokens"), left)
        found.append(
            Candidate(
                where=where,
                title=f"{left.height} of {rows.height} streams are closed before their end",
                change=f"give these calls a stop sequence or max_tokens near {kept:.0f}: a "
                "provider may go on making, and billing, an answer that nobody reads",
                verify=ask(
                    "stream_state, count(*) AS calls", "calls", condition(where), by_all=True
                ),
                evidence=(of("closed_share", part), Fact("output_tokens_p50", kept, left.height)),
                touched=left["trace"].unique().to_numpy(),
                confidence=LOW,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(40, "outputs longer than used", _find)
