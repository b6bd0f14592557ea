"""Raw spans -> traces as JSON that Jaeger's UI loads and ``jaeger`` reads back.

Follows the OpenTelemetry specification ("OpenTelemetry to Jaeger Transformation"). Jaeger counts
whole microseconds, rounded down here, and its references have no attributes; nothing else is
lost.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from longpole.vocab import Kind, Status, keys
from longpole_collector.decode.raw import RawSpan, Value, text
from longpole_collector.jaeger import (
    ERROR,
    EVENT,
    KIND,
    MESSAGE,
    NO_SERVICE,
    SCOPE,
    STATUS,
    TRACE_STATE,
    UNFINISHED,
)
from longpole_collector.otlp_out import resource_attributes


def to_jaeger(spans: Iterable[RawSpan]) -> dict[str, Any]:
    """One trace as JSON values that Jaeger's UI loads; ``spans`` are all of that trace's."""
    processes: dict[tuple[tuple[str, str], ...], str] = {}
    documents: list[dict[str, Any]] = []
    trace_id = ""
    for span in spans:
        trace_id = span.trace_id
        resource = tuple(resource_attributes(span.resource).items())
        process_id = processes.setdefault(resource, f"p{len(processes) + 1}")
        documents.append(_document(span, process_id))
    return {
        "traceID": trace_id,
        "spans": documents,
        "processes": {name: _process(dict(resource)) for resource, name in processes.items()},
        "warnings": None,
    }


def _process(attributes: dict[str, str]) -> dict[str, Any]:
    service = attributes.pop(keys.SERVICE_NAME, NO_SERVICE)
    return {"serviceName": service, "tags": _to_tags(attributes)}


def _document(span: RawSpan, process_id: str) -> dict[str, Any]:
    links = [_reference("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span.links]
    parents = [_reference("CHILD_OF", span.trace_id, span.parent_id)] if span.parent_id else []
    warnings = [] if span.end_ns else [UNFINISHED]
    attributes = dict(span.attributes)
    if span.kind != Kind.UNSPECIFIED:
        attributes[KIND] = span.kind
    if span.status == Status.ERROR:
        attributes.setdefault(ERROR, True)
    if span.status != Status.UNSET or ERROR in attributes:
        attributes[STATUS] = span.status.upper()
    if span.status_message:
        attributes[MESSAGE] = span.status_message
    if span.scope:
        attributes[SCOPE] = span.scope
    if span.state:
        attributes[TRACE_STATE] = span.state
    start_us = span.start_ns // 1000
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "operationName": span.name,
        "references": parents + links,
        "startTime": start_us,
        "duration": max(span.end_ns // 1000 - start_us, 0),
        "tags": _to_tags(attributes),
        "logs": [
            {
                "timestamp": event.time_ns // 1000,
                "fields": _to_tags({EVENT: event.name} if event.name else {})
                + _to_tags(event.attributes),
            }
            for event in span.events
        ],
        "processID": process_id,
        "warnings": warnings or None,
    }


def _reference(kind: str, trace_id: str, span_id: str) -> dict[str, str]:
    return {"refType": kind, "traceID": trace_id, "spanID": span_id}


def _to_tags(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [_tag(key, value) for key, value in attributes.items()]


def _tag(key: str, value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        return {"key": key, "type": "int64", "value": value}
    if isinstance(value, float):
        is_json = math.isfinite(value)
        return {"key": key, "type": "float64", "value": value if is_json else str(value)}
    return {"key": key, "type": "string", "value": text(value)}
