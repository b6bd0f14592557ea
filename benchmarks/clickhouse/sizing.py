"""What 100,000 and a million spans a second take: a day of arrivals through measured stage costs.

Measured here: decoding, an insert, settling (a worker's part and the engine's), bytes on disk and
on the wire. Simulated: a day second by second, each stage a queue that its cores work off, on the
fewest cores with which the day meets the targets. docs/sizing.md says what is assumed.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from benchmarks.bars import Bar, info, say
from benchmarks.clickhouse.bench import DAY_NS, ROWS_AT_ONCE, Bench, rows, yesterday_ns
from benchmarks.clickhouse.insert import insert_cost, settled_bytes
from benchmarks.clickhouse.workers import settle_cost
from benchmarks.collector.payload import Payload

RATES = (100_000, 1_000_000)
STORED_WITHIN_S = 2.0
SETTLED_WITHIN_S = 10.0
MAX_BUSY = 0.7
"""Of a stage's cores over the busiest hour: the rest is for queries, copies, a lost machine."""
_DAY_S = 86_400
_HOUR_S = 3_600
_DOOR_US = 3.0
"""Taken over from ``benchmarks/collector``: HTTP, the log and its fsync, bodies of 512 spans."""
Floats = npt.NDArray[np.float64]


class Costs(NamedTuple):
    """Microseconds of CPU a span by stage, and bytes a span."""

    door_us: float
    decode_us: float
    insert_us: float
    settle_worker_us: float
    settle_engine_us: float
    disk_bytes: float
    wire_bytes: float


class Plan(NamedTuple):
    """What a rate takes: cores by stage, and how late a day's spans are with them."""

    collector_cores: int
    worker_cores: int
    engine_cores: int
    stored_p99_s: float
    settled_p99_s: float
    settled_max_s: float


def sizing(bench: Bench) -> list[Bar]:
    """Measure, then simulate each rate."""
    costs = measured(bench)
    say("  ".join(f"{name} {value:.1f}" for name, value in costs._asdict().items()))
    bars = []
    for rate in RATES:
        plan = planned(rate, costs)
        cores = plan.collector_cores + plan.worker_cores + plan.engine_cores
        sides: dict[str, float | str] = dict(plan._asdict())
        sides["disk_tb_a_day"] = rate * _DAY_S * costs.disk_bytes / 1e12
        sides["wire_mb_a_s"] = rate * costs.wire_bytes / 1e6
        bars.append(info(f"cores_at_{rate}", cores, "cores", sides))
    return [info(name, value, "", {}) for name, value in costs._asdict().items()] + bars


def measured(bench: Bench) -> Costs:
    """The costs of each stage on this machine, now."""
    num_spans = bench.spans(524_288)
    bodies = Payload(512).bodies(ROWS_AT_ONCE, 1, 0, DAY_NS)
    wire_bytes = sum(map(len, bodies)) / ROWS_AT_ONCE
    decode_us = _decode_us(num_spans)
    store = bench.store(f"sizing_insert_{os.getpid()}")
    insert_s, _, num_inserted = insert_cost(store, num_spans)
    store = bench.store(f"sizing_bytes_{os.getpid()}")
    sizes, _ = settled_bytes(store, num_spans)
    settled, num_settled = settle_cost(bench)
    return Costs(
        _DOOR_US,
        decode_us,
        insert_s / num_inserted * 1e6,
        settled.workers_cpu_s / num_settled * 1e6,
        settled.engine_cpu_s / num_settled * 1e6,
        sum(sizes.values()) / num_spans,
        wire_bytes,
    )


def _decode_us(num_spans: int) -> float:
    """CPU of making bodies and columns of them, less that of making the bodies."""
    tables = rows(num_spans, yesterday_ns() - DAY_NS, DAY_NS, has_pool=True)
    next(tables)  # the first one also opens things
    cpu_s = time.process_time()
    num = sum(table.num_rows for table in tables)
    cpu_s = time.process_time() - cpu_s
    payload = Payload(512)
    made_s = time.process_time()
    for _ in payload.bodies(num, 1, 0, DAY_NS):
        pass
    made_s = time.process_time() - made_s
    return (cpu_s - made_s) / num * 1e6


def arrivals(rate: float, seed: int = 0) -> Floats:
    """Spans in each second of a day of this mean rate.

    Half as much again by day as on average, a random walk of a fifth around it that forgets
    within minutes, and once an hour, at a random moment, a minute of twice as much.
    """
    rng = np.random.default_rng(seed)
    seconds = np.arange(_DAY_S)
    daily = 1 - 0.5 * np.cos(2 * np.pi * seconds / _DAY_S)
    noise = np.zeros(_DAY_S)
    steps = rng.normal(0, 0.2 * np.sqrt(1 - 0.99**2), _DAY_S)
    for second in range(1, _DAY_S):
        noise[second] = 0.99 * noise[second - 1] + steps[second]
    burst = np.ones(_DAY_S)
    for hour in range(24):
        begin = hour * _HOUR_S + int(rng.integers(0, _HOUR_S - 60))
        burst[begin : begin + 60] = 2.0
    shape = daily * np.exp(noise) * burst
    return rng.poisson(rate * shape / shape.mean()).astype(np.float64)


def queue(arriving: Floats, capacity: float) -> tuple[Floats, Floats]:
    """What a stage of so many spans a second lets through, and how long what comes waits (s)."""
    left, through, waits = 0.0, np.empty_like(arriving), np.empty_like(arriving)
    for second, num in enumerate(arriving):
        left += num
        waits[second] = left / capacity
        through[second] = min(left, capacity)
        left -= through[second]
    return through, waits


def planned(rate: float, costs: Costs) -> Plan:
    """The fewest cores of each stage with which a day of this rate meets the targets."""
    coming = arrivals(rate)
    peak = float(coming.reshape(-1, _HOUR_S).mean(axis=1).max())
    collect_us = costs.door_us + costs.decode_us
    engine_us = costs.insert_us + costs.settle_engine_us
    collectors, taken, collected = _fewest(coming, peak, collect_us, STORED_WITHIN_S / 2)
    engines, stored, inserted = _fewest(taken, peak, engine_us, STORED_WITHIN_S / 2)
    workers, _, settled = _fewest(stored, peak, costs.settle_worker_us, SETTLED_WITHIN_S / 2)
    late_s = collected + inserted
    return Plan(
        collectors,
        workers,
        engines,
        _weighted_p99(late_s, coming),
        _weighted_p99(late_s + settled, coming),
        float((late_s + settled).max()),
    )


def _fewest(
    coming: Floats, peak: float, cost_us: float, within_s: float
) -> tuple[int, Floats, Floats]:
    """Cores, what they let through, and how long it waits there."""
    cores = max(1, int(np.ceil(peak * cost_us / 1e6 / MAX_BUSY)))
    while True:
        through, waits = queue(coming, cores * 1e6 / cost_us)
        if _weighted_p99(waits, coming) <= within_s:
            return cores, through, waits
        cores += max(1, cores // 50)


def _weighted_p99(waits: Floats, num: Floats) -> float:
    """The wait that 99 of 100 spans do not exceed."""
    order = np.argsort(waits)
    share = np.cumsum(num[order]) / num.sum()
    return float(waits[order][np.searchsorted(share, 0.99)])
