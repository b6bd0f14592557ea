"""How long after its acknowledgement a span can be queried, at half the maximum rate.

While the sender keeps the collector at half the rate it can take, single spans are sent on a
connection of their own, and a query asks for each by its trace id until it is there.
"""

from __future__ import annotations

import time
from threading import Thread

import numpy as np
from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench
from benchmarks.collector.load import Connection, Order
from benchmarks.collector.payload import Payload
from benchmarks.collector.process import Collector, collecting
from benchmarks.collector.throughput import rates
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole_collector.stores.remote import RemoteReader

_NUM_MARKERS = 3
_EVERY_S = 0.05
_FOUND = "SELECT count(*) AS n FROM spans WHERE trace_id = ? AND start_ns >= ?"


def freshness(bench: Bench) -> list[Bar]:
    """The 99th percentile of acknowledgement to visible, the query's own time included."""
    _, max_rate = rates(bench)
    duration_s = bench.seconds(90)
    waits_s: list[float] = []
    with collecting(bench.folder / "freshness") as collector:
        order = Order(
            f"{collector.url}/v1/traces",
            int(max_rate / 2 * duration_s),
            spans_per_s=max_rate / 2,
            limit_s=duration_s,
            window_ns=int(duration_s * 1e9),
        )
        bench.loader.start(order)
        until = time.monotonic() + duration_s * 0.95
        time.sleep(duration_s * 0.1)  # until the rate is steady
        threads = [
            Thread(target=_mark, args=(collector, number, until, waits_s))
            for number in range(_NUM_MARKERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sent = bench.loader.result()
        own_p99 = _bucket(collector, 0.99)
    p50, p99 = np.quantile(waits_s, [0.5, 0.99])
    sides: dict[str, float | str] = {
        "p50_s": float(p50),
        "max_s": max(waits_s),
        "num_markers": len(waits_s),
        "asked_spans_per_s": max_rate / 2,
        "achieved_spans_per_s": sent.num_spans / sent.wall_s,
        "ack_p99_ms": sent.ack_p99_ms,
        "collectors_own_p99_s": own_p99,
    }
    return [Bar("freshness", float(p99), "s", "<", 2, sides)]


def _mark(collector: Collector, number: int, until: float, waits_s: list[float]) -> None:
    """Send spans one by one and time each; three threads share the list."""
    bodies = Payload(1, seed=number, num_pool=8).bodies(
        1_000_000, 1000 + number, time.time_ns(), 3_600_000_000_000
    )
    connection = Connection(
        f"{collector.url}/v1/traces", {"Content-Type": "application/x-protobuf"}
    )
    reader = RemoteReader(collector.url)
    while time.monotonic() < until:
        body = next(bodies)
        spans = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans
        span = next(span for scope in spans for span in scope.spans)
        while (answer := connection.post(body))[0] != 200:
            time.sleep(answer[1])
        acked = time.perf_counter()
        asked = (span.trace_id.hex(), span.start_time_unix_nano)
        while not reader.sql(_FOUND, asked).to_pylist()[0]["n"]:
            time.sleep(_EVERY_S)
        waits_s.append(time.perf_counter() - acked)
    reader.close()
    connection.close()


def _bucket(collector: Collector, quantile: float) -> float | str:
    """The upper edge of the bucket in the collector's own histogram that holds the quantile."""
    found = collector.histogram("longpole_freshness_seconds")
    total = max(found.values(), default=0.0)
    edges = [edge for edge, num in sorted(found.items()) if num >= quantile * total]
    return edges[0] if total else "not told"
