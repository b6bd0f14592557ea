# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""Compiled writing of text: JSON as Python's ``json`` writes it, and columns of strings."""

from typing import Final

import numpy as np

from longpole_collector.bulk.wire import (
    HIGH_BITS,
    LENGTH_MASK,
    OFFSET_BITS,
    ONES,
    Bytes,
    Ints,
    Small,
    copy,
    inline,
    is_utf8,
    jit,
    put64,
    word64,
)

ARENA: Final = 1 << 30
"""Starts from here on are in the arena, not in the bodies."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C


@inline
def _special(word: int) -> int:
    """Not 0 if one of eight bytes is no plain character of JSON text.

    A byte below n borrows from its high bit in ``word - n``; equal bytes become 0 by xor.
    """
    quote, backslash = word ^ (ONES * _QUOTE), word ^ (ONES * _BACKSLASH)
    return (
        word
        | ((word - ONES * 0x20) & ~word)
        | ((quote - ONES) & ~quote)
        | ((backslash - ONES) & ~backslash)
    ) & HIGH_BITS


@inline
def escaped(source: Bytes, start: int, size: int, out: Bytes, at: int) -> int:
    """Write a JSON string's inside; -1 if it is no UTF-8. Needs six times the room."""
    if size >= 8:
        odd = np.int64(0)
        for i in range(0, size - 8, 8):
            word = word64(source, start + i)
            odd |= _special(word)
            put64(out, at + i, word)
        word = word64(source, start + size - 8)
        odd |= _special(word)
        put64(out, at + size - 8, word)
        if odd == 0:
            return at + size
    else:
        is_plain = True
        for i in range(size):
            byte = source[start + i]
            out[at + i] = byte
            is_plain &= (byte >= 0x20) & (byte < 0x80) & (byte != _QUOTE) & (byte != _BACKSLASH)
        if is_plain:
            return at + size
    return _escaped_slowly(source, start, size, out, at)


@jit
def _escaped_slowly(source: Bytes, start: int, size: int, out: Bytes, at: int) -> int:
    if not is_utf8(source, start, size):
        return -1
    for i in range(size):
        byte = source[start + i]
        if byte in (_QUOTE, _BACKSLASH):
            out[at] = _BACKSLASH
            out[at + 1] = byte
            at += 2
        elif byte >= 0x20:
            out[at] = byte
            at += 1
        else:
            short = 0
            if byte == 0x0A:
                short = 0x6E
            elif byte == 0x0D:
                short = 0x72
            elif byte == 0x09:
                short = 0x74
            elif byte == 0x08:
                short = 0x62
            elif byte == 0x0C:
                short = 0x66
            out[at] = _BACKSLASH
            if short:
                out[at + 1] = short
                at += 2
            else:
                out[at + 1] = 0x75
                out[at + 2] = 0x30
                out[at + 3] = 0x30
                out[at + 4] = _HEX[byte >> 4]
                out[at + 5] = _HEX[byte & 15]
                at += 6
    return at


@inline
def decimal(number: int, out: Bytes, at: int) -> int:
    """Write a signed whole number."""
    rest = np.uint64(number)
    if number < 0:
        out[at] = 0x2D
        at += 1
        rest = np.uint64(0) - rest
    return unsigned(rest, out, at)


@inline
def unsigned(rest: int, out: Bytes, at: int) -> int:
    """Write an unsigned 64-bit number."""
    ten = np.uint64(10)
    size, power = 1, rest
    while power >= ten:
        power //= ten
        size += 1
    for i in range(size - 1, -1, -1):
        out[at + i] = np.uint8(48 + np.int64(rest % ten))
        rest //= ten
    return at + size


@jit
def strings(
    buf: Bytes, arena: Bytes, cells: Ints, valid: Bytes, offsets: Small, out: Bytes
) -> None:
    """Fill an Arrow string column from packed starts and lengths."""
    at = 0
    offsets[0] = 0
    for row in range(len(cells)):
        if valid[row]:
            cell = cells[row]
            start, size = cell >> OFFSET_BITS, cell & LENGTH_MASK
            if start >= ARENA:
                at = copy(arena, start - ARENA, size, out, at)
            else:
                at = copy(buf, start, size, out, at)
        offsets[row + 1] = at


@jit
def pick(table: Ints, has: Ints, column: int, cells: Ints, valid: Bytes) -> tuple[int, int]:
    """Copy one column out of a table of rows; returns its values and, of strings, their bytes."""
    num, size = 0, 0
    for row in range(len(cells)):
        if (has[row] >> column) & 1:
            cells[row] = table[row, column]
            valid[row] = 1
            num += 1
            size += table[row, column] & LENGTH_MASK
        else:
            cells[row] = 0
            valid[row] = 0
    return num, size


@jit
def events(
    spans: Ints, events: Ints, templates: Ints, arena: Bytes, offsets: Small, out: Bytes
) -> int:
    """Fill the JSON column of events; returns its size, or -1 if ``out`` is too small.

    Args:
        spans: first and past event of each row.
        events: time and number of the template.
        templates: JSON before and after the time, in the arena.
        arena: where these are.
        offsets: one more than rows.
        out: room for the text.
    """
    at = 0
    offsets[0] = 0
    for row in range(len(spans)):
        first, past = spans[row, 0], spans[row, 1]
        for place in range(first, past):
            head, tail = templates[events[place, 1], 0], templates[events[place, 1], 1]
            if at + (head & LENGTH_MASK) + (tail & LENGTH_MASK) + 32 > len(out):
                return -1
            out[at] = 0x5B if place == first else 0x2C
            at = copy(arena, (head >> OFFSET_BITS) - ARENA, head & LENGTH_MASK, out, at + 1)
            at = unsigned(np.uint64(events[place, 0]), out, at)
            at = copy(arena, (tail >> OFFSET_BITS) - ARENA, tail & LENGTH_MASK, out, at)
        if past > first:
            out[at] = 0x5D
            at += 1
        offsets[row + 1] = at
    return at
