"""What becomes of a finished request: spans, metrics and its story, on a thread of their own."""

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from longpole_engine.telemetry.events import RequestRecord, now_ns
from longpole_engine.telemetry.otel import SpanWriter
from longpole_engine.telemetry.prom import Metrics
from longpole_engine.telemetry.resources import Sample, Sampler
from longpole_engine.telemetry.start import StartPhase
from longpole_engine.telemetry.story import delays, document, tell

if TYPE_CHECKING:
    from longpole_engine.engine import Engine

_log = logging.getLogger("longpole.engine.telemetry")

_NUM_WAITING: Final = 4_096
_NUM_KEPT: Final = 256
_NUM_SAMPLES: Final = 1_200
_SAMPLE_S: Final = 0.5


class Reporter:
    """Takes closed records from any thread without waiting and tells them to all who ask.

    Args:
        spans: writes spans.
        model: the served name.
    """

    def __init__(self, spans: SpanWriter, model: str) -> None:
        self.metrics = Metrics(model)
        self.num_dropped = 0
        self._spans = spans
        self._engine: Engine | None = None
        self._sampler: Sampler | None = None
        self._samples: deque[Sample] = deque(maxlen=_NUM_SAMPLES)
        self._kept: OrderedDict[str, RequestRecord] = OrderedDict()
        self._waiting: queue.Queue[RequestRecord | None] = queue.Queue(_NUM_WAITING)
        self._thread = threading.Thread(target=self._live, name="telemetry", daemon=True)
        self._thread.start()

    def started(self, engine: "Engine", phases: Sequence[StartPhase]) -> None:
        """The engine is warm: from now on its steps are joined to requests and samples."""
        self.metrics.started({p.name: (p.end_ns - p.start_ns) / 1e9 for p in phases})
        self._spans.emit_start(phases)
        pool = engine.kv.pool
        for name, text, read in (
            ("vllm:num_requests_running", "Requests that hold pages.", lambda: engine.num_running),
            ("vllm:num_requests_waiting", "Requests in line.", lambda: engine.num_waiting),
            (
                "vllm:kv_cache_usage_perc",
                "Part of the pages that sequences own, 0 to 1.",
                lambda: 1 - pool.num_available / pool.num_pages,
            ),
        ):
            self.metrics.watch(name, text, read)
        self._sampler = Sampler(engine.steps, engine.read_bytes)
        self._engine = engine

    def emit(self, record: RequestRecord) -> None:
        """Take a closed record; when the thread is far behind it is dropped and counted."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self.num_dropped += 1

    def timeline(self, name: str) -> dict[str, Any] | None:
        """The story of one of the latest requests as JSON; ``None`` if it is not among them."""
        record = self._kept.get(name)
        if record is None or self._engine is None:
            return None
        return document(name, tell(name, record, self._engine.steps))

    def _delays(self, record: RequestRecord) -> dict[str, int]:
        """Nanoseconds by the request that was served meanwhile; empty for what never ran."""
        if record.response_id is None or self._engine is None:
            return {}
        return delays(record.response_id, record, self._engine.steps)

    def samples(self) -> list[Sample]:
        """The machine's samples, some minutes of them, the latest last."""
        return list(self._samples)

    def close(self, timeout_s: float) -> None:
        """Tell what waits and send the last spans, for at most so long."""
        begun_ns = now_ns()
        try:
            self._waiting.put(None, timeout=timeout_s)
            self._thread.join(timeout_s)
        except queue.Full:
            self.num_dropped += self._waiting.qsize()
        if self.num_dropped:
            _log.warning("%d requests are in no span: telemetry was behind", self.num_dropped)
        self._spans.close(max(0.1, timeout_s - (now_ns() - begun_ns) / 1e9))

    def _live(self) -> None:
        due_ns = now_ns()
        while True:
            try:
                record = self._waiting.get(timeout=_SAMPLE_S)
            except queue.Empty:
                record = None
            else:
                if record is None:
                    return
                self._tell(record)
            if self._sampler is not None and now_ns() >= due_ns:
                due_ns = now_ns() + int(_SAMPLE_S * 1e9)
                self._samples.append(self._sampler.take())
                self.metrics.sampled(self._samples[-1])

    def _tell(self, record: RequestRecord) -> None:
        try:
            self._spans.emit(record, self._delays(record))
            self.metrics.observe(record)
        except Exception:  # noqa: BLE001 - counted; telemetry never stops serving
            self.num_dropped += 1
            _log.exception("a request could not be told")
        if record.response_id is not None:
            self._kept[record.response_id] = record
            if len(self._kept) > _NUM_KEPT:
                self._kept.popitem(last=False)
