"""GenAI events from log records: cleaned, kept until their span is there, joined to it.

Some libraries tell a fact in an event only (the finish reason of a stream, say) and others send
events instead of message attributes. An event adds what its span does not know and is then seen
among the span's own events; what the span states stands.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from longpole.vocab import Span, Status
from longpole_collector.content import Scrubber
from longpole_collector.decode.logs import LogEvent
from longpole_collector.decode.raw import RawEvent, text
from longpole_collector.dialects._foreign import (
    FIRST_EVENT,
    INCOMPLETE,
    OTHER_ERROR,
    PARTIAL_OUTPUT,
    TRUNCATED,
    count_input_whole,
    fill,
    first_token,
    mark,
)
from longpole_collector.dialects.base import (
    EXCEPTION_TYPE,
    MODEL_OPERATIONS,
    Rule,
    Rules,
    finish_reason,
    infer,
    word,
)
from longpole_collector.dialects.otel_genai import RULES

JOINED: Final = "joined_event"
"""Flag of a span that events from log records were joined to."""
MAX_EVENTS: Final = 1000
"""Most events a span shows; the facts of more are taken all the same."""
_RULES: Final[Rules] = {
    **RULES,
    "finish_reason": Rule("finish_reason", finish_reason, is_fallback=True),
    EXCEPTION_TYPE: Rule("error_type", word, is_fallback=True),
}
_TOLD: Final = ("input_tokens", "output_tokens", "finish_reason")
"""A stream of which one of these is known is not incomplete."""
_NO_SPAN: Final = dict.fromkeys(Span._fields[: len(Span._fields) - len(Span._field_defaults)])


def clean(events: Sequence[LogEvent], scrubber: Scrubber) -> list[LogEvent]:
    """The events as they may be stored: content, secrets and persons as in a span's own events."""
    raws = [RawEvent(event.name, event.time_ns, dict(event.attributes)) for event in events]
    scrubber.clean(Span(**_NO_SPAN, flags=[], attributes={}), raws)  # type: ignore[arg-type]
    return [
        event._replace(attributes=raw.attributes) for event, raw in zip(events, raws, strict=True)
    ]


# --- the table of those that wait ---------------------------------------------------------------
def to_rows(events: Sequence[LogEvent], received_ns: int) -> pa.Table:
    """Cleaned events as rows of the table ``EVENTS``; one without a time gets its arrival's."""
    raw = bytes.fromhex("".join(event.trace_id + event.span_id for event in events))
    ids = struct.unpack(f">{3 * len(events)}Q", raw)
    return pa.table(
        {
            "trace_hi": pa.array(ids[0::3], pa.uint64()),
            "trace_lo": pa.array(ids[1::3], pa.uint64()),
            "span_id": pa.array(ids[2::3], pa.uint64()),
            "time_ns": pa.array([event.time_ns or received_ns for event in events], pa.int64()),
            "received_ns": pa.array([received_ns] * len(events), pa.int64()),
            "name": pa.array([event.name for event in events], pa.string()),
            "attributes": pa.array([_json(event.attributes) for event in events], pa.string()),
        }
    )


def from_rows(rows: Iterable[tuple[Any, ...]]) -> list[LogEvent]:
    """Events again, from rows in the order of the table's columns."""
    return [
        LogEvent(f"{hi:016x}{lo:016x}", f"{span_id:016x}", time_ns, name, json.loads(attributes))
        for hi, lo, span_id, time_ns, _, name, attributes in rows
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text)


# --- joining ------------------------------------------------------------------------------------
def join(span: Span, events: Sequence[LogEvent]) -> Span:
    """The span with what cleaned events of it say and it does not know; joining twice is once.

    Only a model call takes facts over: a library may write its events into a span around the
    call. A span without an operation becomes a model call when an event names one.
    """
    known: list[dict[str, Any]] = json.loads(span.events) if span.events else []
    seen = {_json(event) for event in known}
    fresh: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda event: event.time_ns):
        line = _json(RawEvent(event.name, event.time_ns, event.attributes)._asdict())
        if line not in seen:
            seen.add(line)
            fresh.append(json.loads(line))
    if not fresh:
        return span
    columns = {name: value for name, value in span._asdict().items() if value is not None}
    columns["flags"] = [*span.flags]
    _take(columns, [event["attributes"] for event in fresh])
    mark(columns, JOINED)
    columns["events"] = _json((known + fresh)[: max(MAX_EVENTS, len(known))])
    return span._replace(**columns)


def _take(columns: dict[str, Any], told: Sequence[Mapping[str, Any]]) -> None:
    """Fill the columns of a model call from its events' attributes, the first event first."""
    facts: dict[str, Any] = {}
    for attributes in told:
        fill(facts, _facts(attributes))
    if "operation" not in columns and facts.get("operation") in MODEL_OPERATIONS:
        columns["operation"] = facts["operation"]
        infer(columns)
    if not columns["is_model_call"]:
        return
    if PARTIAL_OUTPUT in columns["flags"]:  # the count was sent, and is known to be none
        facts.pop("output_tokens", None)
    had_input = "input_tokens" in columns
    is_failed = "error_type" in facts or facts.get("finish_reason") == "error"
    if is_failed and columns["status"] == Status.UNSET:
        columns["status"] = Status.ERROR.value
        facts.setdefault("error_type", OTHER_ERROR)
    fill(columns, facts)
    if not had_input:
        count_input_whole(columns)
    if not columns["is_engine"] and columns.get("is_streamed") is not False:
        first_token(columns, facts.get("first_chunk_ns"), FIRST_EVENT)
    if any(column in columns for column in _TOLD) and INCOMPLETE in columns["flags"]:
        columns["flags"].remove(INCOMPLETE)
    first_ns, end_ns = columns.get("ttft_ns"), columns.get("end_ns")
    if first_ns is not None and end_ns is not None and end_ns - columns["start_ns"] < first_ns:
        mark(columns, TRUNCATED)


def _facts(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Column -> value, of the attributes that a rule recognises."""
    facts: dict[str, Any] = {}
    for key, value in attributes.items():
        rule = _RULES.get(key)
        if rule is None or (converted := rule.convert(value)) is None:
            continue
        if rule.is_fallback:
            facts.setdefault(rule.column, converted)
        else:
            facts[rule.column] = converted
    return facts
