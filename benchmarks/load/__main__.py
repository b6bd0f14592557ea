"""Run the load generator's bars beside the peers, print both sides, end with a table.

    python -m benchmarks.load [BAR ...] [--json FILE] [--scale 1]

Exit code 1 if a bar is not met. A peer that cannot be installed or run is named at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import bars
from benchmarks.load.bench import Bench
from benchmarks.load.generators import GENERATORS

BARS = ("lag", "streams", "cpu", "agree")
"""Each a module here, with a function of its name."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, BARS)
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    args = parser.parse_args()
    functions = {name: f"benchmarks.load.{name}" for name in BARS}
    names = bars.chosen(parser, args.bars, BARS)
    return bars.main(functions, names, _bench(args.scale), args.json, _more)


@contextmanager
def _bench(scale: float) -> Iterator[Bench]:
    with TemporaryDirectory(prefix="longpole-bench-") as folder:
        yield Bench(Path(folder), scale, say=bars.say)


def _more(bench: Bench) -> dict[str, Any]:
    """What the document has beside the bars."""
    for name, reason in bench.missing.items():
        print(f"{GENERATORS[name].title:<34} did not run: {reason}")
    packages = {name: each.packages for name, each in GENERATORS.items()}
    return {"scale": bench.scale, "generators": packages, "missing": bench.missing}


if __name__ == "__main__":
    sys.exit(main())
