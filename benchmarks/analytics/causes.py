"""What ``top`` costs: causes of one and two attributes, coverage and changes of a million requests.

Twelve dimensions of 2 to 1,000 values and a route; two causes and one change are planted, and
one dimension sends longer prompts. From a Parquet file as ``longpole top`` reads it.

    python -m benchmarks.analytics.causes [--requests 1000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from longpole_analytics.loading import Source, load_requests
from longpole_analytics.top import top

SIZES = (2, 3, 3, 4, 6, 8, 12, 20, 50, 100, 300, 1000)
NEED_S = 10.0


def requests(num: int) -> pl.DataFrame:
    """Requests of eight routes over a day."""
    random = np.random.default_rng(1)
    dimensions = {
        f"d{number}": random.integers(0, size, num) ** 2 // size
        for number, size in enumerate(SIZES)
    }
    start = np.sort(random.integers(0, 86_400 * 10**9, num)) + 1_800_000_000 * 10**9
    version = np.where(np.arange(num) < num // 2, "v1", "v2")
    route = random.integers(0, 8, num)
    inputs = np.exp(random.normal(7, 1, num) + 0.5 * (dimensions["d5"] == 1))
    outputs = np.exp(random.normal(5, 0.7, num))
    queue = random.exponential(50, num) + 12_000 * (
        (dimensions["d3"] == 2) & (dimensions["d4"] == 4) & (random.random(num) < 0.4)
    )
    prefill = inputs / 5 + 300 * (version == "v2")
    decode = outputs * random.gamma(8, 2.5, num) * np.where(dimensions["d7"] == 12, 2.0, 1.0)
    return pl.DataFrame(
        {
            "start_ns": start,
            "route": pl.Series(route).cast(pl.String),
            **{name: pl.Series(values).cast(pl.String) for name, values in dimensions.items()},
            "d0": pl.Series(version),
            "input_tokens": inputs.astype(np.int64),
            "output_tokens": outputs.astype(np.int64),
            "queue_ms": queue,
            "prefill_ms": prefill,
            "later_decode_ms": decode,
            "ttft_ms": queue + prefill,
            "e2e_ms": queue + prefill + decode,
        }
    )


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    num = parser.parse_args().requests
    with TemporaryDirectory() as folder:
        path = Path(folder) / "requests.parquet"
        requests(num).write_parquet(path)
        begun, used = time.perf_counter(), time.process_time()
        table = load_requests(Source(files=(path,)))
        loaded = time.perf_counter()
        found = top(table)
        ended, used = time.perf_counter(), time.process_time() - used
    print(f"{'requests':34}{num:12,}   in {len(SIZES)} dimensions and a route")
    print(f"{'read':34}{loaded - begun:12.2f} s")
    print(f"{'causes, coverage, changes':34}{ended - loaded:12.2f} s")
    print(f"{'all':34}{ended - begun:12.2f} s   need < {NEED_S:g}   ({used:.2f} s of CPU)")
    for cause in found.causes:
        print(f"  {cause.where}: {cause.stage}, risk ratio {cause.risk_ratio:.1f}")
    for change in found.changes:
        moved = ", ".join(f"{m.stage} {m.moved_ms:+.0f} ms" for m in change.stages)
        print(f"  route {change.route} {change.where}: {moved}")
    return int(ended - begun >= NEED_S)


if __name__ == "__main__":
    sys.exit(main())
