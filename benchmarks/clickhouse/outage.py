"""Four collectors on one store, which goes away for a minute, and one of them is killed meanwhile.

The store is the engine in a process of its own behind ClickHouse's HTTP interface. Senders go
from collector to collector as behind a balancer: what one refuses, or did not answer, is sent to
the next. At the end every acknowledged span must be there, and none twice.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
from benchmarks.bars import Bar, info, say
from benchmarks.clickhouse.bench import Bench
from benchmarks.collector.payload import Payload
from benchmarks.collector.process import wait_until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole_collector.stores.clickhouse.address import parse
from longpole_collector.stores.clickhouse.client import Client

_DOOR = Path(__file__).parents[2] / "tests" / "collector" / "clickhouse" / "door.py"
_ANN = "ann:s3cret-Word@"
_DATABASE = "outage"
_NUM_COLLECTORS = 4
_NUM_SENDERS = 4
_PER_BODY = 64
_BEFORE_S = 10.0
_OUTAGE_S = 60.0
_PAUSE_S = 0.05
"""Between two requests of a sender: some 5,000 spans/s in all."""
_DRAIN_S = 600.0
_BOUNDS = {
    "LONGPOLE_COLLECTOR_MAX_LOG_BYTES": "33554432",
    "LONGPOLE_COLLECTOR_MAX_QUEUE_BYTES": "20971520",
}
"""Small, so that memory overflows into the log and the log fills."""
_MAIN = "from longpole.cli import main; main()"


class Server:
    """The store's process; it can be killed and started again on its folder and its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Start it and wait until it says where it is."""
        port = self.address.rpartition(":")[2]
        self._process = subprocess.Popen(  # noqa: S603 - our own list
            [sys.executable, str(_DOOR), str(self._folder), *([port] if port else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the store did not start"

    def kill(self) -> None:
        """Kill it; twice is fine."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @property
    def url(self) -> str:
        """The store's address."""
        return f"clickhouse://{_ANN}{self.address}/{_DATABASE}?timeout_s=300"


class Collector:
    """One collector's process, on a folder and a port that stay."""

    def __init__(self, folder: Path, port: int, store: str, *, is_settling: bool) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-c", _MAIN, "collect", "--db", str(folder)),
            *("--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0", "--store", store),
            "--settle" if is_settling else "--no-settle",
        ]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until its doors are open."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own list
                self._command,
                stdout=out,
                stderr=out,
                env=os.environ | _BOUNDS,
            )
        wait_until(lambda: bool(self._get("/readyz")), "the collector is ready", 120, 0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it; twice is fine."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """What it says of itself; empty if it does not answer."""
        return self._get("/api/v1/status")

    def num_log_bytes(self) -> int:
        """Bytes in its log that the store has not; what is not known counts as one."""
        return int(self.status().get("log_bytes", 1))

    def _get(self, path: str) -> dict[str, Any]:
        try:
            answer = httpx.get(self.url + path, trust_env=False, timeout=30)
        except httpx.HTTPError:
            return {}
        return answer.json() if answer.is_success else {}


class Sender(Thread):
    """Sends its bodies until told to stop; keeps what was acknowledged."""

    def __init__(self, number: int, payload: Payload, urls: list[str], stop: Event) -> None:
        super().__init__(daemon=True)
        self.acked: list[bytes] = []
        self.num_refused = self.num_broken = 0
        self._bodies = payload.bodies(100_000_000, number, time.time_ns(), 3_600_000_000_000)
        self._urls = itertools.cycle(urls[number:] + urls[:number])
        self._has_ended = stop

    def run(self) -> None:
        """Send."""
        headers = {"content-type": "application/x-protobuf"}
        with httpx.Client(trust_env=False, timeout=30, headers=headers) as client:
            for body in self._bodies:
                while not self._has_ended.wait(_PAUSE_S):
                    try:
                        answer = client.post(f"{next(self._urls)}/v1/traces", content=body)
                    except httpx.HTTPError:
                        self.num_broken += 1
                        continue
                    if answer.is_success:
                        self.acked.append(body)
                        break
                    assert answer.status_code in (429, 503), answer.text
                    self.num_refused += 1
                if self._has_ended.is_set():
                    return


def outage(bench: Bench) -> list[Bar]:
    """Acknowledged spans lost, and spans there twice."""
    outage_s = _OUTAGE_S * bench.scale
    with _cluster(bench.folder / "outage") as (server, collectors):
        stop, payload = Event(), Payload(_PER_BODY, num_pool=4_096)
        urls = [collector.url for collector in collectors]
        senders = [Sender(number, payload, urls, stop) for number in range(_NUM_SENDERS)]
        for sender in senders:
            sender.start()
        time.sleep(min(_BEFORE_S, outage_s))
        server.kill()
        say(f"the store is away for {outage_s:g} s, one collector is killed")
        time.sleep(outage_s / 2)
        collectors[1].stop(signal.SIGKILL)
        time.sleep(outage_s / 4)
        collectors[1].start()
        time.sleep(outage_s / 4)
        waiting = [collector.num_log_bytes() for collector in collectors]
        told = [str(collector.status().get("problem")) for collector in collectors]
        assert all("no ClickHouse answers" in each for each in told), told
        server.start()
        since_s = time.monotonic()
        time.sleep(min(_BEFORE_S, outage_s))
        stop.set()
        for sender in senders:
            sender.join()
        wait_until(lambda: not any(c.num_log_bytes() for c in collectors), "drained", _DRAIN_S, 0.2)
        drain_s = time.monotonic() - since_s
        num_rows, stored = _stored(server)
    acked = _keys(itertools.chain.from_iterable(sender.acked for sender in senders))
    known = set(stored)
    sides: dict[str, float | str] = {
        "num_acknowledged": len(acked),
        "num_stored": len(stored),
        "num_rows_inserted": num_rows,
        "num_refused": sum(sender.num_refused for sender in senders),
        "num_broken_off": sum(sender.num_broken for sender in senders),
        "bytes_waiting": sum(waiting),
    }
    return [
        Bar("outage_lost", len(acked - known), "spans", "==", 0, sides),
        Bar("outage_twice", len(stored) - len(known), "spans", "==", 0, {}),
        info("outage_drained", drain_s, "s", {"outage_s": outage_s}),
    ]


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[Server, list[Collector]]]:
    server = Server(folder / f"store-{time.time_ns()}")
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        collectors = []
        for number in range(_NUM_COLLECTORS):
            own = folder / f"collector-{number}-{time.time_ns()}"
            made = Collector(own, _free_port(), server.url, is_settling=number == 0)
            undo.callback(made.stop)
            made.start()
            collectors.append(made)
        yield server, collectors


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stored(server: Server) -> tuple[int, list[tuple[str, str]]]:
    """Rows that lie there, and the spans that are read."""
    client = Client(parse(server.url))
    rows = client.ask(f"SELECT count() AS num FROM {_DATABASE}.span_rows")  # noqa: S608
    found = client.ask(f"SELECT trace_id, span_id FROM {_DATABASE}.spans")  # noqa: S608
    client.close()
    ids = (found[name].to_pylist() for name in ("trace_id", "span_id"))
    return int(rows["num"][0].as_py()), list(zip(*ids, strict=True))


def _keys(bodies: Iterator[bytes]) -> set[tuple[str, str]]:
    return {
        (span.trace_id.hex(), span.span_id.hex())
        for body in bodies
        for sender in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in sender.scope_spans
        for span in scope.spans
    }
