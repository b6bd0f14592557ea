"""Request bodies -> raw spans, whatever their wire form.

``upb`` reads protobuf and is the reference; ``json`` reads OTLP JSON; both give equal records.
A body is checked at the door and decoded later, many at once (``longpole_collector.bulk``).
"""

from enum import IntEnum
from typing import NamedTuple

from longpole_collector import bulk
from longpole_collector.decode import json, upb
from longpole_collector.decode.compression import Compression, TooLarge, inflate
from longpole_collector.decode.raw import (
    MAX_SPANS,
    Body,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
    check_size,
)

__all__ = [
    "MAX_SPANS",
    "Body",
    "Check",
    "Compression",
    "Format",
    "RawEvent",
    "RawLink",
    "RawSpan",
    "Received",
    "Resource",
    "TooLarge",
    "check",
    "inflate",
    "parse",
]


class Format(IntEnum):
    """Wire form of a body; the number is part of the log's format."""

    PROTOBUF = 0
    JSON = 1


class Check(NamedTuple):
    """What the door says of a body: good spans, bad ones, and why the first of these is bad."""

    num_spans: int
    num_rejected: int
    reason: str


class Received(NamedTuple):
    """A request body, decompressed, and when it came."""

    body: bytes
    format: Format
    received_ns: int


def check(body: bytes, form: Format, max_spans: int | None = MAX_SPANS) -> Check:
    """Look at a decompressed trace request without decoding it; an empty body is an empty one.

    Raises:
        BadInput: the body is not OTLP of that form, or not of traces.
        TooLarge: more than ``max_spans`` spans; ``None`` is no limit.
    """
    if form is Format.PROTOBUF and (count := bulk.counter()) is not None:
        num_spans = count(body)
        if num_spans >= 0:
            check_size(num_spans, max_spans)
            return Check(num_spans, 0, "")
    parsed = parse(body, form, max_spans)
    if form is Format.PROTOBUF:
        upb.refuse_other_signals(body, parsed)
    return Check(parsed.num_spans, parsed.num_rejected, parsed.reason)


def parse(body: bytes, form: Format, max_spans: int | None = MAX_SPANS) -> Body:
    """The spans of a decompressed trace request, decoded one by one: the reference.

    Raises:
        BadInput: the body is not OTLP of that form.
        TooLarge: more than ``max_spans`` spans; ``None`` is no limit.
    """
    read = json.parse if form is Format.JSON else upb.parse
    return read(body, max_spans)
