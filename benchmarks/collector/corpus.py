"""The facts of every recorded dialect, read right: the corpus tests, counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench

_ROOT = Path(__file__).parents[2]


def corpus(bench: Bench) -> list[Bar]:
    """Share of the corpus tests that pass; each holds the facts of one recording."""
    command = [sys.executable, "-m", "pytest", "tests/collector/test_corpus.py", "-q"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    counts = {
        what: int(num) for num, what in re.findall(r"(\d+) (passed|failed|error)", done.stdout)
    }
    num_passed = counts.get("passed", 0)
    if not counts:
        raise RuntimeError(done.stdout + done.stderr)
    share = 100 * num_passed / sum(counts.values())
    sides: dict[str, float | str] = {f"num_{what}": num for what, num in counts.items()}
    return [Bar("corpus", share, "%", ">=", 100, sides)]
