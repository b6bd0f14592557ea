"""The engine's life inside the server: loading, ready, stopping; and the end of each request."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longpole.errors import LongpoleError
from longpole_engine.answers import Delivery
from longpole_engine.config import EngineConfig, Speculation
from longpole_engine.engine import Engine
from longpole_engine.models.loader import load, served_name
from longpole_engine.server.errors import ApiError
from longpole_engine.telemetry.events import RequestRecord, now_ns
from longpole_engine.telemetry.otel import SpanWriter
from longpole_engine.telemetry.reporter import Reporter
from longpole_engine.telemetry.start import StartClock
from longpole_engine.text.chat import ChatTemplate

_log = logging.getLogger("longpole.engine.server")

_STOP_WAIT_S = 3.0
_LOAD_WAIT_S = 20.0
"""Loading is not interrupted: a process that ends under a running kernel crashes."""

_COLD_RETRY_S = 2


@dataclass(frozen=True)
class Serving:
    """What there is once the model is warm."""

    engine: Engine
    template: ChatTemplate | None


class Service:
    """One model being served.

    Args:
        model: name or path, see :func:`longpole_engine.models.loader.load`.
        config: the engine's.
        spans: writes finished requests.
        on_ready: called when the model is warm.
        on_failure: called when it cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        config: EngineConfig,
        spans: SpanWriter,
        on_ready: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.name = served_name(model)
        self.started_s = int(time.time())
        self._model, self._config = model, config
        self.reporter = Reporter(spans, self.name)
        self._on_ready, self._on_failure = on_ready, on_failure
        self._serving: Serving | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_started = 0
        self._is_stopping = False

    @property
    def is_ready(self) -> bool:
        """The model is loaded and warm."""
        return self._serving is not None

    def start(self) -> None:
        """Load the model on the engine's own thread; returns at once."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, name="engine", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop stepping and send the last spans, within bounded time."""
        self._is_stopping = True
        wait_s = _LOAD_WAIT_S
        if self._serving is not None:
            self._serving.engine.stop()
            wait_s = _STOP_WAIT_S
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, wait_s)
        await asyncio.to_thread(self.reporter.close, _STOP_WAIT_S)

    def serving(self) -> Serving:
        """The warm engine.

        Raises:
            ApiError: 503 while it is loading.
        """
        if self._serving is None:
            raise ApiError(
                503, "the model is loading", code="model_loading", retry_after_s=_COLD_RETRY_S
            )
        return self._serving

    def started(self, record: RequestRecord) -> None:
        """Count a request that goes to the engine; the first one is marked cold."""
        record.is_cold_start = self._num_started == 0
        self._num_started += 1

    def finish(self, record: RequestRecord, *, is_sent: bool) -> None:
        """The response is closed: stop work nobody waits for and write the spans.

        Args:
            record: the request's.
            is_sent: the whole response was handed to the connection.
        """
        record.timeline.close(now_ns())
        if record.response_id and record.finish_reason is None and self._serving:
            self._serving.engine.abort(record.response_id)
        if record.error_type is not None:
            record.stream_state = "error"
        else:
            is_complete = is_sent and record.finish_reason is not None
            record.stream_state = "completed" if is_complete else "closed_early"
        self.reporter.emit(record)

    def _live(self) -> None:
        """The engine thread's whole life."""
        try:
            engine, template = self._boot()
        except (LongpoleError, ImportError, MemoryError, OSError) as error:
            self._on_failure(error)
            return
        if self._is_stopping:
            return
        self._serving = Serving(engine, template)
        self._on_ready()
        engine.run()

    def _boot(self) -> tuple[Engine, ChatTemplate | None]:
        clock = StartClock()
        checkpoint = load(self._model, clock.begin)
        clock.begin("build")
        name = self._config.draft_model
        draft = load(name) if self._config.speculation is Speculation.DRAFT else None
        engine = Engine(checkpoint, self._config, self._post, draft)
        source = checkpoint.text.chat_template
        template = ChatTemplate(source) if source else None
        clock.begin("warm_up")
        engine.warm_up()
        phases = clock.phases()
        told = [f"{phase.name} {(phase.end_ns - phase.start_ns) / 1e9:.2f} s" for phase in phases]
        _log.info("start: %s", ", ".join(told))
        self.reporter.started(engine, phases)
        return engine, template

    def _post(self, deliveries: Sequence[Delivery]) -> None:
        """Hand a step's chunks to the event loop in one wake-up."""
        assert self._loop is not None  # noqa: S101 - set before the thread starts
        try:
            self._loop.call_soon_threadsafe(_hand_out, deliveries)
        except RuntimeError:  # the loop is closed: the server has gone, nobody listens
            _log.debug("%d chunks after the server's end", len(deliveries))


def _hand_out(deliveries: Sequence[Delivery]) -> None:
    for sink, chunk in deliveries:
        sink(chunk)
