"""Reasoning budget above need: thinking that costs time and changes no outcome."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._doses import doses
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import DECODE, FIRST, Change, shorter, together
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
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

_BY: Final = ("route", "name", "model")
_TIMES: Final = 10
"""An answer hardly needs so many times its own tokens to think of."""
_ASSUMED: Final = 0.5
"""Of the reasoning that is left, where all calls have about the same."""


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    outcomes = pop.traces.select("trace", said="outcome")
    known = (
        pop.calls.filter((pl.col("reasoning_tokens") > 0) & (pl.col("output_tokens") > 0))
        .join(outcomes, on="trace", how="left", maintain_order="left")
        .with_columns(outcome=pl.col("said"))
    )
    found = []
    for where, calls in groups(known, _BY, rules.min_calls):
        thought, made = numbers(calls, "reasoning_tokens"), numbers(calls, "output_tokens")
        part = median(thought / made, calls)
        if part < rules.reasoning_share or median(thought, calls) < rules.min_reasoning_tokens:
            continue
        facts: tuple[Fact, ...] = ()
        dose = doses(calls, "reasoning_tokens", rules)
        shown = made - thought
        if dose is not None:
            if dose.loss > rules.dose_points:
                continue
            need, confidence = dose.low, MEDIUM
            facts = (of("accepted_with_least", dose.accepted_low),
                     of("accepted_with_most", dose.accepted_high))  # fmt: skip
        elif _is_out_of_proportion(calls, shown, thought):
            need, confidence = _ASSUMED * median(thought, calls), LOW
        else:
            continue
        extra = (thought - need).clip(min=0)
        found.append(
            Candidate(
                where=where,
                title=f"reasoning is {100 * part:.0f} % of the output and changes no outcome "
                "that is known",
                change=f"lower the reasoning effort or budget to about {need:.0f} tokens on this "
                "step, and keep the old one as the fallback for rejected answers",
                verify=_verify(where),
                evidence=(
                    Fact("reasoning_share_p50", part, calls.height),
                    Fact("reasoning_tokens_p50", median(thought, calls), calls.height),
                    Fact("reasoning_tokens_needed", need, calls.height),
                    *facts,
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=_less(calls, extra / made, thought / made),
                usd=money(calls.with_columns(
                    lost=pl.col("output_cost_usd") * pl.Series(extra / made)), "lost"),
                confidence=confidence,
            )
        )  # fmt: skip
    return found


def _verify(where: Mapping[str, str | None]) -> str:
    return ask(
        "outcome, count(*) AS calls, quantile_disc(reasoning_tokens, 0.5) AS reasoning_p50",
        "calls",
        condition(where),
        same(MODEL, where["model"]),
        by_all=True,
    )


def _is_out_of_proportion(calls: pl.DataFrame, shown: np.ndarray, thought: np.ndarray) -> bool:
    """Whether reasoning dwarfs the answer, and no known outcome was bad."""
    is_good = (calls["outcome"].drop_nulls() == "accepted").all()
    return bool(is_good) and median(thought, calls) >= _TIMES * max(median(shown, calls), 1.0)


def _less(calls: pl.DataFrame, extra: np.ndarray, thought: np.ndarray) -> Change:
    """The time of tokens that need not be thought.

    Hidden reasoning is over before the first content, so it lies there; what is streamed lies in
    the decoding. All tokens are taken to need the same time.
    """
    first, decode = calls["first_ns"].to_numpy(), calls["decode_ns"].to_numpy()
    is_hidden = numbers(calls, "num_chunks") < 0.7 * numbers(calls, "output_tokens")
    is_hidden |= ~calls["is_streamed"].fill_null(False).to_numpy()
    visible = 1 - thought
    pace = np.where(visible > 0, decode / np.maximum(visible, 1e-9), first)
    hidden = np.minimum(extra * pace, first * extra / np.maximum(thought, 1e-9))
    hidden = np.where(decode > 0, hidden, first * extra)
    return together([
        shorter(calls["row"], FIRST, np.where(is_hidden, hidden, 0.0)),
        shorter(calls["row"], DECODE, np.where(is_hidden, 0.0, decode * extra)),
    ])  # fmt: skip


ADVICE: Final = Rule(50, "reasoning budget above need", _find)
