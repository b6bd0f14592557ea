"""What shapes cost: a million calls in 500 slices, every quantile with its bootstrap.

Half of the calls are usual, half current; in 13 of 14 slices something happened. From a table of
requests to verdicts; loading is not counted. CPU time of the whole process.

    python -m benchmarks.analytics.shapes [--calls 1000000] [--slices 500]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import polars as pl
from tests.analytics.population_generator import LABELS, populations

from longpole_analytics.requests import from_flat
from longpole_analytics.shapes import shapes_of

ROUNDS = 3
NEED_S = 15.0


def sides(num_calls: int, num_slices: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Requests of both periods, in the order of arrival: mixed over the slices."""
    size = num_calls // num_slices // 2
    frames = []
    for seed in range(-(-num_slices // len(LABELS))):
        frame, _ = populations(seed, per_label=1, n=(size, size))
        frames.append(frame.with_columns(pl.col("slice_id") + seed * len(LABELS)))
    every = pl.concat(frames).filter(pl.col("slice_id") < num_slices)
    requests = from_flat(every.sample(fraction=1.0, shuffle=True, seed=1))
    return requests.filter(pl.col("period") == "0"), requests.filter(pl.col("period") == "1")


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--slices", type=int, default=500)
    given = parser.parse_args()
    baseline, current = sides(given.calls, given.slices)
    took = []
    for _ in range(ROUNDS):
        begun = time.process_time(), time.perf_counter()
        found = shapes_of(baseline, current, ["slice_id"])
        took.append((time.process_time() - begun[0], time.perf_counter() - begun[1]))
    cpu_s, wall_s = sorted(took)[ROUNDS // 2]
    names = Counter(shape.name for shape in found)
    print(f"{'calls':30}{baseline.height + current.height:12,}   in {len(found):,} slices")
    print(f"{'with a shape':30}{len(found) - names['normal']:12,}   of {len(names)} kinds")
    print(f"{'CPU':30}{cpu_s:12.2f} s   need < {NEED_S}")
    print(f"{'wall':30}{wall_s:12.2f} s")
    return int(cpu_s >= NEED_S)


if __name__ == "__main__":
    sys.exit(main())
