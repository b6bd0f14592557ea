"""What telemetry costs: processor time of a whole server with it and without."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from longpole_engine.config import EngineConfig
from longpole_engine.server.app import create_app
from longpole_engine.server.service import Service
from longpole_engine.telemetry.events import RequestRecord
from longpole_engine.telemetry.otel import SpanWriter
from longpole_engine.telemetry.steps import Part

_NUM_CLIENTS = 8
_NUM_TOKENS = 64


class _Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Nothing is sent."""
        return SpanExportResult.SUCCESS


def telemetry(bench: Bench) -> list[Bar]:
    """Tokens per CPU-second of one server, its telemetry on and off in turns; best of each."""
    best = {True: 0.0, False: 0.0}
    with _served(bench) as (service, port):
        emit, engine = service.reporter.emit, service.serving().engine
        mark, end, begin = engine.steps.mark, engine.steps.end, engine.steps.begin
        for _ in range(max(6, bench.rounds)):
            for is_on in (True, False):
                steps = engine.steps
                steps.mark = mark if is_on else _no_mark  # type: ignore[method-assign]
                steps.end = end if is_on else _nothing  # type: ignore[method-assign]
                steps.begin = begin if is_on else _nothing  # type: ignore[method-assign]
                service.reporter.emit = emit if is_on else _no_emit  # type: ignore[method-assign]
                best[is_on] = max(best[is_on], _throughput(port))
    sides: dict[str, float | str] = {
        "on_tokens_per_cpu_s": best[True],
        "off_tokens_per_cpu_s": best[False],
    }
    return [Bar("throughput telemetry on / off", best[True] / best[False], "x", ">=", 0.97, sides)]


def _no_mark(_: Part) -> None:
    pass


def _no_emit(_: RequestRecord) -> None:
    pass


def _nothing(*_: object) -> None:
    pass


def _throughput(port: int) -> float:
    """Tokens per CPU-second of eight clients at once, theirs included."""

    def ask(number: int) -> None:
        body = {
            "model": "smollm2",
            "prompt": [1000 + number, 2000, 3000],
            "max_tokens": _NUM_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own
            answer.read()

    begun = time.process_time()
    clients = [threading.Thread(target=ask, args=(number,)) for number in range(_NUM_CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return _NUM_CLIENTS * _NUM_TOKENS / (time.process_time() - begun)


@contextmanager
def _served(bench: Bench) -> Iterator[tuple[Service, int]]:
    ready = threading.Event()
    failures: list[Exception] = []
    spans = SpanWriter(BatchSpanProcessor(_Nowhere()))
    config = EngineConfig(num_threads=1, num_decode_threads=1)  # none that waits by spinning
    service = Service("smollm2", config, spans, ready.set, failures.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(service, 100_000), log_config=None))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            if not ready.wait(60):
                raise RuntimeError(f"not ready: {failures}")
            yield service, listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
