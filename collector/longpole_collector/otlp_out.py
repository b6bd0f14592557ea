"""Canonical spans back into OTLP JSON, under the canonical names.

What comes out is read in again as the same spans: every column has its key, durations are
seconds, and what was never recognised goes out as the text it is.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import KINDS, STATUSES
from longpole_collector.dialects.base import Rule, seconds_ms, seconds_ns
from longpole_collector.dialects.base import attempts as attempts_rule
from longpole_collector.dialects.otel_genai import RULES


def to_otlp(spans: Iterable[Span]) -> dict[str, Any]:
    """One ``ExportTraceServiceRequest`` as JSON values, spans grouped by sender and scope."""
    groups: dict[tuple[str | None, str | None, str | None], list[dict[str, Any]]] = {}
    for span in spans:
        group = (span.service, span.instance_id, span.scope)
        groups.setdefault(group, []).append(_span(span))
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [
                        _pair(key, value)
                        for key, value in (
                            (keys.SERVICE_NAME, service),
                            (keys.SERVICE_INSTANCE_ID, instance),
                        )
                        if value is not None
                    ]
                },
                "scopeSpans": [{"scope": {"name": scope or ""}, "spans": members}],
            }
            for (service, instance, scope), members in groups.items()
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    pairs = [_pair(key, value) for key, value in span.attributes.items()]
    for column, (key, rule) in _KEY_OF.items():
        value = getattr(span, column)
        if value is not None and value != _SILENT.get(column):
            pairs.append(_pair(key, _wire(value, rule)))
    document: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id or "",
        "name": span.name,
        "kind": KINDS.index(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns or 0),
        "status": {"code": STATUSES.index(span.status), "message": span.status_message or ""},
        "attributes": pairs,
    }
    if span.events:
        document["events"] = [
            {
                "name": event["name"],
                "timeUnixNano": str(event["time_ns"]),
                "attributes": _pairs(event["attributes"]),
            }
            for event in json.loads(span.events)
        ]
    if span.links:
        document["links"] = [
            {
                "traceId": link["trace_id"],
                "spanId": link["span_id"],
                "attributes": _pairs(link["attributes"]),
            }
            for link in json.loads(span.links)
        ]
    return document


def _wire(value: Any, rule: Rule) -> Any:
    if rule.convert is seconds_ns:
        return value / 1e9
    if rule.convert is seconds_ms:
        return value / 1e3
    return value - 1 if rule.convert is attempts_rule else value


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_pair(key, value) for key, value in attributes.items()]


def _pair(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": _any_value(value)}


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _pairs(value)}}
    return {"stringValue": value}


_KEY_OF: Final[dict[str, tuple[str, Rule]]] = {
    rule.column: (key, rule) for key, rule in reversed(list(RULES.items())) if not rule.is_fallback
}
"""Column -> the key that says it."""
_SILENT: Final[dict[str, Any]] = {"is_detached": False, "flags": []}
"""Values that need no attribute."""
