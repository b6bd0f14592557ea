"""How long ``import longpole`` takes beside OpenTelemetry's SDK, each in fresh processes.

CPU time inside the process, around the import alone; the two take turns.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from benchmarks.bars import Bar
from benchmarks.sdk.bench import Bench
from benchmarks.sdk.environment import ROOT

RATIO = 1.2
OURS, THEIRS = "longpole", "opentelemetry.sdk.trace"
_CODE = """
import time
start, wall = time.process_time_ns(), time.perf_counter_ns()
import {}
print(time.process_time_ns() - start, time.perf_counter_ns() - wall)
"""


def imports(bench: Bench) -> list[Bar]:
    """The ratio of the medians."""
    cpu_ms: dict[str, list[float]] = {OURS: [], THEIRS: []}
    wall_ms: dict[str, list[float]] = {OURS: [], THEIRS: []}
    rounds = bench.num(21, least=3)
    for number in range(rounds + 1):
        for module in (OURS, THEIRS):
            done = subprocess.run(  # noqa: S603 - our own
                [sys.executable, "-c", _CODE.format(module)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            if number:  # the first of all reads the files
                cpu, wall = map(int, done.stdout.split())
                cpu_ms[module].append(cpu / 1e6)
                wall_ms[module].append(wall / 1e6)
    sides: dict[str, float | str] = {
        "longpole_cpu_ms": median(cpu_ms[OURS]),
        "opentelemetry_sdk_trace_cpu_ms": median(cpu_ms[THEIRS]),
        "longpole_wall_ms": median(wall_ms[OURS]),
        "opentelemetry_sdk_trace_wall_ms": median(wall_ms[THEIRS]),
        "num_rounds": rounds,
    }
    ratio = median(cpu_ms[OURS]) / median(cpu_ms[THEIRS])
    return [Bar("import, of OTel SDK's", ratio, "x", "<=", RATIO, sides)]
