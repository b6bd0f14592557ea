"""A bound on the messages of a request before a parser makes objects of them.

Nine million empty spans fit into 18 MB on the wire and into no memory once they are parsed.
"""

from collections.abc import Iterator
from typing import Final

from longpole_collector.decode.raw import check_groups, check_size

MIN_BYTES: Final = 64 << 10
"""A smaller body cannot hold enough to matter."""
_LEVELS: Final = (0x0A, 0x12, 0x12)
"""Tags on the way: resource spans, scope spans, spans."""
_FIXED: Final = {1: 8, 5: 4}


def refuse_crowd(body: bytes, max_spans: int | None) -> None:
    """Refuse a protobuf trace request of too many spans, or of too many groups of spans.

    Bytes that are no protobuf are left to the parser.

    Raises:
        TooLarge: more than ``max_spans`` spans, or more groups than any sender has.
    """
    if len(body) < MIN_BYTES or max_spans is None:
        return
    num_groups = num_spans = 0
    for resource in _messages(body, 0, len(body), _LEVELS[0]):
        num_groups += 1
        check_groups(num_groups)
        for scope in _messages(body, *resource, _LEVELS[1]):
            num_groups += 1
            check_groups(num_groups)
            for _ in _messages(body, *scope, _LEVELS[2]):
                num_spans += 1
                check_size(num_spans, max_spans)


def _messages(body: bytes, pos: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the messages of one field lie; ends at what it cannot read."""
    while pos < end:
        tag, pos = _varint(body, pos, end)
        wire_type = tag & 7
        if wire_type == 2:
            length, pos = _varint(body, pos, end)
            if pos + length > end:
                return
            if tag == wanted:
                yield pos, pos + length
            pos += length
        elif wire_type == 0:
            _, pos = _varint(body, pos, end)
        elif wire_type in _FIXED:
            pos += _FIXED[wire_type]
        else:
            return


def _varint(body: bytes, pos: int, end: int) -> tuple[int, int]:
    """A number and what follows it; a broken one ends the message."""
    value = shift = 0
    while pos < end and shift < 70:
        byte = body[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    return 0, end
