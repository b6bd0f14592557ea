"""Run bars, print both sides of each ratio, end with a table.

    python -m benchmarks.collector [BAR ...] [--json FILE] [--scale 1]

Without names all bars but the soak. Exit code 1 if one of them is not met.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import bars
from benchmarks.collector.bench import Bench

BARS = {
    "large": "throughput",
    "small": "throughput",
    "peers": "peers",
    "kill": "kill",
    "freshness": "freshness",
    "disk": "disk",
    "queries": "queries",
    "memory": "memory",
    "corpus": "corpus",
    "soak": "soak",
}
"""Function -> the module it lies in."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, list(BARS))
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    parser.add_argument("--folder", type=Path, help="data goes below this folder [a temporary one]")
    args = parser.parse_args()
    names = bars.chosen(parser, args.bars, list(BARS))
    if not args.bars:
        names.remove("soak")
    functions = {name: f"benchmarks.collector.{module}" for name, module in BARS.items()}
    bench = _bench(args.folder, args.scale)
    return bars.main(functions, names, bench, args.json, lambda shared: {"scale": shared.scale})


@contextmanager
def _bench(parent: Path | None, scale: float) -> Iterator[Bench]:
    with (
        TemporaryDirectory(dir=parent, prefix="longpole-bench-") as folder,
        closing(Bench(Path(folder), scale, say=bars.say)) as bench,
    ):
        yield bench


if __name__ == "__main__":
    sys.exit(main())
