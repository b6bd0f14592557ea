"""Traces as Jaeger's API and UI give them out (JSON) -> raw spans.

Undoes the mapping of the OpenTelemetry specification ("OpenTelemetry to Jaeger
Transformation"): kind, status and scope are tags, events are logs, the resource is the process,
the parent is the first ``CHILD_OF`` within the trace, every other reference is a link. Times are
whole microseconds. ``jaeger_out`` is the way back.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from longpole.errors import BadInput
from longpole.vocab import Kind, Status, keys
from longpole_collector.decode.raw import (
    KINDS,
    MAX_TIME_NS,
    STATUSES,
    Attributes,
    Body,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
    Value,
    body_of,
    resource_of,
    text,
)

KIND: Final = "span.kind"
ERROR: Final = "error"
STATUS: Final = "otel.status_code"
MESSAGE: Final = "otel.status_description"
SCOPE: Final = "otel.scope.name"
TRACE_STATE: Final = "w3c.tracestate"
EVENT: Final = "event"
UNFINISHED: Final = "the span had not ended when it was exported"
"""A span's warning that its duration means nothing; Jaeger knows no unfinished spans."""
NO_SERVICE: Final = "OTLPResourceNoServiceName"
"""What Jaeger itself writes for a resource without a service name."""
_SCOPE_OLD: Final = "otel.library.name"
_HOST: Final = "hostname"
_WARNINGS: Final = "jaeger.warnings"
_NOBODY: Final = Resource(None, None, {})


class _Flaw(ValueError):
    """Why one span cannot be stored."""


def is_jaeger(document: Any) -> bool:
    """Whether JSON is an answer of Jaeger's API, a list of its traces, or one trace."""
    if isinstance(document, dict):
        return "spans" in document or "data" in document
    return isinstance(document, list) and any(
        isinstance(trace, dict) and "spans" in trace for trace in document
    )


def parse_document(document: Any) -> Body:
    """The spans of Jaeger's JSON; a span that cannot be read is rejected alone.

    Args:
        document: ``{"data": [trace, ...]}``, ``[trace, ...]`` or one trace.

    Raises:
        BadInput: not of that shape, or Jaeger's own report of an error.
    """
    good: list[RawSpan] = []
    flaws: list[str] = []
    for number, trace in enumerate(_traces(document), start=1):
        where = f"trace {number}"
        try:
            spans = _list(trace, "spans")
            processes = _object(trace.get("processes") or {}, "'processes'")
            resources = {name: _resource(process) for name, process in processes.items()}
        except _Flaw as flaw:
            raise BadInput(f"{where}: {flaw}") from flaw
        for place, span in enumerate(spans, start=1):
            try:
                good.append(_read(span, resources))
            except _Flaw as flaw:
                flaws.append(f"{where}, span {place}: {flaw}")
    return body_of(good, flaws)


def _traces(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, dict):
        if "spans" in document:
            return [document]
        if document.get("data") is None and document.get("errors"):
            raise BadInput(f"Jaeger reported an error: {text(document['errors'])}")
        document = document["data"]
    if not isinstance(document, list):
        raise BadInput("no Jaeger traces: 'data' must be a list of them")
    for number, trace in enumerate(document, start=1):
        if not isinstance(trace, dict) or "spans" not in trace:
            raise BadInput(f"no Jaeger traces: item {number} has no 'spans'")
    return document


def _read(span: Any, resources: Mapping[str, Resource]) -> RawSpan:
    span = _object(span, "it")
    trace_id = _id(span.get("traceID"), 32, "traceID")
    start_ns = _time(span.get("startTime"), "startTime")
    attributes = _tags(_list(span, "tags"))
    end_ns = 0
    warnings = _list(span, "warnings")
    if span.get("duration") is not None and UNFINISHED not in warnings:
        end_ns = start_ns + _nanoseconds(span["duration"], "duration")
        if not 0 <= end_ns <= MAX_TIME_NS:
            raise _Flaw(f"duration {span['duration']!r:.60} ends at no time")
    if told := [text(warning) for warning in warnings if warning != UNFINISHED]:
        attributes[_WARNINGS] = told  # such as: clock skew adjusted
    parent, links = _references(span, trace_id)
    status, message = _status(attributes)
    process = span.get("process")
    return RawSpan(
        trace_id,
        _id(span.get("spanID"), 16, "spanID"),
        parent,
        _word(span.get("operationName")),
        _kind(attributes),
        start_ns,
        end_ns,
        0,
        status,
        message,
        attributes,
        [_event(log) for log in _list(span, "logs")],
        links,
        _scope(attributes),
        _resource(process)
        if process is not None
        else resources.get(_word(span.get("processID")), _NOBODY),
        state=_word(attributes.pop(TRACE_STATE, "")),
    )


def _references(span: dict[str, Any], trace_id: str) -> tuple[str | None, list[RawLink]]:
    """The parent's span id and the links; exports older than references name the parent alone."""
    parent: str | None = None
    links: list[RawLink] = []
    references = _list(span, "references")
    for item in references:
        reference = _object(item, "a reference")
        if re.fullmatch("0+", _word(reference.get("spanID"))):
            continue  # how some senders say: no parent
        other_trace = _id(reference.get("traceID", trace_id), 32, "reference's traceID")
        other = _id(reference.get("spanID"), 16, "reference's spanID")
        is_child = reference.get("refType") == "CHILD_OF"
        if is_child and parent is None and other_trace == trace_id:
            parent = other
        else:
            links.append(RawLink(other_trace, other, {}))
    if not references and _word(span.get("parentSpanID")).strip("0"):
        parent = _id(span["parentSpanID"], 16, "parentSpanID")
    return parent, links


def _event(log: Any) -> RawEvent:
    log = _object(log, "a log")
    fields = [_object(field, "a log's field") for field in _list(log, "fields")]
    names = [field for field in fields if field.get("key") == EVENT]
    name = _word(names[0].get("value")) if names else ""
    rest = [field for field in fields if not (name and field is names[0])]
    return RawEvent(name, _time(log.get("timestamp"), "log's timestamp"), _tags(rest))


def _resource(process: Any) -> Resource:
    process = _object(process, "a process")
    attributes = _tags(_list(process, "tags"))
    service = _word(process.get("serviceName"))
    attributes[keys.SERVICE_NAME] = "" if service == NO_SERVICE else service
    if _HOST in attributes:  # Jaeger's clients call it so
        attributes.setdefault(keys.HOST_NAME, attributes.pop(_HOST))
    return resource_of(attributes)


# What OpenTelemetry's exporters wrote into tags goes back to where it was.
def _kind(attributes: Attributes) -> str:
    kind = attributes.get(KIND)
    if not isinstance(kind, str) or kind.lower() not in KINDS:
        return Kind.UNSPECIFIED.value
    del attributes[KIND]
    return kind.lower()


def _status(attributes: Attributes) -> tuple[str, str]:
    stated = attributes.get(STATUS)
    status = stated.lower() if isinstance(stated, str) else ""
    has_failed = attributes.get(ERROR) is True or attributes.get(ERROR) == "true"
    if status in STATUSES:
        del attributes[STATUS]
    else:
        status = (Status.ERROR if has_failed else Status.UNSET).value
    if has_failed and status == Status.ERROR:
        del attributes[ERROR]
    return status, text(attributes.pop(MESSAGE, ""))


def _scope(attributes: Attributes) -> str:
    names = [_word(attributes.pop(key, "")) for key in (SCOPE, _SCOPE_OLD)]
    return names[0] or names[1]


def _tags(tags: Sequence[Any]) -> Attributes:
    found: Attributes = {}
    for item in tags:
        tag = _object(item, "a tag")
        value = _value(tag.get("type"), tag.get("value"))
        if value is not None:
            found[_word(tag.get("key"))] = value
    return found


def _value(kind: Any, value: Any) -> Value | None:
    """A tag's value in its declared type; as it stands where it does not fit that type."""
    try:
        if kind == "int64" and isinstance(value, str):
            value = int(value)
        elif kind == "float64" and not isinstance(value, bool):
            return float(value)
        elif kind == "bool" and isinstance(value, str):
            return {"true": True, "false": False}[value.lower()]
        elif kind == "binary":
            return base64.b64decode(value, validate=True)
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error):
        pass  # kept as text below
    if isinstance(value, str) and value.startswith('["'):
        return _words(value)
    is_plain = value is None or isinstance(value, str | bool | float)
    is_int64 = isinstance(value, int) and -(2**63) <= value < 2**63
    return value if is_plain or is_int64 else text(value)


def _words(value: str) -> Value:
    """A list of texts, which exporters write as JSON text; anything else as it stands."""
    try:
        items = json.loads(value)
    except (ValueError, RecursionError):
        return value
    is_words = all(isinstance(item, str) for item in items) and text(items) == value
    return items if is_words else value


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Flaw(f"{what} must be an object, not {type(value).__name__}")
    return value


def _list(holder: dict[str, Any], key: str) -> list[Any]:
    values = holder.get(key)
    if values is None:
        return []
    if not isinstance(values, list):
        raise _Flaw(f"'{key}' must be a list, not {type(values).__name__}")
    return values


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _id(value: Any, num_digits: int, what: str) -> str:
    """Hex digits, padded: Jaeger leaves leading zeros out, and old trace ids have 16 digits."""
    word = _word(value)
    if not re.fullmatch(rf"[0-9a-fA-F]{{1,{num_digits}}}", word) or not word.strip("0"):
        raise _Flaw(f"{what} {value!r:.60}: up to {num_digits} hex digits needed, not all zero")
    return word.lower().zfill(num_digits)


def _time(value: Any, what: str) -> int:
    time_ns = _nanoseconds(value, what)
    if not 0 <= time_ns <= MAX_TIME_NS:
        raise _Flaw(f"{what} {value!r:.60} is no time in microseconds")
    return time_ns


def _nanoseconds(value: Any, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Flaw(f"{what} {value!r:.60} is no whole number of microseconds")
    return value * 1000
