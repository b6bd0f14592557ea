"""OTLP JSON -> raw spans, forgiving where the specification is (OTLP 1.x, "JSON Protobuf").

Ids are hex in any case, 64-bit integers come as text or number, enums by number or name,
unknown fields are ignored. A bad span is rejected alone; a body of the wrong shape as a whole.
"""

import base64
import json
import math
from collections.abc import Callable
from typing import Any, Final

from longpole.errors import BadInput
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
    body_of,
    check_groups,
    check_size,
    resource_of,
)

MAX_DEPTH = 64
"""Deepest nesting of an attribute's value."""


class _Flaw(ValueError):
    """Why one span cannot be stored."""


def parse(body: bytes, max_spans: int | None = MAX_SPANS) -> Body:
    """A JSON ``ExportTraceServiceRequest``; an empty body is an empty request.

    Raises:
        BadInput: not JSON, or not of OTLP's shape.
        TooLarge: more than ``max_spans`` spans.
    """
    return parse_document(load(body) if body else {}, max_spans)


def load(body: bytes) -> Any:
    """The JSON value of a body; lone surrogates, which no store can hold, become ``?``.

    Raises:
        BadInput: not JSON, or nested beyond reason.
    """
    try:
        document = json.loads(body)
        if b"\\ud" in body or b"\\uD" in body:
            text = json.dumps(document, ensure_ascii=False)
            document = json.loads(text.encode("utf-8", "replace"))
    except RecursionError as error:
        raise BadInput("JSON is nested too deeply") from error
    except ValueError as error:  # covers JSON and UTF-8 errors
        raise BadInput(f"not JSON: {error}") from error
    return document


def parse_document(document: Any, max_spans: int | None = None) -> Body:
    """As :func:`parse`, for JSON that is already loaded.

    Raises:
        BadInput: not of OTLP's shape.
        TooLarge: more than ``max_spans`` spans.
    """
    holders = _objects(_object(document, "the body"), "resourceSpans")
    if max_spans is not None:
        check_groups(len(holders))
        check_groups(sum(len(_objects(holder, "scopeSpans")) for holder in holders))
    groups = [
        (
            resource,
            _string(_object(scoped.get("scope"), "scope"), "name")[:MAX_NAME_CHARS],
            _objects(scoped, "spans"),
        )
        for holder in holders
        for resource in (_resource(holder),)
        for scoped in _objects(holder, "scopeSpans")
    ]
    check_size(sum(len(spans) for _, _, spans in groups), max_spans)
    good: list[RawSpan] = []
    flaws: list[str] = []
    for resource, scope, spans in groups:
        for span in spans:
            try:
                good.append(_span(span, scope, resource))
            except (_Flaw, BadInput) as flaw:
                flaws.append(str(flaw))
    return body_of(good, flaws)


def _resource(holder: dict[str, Any]) -> Resource:
    try:
        return resource_of(_attributes(_object(holder.get("resource"), "resource")))
    except _Flaw as flaw:
        raise BadInput(f"resource: {flaw}") from flaw


def _span(span: dict[str, Any], scope: str, resource: Resource) -> RawSpan:
    status = _object(span.get("status"), "status")
    return RawSpan(
        _id(span, "traceId", 16),
        _id(span, "spanId", 8),
        _id(span, "parentSpanId", 8) if _is_id(span.get("parentSpanId")) else None,
        _string(span, "name"),
        _enum(span.get("kind"), "SPAN_KIND_", KINDS),
        _time(span, "startTimeUnixNano"),
        _time(span, "endTimeUnixNano"),
        0,
        _enum(status.get("code"), "STATUS_CODE_", STATUSES),
        _string(status, "message"),
        _attributes(span),
        [
            RawEvent(_string(event, "name"), _time(event, "timeUnixNano"), _attributes(event))
            for event in _objects(span, "events")
        ],
        [
            RawLink(
                _string(link, "traceId").lower(),
                _string(link, "spanId").lower(),
                _attributes(link),
            )
            for link in _objects(span, "links")
        ],
        scope,
        resource,
        state=_string(span, "traceState"),
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{what} must be an object, not {type(value).__name__}")
    return value


def _objects(holder: dict[str, Any], key: str) -> list[dict[str, Any]]:
    values = holder.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise BadInput(f"'{key}' must be a list of objects")
    return values


def _string(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _is_id(value: Any) -> bool:
    """Whether a parent is named at all: all zero means none, as in protobuf."""
    return value is not None and str(value).strip("0") != ""


def _id(span: dict[str, Any], key: str, num_bytes: int) -> str:
    text = span.get(key)
    try:
        raw = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != num_bytes or not any(raw):
        raise _Flaw(f"{key} {text!r:.60}: {2 * num_bytes} hex digits needed, not all zero")
    return raw.hex()


def _time(holder: dict[str, Any], key: str) -> int:
    value = holder.get(key) or 0
    try:
        time_ns = int(value)
    except (TypeError, ValueError, OverflowError):
        time_ns = -1
    if not 0 <= time_ns <= MAX_TIME_NS:
        raise _Flaw(f"{key} {value!r:.60} is no time in nanoseconds")
    return time_ns


def _enum(value: Any, prefix: str, names: tuple[str, ...]) -> str:
    if isinstance(value, str):
        if value.startswith(prefix):
            name = value.removeprefix(prefix).lower()
            return name if name in names else names[0]
        value = int(value) if value.isascii() and value.isdigit() else 0
    is_known = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if is_known else names[0]


def _attributes(holder: dict[str, Any], depth: int = 0, key: str = "attributes") -> Attributes:
    found: Attributes = {}
    for pair in _objects(holder, key):
        name = pair.get("key", "")  # the mapping leaves an empty one out
        if isinstance(name, str):
            value = _value(pair.get("value"), depth)
            if value is not None:
                found[name] = value
    return found


def _value(any_value: Any, depth: int) -> Value | None:
    """The value; ``None`` when there is none, or none of a known kind."""
    if depth > MAX_DEPTH:
        raise _Flaw(f"attribute nested deeper than {MAX_DEPTH}")
    if not isinstance(any_value, dict):
        return None
    for kind, value in any_value.items():
        if value is None:
            continue
        if kind == "arrayValue":
            items = _object(value, kind).get("values") or []
            if not isinstance(items, list):
                raise _Flaw("arrayValue.values must be a list")
            values = [_value(item, depth + 1) for item in items]
            return [item for item in values if item is not None]
        if kind == "kvlistValue":
            return _attributes(_object(value, kind), depth + 1, "values")
        if kind in _SCALARS:
            try:
                return _SCALARS[kind](value)
            except (TypeError, ValueError, OverflowError) as error:
                raise _Flaw(f"{kind} {value!r:.60} is none") from error
    return None


def _string_value(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[value] if value in ("true", "false") else _bad(value)


def _bad(value: Any) -> bool:
    raise ValueError(value)


def _int(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _double(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)  # also "NaN" and "Infinity", as the mapping spells them
    if math.isinf(number) and value not in ("Infinity", "-Infinity"):
        raise OverflowError
    return number


_SCALARS: Final[dict[str, Callable[[Any], Value]]] = {
    "stringValue": _string_value,
    "boolValue": _bool,
    "intValue": _int,
    "doubleValue": _double,
    "bytesValue": lambda value: base64.b64decode(value, validate=True),
}
