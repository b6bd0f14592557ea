"""Text beside the bodies, and values from their bytes."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from longpole_collector.bulk.text import ARENA
from longpole_collector.bulk.wire import (
    ARRAY,
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    LENGTH_MASK,
    MAP,
    OFFSET_BITS,
    STRING,
    Names,
)
from longpole_collector.decode.raw import Value
from longpole_collector.decode.upb import value_of

_ARENA_BYTES: Final = 1 << 20
_TAGS: Final = {ARRAY: 0x2A, MAP: 0x32, BYTES: 0x3A}
"""Tag of the field of an ``AnyValue``, by kind."""


class Arena:
    """Text that no body holds, addressed by start and length, packed."""

    def __init__(self) -> None:
        self.bytes = np.zeros(_ARENA_BYTES, np.uint8)
        self.size = 0

    def put(self, data: bytes) -> int:
        """Keep the bytes; returns where."""
        return int(self.put_all([data])[0])

    def put_all(self, pieces: Sequence[bytes]) -> np.ndarray:
        """Keep many; returns where each is."""
        data = b"".join(pieces)
        if self.size + len(data) > len(self.bytes):
            grown = np.zeros(2 * len(self.bytes) + len(data), np.uint8)
            grown[: self.size] = self.bytes[: self.size]
            self.bytes = grown
        self.bytes[self.size : self.size + len(data)] = np.frombuffer(data, np.uint8)
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        starts = self.size + ARENA + np.cumsum(sizes) - sizes
        self.size += len(data)
        return (starts << OFFSET_BITS) | sizes


def json_text(value: str) -> bytes:
    """A JSON string as the store's text has it."""
    return json.dumps(value, ensure_ascii=False).encode()


def entry(table: Names, number: int) -> bytes:
    """The bytes of that number."""
    start, size = table.entries[number, 2], table.entries[number, 3]
    return table.text[start : start + size].tobytes()


def length_prefix(size: int) -> list[int]:
    """A length as protobuf writes it."""
    found: list[int] = []
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return [*found, size]


def any_value(kind: int, data: bytes) -> Value | None:
    """A value from its bytes as scanned; ``None`` if they are broken."""
    try:
        if kind == STRING:
            return data.decode()
        prefix = bytes((_TAGS[kind], *length_prefix(len(data))))
        return value_of(AnyValue.FromString(prefix + data))
    except (DecodeError, ValueError):
        return None


def value_at(buf: np.ndarray, kind: int, value: int) -> Value | None:
    """A value as scanned; ``None`` if it is broken."""
    if kind == INT:
        return value
    if kind == BOOL:
        return bool(value)
    if kind == DOUBLE:
        return float(np.int64(value).view(np.float64))
    start = value >> OFFSET_BITS
    return any_value(kind, buf[start : start + (value & LENGTH_MASK)].tobytes())
