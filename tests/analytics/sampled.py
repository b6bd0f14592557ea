"""Calls, spans and requests of which a known sample is kept, for tests of weights."""

import numpy as np
import polars as pl

from longpole_analytics.requests import from_flat

from .test_measures_command import workflow

S = 10**9


def made(num=300, seed=1):
    """Calls of workflows, each with its cost; a quarter of the workflows are slow and dear."""
    rng = np.random.default_rng(seed)
    calls = rng.integers(1, 4, num)
    trace = np.repeat(np.arange(num), calls)
    n = len(trace)
    slow = (rng.random(num) < 0.25)[trace]
    e2e = rng.lognormal(6, 0.6, n) * np.where(slow, 8, 1)
    size = rng.integers(500, 4000, n)
    cached = np.where(rng.random(n) < 0.4, size // 2, 0)
    known = rng.random(n) < 0.95
    cost = np.round(e2e / 1e5 * rng.random(n), 6)
    outcomes = rng.choice(["accepted", "rejected", "none"], num, p=[0.6, 0.2, 0.2])[trace]
    calls = pl.DataFrame({
        "trace_id": [f"{each:032x}" for each in trace],
        "route": [f"r{each % 3}" for each in trace],
        "provider": "p",
        "request_model": "m",
        "model_key": "p/m",
        "start_ns": np.sort(rng.integers(0, 3600 * S, n)),
        "is_slow": slow,
        "outcome": [None if each == "none" else each for each in outcomes],
        "input_tokens": size,
        "cached_input_tokens": cached,
        "cache_write_tokens": np.where(cached > 0, 0, size // 4),
        "prefix_hash": [f"h{each % 5}" for each in trace],
        "cost_usd": [float(c) if k else None for c, k in zip(cost, known, strict=True)],
        "cost_problem": [None if k else "no_price" for k in known],
        "error_type": [None if each else "timeout" for each in rng.random(n) < 0.9],
        "e2e_ms": e2e,
        "ttft_ms": e2e / 3,
        "ttfv_ms": e2e / 2,
        "retry_ms": np.where(slow, e2e / 10, 0.0),
        "num_attempts": 1 + slow.astype(int),
        "is_cold_start": rng.random(n) < np.where(slow, 0.3, 0.05),
        "output_tokens": rng.integers(20, 200, n),
        "reasoning_tokens": rng.integers(0, 20, n),
        "service": "s",
        "input_usd_per_mtok": 2.0,
        "cached_input_usd_per_mtok": 0.2,
        "cache_write_usd_per_mtok": 2.5,
        "cache_write_1h_usd_per_mtok": 4.0,
        "cache_storage_usd_per_mtok": 0.0,
    })  # fmt: skip
    return calls.with_columns(end_ns=pl.col("start_ns") + (pl.col("e2e_ms") * 1e6).cast(pl.Int64))


ALL = made()


def drawn(seed, calls=ALL):
    """What sampling keeps of the calls: slow workflows at 0.8, others at 0.2, with weights."""
    ids = calls.select(pl.col("trace_id").unique(maintain_order=True), seed=seed)
    luck = pl.Series(np.random.default_rng(seed).random(ids.height))
    kept = calls.join(ids.with_columns(luck=luck), on="trace_id", maintain_order="left")
    share = pl.when("is_slow").then(0.8).otherwise(0.2)
    return kept.with_columns(weight=1 / share).filter(pl.col("luck") < share).drop("luck")


def spans_of(num, weight=None):
    return [
        span._replace(weight=weight)
        for number in range(num)
        for span in workflow(
            number, used=["left"], state="expired" if number % 4 else "used", attempts=1
        )
    ]


def requests_of(weight):
    rng = np.random.default_rng(8)
    num = 400
    start = np.sort(rng.integers(0, 600 * S, num))
    table = pl.DataFrame({
        "trace_id": [f"{each:032x}" for each in range(num)],
        "start_ns": start,
        "queue_ms": rng.exponential(50, num),
        "model_ms": rng.exponential(200, num) + 100,
        "e2e_ms": rng.exponential(200, num) + 400,
        "in_flight": rng.integers(1, 9, num).astype(float),
        "tpot_ms": rng.exponential(20, num),
        "weight": weight(rng, num),
    })  # fmt: skip
    return from_flat(table)
