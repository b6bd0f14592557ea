"""A server in a process of its own: its CPU time, its memory, and the collector among them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_MIB = 1 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_READY_S = 120.0
_IDLE_CPU_S = 0.1
"""Of one second."""


class Tree:
    """A process and all that descend from it (Linux)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_s(self) -> float:
        """User and system time so far, of those alive and of those that have ended."""
        return sum(_cpu_s(pid) for pid in self._pids())

    def rss_mib(self) -> float:
        """Resident memory now."""
        return sum(_status_kib(pid, "VmRSS") for pid in self._pids()) * 1024 / _MIB

    def peak_mib(self) -> float:
        """The most resident memory each ever had, added up."""
        return sum(_status_kib(pid, "VmHWM") for pid in self._pids()) * 1024 / _MIB

    def _pids(self) -> list[int]:
        found, at = [self.pid], 0
        while at < len(found):
            for children in Path(f"/proc/{found[at]}/task").glob("*/children"):
                found += map(int, _read(children).split())
            at += 1
        return found


def _cpu_s(pid: int) -> float:
    """One process, to the nanosecond, and its ended children, to the clock tick."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if not fields:
        return 0.0
    ended = (int(fields[13]) + int(fields[14])) / _TICKS_PER_S
    try:
        # clock_getcpuclockid(3): the CPU clock of another process
        return ended + time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it ended just now
        return ended


def _status_kib(pid: int, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@contextmanager
def serving(
    command: Sequence[str | Path],
    log: Path,
    env: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server; at the end it and its children are stopped, in a session of their own."""
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own list
            list(map(str, command)),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=os.environ | (env or {}),
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _signal_all(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            _signal_all(process.pid, signal.SIGKILL)
            process.wait()


def _signal_all(session: int, number: int) -> None:
    try:
        os.killpg(session, number)
    except ProcessLookupError:
        return


def wait_until(is_done: Callable[[], bool], what: str, timeout_s: float, every_s: float) -> None:
    """Ask until it is done.

    Raises:
        TimeoutError: it was not done in time.
    """
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)


class Collector:
    """A running collector, asked over HTTP as any other process asks it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait until it is ready."""
        self.process = process
        self.folder = folder
        self.tree = Tree(process.pid)
        self.url = self.grpc = ""
        self._client = httpx.Client(trust_env=False, timeout=120)
        wait_until(self._is_ready, "the collector is ready", _READY_S, 0.05)
        self._num_before = self.count()

    def query(self, sql: str) -> list[list[Any]]:
        """The rows of one statement."""
        answer = self._client.post(f"{self.url}/api/v1/query", json={"sql": sql})
        if answer.status_code != 200:
            raise RuntimeError(f"{sql}: {answer.status_code} {answer.text}")
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def count(self) -> int:
        """Spans that a query sees."""
        return int(self.query("SELECT count(*) FROM spans")[0][0])

    def metric(self, name: str) -> float:
        """The sum of one of its own metrics over its labels; 0 if it has none of that name."""
        text = self._client.get(f"{self.url}/metrics").text
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def histogram(self, name: str) -> dict[float, float]:
        """Upper edge -> cumulative count of one of its own histograms; empty if it has none."""
        text = self._client.get(f"{self.url}/metrics").text
        pattern = rf'^{name}_bucket{{.*?le="(.+?)".*?}} (\S+)$'
        return {float(le): float(num) for le, num in re.findall(pattern, text, re.MULTILINE)}

    def wait_stored(self, num_spans: int, timeout_s: float = 600) -> None:
        """Until a query counts that many; the counter, which costs nothing, is asked first."""

        def is_stored() -> bool:
            return self._num_before + self.metric("longpole_spans_stored_total") >= num_spans

        what = f"{num_spans} spans stored"
        wait_until(is_stored, what, timeout_s, 0.25)
        wait_until(lambda: self.count() >= num_spans, what, 30, 0.5)

    def wait_settled(self, timeout_s: float = 900) -> None:
        """Until every trace has its roll-up."""
        wait_until(
            lambda: self.metric("longpole_dirty_traces") == 0, "roll-ups done", timeout_s, 0.5
        )

    def wait_idle(self, timeout_s: float = 300) -> None:
        """Until it uses next to no CPU: on a new machine its loops are being compiled."""

        def is_idle() -> bool:
            before = self.tree.cpu_s()
            time.sleep(1)
            return self.tree.cpu_s() - before < _IDLE_CPU_S

        wait_until(is_idle, "nothing left to compile", timeout_s, 0)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("the collector ended: see its log")
        try:
            found = json.loads((self.folder / "collector.json").read_text())
            if found["pid"] != self.process.pid:
                return False
            self.url, self.grpc = found["url"], found["grpc"]
            return self._client.get(f"{self.url}/readyz").status_code == 200
        except (OSError, ValueError, httpx.HTTPError):
            return False


@contextmanager
def collecting(folder: Path, **env: str) -> Iterator[Collector]:
    """A collector on that data folder, with default settings unless ``env`` says otherwise."""
    command: list[str | Path] = [
        sys.executable, "-c", "from longpole.cli import main; main()", "collect",
        "--db", folder, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
    ]  # fmt: skip
    log = folder.parent / f"{folder.name}.log"
    with serving(command, log, env) as process:
        collector = Collector(process, folder)
        try:
            yield collector
        finally:
            collector.close()
