"""Spans as OTLP protobuf, written with OpenTelemetry's own messages and sent over HTTP."""

import urllib.request
from collections.abc import Iterable, Sequence
from itertools import groupby

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from longpole.vocab import Span, keys

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")
_PLAIN = {
    keys.STAGE: "stage",
    keys.OPERATION: "operation",
    keys.REQUEST_MODEL: "request_model",
    keys.INPUT_TOKENS: "input_tokens",
    keys.OUTPUT_TOKENS: "output_tokens",
    keys.ROUTE: "route",
    keys.PROMPT_VERSION: "prompt_version",
    keys.OUTCOME: "outcome",
}
_SECONDS = {
    keys.TIME_TO_FIRST_CONTENT: "ttft_ns",
    keys.TIME_TO_LAST_CONTENT: "last_content_ns",
}


def _pair(key: str, value: object) -> KeyValue:
    match value:
        case bool():
            return KeyValue(key=key, value=AnyValue(bool_value=value))
        case int():
            return KeyValue(key=key, value=AnyValue(int_value=value))
        case float():
            return KeyValue(key=key, value=AnyValue(double_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=str(value)))


def _message(span: Span) -> trace_pb2.Span:
    attributes: dict[str, object] = dict(span.attributes)
    attributes |= {key: getattr(span, name) for key, name in _PLAIN.items()}
    for key, name in _SECONDS.items():
        ns = getattr(span, name)
        attributes[key] = None if ns is None else ns / 1e9
    if span.is_streamed:
        attributes[keys.STREAM] = True
    return trace_pb2.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=span.name,
        kind=_KINDS.index(span.kind),  # type: ignore[arg-type]  # protobuf enums are ints
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns or 0,
        status=trace_pb2.Status(code=_STATUSES.index(span.status)),  # type: ignore[arg-type]
        attributes=[_pair(key, value) for key, value in attributes.items() if value is not None],
    )


def _sender(span: Span) -> tuple[str, str, str]:
    return span.service or "", span.instance_id or "", span.scope or ""


def request(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """One export request, grouped by sender and scope."""
    message = ExportTraceServiceRequest()
    for (service, instance, scope), members in groupby(sorted(spans, key=_sender), _sender):
        resource = message.resource_spans.add()
        resource.resource.attributes.append(_pair(keys.SERVICE_NAME, service))
        resource.resource.attributes.append(_pair(keys.SERVICE_INSTANCE_ID, instance))
        scoped = resource.scope_spans.add()
        scoped.scope.name = scope
        scoped.spans.extend(_message(span) for span in members)
    return message


def send(url: str, spans: Sequence[Span]) -> None:
    """Post the spans to a collector; fails unless all are accepted."""
    call = urllib.request.Request(
        f"{url}/v1/traces",
        data=request(spans).SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(call, timeout=30) as answer:
        assert answer.status == 200
