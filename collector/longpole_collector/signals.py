"""The three OTLP signals, and how an export is answered.

Traces are kept. Logs and metrics are taken so that a sender of all three meets no error: they
are parsed far enough to be counted, dropped, and the sender is told so by partial success.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from longpole.errors import BadInput
from longpole_collector.decode import Format
from longpole_collector.decode.json import load

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
        if form is Format.JSON:
            partial = {self.rejected_json: str(num_rejected), "errorMessage": reason}
            return json.dumps({"partialSuccess": partial} if num_rejected else {}).encode()
        response = self.response()
        if num_rejected:
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


def count_records(body: bytes, form: Format, signal: Signal) -> int:
    """Log records or metric data points in a decompressed request.

    Raises:
        BadInput: the body is not OTLP of that signal.
    """
    try:
        if form is Format.JSON:
            document = load(body) if body else {}
            return _json_logs(document) if signal is LOGS else _json_metrics(document)
        return _logs(body) if signal is LOGS else _metrics(body)
    except (DecodeError, AttributeError, TypeError) as error:
        raise BadInput(f"not an OTLP {form.name} request of {signal.name}") from error


def _logs(body: bytes) -> int:
    request = ExportLogsServiceRequest.FromString(body)
    return sum(
        len(scope.log_records)
        for resource in request.resource_logs
        for scope in resource.scope_logs
    )


def _metrics(body: bytes) -> int:
    request = ExportMetricsServiceRequest.FromString(body)
    return sum(
        len(getattr(metric, kind).data_points)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if (kind := metric.WhichOneof("data"))
    )


def _json_logs(document: Any) -> int:
    return sum(
        len(scope.get("logRecords") or ())
        for resource in document.get("resourceLogs") or ()
        for scope in resource.get("scopeLogs") or ()
    )


def _json_metrics(document: Any) -> int:
    return sum(
        len((metric.get(kind) or {}).get("dataPoints") or ())
        for resource in document.get("resourceMetrics") or ()
        for scope in resource.get("scopeMetrics") or ()
        for metric in scope.get("metrics") or ()
        for kind in _DATA
    )
