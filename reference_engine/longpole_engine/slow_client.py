"""A server in this process and a client that reads its stream slowly, over a real connection."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import uvicorn
from opentelemetry.sdk.trace import SpanProcessor

from longpole.errors import LongpoleError
from longpole_engine.config import EngineConfig
from longpole_engine.server.app import create_app
from longpole_engine.server.service import Service
from longpole_engine.telemetry.otel import SpanWriter

_WAIT_S: Final = 60.0
_NUM_TOKENS: Final = 600
_READ_BYTES: Final = 256


class Reading(NamedTuple):
    """What came of one streamed answer."""

    stall_ms: float
    """The connection took no more for so long."""
    took_s: float


def read(model: str, extra: Mapping[str, Any], pause_s: float, slow_s: float) -> Reading:
    """Have one answer streamed to a client that reads slowly.

    Args:
        model: the model's name.
        extra: settings of the engine.
        pause_s: the client's pause after every 256 bytes.
        slow_s: for so long; then it reads on without pauses.

    Raises:
        LongpoleError: the server did not become ready, or the request failed.
    """
    ready = threading.Event()
    failures: list[Exception] = []
    spans = SpanWriter(SpanProcessor())
    service = Service(model, EngineConfig(**extra), spans, ready.set, failures.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Small buffers, so that a few kilobytes already fill the connection.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        config = uvicorn.Config(
            create_app(service, 1_000_000), log_config=None, timeout_graceful_shutdown=2
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            if not ready.wait(_WAIT_S):
                raise LongpoleError(f"the server did not become ready in {_WAIT_S:.0f} s")
            return _ask(listener.getsockname()[1], service, pause_s, slow_s)
        finally:
            server.should_exit = True
            thread.join(20)


def _piece(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_READ_BYTES)
    except (http.client.IncompleteRead, ConnectionError):  # a server may cut a client so slow
        return b""


def _ask(port: int, service: Service, pause_s: float, slow_s: float) -> Reading:
    body = json.dumps(
        {
            "model": service.name,
            "prompt": "go",
            "max_tokens": _NUM_TOKENS,
            "temperature": 1.5,  # a greedy answer would end, and then be silent
            "seed": 1,
            "ignore_eos": True,
            "stream": True,
        }
    )
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.sock.connect(("127.0.0.1", port))
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise LongpoleError(f"the request failed with status {answer.status}")
    text = bytearray()
    begun = time.monotonic()
    until = begun + slow_s
    while piece := _piece(answer):
        text += piece
        if time.monotonic() < until:
            time.sleep(pause_s)
    connection.close()
    took_s = time.monotonic() - begun
    name = json.loads(bytes(text).split(b"\n", 1)[0].removeprefix(b"data: "))["id"]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = service.reporter.timeline(name)
        if found is not None:
            return Reading(found["client_stall_ms"], took_s)
        time.sleep(0.01)
    raise LongpoleError("the request's timeline did not come")
