"""Run bars, print both sides of each ratio, end with a table.

    python -m benchmarks.engine [BAR ...] [--json FILE] [--rounds 3]

Exit code 1 if a bar is not met. Bars can be run one by one.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

from benchmarks import bars
from benchmarks.engine.bench import Bench

BARS = {
    "speed": "speed",
    "floor": "speed",
    "paged": "serving",
    "prefix": "serving",
    "chunks": "serving",
    "batching": "serving",
    "share": "serving",
    "overload": "pressure",
    "pool": "pressure",
    "invariant": "serving",
    "quality": "quality",
    "telemetry": "telemetry",
    "speculation": "speculation",
    "batches": "speculation",
    "early_exit": "speculation",
}
"""Function -> the module it lies in."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, list(BARS))
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; the best counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    functions = {name: f"benchmarks.engine.{module}" for name, module in BARS.items()}
    bench = nullcontext(Bench(args.rounds, args.threads, bars.say))
    return bars.main(functions, bars.chosen(parser, args.bars, list(BARS)), bench, args.json)


if __name__ == "__main__":
    sys.exit(main())
