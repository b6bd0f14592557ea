"""OTLP protobuf -> raw spans, by the C parser (upb) of the protobuf package.

The parse is cheap (a few microseconds a span); walking the attributes in Python is the dear
part and is left to whoever calls ``Body.spans``.
"""

from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import BadInput
from longpole_collector.decode.crowd import refuse_crowd
from longpole_collector.decode.mend import INVALID_UTF8, Place, mend
from longpole_collector.decode.raw import (
    KINDS,
    MAX_NAME_CHARS,
    MAX_SPANS,
    MAX_TIME_NS,
    STATUSES,
    Attributes,
    Body,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
    Value,
    check_size,
    resource_of,
)

_NESTED: Final = frozenset(("array_value", "kvlist_value"))


def parse(body: bytes, max_spans: int | None = MAX_SPANS) -> Body:
    """A protobuf ``ExportTraceServiceRequest``; an empty body is an empty request.

    Text that is not UTF-8 is repaired with U+FFFD, and its spans flagged.

    Raises:
        BadInput: the bytes are not OTLP.
        TooLarge: more than ``max_spans`` spans.
    """
    refuse_crowd(body, max_spans)
    repaired: frozenset[Place] = frozenset()
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except (DecodeError, ValueError) as error:
        mended = mend(body)
        if mended is None:
            raise BadInput(f"not an OTLP protobuf trace request: {error}") from error
        request, repaired = mended
    if body and not request.resource_spans:
        raise BadInput("not an OTLP protobuf trace request: it holds no resource spans")
    num_spans = sum(
        len(scope_spans.spans)
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
    )
    check_size(num_spans, max_spans)
    bad: dict[Place, str] = {
        (i, j, k): why
        for i, resource_spans in enumerate(request.resource_spans)
        for j, scope_spans in enumerate(resource_spans.scope_spans)
        for k, span in enumerate(scope_spans.spans)
        if (why := _flaw(span))
    }
    return Body(
        lambda received_ns: _spans(request, received_ns, bad, repaired),
        num_spans - len(bad),
        len(bad),
        next(iter(bad.values()), ""),
    )


def refuse_other_signals(body: bytes, parsed: Body) -> None:
    """Refuse logs and metrics, which have the shape of a trace request whose spans have no ids.

    A log record has a fixed 64-bit number where a span has its trace id, or its events; a metric
    has its data where a span has neither times nor kind. For a body as a sender sent it: a part of
    one, with bad spans alone, may look like metrics.

    Args:
        body: a protobuf request.
        parsed: what :func:`parse` says of it; with a good span it is one of traces.

    Raises:
        BadInput: it is of another signal; the message says which.
    """
    if parsed.num_spans or not parsed.num_rejected:
        return
    with suppress(DecodeError, ValueError):
        logs = ExportLogsServiceRequest.FromString(body)
        records = [r for g in logs.resource_logs for s in g.scope_logs for r in s.log_records]
        if any(record.time_unix_nano or record.observed_time_unix_nano for record in records):
            raise BadInput("these are log records, not spans: send them to /v1/logs")
    with suppress(DecodeError, ValueError):
        metrics = ExportMetricsServiceRequest.FromString(body)
        found = [m for g in metrics.resource_metrics for s in g.scope_metrics for m in s.metrics]
        request = ExportTraceServiceRequest.FromString(body)
        spans = [s for g in request.resource_spans for c in g.scope_spans for s in c.spans]
        is_timeless = not any(span.start_time_unix_nano or span.kind for span in spans)
        if found and is_timeless and all(metric.WhichOneof("data") for metric in found):
            raise BadInput("these are metrics, not spans: send them to /v1/metrics")


def _flaw(span: Any) -> str:
    """Why a span cannot be stored; empty if it can."""
    if len(span.trace_id) != 16 or not any(span.trace_id):
        return f"trace id of {len(span.trace_id)} bytes (16 needed, not all zero)"
    if len(span.span_id) != 8 or not any(span.span_id):
        return f"span id of {len(span.span_id)} bytes (8 needed, not all zero)"
    if len(span.parent_span_id) not in (0, 8):
        return f"parent span id of {len(span.parent_span_id)} bytes (none or 8 needed)"
    if span.start_time_unix_nano > MAX_TIME_NS or span.end_time_unix_nano > MAX_TIME_NS:
        return "time beyond the year 2262"
    return ""


def _spans(
    request: ExportTraceServiceRequest,
    received_ns: int,
    bad: Container[Place],
    repaired: Container[Place],
) -> Iterator[RawSpan]:
    for i, resource_spans in enumerate(request.resource_spans):
        resource = resource_of(attributes(resource_spans.resource.attributes))
        for j, scope_spans in enumerate(resource_spans.scope_spans):
            scope = scope_spans.scope.name[:MAX_NAME_CHARS]
            for k, span in enumerate(scope_spans.spans):
                if (i, j, k) not in bad:
                    flags = (INVALID_UTF8,) if (i, j, k) in repaired else ()
                    yield _span(span, received_ns, scope, resource, flags)


def _span(
    span: Any, received_ns: int, scope: str, resource: Resource, flags: tuple[str, ...]
) -> RawSpan:
    parent = span.parent_span_id
    status = span.status
    return RawSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        parent.hex() if any(parent) else None,
        span.name,
        _nth(KINDS, span.kind),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        received_ns,
        _nth(STATUSES, status.code),
        status.message,
        attributes(span.attributes),
        [event_of(event) for event in span.events],
        [
            RawLink(link.trace_id.hex(), link.span_id.hex(), attributes(link.attributes))
            for link in span.links
        ],
        scope,
        resource,
        flags,
        span.trace_state,
    )


def event_of(event: Any) -> RawEvent:
    """A span event as a record."""
    return RawEvent(event.name, event.time_unix_nano, attributes(event.attributes))


def attributes(pairs: Iterable[Any]) -> Attributes:
    """Key-value pairs as a dict; a pair without a value is skipped, the last of a key wins."""
    found: Attributes = {}
    for pair in pairs:
        value = pair.value
        which = value.WhichOneof("value")
        if which in _NESTED:
            found[pair.key] = _nested(value, which)
        elif which is not None:
            found[pair.key] = getattr(value, which)
    return found


def value_of(any_value: Any) -> Value | None:
    """An ``AnyValue`` as a Python value; ``None`` if it holds none."""
    which = any_value.WhichOneof("value")
    if which in _NESTED:
        return _nested(any_value, which)
    return None if which is None else cast("Value", getattr(any_value, which))


def _nested(any_value: Any, which: str) -> Value:
    if which == "kvlist_value":
        return attributes(any_value.kvlist_value.values)
    values: list[Value] = []
    for item in any_value.array_value.values:
        kind = item.WhichOneof("value")
        if kind in _NESTED:
            values.append(_nested(item, kind))
        elif kind is not None:
            values.append(getattr(item, kind))
    return values


def _nth(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]
