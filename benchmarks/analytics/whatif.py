"""What ``longpole whatif`` costs: every trace replayed, and the bootstrap of its quantiles.

The spans are those of ``rollup``. The reference replays a part of them. CPU time of the whole
process; compiling is not counted.

    python -m benchmarks.analytics.whatif [--traces 100000]
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.analytics.rollup import seconds, traces

from longpole.vocab import Stage
from longpole_analytics.bulk.each_replay import savings_each
from longpole_analytics.bulk.savings import savings_many
from longpole_analytics.whatif_population import changes

QUESTION = (Stage.LATER_DECODE, 0.5)
NEED_S = 10.0


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=100_000)
    table = traces(parser.parse_args().traces)
    savings_many(table.slice(0, 1), [QUESTION])
    took = seconds(lambda spans: savings_many(spans, [QUESTION]), table, 3)
    part = table.slice(0, min(table.num_rows, 30_000))
    plain = part.num_rows / seconds(lambda spans: savings_each(spans, [QUESTION]), part, 1)
    found = savings_many(table, [QUESTION])
    begun = time.process_time()
    quantiles = changes(found.wall_ns / 1e6, found.saved_ns[:, 0] / 1e6)
    drawn = time.process_time() - begun
    rate = table.num_rows / took
    print(f"{'spans':46}{table.num_rows:12,}   in {len(found.wall_ns):,} traces")
    print(f"{'replay, trace by trace':46}{plain:12,.0f} spans a CPU-second")
    print(f"{'replay, compiled':46}{rate:12,.0f} spans a CPU-second")
    print(f"{'compiled / trace by trace':46}{rate / plain:12.1f}")
    print(f"{'bootstrap':46}{drawn:12.2f} s")
    print(f"{'replay and bootstrap':46}{took + drawn:12.2f} s   need < {NEED_S:g}")
    for change in quantiles:
        print(f"  p{100 * change.quantile:g}: {change.change_ms} ms, {change.ci95}")
    return int(took + drawn >= NEED_S)


if __name__ == "__main__":
    sys.exit(main())
