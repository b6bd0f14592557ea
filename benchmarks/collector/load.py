"""The sender: a process of its own that keeps four connections busy with ready bodies.

It reads one JSON order a line from stdin and answers with one line. HTTP is spoken on bare
sockets, so that the sender costs little beside the server. A body that is answered with 429 or
503 (UNAVAILABLE or RESOURCE_EXHAUSTED) is sent again after the wait that the answer asks for.
"""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import numpy as np
from benchmarks.collector.payload import POOL_SPANS, Payload
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_NUM_CONNECTIONS = 4
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_BUSY = {429, 503}
_PAUSE_S = 1.0
_PARSE_BYTES = 2 << 20
_GRPC_BUSY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


@dataclass(frozen=True)
class Order:
    """What to send, where to, how fast."""

    address: str
    """``http://HOST:PORT/PATH``, or ``HOST:PORT`` for gRPC."""
    num_spans: int
    per_body: int = 512
    seed: int = 1
    spans_per_s: float = 0.0
    """Paced to this rate; 0 is as fast as answers come."""
    limit_s: float = 3600.0
    """Begin no new request after this long."""
    is_gzip: bool = False
    is_parsed: bool = False
    """Parse the acknowledged bodies with protobuf, 2 MiB at a time, and time that."""
    first_ns: int = 0
    """Start of the first trace; 0 is a minute ago."""
    window_ns: int = 1_000_000_000
    num_pool: int = POOL_SPANS
    headers: dict[str, str] = field(default_factory=dict)


class Sent(NamedTuple):
    """What became of an order."""

    num_spans: int
    num_requests: int
    num_busy: int
    wall_s: float
    cpu_s: float
    ack_p50_ms: float
    ack_p99_ms: float
    parse_cpu_s: float
    errors: list[str]


class Loader:
    """The sender's process, seen from outside."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.collector.load"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, order: Order) -> None:
        """Prepare the bodies, and begin; returns when the first is about to be sent."""
        self._ask({"do": "send", **asdict(order)})
        assert self._answer() == "begun"

    def result(self) -> Sent:
        """Wait for the order to be done.

        Raises:
            RuntimeError: an answer that was neither success nor "busy".
        """
        sent = Sent(*self._answer())
        if sent.errors:
            raise RuntimeError("; ".join(sent.errors[:3]))
        return sent

    def send(self, order: Order) -> Sent:
        """Both in one."""
        self.start(order)
        return self.result()

    def parse(self, order: Order) -> float:
        """Spans per CPU-second of protobuf's own parser over the very bodies of an order."""
        self._ask({"do": "parse", **asdict(order)})
        return float(self._answer())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the sender ended: its message is above")
        return json.loads(line)


class Connection:
    """One kept-alive HTTP connection that posts bodies."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        """Connect."""
        parts = urlsplit(url)
        lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join(lines).encode() + b"\r\nContent-Length: %d\r\n\r\n"
        self._peer = (parts.hostname or "", parts.port or 80)
        self._open()

    def post(self, body: bytes) -> tuple[int, float]:
        """Status, and the seconds to wait that ``Retry-After`` asks for (1 without it)."""
        request = self._head % len(body) + body
        try:
            data = self._ask(request)
        except ConnectionError:  # hung up while nothing was asked: servers may, RFC 9112, 9.3.1
            self._socket.close()
            self._open()
            data = self._ask(request)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data = self._more(data)
        head = data[:end].lower()
        wait_s = _PAUSE_S
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
            elif name == b"retry-after":
                wait_s = float(value)
        while len(data) < end + 4 + length:
            data = self._more(data)
        return int(head[9:12]), wait_s

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._peer)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(120)

    def _ask(self, request: bytes) -> bytes:
        """Send a request; the first piece of the answer."""
        self._socket.sendall(request)
        return self._more(b"")

    def _more(self, data: bytes) -> bytes:
        piece = self._socket.recv(65536)
        if not piece:
            raise ConnectionError("the server hung up")
        return data + piece


class GrpcConnection:
    """The same over gRPC."""

    def __init__(self, address: str) -> None:
        """Make a channel."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._call = self._channel.unary_unary(_EXPORT)

    def post(self, body: bytes) -> tuple[int, float]:
        """A status as over HTTP: 200, 503 if busy; anything else is raised."""
        try:
            self._call(body, timeout=120)
        except grpc.RpcError as error:
            if error.code() in _GRPC_BUSY:
                return 503, _PAUSE_S
            raise
        return 200, 0.0

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


class _Run:
    """One order being carried out by a few threads."""

    def __init__(self, order: Order, bodies: Iterator[bytes]) -> None:
        self._order = order
        self._bodies = bodies
        self._lock = Lock()
        self._began = time.perf_counter()
        self._num_taken = self._num_acked = self._num_busy = 0
        self._acks_s: list[float] = []
        self._parses_s: list[float] = []
        self._errors: list[str] = []

    def carry_out(self) -> Sent:
        cpu_s = time.process_time()
        threads = [Thread(target=self._send) for _ in range(_NUM_CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        p50, p99 = np.quantile(self._acks_s or [0.0], [0.5, 0.99]) * 1e3
        return Sent(
            self._num_acked * self._order.per_body,
            self._num_acked,
            self._num_busy,
            time.perf_counter() - self._began,
            time.process_time() - cpu_s,
            float(p50),
            float(p99),
            sum(self._parses_s),
            self._errors,
        )

    def _send(self) -> None:
        acked: list[bytes] = []
        try:
            connection = _connect(self._order)
            while (body := self._next()) is not None:
                self._deliver(connection.post, body)
                acked.append(body)
                if len(acked) * len(body) >= _PARSE_BYTES:
                    self._parse(acked)
            self._parse(acked)
            connection.close()
        except Exception as error:  # noqa: BLE001 - told to the one who asked
            self._errors.append(repr(error))

    def _parse(self, acked: list[bytes]) -> None:
        if self._order.is_parsed:
            self._parses_s.append(_parse_s(acked))
        acked.clear()

    def _deliver(self, post: Callable[[bytes], tuple[int, float]], body: bytes) -> None:
        while True:
            begun = time.perf_counter()
            status, wait_s = post(body)
            if status == 200:
                break
            if status not in _BUSY:
                raise RuntimeError(f"answered with {status}")
            with self._lock:
                self._num_busy += 1
            time.sleep(wait_s)
        with self._lock:
            self._acks_s.append(time.perf_counter() - begun)
            self._num_acked += 1

    def _next(self) -> bytes | None:
        with self._lock:
            now_s = time.perf_counter() - self._began
            body = next(self._bodies, None) if now_s < self._order.limit_s else None
            due_s = 0.0
            if self._order.spans_per_s:
                due_s = self._num_taken * self._order.per_body / self._order.spans_per_s
            self._num_taken += 1
        if due_s > now_s:
            time.sleep(due_s - now_s)
        return body


def _connect(order: Order) -> Connection | GrpcConnection:
    if not order.address.startswith("http"):
        return GrpcConnection(order.address)
    headers = {"Content-Type": "application/x-protobuf", **order.headers}
    if order.is_gzip:
        headers["Content-Encoding"] = "gzip"
    return Connection(order.address, headers)


@lru_cache(maxsize=2)
def _payload(per_body: int, num_pool: int) -> Payload:
    return Payload(per_body, num_pool=num_pool)


def _bodies(order: Order) -> Iterator[bytes]:
    payload = _payload(order.per_body, order.num_pool)
    first_ns = order.first_ns or time.time_ns() - 60_000_000_000
    return payload.bodies(order.num_spans, order.seed, first_ns, order.window_ns)


def _parse_s(bodies: list[bytes]) -> float:
    """CPU time of protobuf's own parser, freeing included."""
    begun = time.thread_time()
    for body in bodies:
        ExportTraceServiceRequest.FromString(body)
    return time.thread_time() - begun


def _parse_rate(order: Order) -> float:
    bodies = list(_bodies(order))
    return len(bodies) * order.per_body / _parse_s(bodies)


def main() -> None:
    """Carry out orders until stdin ends."""
    for line in sys.stdin:
        given = json.loads(line)
        do = given.pop("do")
        order = Order(**given)
        if do == "parse":
            answer: Any = _parse_rate(order)
        else:
            bodies = _bodies(order)
            if order.is_gzip:
                bodies = iter([gzip.compress(body, 6) for body in bodies])  # slow: beforehand
            print(json.dumps("begun"), flush=True)
            answer = _Run(order, bodies).carry_out()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
