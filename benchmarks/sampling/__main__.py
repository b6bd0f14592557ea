"""Run bars, print both sides of each, end with a table.

    python -m benchmarks.sampling [BAR ...] [--json FILE] [--replays 200]

Exit code 1 if a bar is not met.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

from benchmarks import bars
from benchmarks.sampling.replay import Bench

BARS = {"honesty": "replay"}
"""Function -> the module it lies in."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, list(BARS))
    parser.add_argument("--replays", type=int, default=200, help="samples drawn of the traces")
    args = parser.parse_args()
    functions = {name: f"benchmarks.sampling.{module}" for name, module in BARS.items()}
    bench = nullcontext(Bench(args.replays))
    return bars.main(functions, bars.chosen(parser, args.bars, list(BARS)), bench, args.json)


if __name__ == "__main__":
    sys.exit(main())
