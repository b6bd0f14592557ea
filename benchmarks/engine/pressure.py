"""What is left of the throughput when there is too much work, or too little memory."""

from __future__ import annotations

import time

from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench
from benchmarks.engine.driver import Driver, words

from longpole_engine.config import Preemption
from longpole_engine.types import QueueFull

_PROMPT = 24
_MEAN_OUTPUT = 24
_RAMP_S = 2.0


def _length(number: int) -> int:
    """Tokens of an answer: 12 to 36, so that seats fall free one by one."""
    return _MEAN_OUTPUT - 12 + number * 7 % 25


def overload(bench: Bench) -> list[Bar]:
    """Tokens of finished answers a second at twice the requests it can serve, over its best."""
    driver = Driver(bench.model, bench.threads, max_queue=16, is_prefix_cached=False)
    peak = over = 0.0
    num_refused = 0
    for _ in range(max(2, bench.rounds)):  # in turns, best of each
        peak = max(peak, _served(driver, gap_s=0.0, seconds=6.0)[0])
        gap_s = _MEAN_OUTPUT / (2 * peak)
        found, num_refused = _served(driver, gap_s, seconds=6.0)
        over = max(over, found)
    sides: dict[str, float | str] = {
        "peak_tokens_s": peak,
        "overloaded_tokens_s": over,
        "refused": num_refused,
    }
    return [Bar("overload goodput / peak", over / peak, "x", ">=", 0.9, sides)]


def _served(driver: Driver, gap_s: float, seconds: float) -> tuple[float, int]:
    """Tokens a second of answers that finish, once all seats are taken.

    Requests come every ``gap_s``; 0: as there is room.
    """
    begun = time.perf_counter()
    wanted: dict[str, int] = {}
    number, num_refused, due = 0, 0, begun
    while (now := time.perf_counter()) < begun + seconds:
        while due <= now and (gap_s or driver.engine.num_waiting < 8):
            number += 1
            try:
                wanted[driver.submit(words(number, _PROMPT), _length(number))] = _length(number)
            except QueueFull:
                num_refused += 1
            due += gap_s
        driver.engine.step()
    since, until = begun + _RAMP_S, time.perf_counter()
    driver.drain()
    done = [driver.times[name] for name, num in wanted.items() if len(driver.times[name]) == num]
    num_tokens = sum(since <= at <= until for times in done for at in times)
    return num_tokens / (until - since), num_refused


def pool(bench: Bench) -> list[Bar]:
    """Eight answers with room for 40 % of their keys and values, over room for all."""
    num_needed = 8 * (64 + 192) // 16
    spans: dict[str, float] = {}
    put_back: dict[str, int] = {}
    for name, kv_pages, kind in (
        ("all", num_needed, Preemption.RECOMPUTE),
        ("recompute", int(0.4 * num_needed), Preemption.RECOMPUTE),
        ("swap", int(0.4 * num_needed), Preemption.SWAP),
    ):
        driver = Driver(
            bench.model,
            bench.threads,
            kv_pages=kv_pages,
            preemption=kind,
            is_prefix_cached=False,
        )
        for number in range(8):
            driver.submit(words(number, 64), 192)
        spans[name] = driver.drain()
        put_back[name] = sum(record.num_preempted for record in driver.records.values())
    sides: dict[str, float | str] = {f"{name}_s": span for name, span in spans.items()}
    sides |= {f"{name}_put_back": num for name, num in put_back.items()}
    return [
        Bar(f"40 % of pages, {name}", spans["all"] / spans[name], "x", ">=", 0.6, sides)
        for name in ("recompute", "swap")
    ]
