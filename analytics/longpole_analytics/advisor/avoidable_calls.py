"""Avoidable model calls: the same input was asked before, and the same answer came."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.prefix import NUM_FIRST
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import WHOLE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    MEDIUM,
    MODEL,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    money,
    named,
    of,
    same,
)
from longpole_analytics.weighted import num_of, weights_of
from longpole_analytics.weighted import part as part_of

_BY: Final = ("route", "name", "model")


def repeated(calls: pl.DataFrame, rules: AdvisorRules) -> pl.DataFrame:
    """The calls whose input and answer can be compared, with ``is_repeat`` and how it is known.

    ``is_repeat``: one with the same input and the same answer ended before it began, not longer
    ago than an answer is kept. ``is_told``: the answers' hashes say that they are the same; else
    their sizes and ends do.
    """
    segments = sorted(
        n for n in calls.columns if n.startswith("segment_") and n.endswith("_hash")
        and not n.endswith("_set_hash")
    )  # fmt: skip
    whole = pl.lit(None, pl.String)
    if "segment_messages_hash" in segments:
        parts = [pl.col(name).fill_null("") for name in segments]
        whole = pl.when(pl.col("segment_messages_hash").is_not_null()).then(
            pl.concat_str(parts, separator="|")
        )
    chain = pl.when(pl.col("num_blocks") <= NUM_FIRST).then(
        pl.concat_str("chain", pl.col("num_blocks").cast(pl.String), separator="|")
    )
    # where the answer's hash is known too, the same prefix and size are enough
    told_by = pl.when(pl.col("output_hash").is_not_null()).then(pl.coalesce("chain", "prefix_hash"))
    answer = pl.concat_str(
        pl.col("output_tokens").cast(pl.String), pl.col("finish_reason").fill_null("?"),
        separator="|",
    )  # fmt: skip
    known = (
        calls.filter(pl.col("error_type").is_null())
        .with_columns(
            input_key=pl.coalesce(whole, chain, "inputs", told_by),
            is_told=pl.col("output_hash").is_not_null(),
            answer=pl.coalesce("output_hash", answer),
        )
        .filter(
            pl.col("input_key").is_not_null()
            & pl.col("answer").is_not_null()
            # of step inputs alone the same sizes prove nothing
            & (pl.col("is_told") | pl.coalesce(whole, chain).is_not_null())
        )
    )
    key = ["route", "name", "model", "key_id", "input_tokens", "input_key", "answer"]
    before = pl.col("end_ns").shift(1).over(key, order_by="start_ns")
    ago = pl.col("start_ns") - before
    return known.with_columns(
        is_repeat=((ago >= 0) & (ago <= int(rules.repeat_within_s * 1e9))).fill_null(False)
    )


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    known = repeated(pop.calls, rules)
    found = []
    for where, calls in groups(known, _BY, rules.min_calls):
        again = calls.filter("is_repeat")
        part = part_of(again, calls)
        if again.height < rules.min_repeats or (part.value or 0.0) < rules.repeat_share:
            continue
        told = again["is_told"].all()
        inside = again.height - again.join(calls.filter(~pl.col("is_repeat")), on="trace",
                                           how="anti").height  # fmt: skip
        found.append(
            Candidate(
                where=where,
                title=f"{again.height} of {calls.height} calls ask what was asked before and get "
                "the same answer",
                change=f"keep the answers of these calls ({named(where)}) by the hash of their "
                f"input, for {rules.repeat_within_s:g} s, and look there first"
                + (
                    ": within one workflow a variable is enough"
                    if inside > 0.8 * again.height
                    else " (`longpole.cache_lookup` measures it)"
                ),
                verify=ask(
                    "count(*) AS calls, count(DISTINCT trace_id) AS workflows",
                    "calls",
                    condition(where),
                    same(MODEL, where["model"]),
                ),
                evidence=(
                    of("repeated_calls_share", part),
                    Fact("repeated_calls", num_of(weights_of(again)), calls.height),
                    Fact("repeated_within_one_workflow", inside, again.height),
                ),
                touched=again["trace"].unique().to_numpy(),
                replayed=shorter(again["row"], WHOLE, again["length_ns"]),
                usd=money(again),
                confidence=HIGH if told else MEDIUM,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(10, "avoidable model calls", _find)
