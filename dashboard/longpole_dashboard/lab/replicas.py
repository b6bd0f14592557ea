"""Real engines, served in this process: torch is loaded once for all of them."""

import socket
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from longpole.errors import LongpoleError
from longpole_engine.config import EngineConfig
from longpole_engine.server.app import create_app
from longpole_engine.server.service import Service
from longpole_engine.telemetry.otel import SpanWriter

ENGINE: Final[Mapping[str, Any]] = {
    "prefix_cache_mb": 64,
    "num_threads": 1,
    "max_queue": 1000,
}
"""Where every engine of the lab differs from ``EngineConfig`` unless its recipe says otherwise."""
MAX_BODY_BYTES: Final = 1_000_000
NUM_KEPT: Final = 24
_READY_S: Final = 120.0
_STOP_S: Final = 20.0
_EXPORT_MS: Final = 200


class Replica:
    """One engine behind its HTTP server, on threads of its own.

    Args:
        model: its name, see :func:`longpole_engine.models.loader.load`.
        settings: fields of ``EngineConfig``.
        endpoint: where its spans go; ``None`` for nowhere.
    """

    def __init__(self, model: str, settings: Mapping[str, Any], endpoint: str | None) -> None:
        self._failures: list[Exception] = []
        self._ready = threading.Event()
        self._processor = _processor(endpoint)
        self.service = Service(
            model,
            EngineConfig(**{**ENGINE, **settings}),
            SpanWriter(self._processor),
            self._ready.set,
            self._failed,
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(self.service, MAX_BODY_BYTES),
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()

    def _failed(self, error: Exception) -> None:
        self._failures.append(error)
        self._ready.set()

    def wait(self) -> None:
        """Return when it is warm.

        Raises:
            LongpoleError: it could not be loaded, or not in time.
        """
        if not self._ready.wait(_READY_S):
            raise LongpoleError(f"an engine was not ready within {_READY_S:g} s")
        for failure in self._failures:
            raise LongpoleError(f"an engine could not start: {failure}") from failure

    def flush(self) -> None:
        """Send the spans that are there."""
        self._processor.force_flush(5_000)

    def close(self) -> None:
        """Stop it."""
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._listener.close()


def _processor(endpoint: str | None) -> SpanProcessor:
    if endpoint is None:
        return SpanProcessor()
    exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    return BatchSpanProcessor(exporter, schedule_delay_millis=_EXPORT_MS)


class Rack:
    """Engines that stay up between runs: the same settings are the same engine.

    Args:
        endpoint: where their spans go.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._kept: OrderedDict[tuple[Any, ...], Replica] = OrderedDict()

    def take(
        self, model: str, settings: Mapping[str, Any], number: int, *, is_hosted: bool
    ) -> Replica:
        """The engine of these settings and this number, started if need be, perhaps not yet warm.

        The one used longest ago is stopped where there are too many.
        """
        key = (model, tuple(sorted(settings.items())), number, is_hosted)
        if key not in self._kept:
            while len(self._kept) >= NUM_KEPT:
                self._kept.popitem(last=False)[1].close()
            self._kept[key] = Replica(model, settings, None if is_hosted else self.endpoint)
        self._kept.move_to_end(key)
        return self._kept[key]

    def all(self) -> list[Replica]:
        """Those that are up."""
        return list(self._kept.values())

    def close(self) -> None:
        """Stop all of them."""
        while self._kept:
            self._kept.popitem()[1].close()
