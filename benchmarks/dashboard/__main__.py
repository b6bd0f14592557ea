"""Run the dashboard's bars in Chromium, print what each value was made of, end with a table.

    python -m benchmarks.dashboard [BAR ...] [--json FILE] [--scale 1] [--data FOLDER]

Exit code 1 if a bar is not met.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import bars
from benchmarks.dashboard.bench import Bench

BARS = {
    "overview": "overview",
    "brush": "brush",
    "trace": "trace",
    "wire": "wire",
    "memory": "memory",
    "clicks": "clicks",
    "pages": "pages",
}
"""Function -> the module it lies in."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, list(BARS))
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    parser.add_argument("--folder", type=Path, help="data goes below this folder [a temporary one]")
    parser.add_argument(
        "--data", type=Path, help="a data folder of ten days to look at instead of building one"
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end with it
    names = bars.chosen(parser, args.bars, list(BARS))
    functions = {name: f"benchmarks.dashboard.{module}" for name, module in BARS.items()}
    bench = _bench(args.folder, args.scale, args.data)
    return bars.main(functions, names, bench, args.json, lambda shared: {"scale": shared.scale})


@contextmanager
def _bench(parent: Path | None, scale: float, data: Path | None) -> Iterator[Bench]:
    with (
        TemporaryDirectory(dir=parent, prefix="longpole-bench-") as folder,
        closing(Bench(Path(folder), scale, data, bars.say)) as bench,
    ):
        yield bench


if __name__ == "__main__":
    sys.exit(main())
