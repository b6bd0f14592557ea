"""Request bodies -> raw spans, whatever their wire form.

``upb`` reads protobuf and is the reference; ``json`` reads OTLP JSON; both give equal records.
"""

from enum import IntEnum

from longpole_collector.decode import json, upb
from longpole_collector.decode.compression import Compression, TooLarge, inflate
from longpole_collector.decode.raw import (
    MAX_SPANS,
    Body,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
)

__all__ = [
    "Body",
    "Compression",
    "Format",
    "RawEvent",
    "RawLink",
    "RawSpan",
    "Resource",
    "TooLarge",
    "inflate",
    "parse",
]


class Format(IntEnum):
    """Wire form of a body; the number is part of the log's format."""

    PROTOBUF = 0
    JSON = 1


def parse(body: bytes, form: Format, max_spans: int | None = MAX_SPANS) -> Body:
    """The spans of a decompressed trace request.

    Raises:
        BadInput: the body is not OTLP of that form.
        TooLarge: more than ``max_spans`` spans; ``None`` is no limit.
    """
    read = json.parse if form is Format.JSON else upb.parse
    return read(body, max_spans)
