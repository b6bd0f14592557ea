"""Tiny labels from a large model: a class of a few tokens that a small model could name."""

import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import WHOLE, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    LOW,
    MEDIUM,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    lowest,
    median,
    money,
    numbers,
    text,
)
from longpole_analytics.prices import CLASSES, STANDARD, Prices

_SMALL: Final = frozenset(("mini", "nano", "small", "lite", "tiny", "haiku", "flash"))
_LARGE: Final = frozenset(("large", "opus", "ultra", "max", "xl"))
LARGE_BILLION: Final = 30
"""Parameters from which on a model of which only that is known is a large one."""
_BY: Final = ("route", "name", "model", "model_key")


class Small:
    """Which model is a small one beside another, by price."""

    def __init__(self, prices: Prices, seen: set[str]) -> None:
        self._price: dict[str, float] = {}
        for cell in prices.cells:
            is_plain = cell.service_tier == STANDARD and not cell.above_tokens
            output = cell.usd_per_mtok[CLASSES.index("output")] or 0.0
            if is_plain and cell.valid_to_ns is None and output > 0:
                self._price[cell.model_key] = max(output, self._price.get(cell.model_key, 0.0))
        self._seen = seen

    def is_priced(self, key: str | None) -> bool:
        """Whether a model's price is known."""
        return key in self._price

    def beside(self, key: str | None, rules: AdvisorRules) -> tuple[str, float] | None:
        """A model of the same provider at most so dear, and its share of the price.

        One that is in use already, else the one whose name is most like it.
        """
        if key is None or self._price.get(key, 0.0) <= rules.large_usd_per_mtok:
            return None
        provider = key.partition("/")[0]
        limit = rules.cheap_ratio * self._price[key]
        cheap = [
            other
            for other, price in self._price.items()
            if price <= limit and other.partition("/")[0] == provider
        ]
        if not cheap:
            return None
        best = min(
            cheap,
            key=lambda other: (
                other not in self._seen,
                -_num_alike(key, other),
                len(other),
                other,
            ),
        )
        return best, self._price[best] / self._price[key]


def is_large_by_name(model: str | None) -> bool:
    """Whether a model without a price says itself that it is a large one."""
    words = re.split(r"[^a-z0-9]+", (model or "").lower())
    if _SMALL & set(words):
        return False
    sizes = [int(word[:-1]) for word in words if re.fullmatch(r"\d{1,5}b", word)]
    return bool(_LARGE & set(words)) or max(sizes, default=0) >= LARGE_BILLION


def _num_alike(one: str, other: str) -> int:
    """Characters that two names have in common from their start."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def labels(
    pop: Population, rules: AdvisorRules
) -> list[tuple[dict[str, str | None], pl.DataFrame]]:
    """The kinds of calls whose answers are labels, with their calls."""
    counted = pop.calls.filter(
        pl.col("output_tokens").is_not_null()
        & pl.col("error_type").is_null()
        & (pl.col("finish_reason").fill_null("stop") == "stop")
    ).with_columns(shown=pl.col("output_tokens") - pl.col("reasoning_tokens").fill_null(0))
    found = []
    for where, calls in groups(counted, _BY, rules.min_calls):
        is_short = lowest(calls, "shown", 0.95) <= rules.label_tokens
        if is_short and (calls["shown"] >= 1).all():
            found.append((where, calls))
    return found


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    seen = set(pop.calls["model_key"].drop_nulls().unique())
    small = Small(pop.prices, seen)
    found = []
    for where, calls in labels(pop, rules):
        other = small.beside(where["model_key"], rules)
        if other is None and (
            small.is_priced(where["model_key"]) or not is_large_by_name(where["model"])
        ):
            continue
        name, ratio = other or ("a small model of the same provider", None)
        times = pop.calls.filter((pl.col("model_key") == name) & (pl.col("output_tokens") <= 32))
        is_seen = times.height >= rules.min_calls
        own = numbers(calls, "e2e_ms")
        left = rules.small_time_share
        if is_seen:
            left = min(median(numbers(times, "e2e_ms"), times) / max(median(own, calls), 1e-9), 1.0)
        cost = money(calls)
        at = {"route": where["route"], "name": where["name"], "model": where["model"]}
        found.append(
            Candidate(
                where=at,
                title=f"{text(where['model'])} answers with a label: at most {rules.label_tokens} "
                f"tokens in 95 % of {calls.height} calls",
                change=f"send this step to {text(name)}, or to a classifier of your own; compare "
                "the labels of both on a few hundred recorded inputs first",
                verify=ask(
                    "request_model, count(*) AS calls, quantile_disc(e2e_ms, 0.5) AS p50_ms",
                    "calls",
                    condition(at),
                    by_all=True,
                ),
                evidence=(
                    Fact(
                        "output_tokens_p95", float(calls["shown"].quantile(0.95) or 0), calls.height
                    ),
                    Fact("small_model_price_share", ratio, 1),
                    Fact("small_model_time_share", left, times.height if is_seen else 0),
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=shorter(calls["row"], WHOLE, calls["length_ns"].to_numpy() * (1 - left)),
                usd=None if cost is None or ratio is None else cost * (1 - ratio),
                confidence=MEDIUM if is_seen else LOW,
                is_load=True,
            )
        )
    return found


ADVICE: Final = Rule(20, "tiny labels from a large model", _find)
