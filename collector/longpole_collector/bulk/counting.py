# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""The door's look at a body: how many spans, if every byte of it is plain and good."""

import numpy as np

from longpole_collector.bulk.wire import (
    ARRAY,
    BYTES,
    LEN,
    MAP,
    VARINT,
    Bytes,
    any_value,
    inline,
    jit,
    pair,
    piece,
    skip,
    varint,
)


def count_spans(body: bytes) -> int:
    """Spans of a trace request; -1 if the reference must look, as at any bad span."""
    return int(_request(np.frombuffer(body, np.uint8)))


@jit
def _request(buf: Bytes) -> int:
    pos, end, total = 0, len(buf), 0
    while pos < end:
        if buf[pos] != 0x0A:
            return -1
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return -1
        num = _resource_spans(buf, start, pos)
        if num < 0:
            return -1
        total += num
    return total


@jit
def _resource_spans(buf: Bytes, pos: int, end: int) -> int:
    total = 0
    while pos < end:
        tag = buf[pos]
        if tag not in (0x0A, 0x12, 0x1A):
            return -1
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return -1
        if tag == 0x0A:
            if not _is_plain(buf, start, pos, 0, 1, 0):
                return -1
        elif tag == 0x12:
            num = _scope_spans(buf, start, pos)
            if num < 0:
                return -1
            total += num
    return total


@jit
def _scope_spans(buf: Bytes, pos: int, end: int) -> int:
    total = 0
    while pos < end:
        tag = buf[pos]
        if tag not in (0x0A, 0x12, 0x1A):
            return -1
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return -1
        if tag == 0x0A:
            if not _is_plain(buf, start, pos, 0, 3, 0):
                return -1
        elif tag == 0x12:
            if not _is_good_span(buf, start, pos):
                return -1
            total += 1
    return total


@jit
def _is_good_span(buf: Bytes, pos: int, end: int) -> bool:
    has_trace_id = has_span_id = False
    while pos < end:
        tag = np.int64(buf[pos])
        if tag >= 128:
            tag, pos = varint(buf, pos, end)
        else:
            pos += 1
        if pos < 0:
            return False
        field, wire_type = tag >> 3, tag & 7
        start = pos
        pos = skip(buf, wire_type, start, end)
        if pos < 0:
            return False
        if wire_type == LEN:
            start, _ = piece(buf, start, end)
        if field == 9 and wire_type == LEN:
            if not _is_good_pair(buf, start, pos):
                return False
        elif field == 1 and wire_type == LEN:
            has_trace_id = pos - start == 16 and _is_any(buf, start, pos)
            if not has_trace_id:
                return False
        elif field == 2 and wire_type == LEN:
            has_span_id = pos - start == 8 and _is_any(buf, start, pos)
            if not has_span_id:
                return False
        elif field == 4 and wire_type == LEN:
            if pos - start not in (0, 8):
                return False
        elif (field == 7 or field == 8) and wire_type == 1:
            if buf[pos - 1] >= 128:
                return False
        elif field == 11 and wire_type == LEN:
            if not _is_plain(buf, start, pos, 1, 3, 0):
                return False
        elif field == 13 and wire_type == LEN:
            if not _is_plain(buf, start, pos, 0, 4, 6):
                return False
        elif field == 15 and wire_type == LEN:
            if not _is_plain(buf, start, pos, 0, 0, 0):
                return False
        elif field == 0 or field > 16:
            return False
    return has_trace_id and has_span_id


@inline
def _is_any(buf: Bytes, pos: int, end: int) -> bool:
    found = np.uint8(0)
    for i in range(pos, end):
        found |= buf[i]
    return found != 0


@jit
def _is_plain(buf: Bytes, pos: int, end: int, fixed64: int, pairs: int, fixed32: int) -> bool:
    """Whether a message has only fields up to 6, scalar but for the repeated pairs of one number.

    ``fixed64`` and ``fixed32`` are the numbers of fields of that wire type, 0 for none.
    """
    while pos < end:
        field, wire_type = np.int64(buf[pos]) >> 3, buf[pos] & 7
        if field == 0 or field > 6:
            return False
        if wire_type == LEN:
            start, pos = piece(buf, pos + 1, end)
            if start < 0:
                return False
            if field == pairs:
                if not _is_good_pair(buf, start, pos):
                    return False
            elif pairs == 1 and field == 3:  # a resource's references to entities
                return False
        elif (
            (wire_type == VARINT and field != fixed64 and field != fixed32)
            or (wire_type == 1 and field == fixed64)
            or (wire_type == 5 and field == fixed32)
        ):
            pos = skip(buf, wire_type, pos + 1, end)
            if pos < 0:
                return False
        else:
            return False
    return True


@inline
def _is_good_pair(buf: Bytes, pos: int, end: int) -> bool:
    _, _, kind, value = pair(buf, pos, end)
    if kind == ARRAY:
        start = value >> 32
        return _is_good_array(buf, start, start + (value & 0xFFFFFFFF))
    return kind >= 0 and kind != MAP


@jit
def _is_good_array(buf: Bytes, pos: int, end: int) -> bool:
    while pos < end:
        if buf[pos] != 0x0A:
            return False
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return False
        kind, _ = any_value(buf, start, pos)
        if kind < 0 or (kind >= ARRAY and kind != BYTES):
            return False
    return True
