"""Samples of known traces: what is told of all by those that were kept, against all.

A day of traces of six routes is decided again and again, each time with other trace ids, by the
collector's own ``Sampler`` in batches as they end; the p50, p95 and p99 of each route, its mean
and its share of failed traces are then estimated from what was kept, with their 95 % intervals,
and held against the same of all traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from benchmarks.bars import Bar, info, say

from longpole_analytics.weighted import Estimate, is_shown, mean, quantile, weighted_share
from longpole_collector.sampling import Sampler
from longpole_collector.sampling_rules import CLASSES, SamplingRules

DAY_S = 86_400.0
BATCH = 4000
QUANTILES = (0.5, 0.95, 0.99)
RULES = SamplingRules(is_on=True, window_s=3600.0)
Floats = np.ndarray[Any, np.dtype[np.float64]]
SHAPES: dict[str, tuple[int, Callable[[np.random.Generator, int], Floats]]] = {
    "chat": (60_000, lambda source, n: source.lognormal(7, 0.6, n)),
    "agent": (30_000, lambda source, n: source.gamma(source.poisson(3, n) + 1, 900)),
    "search": (24_000, lambda source, n: source.lognormal(6 + 2 * (source.random(n) < 0.1), 0.4)),
    "batch": (18_000, lambda source, n: 1000 * (source.pareto(1.8, n) + 1)),
    "daily": (15_000, lambda source, n: source.lognormal(6 + np.linspace(0, 1.2, n), 0.5)),
    "ticks": (12_000, lambda source, n: np.round(source.lognormal(5, 0.7, n), -1) + 10),
}
"""Route -> traces a day, and their durations in ms in order of time."""
STEPS = "ticks"
"""The route whose durations come in steps of 10 ms."""


class Bench(NamedTuple):
    """How many samples are drawn."""

    replays: int


class Day(NamedTuple):
    """All traces of a day, in order of time."""

    table: pa.Table
    route: np.ndarray[Any, Any]
    wall_ms: Floats
    is_failed: np.ndarray[Any, np.dtype[np.bool_]]


class Told(NamedTuple):
    """One figure of one route in one sample."""

    route: str
    figure: str
    truth: float
    estimate: float
    low: float
    high: float


def day() -> Day:
    """The traces, the same each time."""
    source = np.random.default_rng(20261130)
    routes, walls, times = [], [], []
    for name, (num, shape) in SHAPES.items():
        routes += [name] * num
        walls.append(shape(source, num))
        times.append(np.sort(source.random(num)))
    order = np.argsort(np.concatenate(times), kind="stable")
    route, wall_ms = np.array(routes)[order], np.concatenate(walls)[order]
    num = len(route)
    is_failed = source.random(num) < 0.01
    version = np.where(source.random(num) < 0.0003, "canary", "v7")
    outcome = np.where(source.random(num) < 0.003, "rejected", "accepted")
    columns = {
        "trace_lo": np.zeros(num, np.uint64),
        "weight": pa.nulls(num, pa.float64()),
        "randomness": pa.nulls(num, pa.int64()),
        "wall_ns": (wall_ms * 1e6).astype(np.int64),
        "is_error": is_failed,
        "is_violation": np.zeros(num, np.bool_),
        "outcome": outcome,
        "route": route,
        "prompt_version": version,
        "request_model": np.where(source.random(num) < 0.2, "large", "small"),
    }
    return Day(pa.table(columns), route, wall_ms, is_failed)


def draw(whole: Day, seed: int) -> tuple[Floats, np.ndarray[Any, Any]]:
    """A sample: what each trace stands for, 0 if it was dropped; and its class."""
    num = whole.table.num_rows
    ids = np.random.default_rng((1, seed)).integers(0, 2**64, num, np.uint64)
    table = whole.table.set_column(0, "trace_lo", pa.array(ids))
    sampler = Sampler(RULES)
    parts = [
        sampler.decide(table.slice(first, BATCH), DAY_S * first / num)
        for first in range(0, num, BATCH)
    ]
    return (
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.reason for part in parts]),
    )


def told(whole: Day, weight: Floats) -> list[Told]:
    """Every figure of every route that the sample carries."""
    found: list[Told] = []
    for route in SHAPES:
        own = whole.route == route
        walls, kept = whole.wall_ms[own], weight[own] > 0
        order = np.argsort(walls[kept], kind="stable")
        values, weights = walls[kept][order], weight[own][kept][order]
        ordered = np.sort(walls)
        for q in QUANTILES:
            estimate = quantile(values, weights, q)
            if estimate is not None and is_shown(weights, q):
                truth = float(ordered[int(np.ceil(round(q * len(ordered), 9))) - 1])
                found.append(_told(route, f"p{100 * q:g}", truth, estimate))
        average = mean(values, weights)
        assert average is not None
        found.append(_told(route, "mean", float(walls.mean()), average))
        failed = weighted_share(whole.is_failed[own][kept], weight[own][kept])
        assert failed.value is not None
        assert failed.low is not None
        assert failed.high is not None
        truth = float(whole.is_failed[own].mean())
        found.append(Told(route, "failed", truth, failed.value, failed.low, failed.high))
    return found


def _told(route: str, figure: str, truth: float, estimate: Estimate) -> Told:
    low = -np.inf if estimate.all_low is None else estimate.all_low
    high = np.inf if estimate.all_high is None else estimate.all_high
    return Told(route, figure, truth, estimate.value, float(low), float(high))


def honesty(bench: Bench) -> list[Bar]:
    """Bias and coverage of every figure."""
    whole = day()
    every: list[Told] = []
    shares: list[float] = []
    for seed in range(bench.replays):
        weight, reason = draw(whole, seed)
        every += told(whole, weight)
        shares.append(float((weight > 0).mean()))
        if seed == 0:
            kept = np.bincount(reason[weight > 0], minlength=len(CLASSES))
            say(", ".join(f"{n} {c}" for n, c in zip(kept.tolist(), CLASSES, strict=True)))
    share = float(np.mean(shares))
    found = [Bar("share kept", share, "", "<=", 0.055, {"traces_a_day": whole.table.num_rows})]
    for figure in ("p50", "p95", "p99", "mean"):
        own = [each for each in every if each.figure == figure]
        by_route = {name: [each for each in own if each.route == name] for name in SHAPES}
        covered = {name: _coverage(each) for name, each in by_route.items()}
        bias = {name: _bias(each) for name, each in by_route.items()}
        # an interval of values in steps holds whole steps, so it holds more than it says
        pooled = _coverage([each for each in own if each.route != STEPS])
        text = {f"of_{name}": f"{value:.3f}" for name, value in covered.items()}
        found.append(Bar(f"{figure} coverage from 0.95", abs(pooled - 0.95), "", "<=", 0.02, text))
        reach = {f"of_{name}": f"{_reach(each):.3f}" for name, each in by_route.items()}
        found.append(
            info(
                f"{figure} half width / value",
                np.mean([*map(_reach, by_route.values())]),
                "",
                reach,
            )
        )
        text = {f"of_{name}": f"{value:+.3f}" for name, value in bias.items()}
        worst = max(map(abs, bias.values()))
        found.append(Bar(f"{figure} bias / half width", worst, "", "<=", 0.25, text))
    failed = [each for each in every if each.figure == "failed"]
    apart = {name: _bias([e for e in failed if e.route == name]) for name in SHAPES}
    text = {f"of_{name}": f"{value:+.3f}" for name, value in apart.items()}
    found.append(
        Bar("failed bias / half width", max(map(abs, apart.values())), "", "<=", 0.25, text)
    )
    return found


def _coverage(figures: list[Told]) -> float:
    return float(np.mean([each.low <= each.truth <= each.high for each in figures]))


def _reach(figures: list[Told]) -> float:
    """Half the width of a usual interval over the truth."""
    return float(np.median([(each.high - each.low) / 2 for each in figures]) / figures[0].truth)


def _bias(figures: list[Told]) -> float:
    """Mean error over half the width of a usual interval."""
    error = float(np.mean([each.estimate - each.truth for each in figures]))
    return error / (_reach(figures) * figures[0].truth)
