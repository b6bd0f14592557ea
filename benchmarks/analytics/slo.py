"""What a tick of the SLO evaluation costs: 200 objectives over 30 days of minutes.

A tick sums the minutes up, goes through the last minutes of every rule's alert again, and tells
budgets and burn rates. The first one after a start without a memory goes through all minutes.
A third of the objectives burn, on and off. CPU time of the whole process.

    python -m benchmarks.analytics.slo [--objectives 200] [--requests 1000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import polars as pl

from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.requests import from_flat
from longpole_analytics.slo.burn import panel
from longpole_analytics.slo.check import standings
from longpole_analytics.slo.lifecycle import Memory, advance, loads
from longpole_analytics.slo.objectives import Objective, default_rules
from longpole_analytics.slo.series import Series, minute_series
from longpole_analytics.slo_command import _Selected

PERIOD_MIN = 30 * 1440
NEED_S = 1.0


def objectives(num: int) -> list[Objective]:
    """Promises on TTFT, one a route."""
    rules = default_rules(PERIOD_MIN)
    return [
        Objective(f"slo-{k}", "ttft_ms", (0.9, 0.95, 0.99, 0.999)[k % 4], 2000.0, PERIOD_MIN,
                  where=f"route = 'r{k}'", rules=rules)
        for k in range(num)
    ]  # fmt: skip


def minutes(num: int, seed: int = 1) -> list[Series]:
    """Traffic with a daily wave, and incidents of an hour on every third objective."""
    dice = np.random.default_rng(seed)
    wave = 30 + 20 * np.sin(np.arange(PERIOD_MIN) * 2 * np.pi / 1440)
    found = []
    for k in range(num):
        total = dice.poisson(wave)
        share = np.full(PERIOD_MIN, 0.001)
        if k % 3 == 0:
            for begin in dice.integers(0, PERIOD_MIN - 60, 60):
                share[begin : begin + 60] = 0.8
        bad = dice.binomial(total, share)
        found.append(Series(0, bad * SCALE, total * SCALE, bad, 0))
    return found


def requests(num: int, num_routes: int, seed: int = 2) -> pl.DataFrame:
    """Requests over 30 days."""
    dice = np.random.default_rng(seed)
    return from_flat(
        pl.DataFrame(
            {
                "start_ns": dice.integers(0, PERIOD_MIN, num) * MINUTE_NS,
                "route": [f"r{k}" for k in dice.integers(0, num_routes, num)],
                "ttft_ms": dice.lognormal(6.5, 0.5, num),
            }
        )
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, the best of three."""
    took = []
    for _ in range(3):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objectives", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1_000_000)
    asked = parser.parse_args()
    promised, series = objectives(asked.objectives), minutes(asked.objectives)
    last = PERIOD_MIN - 1
    kept = advance(None, panel(promised, series), last - 1).dumps()

    def tick(memory: Memory | None) -> None:
        summed = panel(promised, series)
        standings(summed, last, advance(memory, summed, last))

    memory = loads(kept)
    ticks, first = seconds(lambda: tick(memory)), seconds(lambda: tick(None))
    restored = seconds(lambda: loads(kept).dumps())
    table = requests(asked.requests, asked.objectives)

    def read() -> None:
        with _Selected(table) as selected:
            for objective in promised:
                minute_series(selected(objective), objective, 0, PERIOD_MIN)

    took = seconds(read)
    print(f"{'objectives x minutes':46}{len(promised):6} x {PERIOD_MIN:,}")
    print(f"{'a tick':46}{ticks:12.3f} s   need < {NEED_S:g}")
    print(f"{'the first tick, all minutes':46}{first:12.3f} s")
    print(f"{'the memory read and written':46}{restored:12.3f} s   {len(kept) / 1000:,.0f} kB")
    print(f"{f'minutes of {asked.requests:,} requests':46}{took:12.2f} s")
    return int(ticks >= NEED_S)


if __name__ == "__main__":
    sys.exit(main())
