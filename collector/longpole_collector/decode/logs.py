"""OTLP log records -> GenAI events, which tell more of a span than the span does.

The conventions put messages and, in some libraries, the finish reason into log records that
carry the ids of a span. Those are read here; every other record is counted, never read. A record
is read as if it were a span with its ids, time and attributes, so that ids, numbers and text are
taken and refused exactly as at the traces door.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import BadInput
from longpole_collector.decode import Format, TooLarge, upb
from longpole_collector.decode.json import load, parse_document
from longpole_collector.decode.raw import Attributes, Body, RawSpan

MAX_RECORDS: Final = 10_000
"""Most log records one request may hold."""
_EVENT_NAME: Final = "event.name"
_GENAI: Final = "gen_ai."
BODY: Final = "body"
"""Where the body of a record stands among its attributes."""
_FACTS: Final = ("index", "finish_reason", "role", "id")
"""What a body says besides content; the rest of it may be what people wrote."""


class LogEvent(NamedTuple):
    """One GenAI event of a span. Ids are lower-case hex; ``time_ns`` is 0 when none was sent.

    The body stands in ``attributes`` under ``body``, the facts in it also by themselves.
    """

    trace_id: str
    span_id: str
    time_ns: int
    name: str
    attributes: Attributes


class LogBody(NamedTuple):
    """A logs request that was understood: its GenAI events, how many records are none, and why."""

    events: list[LogEvent]
    num_dropped: int
    reason: str


def parse_logs(body: bytes, form: Format, max_records: int = MAX_RECORDS) -> LogBody:
    """The GenAI events of a decompressed logs request; an empty body is an empty request.

    Raises:
        BadInput: the body is not OTLP of that form.
        TooLarge: more than ``max_records`` log records.
    """
    read = _json if form is Format.JSON else _protobuf
    num_records, genai = read(body, max_records)
    num_other = num_records - genai.num_spans - genai.num_rejected
    reasons = []
    if num_other:
        reasons.append(
            f"{num_other} log records were dropped: longpole keeps spans and the GenAI events "
            "that belong to them"
        )
    if genai.num_rejected:
        reasons.append(
            f"{genai.num_rejected} GenAI events were dropped, they belong to no span: "
            f"{genai.reason}"
        )
    events = [_event(raw) for raw in genai.spans(0)]
    return LogBody(events, num_other + genai.num_rejected, "; ".join(reasons))


def _event(raw: RawSpan) -> LogEvent:
    attributes = raw.attributes
    attributes.pop(_EVENT_NAME, None)
    content = attributes.pop(BODY, None)
    if isinstance(content, dict):
        attributes = {key: content[key] for key in _FACTS if key in content} | attributes
    if content:
        attributes[BODY] = content
    return LogEvent(raw.trace_id, raw.span_id, raw.start_ns or raw.end_ns, raw.name, attributes)


def _check_size(num_records: int, max_records: int) -> None:
    if num_records > max_records:
        raise TooLarge(
            f"request of {num_records} log records: at most {max_records} are taken; "
            "send smaller batches"
        )


def _protobuf(body: bytes, max_records: int) -> tuple[int, Body]:
    """How many records there are, and the GenAI events among them as spans."""
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except (DecodeError, ValueError) as error:
        raise BadInput(f"not an OTLP protobuf logs request: {error}") from error
    if body and not request.resource_logs:
        raise BadInput("not an OTLP protobuf logs request: it holds no resource logs")
    records = [
        record
        for resource_logs in request.resource_logs
        for scope_logs in resource_logs.scope_logs
        for record in scope_logs.log_records
    ]
    _check_size(len(records), max_records)
    found = ExportTraceServiceRequest()
    spans = found.resource_spans.add().scope_spans.add().spans
    for record in records:
        name = record.event_name or _name_of(record.attributes)
        if name.startswith(_GENAI):
            span = spans.add(
                trace_id=record.trace_id,
                span_id=record.span_id,
                name=name,
                start_time_unix_nano=record.time_unix_nano,
                end_time_unix_nano=record.observed_time_unix_nano,
                attributes=record.attributes,
            )
            span.attributes.add(key=BODY, value=record.body)
    return len(records), upb.parse(found.SerializeToString(), None)


def _name_of(pairs: Any) -> str:
    return next((pair.value.string_value for pair in pairs if pair.key == _EVENT_NAME), "")


def _json(body: bytes, max_records: int) -> tuple[int, Body]:
    try:
        records = list(_json_records(load(body) if body else {}))
        _check_size(len(records), max_records)
        spans = [
            {
                "traceId": record.get("traceId"),
                "spanId": record.get("spanId"),
                "name": name,
                "startTimeUnixNano": record.get("timeUnixNano"),
                "endTimeUnixNano": record.get("observedTimeUnixNano"),
                "attributes": [
                    *(record.get("attributes") or ()),
                    {"key": BODY, "value": record.get("body")},
                ],
            }
            for record in records
            if (name := _json_name(record)).startswith(_GENAI)
        ]
    except (AttributeError, TypeError) as error:
        raise BadInput("not an OTLP JSON request of logs") from error
    return len(records), parse_document({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def _json_records(document: Any) -> Iterator[dict[str, Any]]:
    for resource in document.get("resourceLogs") or ():
        for scope in resource.get("scopeLogs") or ():
            yield from scope.get("logRecords") or ()


def _json_name(record: dict[str, Any]) -> str:
    name = record.get("eventName") or next(
        (
            (pair.get("value") or {}).get("stringValue")
            for pair in record.get("attributes") or ()
            if pair.get("key") == _EVENT_NAME
        ),
        None,
    )
    return name if isinstance(name, str) else ""
