"""Run bars, print both sides of each ratio, end with a table.

    python -m benchmarks.engine [BAR ...] [--json FILE] [--rounds 3]

Exit code 1 if a bar is not met. Bars can be run one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
import traceback
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from benchmarks.engine.bar import Bar, Bench

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bars", nargs="*", help=f"of {', '.join(BARS)} [all]")
    parser.add_argument("--json", type=Path, help="write everything to this file too")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; the best counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    named = [name for names in args.bars for name in names.split(",") if name]
    if unknown := set(named) - set(BARS):
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    machine = facts()
    for key, value in machine.items():
        print(f"{key:<22}{value}")
    bench = Bench(args.rounds, args.threads, lambda text: print(f"    {text}", flush=True))
    bars, broken = _run(bench, named or list(BARS))
    print(f"\n{'bar':<34}{'value':>10}{'asked':>12}")
    for bar in bars:
        asked = f"{bar.relation} {bar.need:g}" if bar.relation else ""
        verdict = {True: "pass", False: "FAIL", None: ""}[bar.is_met]
        print(f"{bar.name:<34}{bar.value:>10.3f}{asked:>12}  {verdict}")
    for name in broken:
        print(f"{name:<34} broke: see above")
    if args.json:
        rows = [bar._asdict() | {"is_met": bar.is_met} for bar in bars]
        document = {"schema": "longpole.bench/1", "machine": machine, "bars": rows}
        args.json.write_text(json.dumps(document | {"broken": broken}, indent=1))
    return int(bool(broken) or any(bar.is_met is False for bar in bars))


def facts() -> dict[str, float | str]:
    """Cores, processor, load and versions (Linux)."""
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.+)$", cpu, re.MULTILINE)
    kinds = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")
    return {
        "num_cores": len(os.sched_getaffinity(0)),
        "processor": model[1] if model else platform.machine(),
        "instructions": " ".join(kind for kind in kinds if f" {kind} " in cpu),
        "load_average_1_min": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _run(bench: Bench, names: list[str]) -> tuple[list[Bar], list[str]]:
    """All results, and the names of those that broke."""
    done: list[Bar] = []
    broken: list[str] = []
    for name in names:
        print(f"\n{name}", flush=True)
        begun = time.monotonic()
        try:
            bars: list[Bar] = getattr(import_module(f"benchmarks.engine.{BARS[name]}"), name)(bench)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            broken.append(name)
            continue
        for bar in bars:
            print(f"  {bar.name} = {bar.value:.3f}")
            for key, value in bar.sides.items():
                print(f"      {key:<30}{value if isinstance(value, str) else f'{value:.3f}'}")
        print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
        done += bars
    return done, broken


if __name__ == "__main__":
    sys.exit(main())
