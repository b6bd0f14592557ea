"""Acknowledged spans after kill -9 in mid ingest, round after round on one data folder.

Both doors and both encodings send as fast as answers come. A body whose answer never came is
sent again in the next round with the same ids, as a real exporter would. At the end the store
must hold every acknowledged span, and none twice.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import time
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Event, Thread
from typing import Any

import grpc
from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench
from benchmarks.collector.load import Connection, GrpcConnection
from benchmarks.collector.payload import Payload
from benchmarks.collector.process import Collector, collecting, wait_until
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole_collector.stores.remote import RemoteReader

_NUM_ROUNDS = 20
_PER_BODY = 64
_PROTOBUF = "application/x-protobuf"
_ROUND_S = 1.5
_ROWS = {"LONGPOLE_COLLECTOR_QUERY_ROWS": "20000000"}
Key = tuple[str, str]


class _Sender:
    """One kind of sender over all rounds: what it sent, what was acknowledged, what is open."""

    def __init__(self, name: str, number: int, payload: Payload) -> None:
        self.name = name
        self.acked: list[bytes] = []
        self._open: list[bytes] = []
        self._bodies = payload.bodies(10_000_000, 500 + number, time.time_ns(), 3_600_000_000_000)

    def blast(self, collector: Collector, stop: Event) -> None:
        """Send until told to stop or cut off."""
        connection, encode = self._connect(collector)
        for body in self._next():
            self._open.append(body)
            try:
                status, wait_s = connection.post(encode(body))
            except (OSError, grpc.RpcError):
                return
            if status == 200:
                self.acked.append(self._open.pop())
            elif status in (429, 503):
                stop.wait(wait_s)
            else:
                raise RuntimeError(f"{self.name}: answered with {status}")
            if stop.is_set():
                return

    def _next(self) -> Iterator[bytes]:
        again, self._open = self._open, []
        return chain(again, self._bodies)

    def _connect(
        self, collector: Collector
    ) -> tuple[Connection | GrpcConnection, Callable[[bytes], bytes]]:
        url = f"{collector.url}/v1/traces"
        if self.name == "grpc protobuf":
            return GrpcConnection(collector.grpc), bytes
        if self.name == "http json":
            return Connection(url, {"Content-Type": "application/json"}), _to_json
        headers = {"Content-Type": _PROTOBUF}
        if self.name == "http protobuf gzip":
            return Connection(url, headers | {"Content-Encoding": "gzip"}), gzip.compress
        return Connection(url, headers), bytes


def kill(bench: Bench) -> list[Bar]:
    """Acknowledged spans lost, and spans stored twice."""
    folder = bench.folder / "kill"
    payload = Payload(_PER_BODY, num_pool=4_096)
    names = ("http protobuf", "http protobuf gzip", "http json", "grpc protobuf")
    senders = [_Sender(name, number, payload) for number, name in enumerate(names)]
    restarts_s = []
    num_rounds = max(2, round(_NUM_ROUNDS * min(1.0, bench.scale)))
    for _ in range(num_rounds):
        begun = time.perf_counter()
        with collecting(folder, **_ROWS) as collector:
            restarts_s.append(time.perf_counter() - begun)
            _round(collector, senders)
    with collecting(folder, **_ROWS) as collector:
        wait_until(lambda: collector.metric("longpole_queue_bytes") == 0, "all stored", 60, 0.5)
        stored = _stored(collector)
    sides: dict[str, float | str] = {"num_rounds": num_rounds}
    num_lost = 0
    known = set(stored)
    for sender in senders:
        acked = _keys(sender.acked)
        lost = len(acked - known)
        sides[f"acknowledged_by_{sender.name.replace(' ', '_')}"] = len(acked)
        sides[f"lost_by_{sender.name.replace(' ', '_')}"] = lost
        num_lost += lost
    sides |= {"num_spans_stored": len(stored), "restart_max_s": max(restarts_s)}
    num_twice = len(stored) - len(known)
    return [
        Bar("kill_lost", num_lost, "spans", "==", 0, sides),
        Bar("kill_twice", num_twice, "spans", "==", 0, {}),
    ]


def _round(collector: Collector, senders: list[_Sender]) -> None:
    """Let all send for a while, then kill the collector in the middle of it."""
    stop = Event()
    before = [len(sender.acked) for sender in senders]
    threads = [Thread(target=sender.blast, args=(collector, stop)) for sender in senders]
    for thread in threads:
        thread.start()
    time.sleep(_ROUND_S + random.random())  # noqa: S311 - any moment will do
    collector.process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    for sender, num_before in zip(senders, before, strict=True):
        assert len(sender.acked) > num_before, f"{sender.name}: nothing acknowledged in a round"


def _stored(collector: Collector) -> list[Key]:
    """The ids of every span in the store."""
    reader = RemoteReader(collector.url)
    table = reader.sql("SELECT trace_id, span_id FROM spans")
    reader.close()
    columns = (table["trace_id"].to_pylist(), table["span_id"].to_pylist())
    return list(zip(*columns, strict=True))


def _keys(bodies: list[bytes]) -> set[Key]:
    return {
        (span.trace_id.hex(), span.span_id.hex())
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def _to_json(body: bytes) -> bytes:
    """The same request as OTLP JSON: protobuf's JSON, but ids in hex."""
    document: dict[str, Any] = MessageToDict(
        ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True
    )
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope.get("spans", ()):
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return json.dumps(document).encode()
