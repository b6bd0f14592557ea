"""100,000 calls while the collector is dead: memory, drops, and how long the calls take.

Three applications (:mod:`benchmarks.sdk.take_calls`) take turns, so that only one works at a
time: one whose collector refuses connections, one whose collector accepts them and never answers,
and one whose collector takes everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from statistics import median
from typing import Any

from benchmarks.bars import Bar
from benchmarks.sdk.bench import Bench
from benchmarks.sdk.environment import ROOT

from longpole.settings import DEFAULTS

CALLS = 100_000
BLOCKS = 20
GROWTH_MIB = 24.0
"""The queue is full from the start; what still grows is the allocator, not what is kept."""
SLOWER = 1.1


class _Sink(BaseHTTPRequestHandler):
    """A collector that takes everything and reads nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _collectors() -> Iterator[dict[str, str]]:
    """Addresses: one that refuses, one that is silent, one that takes everything."""
    sink = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    with socket() as refusing, socket() as silent:
        refusing.bind(("127.0.0.1", 0))  # bound, and not listening
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        ports = {
            "refusing": refusing.getsockname()[1],
            "silent": silent.getsockname()[1],
            "live": sink.server_port,
        }
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    sink.shutdown()
    sink.server_close()


class _App:
    """An application in a process of its own."""

    def __init__(self, endpoint: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "benchmarks.sdk.take_calls", endpoint],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ns: list[int] = []
        self.said: dict[str, Any] = {}

    def make(self, num: int) -> dict[str, Any]:
        """Make calls; returns what it says then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{num}\n")
        self._process.stdin.flush()
        self.said = json.loads(self._process.stdout.readline())
        self.ns += self.said.pop("ns")
        return self.said

    def close(self) -> None:
        """End it; what it still holds goes nowhere."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def dead(bench: Bench) -> list[Bar]:
    """Memory, lost spans and latency against the application with a live collector."""
    per_block = max(50, int(CALLS / BLOCKS * bench.scale))
    numbers = {"refusing": per_block, "silent": per_block // 5, "live": per_block // 5}
    with _collectors() as addresses, ExitStack() as stack:
        apps = {name: _App(address) for name, address in addresses.items()}
        for app in apps.values():
            stack.callback(app.close)
        early_mib = 0.0
        for block in range(BLOCKS):
            for name, app in apps.items():
                app.make(numbers[name])
            if block == 1:  # the queue is full by now
                early_mib = apps["refusing"].said["rss_mib"]
        growth_mib = apps["refusing"].said["rss_mib"] - early_mib
    sides: dict[str, float | str] = {}
    for name, app in apps.items():
        ordered = sorted(app.ns)
        sides[f"{name}_num_calls"] = len(ordered)
        sides[f"{name}_p50_us"] = median(ordered) / 1e3
        sides[f"{name}_p99_us"] = ordered[int(len(ordered) * 0.99)] / 1e3
    live_us = float(sides["live_p50_us"])
    worst = max(float(sides["refusing_p50_us"]), float(sides["silent_p50_us"])) / live_us
    said = apps["refusing"].said
    num_dropped = sum(said["num_dropped"].values())
    num_lost = len(apps["refusing"].ns) - said["num_sent"] - said["num_queued"] - num_dropped
    counts: dict[str, float | str] = {
        "num_calls": len(apps["refusing"].ns),
        "num_queued": said["num_queued"],
        **{f"num_dropped_{cause}": num for cause, num in said["num_dropped"].items()},
        "num_internal_errors": sum(said["num_internal_errors"].values()),
    }
    most = float(DEFAULTS["queue_size"] or 0) + float(DEFAULTS["batch_size"] or 0)
    memory: dict[str, float | str] = {"early_mib": early_mib, "late_mib": said["rss_mib"]}
    return [
        Bar("dead collector, growth", growth_mib, "MiB", "<=", GROWTH_MIB, memory),
        Bar("  spans held", said["num_queued"], "spans", "<=", most, counts),
        Bar("  spans not accounted for", num_lost, "spans", "==", 0, {}),
        Bar("  call time, of a live one's", worst, "x", "<=", SLOWER, sides),
    ]
