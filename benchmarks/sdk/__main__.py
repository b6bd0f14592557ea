"""Run the SDK's bars beside the peers, print both sides, end with a table.

    python -m benchmarks.sdk [BAR ...] [--json FILE] [--scale 1]

Exit code 1 if a bar is not met. A peer that cannot be installed or run is named at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.collector import machine
from benchmarks.collector.bar import Bar
from benchmarks.sdk.bench import Bench
from benchmarks.sdk.environment import provider
from benchmarks.sdk.libraries import LIBRARIES

BARS = ("overhead", "clock", "facts", "dead", "imports")
"""Each a module here, with a function of its name."""


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bars", nargs="*", help=f"of {', '.join(BARS)} [all]")
    parser.add_argument("--json", type=Path, help="write everything to this file too")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    args = parser.parse_args()
    names = [name for words in args.bars for name in words.split(",") if name] or list(BARS)
    if unknown := set(names) - set(BARS):
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    facts = machine.facts()
    for key, value in facts.items():
        print(f"{key:<22}{value}")
    with TemporaryDirectory(prefix="longpole-bench-") as folder:
        truth = Path(folder) / "truth.jsonl"
        with provider(truth) as url:
            bench = Bench(url, truth, args.scale, say=lambda text: print(text, flush=True))
            bars, broken = _run(bench, names)
    _table(bars)
    for name in broken:
        print(f"{name:<34} broke: see above")
    for name, reason in bench.missing.items():
        print(f"{LIBRARIES[name].title:<34} did not run: {reason}")
    facts["load_average_1_min_at_end"] = os.getloadavg()[0]
    print(f"load average at the end {facts['load_average_1_min_at_end']:.1f}")
    if args.json:
        document = {
            "schema": "longpole.bench.sdk/1",
            "machine": facts,
            "scale": args.scale,
            "libraries": {name: library.packages for name, library in LIBRARIES.items()},
            "missing": bench.missing,
            "bars": [bar._asdict() | {"is_met": bar.is_met} for bar in bars],
            "broken": broken,
            **bench.tables,
        }
        args.json.write_text(json.dumps(document, indent=1))
    return int(bool(broken) or any(bar.is_met is False for bar in bars))


def _run(bench: Bench, names: list[str]) -> tuple[list[Bar], list[str]]:
    """All results, and the names of those that broke."""
    done: list[Bar] = []
    broken: list[str] = []
    for name in names:
        print(f"\n{name}", flush=True)
        begun = time.monotonic()
        try:
            bars: list[Bar] = getattr(import_module(f"benchmarks.sdk.{name}"), name)(bench)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            broken.append(name)
            continue
        for bar in bars:
            print(f"  {bar.name.strip()} = {bar.value:.4g} {bar.unit}")
            for key, value in bar.sides.items():
                print(f"      {key:<34}{value if isinstance(value, str) else f'{value:.6g}'}")
        print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
        done += bars
    return done, broken


def _table(bars: list[Bar]) -> None:
    print(f"\n{'bar':<34}{'value':>10} {'unit':<8}{'asked':>12}")
    for bar in bars:
        asked = f"{bar.relation} {bar.need:g}" if bar.relation else ""
        verdict = {True: "pass", False: "FAIL", None: ""}[bar.is_met]
        print(f"{bar.name:<34}{bar.value:>10.4g} {bar.unit:<8}{asked:>12}  {verdict}")


if __name__ == "__main__":
    sys.exit(main())
