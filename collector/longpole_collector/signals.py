"""The three OTLP signals, how an export is taken, and how it is answered.

Traces are kept. Of log records the GenAI events are kept, for the spans they belong to. The other
log records and all metrics are taken so that a sender of all three meets no error: they are
parsed far enough to be counted, dropped, and the sender is told so by partial success.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from longpole.errors import BadInput
from longpole_collector.decode import Compression, Format, inflate
from longpole_collector.decode.json import load
from longpole_collector.decode.logs import parse_logs
from longpole_collector.health import Health

_DATA: Final = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


@dataclass(frozen=True)
class Signal:
    """One signal: its name, its response, and the response's field for what was rejected."""

    name: str
    response: Callable[[], Any]
    rejected: str
    rejected_json: str

    def answer(self, form: Format, num_rejected: int, reason: str) -> bytes:
        """An export response; partial success is set only when something was rejected."""
        if not num_rejected:
            return b"{}" if form is Format.JSON else b""
        if form is Format.JSON:
            partial = {self.rejected_json: str(num_rejected), "errorMessage": reason}
            return json.dumps({"partialSuccess": partial}).encode()
        response = self.response()
        setattr(response.partial_success, self.rejected, num_rejected)
        response.partial_success.error_message = reason
        data: bytes = response.SerializeToString()
        return data

    def refusal(self, form: Format, num: int) -> bytes:
        """The answer for a signal that is not kept."""
        reason = f"longpole keeps traces only; these {self.name} were counted and dropped"
        return self.answer(form, num, reason)


TRACES: Final = Signal("traces", ExportTraceServiceResponse, "rejected_spans", "rejectedSpans")
LOGS: Final = Signal(
    "logs", ExportLogsServiceResponse, "rejected_log_records", "rejectedLogRecords"
)
METRICS: Final = Signal(
    "metrics", ExportMetricsServiceResponse, "rejected_data_points", "rejectedDataPoints"
)


class Export(NamedTuple):
    """One export request as it came in.

    ``since_s`` is when it began to come in, by ``time.perf_counter()``.
    """

    signal: Signal
    body: bytes
    form: Format
    compression: Compression
    door: str
    since_s: float


class Receipt(NamedTuple):
    """The answer to a request: spans taken, spans refused, and why the first of these was.

    Of a logs request: events taken, records dropped, and why.
    """

    num_accepted: int
    num_rejected: int
    reason: str


class Taker(Protocol):
    """What brings bodies into the store: the ingest of a project."""

    health: Health

    async def accept(self, body: bytes, form: Format, compression: Compression) -> Receipt:
        """Take a traces request; its receipt tells of spans."""

    async def accept_logs(self, body: bytes, form: Format, compression: Compression) -> Receipt:
        """Take a logs request; its receipt tells of log records."""


async def take(export: Export, taker: Taker, max_body_bytes: int) -> bytes:
    """Take one request, by whatever door it came; returns the bytes of the response.

    Args:
        export: the request.
        taker: takes what is kept, and has the counters.
        max_body_bytes: largest body, decompressed.

    Raises:
        BadInput: not OTLP of that signal, too large, or broken compression.
        StoreBusy: what is kept cannot be taken now.
    """
    signal, body, form, compression, door, since_s = export
    health = taker.health
    if signal is METRICS:
        num_dropped = await asyncio.to_thread(_count, body, form, compression, max_body_bytes)
        answer = signal.refusal(form, num_dropped)
    else:
        accept = taker.accept if signal is TRACES else taker.accept_logs
        receipt = await accept(body, form, compression)
        num_dropped = receipt.num_rejected
        answer = signal.answer(form, num_dropped, receipt.reason)
    if signal is not TRACES and num_dropped:
        health.add("signals_dropped", signal.name, num_dropped)
    encoding = form.name.lower()
    if compression is not Compression.IDENTITY:
        encoding += f"+{compression.name.lower()}"
    health.add("requests_answered", (signal.name, door, encoding))
    health.observe("ack_seconds", time.perf_counter() - since_s, door)
    return answer


def _count(body: bytes, form: Format, compression: Compression, max_body_bytes: int) -> int:
    return count_records(inflate(body, compression, max_body_bytes), form, METRICS)


def count_records(body: bytes, form: Format, signal: Signal) -> int:
    """Log records or metric data points in a decompressed request.

    Raises:
        BadInput: the body is not OTLP of that signal.
    """
    if signal is LOGS:
        logs = parse_logs(body, form)
        return len(logs.events) + logs.num_dropped
    try:
        if form is Format.JSON:
            return _json_metrics(load(body) if body else {})
        return _metrics(body)
    except (DecodeError, AttributeError, TypeError) as error:
        raise BadInput(f"not an OTLP {form.name} request of {signal.name}") from error


def _metrics(body: bytes) -> int:
    request = ExportMetricsServiceRequest.FromString(body)
    return sum(
        len(getattr(metric, kind).data_points)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if (kind := metric.WhichOneof("data"))
    )


def _json_metrics(document: Any) -> int:
    return sum(
        len((metric.get(kind) or {}).get("dataPoints") or ())
        for resource in document.get("resourceMetrics") or ()
        for scope in resource.get("scopeMetrics") or ()
        for metric in scope.get("metrics") or ()
        for kind in _DATA
    )
