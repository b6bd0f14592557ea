"""What a roll-up costs: preparation, critical path and stages, from a table of spans to rows.

A million spans of 100,000 agents' traces, every span and trace id new, the spans of a thousand
traces mixed as they arrive. The compiled way takes all of them, the reference a part. Compiling
is not counted, but shown where nothing was compiled before. CPU time of the whole process.

    python -m benchmarks.analytics.rollup [--traces 100000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from tests.analytics.random_traces import START_NS, agent_trace
from tests.analytics.rolled import table_of

from longpole.vocab import Span
from longpole_analytics import bulk
from longpole_analytics.bulk.each import TRACE, roll_up_each
from longpole_analytics.bulk.table import plain_share, roll_up_many

NUM_KINDS = 2_000
"""Traces that differ in more than ids."""
MIXED = 1_000
ROUNDS = 5
NEED_PER_S = 500_000
NEED_LARGE_S = 2.0
NEED_DEEP_S = 0.5


def traces(num_traces: int) -> pa.Table:
    """Agents' traces of ten spans in the mean."""
    random = Random(1)  # noqa: S311 - not for secrets
    kinds = [agent_trace(random, f"{k:032x}", random.choice((1, 1, 2))) for k in range(NUM_KINDS)]
    table = table_of([span for kind in kinds for span in kind])
    copies = pa.concat_tables([table] * -(-num_traces // NUM_KINDS))
    numbers = np.random.default_rng(1)
    trace = copies["trace_lo"].to_numpy() + NUM_KINDS * np.repeat(
        np.arange(-(-num_traces // NUM_KINDS), dtype=np.uint64), table.num_rows
    )
    copies = copies.filter(pa.array(trace < num_traces))
    trace = trace[trace < num_traces]
    order = np.argsort(trace // MIXED * MIXED + numbers.integers(0, MIXED, len(trace)))
    halves = numbers.integers(1, 2**63, (2, num_traces), dtype=np.uint64)
    for name, half in zip(TRACE, halves, strict=True):
        copies = copies.set_column(
            copies.column_names.index(name), name, pa.array(half[trace.astype(np.int64)])
        )
    return copies.take(pa.array(order)).combine_chunks()


def one_trace(num_spans: int, parent_of: Callable[[int], int]) -> pa.Table:
    """One trace, each span inside its parent."""
    spans = [
        Span(
            f"{1:032x}",
            f"{number + 1:016x}",
            f"{parent_of(number) + 1:016x}" if number else None,
            "step",
            "internal",
            START_NS + number,
            START_NS + 2 * num_spans - number,
            START_NS,
            *("app", "app", "x", "unknown", "unset"),
        )
        for number in range(num_spans)
    ]
    return table_of(spans)


def seconds(work: Callable[[pa.Table], Any], table: pa.Table, rounds: int = ROUNDS) -> float:
    """CPU seconds of this process, the median of some rounds."""
    took = []
    for _ in range(rounds):
        begun = time.process_time()
        work(table)
        took.append(time.process_time() - begun)
    return sorted(took)[rounds // 2]


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=100_000)
    num_traces = parser.parse_args().traces
    begun = time.process_time()
    bulk.start(wait=True)
    print(f"{'compiled or loaded in':46}{time.process_time() - begun:10.1f} s")
    table = traces(num_traces)
    share = plain_share(table)
    rate = table.num_rows / seconds(roll_up_many, table)
    part = table.slice(0, min(table.num_rows, 50_000))
    reference = part.num_rows / seconds(roll_up_each, part, 1)
    large = seconds(roll_up_many, one_trace(120_000, lambda number: (number - 1) // 4))
    deep = seconds(roll_up_many, one_trace(10_000, lambda number: number - 1))
    print(f"{'spans':46}{table.num_rows:10,}   in {num_traces:,} traces")
    print(f"{'of plain traces':46}{share:10.1%}")
    print(f"{'reference':46}{reference:10,.0f} spans a CPU-second")
    print(f"{'compiled':46}{rate:10,.0f} spans a CPU-second   need >= {NEED_PER_S:,}")
    print(f"{'compiled / reference':46}{rate / reference:10.1f}")
    print(f"{'one trace of 120,000 spans':46}{large:10.3f} s   need < {NEED_LARGE_S}")
    print(f"{'one chain of 10,000 spans':46}{deep:10.3f} s   need < {NEED_DEEP_S}")
    return int(rate < NEED_PER_S or large >= NEED_LARGE_S or deep >= NEED_DEEP_S)


if __name__ == "__main__":
    sys.exit(main())
