"""The SDK's benchmark runs: ours through its provider, at a size that measures nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    truth = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    command = [sys.executable, "-m", "benchmarks.sdk.server", str(truth)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]


def run(module: str, *arguments: str) -> Any:
    *_, out = arguments
    command = [sys.executable, "-m", f"benchmarks.sdk.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(Path(out).read_text())


def test_each_side_of_the_overhead_is_taken_in_turns(url: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out.json")
    told = run("take_overhead", "longpole", f"{url}/v1", "2", out)
    assert told["patches"] == []
    for sides in told["taken"].values():
        assert set(sides) == {"bare", "wrapped", "bare, not asked", "wrapped, not asked"}
        for taken in sides.values():
            assert {number: len(ns) for number, ns in taken.items()} == {"1": 16, "300": 2}
            assert min(taken["300"]) > min(taken["1"]) > 0
