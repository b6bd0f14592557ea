"""OTLP protobuf -> raw spans, by the C parser (upb) of the protobuf package.

The parse is cheap (a few microseconds a span) and happens once, at the door; walking the
attributes in Python is the dear part and is left to whoever calls ``Body.spans``.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import BadInput
from longpole_collector.decode.raw import (
    KINDS,
    MAX_SPANS,
    MAX_TIME_NS,
    STATUSES,
    Attributes,
    Body,
    RawEvent,
    RawLink,
    RawSpan,
    Value,
    check_size,
    resource_of,
)

_NESTED: Final = frozenset(("array_value", "kvlist_value"))


def parse(body: bytes, max_spans: int | None = MAX_SPANS) -> Body:
    """A protobuf ``ExportTraceServiceRequest``; an empty body is an empty request.

    Raises:
        BadInput: the bytes are not OTLP.
        TooLarge: more than ``max_spans`` spans.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except (DecodeError, ValueError) as error:
        raise BadInput(f"not an OTLP protobuf trace request: {error}") from error
    if body and not request.resource_spans:
        raise BadInput("not an OTLP protobuf trace request: it holds no resource spans")
    num_spans = sum(
        len(scope_spans.spans)
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
    )
    check_size(num_spans, max_spans)
    num_rejected = 0
    reason = ""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            bad = [(i, why) for i, span in enumerate(scope_spans.spans) if (why := _flaw(span))]
            for i, why in reversed(bad):
                del scope_spans.spans[i]
                reason = why
            num_rejected += len(bad)
    return Body(
        lambda received_ns: _spans(request, received_ns),
        num_spans - num_rejected,
        num_rejected,
        reason,
    )


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


def _spans(request: ExportTraceServiceRequest, received_ns: int) -> Iterator[RawSpan]:
    for resource_spans in request.resource_spans:
        resource = resource_of(attributes(resource_spans.resource.attributes))
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                parent = span.parent_span_id
                status = span.status
                yield RawSpan(
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
                    [
                        RawEvent(event.name, event.time_unix_nano, attributes(event.attributes))
                        for event in span.events
                    ],
                    [
                        RawLink(
                            link.trace_id.hex(), link.span_id.hex(), attributes(link.attributes)
                        )
                        for link in span.links
                    ],
                    scope,
                    resource,
                )


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
