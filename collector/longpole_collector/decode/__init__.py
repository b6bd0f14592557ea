"""Request bodies -> raw spans, whatever their wire form.

``upb`` reads protobuf and is the reference; ``json`` reads OTLP JSON; both give equal records.
"""

from enum import IntEnum

from longpole_collector.decode import json, upb
from longpole_collector.decode.compression import Compression, TooLarge, inflate
from longpole_collector.decode.raw import Body, RawEvent, RawLink, RawSpan, Resource

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


def parse(body: bytes, form: Format) -> Body:
    """The spans of a decompressed trace request.

    Raises:
        BadInput: the body is not OTLP of that form.
    """
    return json.parse(body) if form is Format.JSON else upb.parse(body)
