"""Run bars on ClickHouse in this process, print both sides, end with a table.

    python -m benchmarks.clickhouse [BAR ...] [--json FILE] [--scale 1] [--folder DIR]

``outage`` runs collectors and the store in processes of their own, for a minute and a half.

Exit code 1 if one of them is not met. Needs longpole[clickhouse] and chdb. The data of ``queries``
stay in ``--folder`` if one is given, and are used again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import bars
from benchmarks.clickhouse.bench import Bench

BARS = {
    "insert": "insert",
    "bytes_a_span": "insert",
    "queries": "queries",
    "workers": "workers",
    "sizing": "sizing",
    "outage": "outage",
}
"""Function -> the module it lies in."""


def main() -> int:
    """Run what the command line names."""
    parser = bars.parser(__doc__, list(BARS))
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    parser.add_argument("--folder", type=Path, help="data lie here and stay [a temporary folder]")
    args = parser.parse_args()
    names = bars.chosen(parser, args.bars, list(BARS))
    functions = {name: f"benchmarks.clickhouse.{module}" for name, module in BARS.items()}
    return bars.main(functions, names, _bench(args.folder, args.scale), args.json)


@contextmanager
def _bench(folder: Path | None, scale: float) -> Iterator[Bench]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield Bench(folder, scale)
        return
    with TemporaryDirectory(prefix="longpole-clickhouse-") as made:
        yield Bench(Path(made), scale)


if __name__ == "__main__":
    sys.exit(main())
