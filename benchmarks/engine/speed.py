"""Decoding and prompts beside llama.cpp and transformers, in turns, best of the rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench

_ROOT: Final = Path(__file__).parents[2]
_ROWS: Final = (1, 4, 8)


class Peer(NamedTuple):
    """Another engine: its package, and what is asked of ours over it."""

    package: str
    decode: tuple[float, float, float]
    prefill: float


PEERS: Final = {
    "llama_cpp": Peer("xllamacpp==2026.10.11549", (0.75, 1.2, 1.0), 1.7),
    "transformers": Peer("transformers==5.24.0", (3.4, 5.0, 2.5), 1.0),
}


class Side:
    """A running worker."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self._name = name
        self._process = process
        self._answer()

    def ms(self, what: str, rows: int = 1) -> float:
        """Have one job done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "rows": rows}) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["ms"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        raise RuntimeError(f"{self._name} ended with {self._process.wait()}")


def speed(bench: Bench) -> list[Bar]:
    """All sides, every round."""
    with ExitStack() as stack:
        sides = {name: stack.enter_context(_running(name, bench)) for name in ("int4", *PEERS)}
        best: dict[str, dict[str, float]] = {name: {} for name in sides}
        for number in range(bench.rounds):
            for rows in (*_ROWS, 0):
                for name, side in sides.items():
                    job = f"decode_{rows}" if rows else "prefill_256"
                    ms = side.ms("decode", rows) if rows else side.ms("prefill")
                    best[name][job] = min(ms, best[name].get(job, ms))
            bench.say(f"round {number + 1}: {best}")
    bars = []
    for name, peer in PEERS.items():
        needs = {f"decode_{rows}": need for rows, need in zip(_ROWS, peer.decode, strict=True)}
        for job, need in {**needs, "prefill_256": peer.prefill}.items():
            mine, theirs = best["int4"][job], best[name][job]
            shown: dict[str, float | str] = {"ours_ms": mine, f"{name}_ms": theirs}
            bars.append(Bar(f"{job} / {name}", theirs / mine, "x", ">=", need, shown))
    ours = best["int4"]
    for rows, need in ((4, 3.0), (8, 2.5)):
        gain = rows * ours["decode_1"] / ours[f"decode_{rows}"]
        bars.append(Bar(f"batch_{rows} / batch_1", gain, "x", ">=", need, dict(ours)))
    return bars


def floor(bench: Bench) -> list[Bar]:
    """The time to read the int8 weights once, over the time of a step of one sequence."""
    import time

    import torch

    torch.set_num_threads(bench.threads)
    memory = torch.ones(256 * 2**20)  # a gibibyte: no cache holds it
    read_s = 1e9
    step_ms = 1e9
    with _running("int8", bench) as side:
        for _ in range(bench.rounds):
            step_ms = min(step_ms, side.ms("decode", 1))
            begun = time.perf_counter()
            memory.sum()
            read_s = min(read_s, time.perf_counter() - begun)
    t = bench.model.tensors
    num_bytes = sum(w.numel() for name, w in t.items() if w.dim() == 2)
    gb_s = memory.numel() * 4 / read_s / 1e9
    floor_ms = num_bytes / gb_s / 1e6
    sides: dict[str, float | str] = {
        "read_gb_s": gb_s,
        "weights_mb": num_bytes / 1e6,
        "floor_ms": floor_ms,
        "step_ms": step_ms,
    }
    return [Bar("int8 share of floor", floor_ms / step_ms, "x", ">=", 0.30, sides)]


@contextmanager
def _running(name: str, bench: Bench) -> Iterator[Side]:
    from longpole_engine.models.loader import smollm2_file

    python, environment = sys.executable, dict(os.environ)
    if name in PEERS:
        python = _install(name)
        paths = [_ROOT, _ROOT / "reference_engine", _ROOT / "instrumentation"]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    command = [python, "-m", "benchmarks.engine.worker", name]
    process = subprocess.Popen(  # noqa: S603 - our own
        [*command, str(smollm2_file()), str(bench.threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("LONGPOLE_BENCH_VERBOSE") else subprocess.DEVNULL,
        text=True,
        cwd=_ROOT,
        env=environment,
    )
    try:
        yield Side(name, process)
    finally:
        process.kill()
        process.wait()


def _install(name: str) -> str:
    """A peer's own environment, made once; returns its interpreter.

    torch is the running environment's, so that transformers runs on the very same kernels.
    """
    cache = Path(os.environ.get("LONGPOLE_BENCH_CACHE", "~/.cache/longpole-bench")).expanduser()
    folder = cache / f"engine-{name}"
    python = folder / "bin" / "python"
    done = folder / PEERS[name].package
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)  # noqa: S603
        install = [str(python), "-m", "pip", "install", "--quiet", PEERS[name].package]
        subprocess.run(install, check=True)  # noqa: S603 - our own
        if name == "transformers":
            own = subprocess.run(  # noqa: S603 - our own
                [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            Path(own, "torch-of-the-bench.pth").write_text(sysconfig.get_path("purelib") + "\n")
        done.touch()
    return str(python)
