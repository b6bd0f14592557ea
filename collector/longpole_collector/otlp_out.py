"""Spans back into OTLP: canonical ones under the canonical names, raw ones as they are.

What comes out is read in again as the same spans: every column has its key, durations are
seconds, and what was never recognised goes out as the text it is.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from longpole.vocab import Span, keys
from longpole_collector.decode.logs import BODY, LogEvent
from longpole_collector.decode.raw import (
    KINDS,
    STATUSES,
    Attributes,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
)
from longpole_collector.dialects.base import Rule, seconds_ms, seconds_ns
from longpole_collector.dialects.base import attempts as attempts_rule
from longpole_collector.dialects.otel_genai import RULES
from longpole_collector.tracestate import state_of

_RESOURCE_PREFIX: Final = "resource."


def to_raw(span: Span) -> RawSpan:
    """A canonical span as its sender would have sent it under the canonical names."""
    attributes: Attributes = dict(span.attributes)
    for column, (key, rule) in _KEY_OF.items():
        value = getattr(span, column)
        if value is not None and value != _SILENT.get(column):
            attributes[key] = _wire(value, rule)
    return RawSpan(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.name,
        span.kind,
        span.start_ns,
        span.end_ns or 0,
        span.received_ns,
        span.status,
        span.status_message or "",
        attributes,
        [RawEvent(**event) for event in json.loads(span.events or "[]")],
        [RawLink(**link) for link in json.loads(span.links or "[]")],
        span.scope or "",
        Resource(span.service, span.instance_id, {}),
        state=state_of(span.weight, span.randomness),
    )


def resource_attributes(resource: Resource) -> dict[str, str]:
    """The attributes that describe a sender, under the names it sent them by."""
    named = {keys.SERVICE_NAME: resource.service, keys.SERVICE_INSTANCE_ID: resource.instance_id}
    return {key: value for key, value in named.items() if value is not None} | {
        key.removeprefix(_RESOURCE_PREFIX): value for key, value in resource.attributes.items()
    }


def to_otlp(spans: Iterable[RawSpan]) -> dict[str, Any]:
    """One ``ExportTraceServiceRequest`` as JSON values, spans grouped by sender and scope."""
    groups: dict[tuple[tuple[tuple[str, str], ...], str], list[dict[str, Any]]] = {}
    for span in spans:
        resource = tuple(resource_attributes(span.resource).items())
        groups.setdefault((resource, span.scope), []).append(_span(span))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _pairs(dict(resource))},
                "scopeSpans": [{"scope": {"name": scope}, "spans": members}],
            }
            for (resource, scope), members in groups.items()
        ]
    }


def logs_to_otlp(events: Iterable[LogEvent]) -> dict[str, Any]:
    """One ``ExportLogsServiceRequest`` as JSON values, a record an event."""
    records = [
        {
            "traceId": event.trace_id,
            "spanId": event.span_id,
            "timeUnixNano": str(event.time_ns),
            "eventName": event.name,
            "body": _any_value(event.attributes[BODY]) if BODY in event.attributes else None,
            "attributes": _pairs({k: v for k, v in event.attributes.items() if k != BODY}),
        }
        for event in events
    ]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}


def _span(span: RawSpan) -> dict[str, Any]:
    document: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id or "",
        "name": span.name,
        "kind": KINDS.index(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "status": {"code": STATUSES.index(span.status), "message": span.status_message},
        "attributes": _pairs(span.attributes),
    }
    if span.state:
        document["traceState"] = span.state
    if span.events:
        document["events"] = [
            {
                "name": event.name,
                "timeUnixNano": str(event.time_ns),
                "attributes": _pairs(event.attributes),
            }
            for event in span.events
        ]
    if span.links:
        document["links"] = [
            {
                "traceId": link.trace_id,
                "spanId": link.span_id,
                "attributes": _pairs(link.attributes),
            }
            for link in span.links
        ]
    return document


def _wire(value: Any, rule: Rule) -> Any:
    if rule.convert is seconds_ns:
        return value / 1e9
    if rule.convert is seconds_ms:
        return value / 1e3
    return value - 1 if rule.convert is attempts_rule else value


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": _double(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _pairs(value)}}
    return {"stringValue": value}


def _double(value: float) -> float | str:
    """JSON has no number for these three; OTLP's mapping spells them out."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_KEY_OF: Final[dict[str, tuple[str, Rule]]] = {
    rule.column: (key, rule) for key, rule in reversed(list(RULES.items())) if not rule.is_fallback
}
"""Column -> the key that says it."""
_SILENT: Final[dict[str, Any]] = {"is_detached": False, "flags": []}
"""Values that need no attribute."""
