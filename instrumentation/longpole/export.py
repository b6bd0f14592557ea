"""The exporter: OpenTelemetry's OTLP/HTTP one, with a bounded queue that counts what it drops.

Loaded with the first span, and OpenTelemetry's exporter only with the first export, on its
thread. A collector that is down costs one warning per outage instead of OpenTelemetry's
repeated ones; those of an exporter the application set up itself are left alone.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from longpole import health
from longpole.forks import loading
from longpole.settings import Settings

WARN_EVERY_S = 60.0
_logger = logging.getLogger("longpole.export")
_OTEL_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_running = threading.local()


class _Quiet(logging.Filter):
    """Turns OpenTelemetry's complaints about *our* exports into our one warning.

    The records of a thread that is not exporting for us pass.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """``False`` (swallow the record) on the thread of one of our exports."""
        exporter: Exporter | None = getattr(_running, "exporter", None)
        if exporter is None:
            return True
        if record.levelno >= logging.WARNING:
            exporter.failed(_reason(record))
        return False


def _reason(record: logging.LogRecord) -> str:
    """In a word what a record complains about: the exception's type where there is one."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    errors = [type(item).__name__ for item in arguments if isinstance(item, BaseException)]
    return errors[0] if errors else record.getMessage()


class Exporter(SpanExporter):
    """Sends spans, counts them, and warns once per outage."""

    def __init__(self, settings: Settings, headers: Mapping[str, str] | None) -> None:
        self._settings = settings
        self._headers = dict(headers) if headers else None
        self._inner: SpanExporter | None = None
        self._is_down = False
        self._is_hurried = False
        self._is_closed = False
        self._warned_s = -WARN_EVERY_S
        self.num_pending = 0
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            weak = weakref.ref(self)

            def after_fork() -> None:
                if (exporter := weak()) is not None:
                    exporter._after_fork()

            os.register_at_fork(after_in_child=after_fork)

    def admit(self) -> bool:
        """Room for one more finished span? If not it is counted as dropped."""
        with self._lock:
            if self._is_closed:
                cause = "closed"
            elif self.num_pending >= self._settings.queue_size:
                cause = "queue_full"
            else:
                self.num_pending += 1
                return True
        health.count(health.dropped, cause)
        return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; a failure is counted, not raised."""
        _running.exporter = self
        try:
            result = self._otlp().export(spans)
        except Exception as error:  # noqa: BLE001 - counted and said once
            self.failed(type(error).__name__)
            result = SpanExportResult.FAILURE
        finally:
            _running.exporter = None
            with self._lock:
                self.num_pending -= len(spans)
        if result is SpanExportResult.SUCCESS:
            self._is_down = False
            health.count(health.sent, "spans", len(spans))
        else:
            health.count(health.dropped, "export_failed", len(spans))
        return result

    def failed(self, reason: str) -> None:
        """An attempt failed: warn if this outage has not been said yet."""
        if self._is_hurried:
            self.give_up()
        is_news = not self._is_down
        self._is_down = True
        now_s = time.monotonic()
        if is_news and now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            _logger.warning(
                "longpole: spans do not reach %s (%s); those that wait too long are dropped and "
                "counted, the application is not affected. Is `longpole collect` running?",
                self._settings.traces_url,
                reason,
            )

    def hurry(self) -> None:
        """The process ends: one attempt each, no waiting for a second."""
        self._is_hurried = True
        if self._is_down:
            self.give_up()

    def give_up(self) -> None:
        """Send nothing more; an export that waits for its next attempt ends at once."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._inner is not None:
            self._inner.shutdown()

    def shutdown(self) -> None:
        """As :meth:`give_up`; OpenTelemetry calls it once the queue is empty."""
        self.give_up()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing waits in the exporter itself."""
        return True

    def _otlp(self) -> SpanExporter:
        if self._inner is None:
            with loading():
                import netrc  # noqa: F401 - requests imports it with its first request

                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                logging.getLogger(_OTEL_LOGGER).addFilter(_QUIET)
                self._inner = OTLPSpanExporter(  # it imports too
                    endpoint=self._settings.traces_url,
                    headers=self._headers,
                    timeout=self._settings.timeout_s,
                )
        return self._inner

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self.num_pending = 0
        self._inner = None  # its connection is the parent's


_QUIET = _Quiet()


class Processor(BatchSpanProcessor):
    """OpenTelemetry's batch processor behind our own count of what waits.

    Attributes:
        heir: takes the spans that end from now on, where another set-up has taken over.
    """

    def __init__(self, exporter: Exporter, settings: Settings) -> None:
        self.heir: Callable[[ReadableSpan], None] | None = None
        self._admit = exporter.admit
        super().__init__(
            exporter,
            max_queue_size=settings.queue_size,
            schedule_delay_millis=settings.export_delay_s * 1e3,
            max_export_batch_size=min(settings.batch_size, settings.queue_size),
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a finished, sampled span, or count it as dropped."""
        if self.heir is not None:
            self.heir(span)
        elif span.context is not None and span.context.trace_flags.sampled and self._admit():
            super().on_end(span)
