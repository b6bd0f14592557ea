"""Cold paths: calls that find an engine, or a connection, cold and wait for it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole.vocab import keys
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import FIRST, shorter
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
    median,
    numbers,
    of,
    same,
)
from longpole_analytics.measures import MeasureRules
from longpole_analytics.weighted import part as part_of

_BY: Final = ("route", "model")


def tempered(pop: Population) -> pl.DataFrame:
    """The calls with ``is_cold``: said so, or the first one after a quiet time of its model."""
    quiet_ns = int(MeasureRules().quiet_s * 1e9)
    last = pl.col("end_ns").cum_max().shift(1)
    calls = pop.calls.sort("start_ns", "row").with_columns(
        quiet=(pl.col("start_ns") - last.over("provider", "model", order_by="start_ns"))
    )
    after = (pl.col("quiet") >= quiet_ns).fill_null(False)
    return calls.with_columns(
        is_told=pl.col("is_cold_start").is_not_null(),
        is_cold=pl.coalesce("is_cold_start", after),
    )


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    return [*_engines(pop, rules), *_connections(pop, rules)]


def _engines(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    found = []
    timed = tempered(pop).filter(pl.col("first_ns") > 0)
    for where, calls in groups(timed, _BY, rules.min_calls):
        cold, warm = calls.filter("is_cold"), calls.filter(~pl.col("is_cold"))
        part = part_of(cold, calls)
        if cold.height < rules.min_repeats or (part.value or 0.0) < rules.cold_share:
            continue
        usual, slow = (
            median(numbers(warm, "first_ns"), warm),
            median(numbers(cold, "first_ns"), cold),
        )
        if warm.height < rules.min_calls or slow < rules.cold_ratio * usual:
            continue
        less = (cold["first_ns"].to_numpy() - usual).clip(min=0)
        told = bool(cold["is_told"].all())
        found.append(
            Candidate(
                where=where,
                title=f"{cold.height} of {calls.height} calls find a cold engine: "
                f"{slow / 1e6:.0f} ms to the first content instead of {usual / 1e6:.0f} ms",
                change="keep one instance warm (a small call every few minutes, or a minimum of "
                "one replica), and warm up before known traffic and after each deploy",
                verify=ask(
                    "is_cold_start, count(*) AS calls, quantile_disc(ttft_ms, 0.5) AS ttft_p50_ms",
                    "calls",
                    condition(where),
                    same(MODEL, where["model"]),
                    by_all=True,
                ),
                evidence=(
                    of("cold_share", part),
                    Fact("cold_first_content_p50_ms", slow / 1e6, cold.height),
                    Fact("warm_first_content_p50_ms", usual / 1e6, warm.height),
                ),
                touched=cold["trace"].unique().to_numpy(),
                replayed=shorter(cold["row"], FIRST, less),
                confidence=HIGH if told else MEDIUM,
            )
        )
    return found


def _connections(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    found = []
    told = pop.calls.filter(
        pl.col("connection_new").is_not_null() | pl.col("connection_time").is_not_null()
    )
    for where, calls in groups(told, _BY, rules.min_calls):
        is_new = calls["connection_new"].fill_null("false").str.to_lowercase() == "true"
        new = calls.filter(is_new & calls["connection_time"].is_not_null())
        part = part_of(calls.filter(is_new), calls)
        if (part.value or 0.0) < rules.new_connection_share or new.is_empty():
            continue
        took = np.nan_to_num(numbers(new, "connection_time")) * 1e9
        found.append(
            Candidate(
                where=where,
                title=f"{part.k} of {calls.height} calls open a connection of their own",
                change="make one client for the process and use it for all calls; raise its "
                "keep-alive time above the time between calls, and allow HTTP/2",
                verify=ask(
                    f"attributes['{keys.CONNECTION_NEW}'] AS is_new, count(*) AS calls",
                    "spans",
                    "is_model_call",
                    condition(where),
                    by_all=True,
                ),
                evidence=(
                    of("new_connection_share", part),
                    Fact("connection_ms_p50", median(took, new) / 1e6, new.height),
                ),
                touched=new["trace"].unique().to_numpy(),
                replayed=shorter(new["row"], FIRST, took),
                confidence=HIGH,
            )
        )
    return found


ADVICE: Final = Rule(110, "cold paths", _find)
