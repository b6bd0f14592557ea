"""Run bars, print both sides of each ratio, end with a table.

    python -m benchmarks.collector [BAR ...] [--json FILE] [--scale 1]

Without names all bars but the soak. Exit code 1 if one of them is not met.
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
from benchmarks.collector.bar import Bar, Bench

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bars", nargs="*", help=f"of {', '.join(BARS)} [all but soak]")
    parser.add_argument("--json", type=Path, help="write everything to this file too")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: only try the scripts")
    parser.add_argument("--folder", type=Path, help="data goes below this folder [a temporary one]")
    args = parser.parse_args()
    named = [name for names in args.bars for name in names.split(",") if name]
    names = named or [name for name in BARS if name != "soak"]
    if unknown := set(names) - set(BARS):
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    facts = machine.facts()
    for key, value in facts.items():
        print(f"{key:<22}{value}")
    with TemporaryDirectory(dir=args.folder, prefix="longpole-bench-") as folder:
        bench = Bench(Path(folder), args.scale, say=lambda text: print(f"    {text}", flush=True))
        try:
            bars, failed = _run(bench, names)
        finally:
            bench.close()
    _table(bars)
    for name in failed:
        print(f"{name:<24} broke: see above")
    facts["load_average_1_min_at_end"] = os.getloadavg()[0]
    print(f"load average at the end {facts['load_average_1_min_at_end']:.1f}")
    if args.json:
        rows = [bar._asdict() | {"is_met": bar.is_met} for bar in bars]
        document = {
            "schema": "longpole.bench/1",
            "machine": facts,
            "scale": args.scale,
            "bars": rows,
            "broken": failed,
        }
        args.json.write_text(json.dumps(document, indent=1))
    return int(bool(failed) or any(bar.is_met is False for bar in bars))


def _run(bench: Bench, names: list[str]) -> tuple[list[Bar], list[str]]:
    """All results, and the names of those that broke."""
    done: list[Bar] = []
    failed: list[str] = []
    for name in names:
        print(f"\n{name}", flush=True)
        begun = time.monotonic()
        try:
            module = import_module(f"benchmarks.collector.{BARS[name]}")
            bars: list[Bar] = getattr(module, name)(bench)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            failed.append(name)
            continue
        for bar in bars:
            print(f"  {bar.name} = {_number(bar.value)} {bar.unit}")
            for key, value in bar.sides.items():
                print(f"      {key:<34}{value if isinstance(value, str) else _number(value)}")
        print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
        done += bars
    return done, failed


def _table(bars: list[Bar]) -> None:
    print(f"\n{'bar':<24}{'value':>14} {'unit':<10}{'asked':>14}")
    for bar in bars:
        asked = f"{bar.relation} {_number(bar.need)}" if bar.relation else ""
        verdict = {True: "pass", False: "FAIL", None: ""}[bar.is_met]
        print(f"{bar.name:<24}{_number(bar.value):>14} {bar.unit:<10}{asked:>14}  {verdict}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
