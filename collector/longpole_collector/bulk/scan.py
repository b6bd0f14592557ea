# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""From the bytes of many bodies to flat arrays of spans, attributes and events.

What is odd is only marked: a body of odd frame, a span of odd content. The rest of this package
never looks at such a one; the reference reads it.
"""

from typing import Final, NamedTuple

import numpy as np

from longpole_collector.bulk.wire import (
    LEN,
    LENGTH_MASK,
    OFFSET_BITS,
    Bytes,
    Ints,
    Names,
    Small,
    big64,
    inline,
    is_utf8,
    jit,
    number_of,
    pair,
    piece,
    same,
    skip,
    varint,
    word64,
)

# columns of ``Found.spans``; NAME, MESSAGE, STATE, WHERE are start and length, packed
TRACE_HI: Final = 0
TRACE_LO: Final = 1
SPAN_ID: Final = 2
PARENT_ID: Final = 3
START: Final = 4
END: Final = 5
KIND: Final = 6
STATUS: Final = 7
NAME: Final = 8
MESSAGE: Final = 9
WHERE: Final = 10
GROUP: Final = 11
MARKS: Final = 12
IS_ODD: Final = 13
FIRST_ATTRIBUTE: Final = 14
PAST_ATTRIBUTES: Final = 15
FIRST_EVENT: Final = 16
PAST_EVENTS: Final = 17
STATE: Final = 18
NUM_FIELDS: Final = 19

# columns of ``Found.groups``: spans of one scope of one resource in one body
RESOURCE: Final = 0
SCOPE: Final = 1
BODY: Final = 2

MAX_MARKS: Final = 62
MAX_MARK_SETS: Final = 256
KIND_BITS: Final = 4
MAX_NAME_BYTES: Final = 1024
MAX_EVENT_BYTES: Final = 4096
MAX_TEXT_BYTES: Final = 16 << 10
"""Longest text value the compiled loops keep: the store cuts longer ones."""

# places in ``Found.used``
SPANS: Final = 0
GROUPS: Final = 1
ATTRIBUTES: Final = 2
EVENTS: Final = 3
SERIAL: Final = 4
MARK_SETS: Final = 5


class Found(NamedTuple):
    """Room for what is found, and how much of it is used."""

    spans: Ints
    groups: Ints
    keys: Small
    """Number of the key and kind of the value, packed."""
    values: Ints
    events: Ints
    """Time and number of the template."""
    body_is_odd: Bytes
    used: Ints


class Known(NamedTuple):
    """What lasts from batch to batch: keys and event templates by number."""

    keys: Names
    templates: Names
    followers: Small
    """Key -> the key that came after it last time."""
    seen: Ints
    """Key -> serial number of the last span that had it."""
    mark_sets: Ints
    """Distinct sets of marks, as bits."""
    num_marks: Ints


@jit
def scan(buf: Bytes, bounds: Ints, first: int, known: Known, found: Found) -> int:
    """Scan bodies from ``first`` on; returns the first that found no room, or their number.

    Args:
        buf: the bodies, end to end.
        bounds: where each begins, and the end of the last.
        first: number of the first to scan.
        known: is added to.
        found: is filled; a body that finds no room leaves nothing.
    """
    used = found.used
    for body in range(first, len(bounds) - 1):
        before = (used[SPANS], used[GROUPS], used[ATTRIBUTES], used[EVENTS])
        code = _request(buf, bounds[body], bounds[body + 1], body, known, found)
        found.body_is_odd[body] = 0
        if code != 0:
            used[SPANS], used[GROUPS], used[ATTRIBUTES], used[EVENTS] = before
            if code == _NO_ROOM:
                return body
            found.body_is_odd[body] = 1
    return len(bounds) - 1


_ODD: Final = -1
_NO_ROOM: Final = -2


@jit
def _request(buf: Bytes, pos: int, end: int, body: int, known: Known, found: Found) -> int:
    while pos < end:
        if buf[pos] != 0x0A:
            return _ODD
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return _ODD
        code = _resource_spans(buf, start, pos, body, known, found)
        if code != 0:
            return code
    return 0


@jit
def _resource_spans(buf: Bytes, pos: int, end: int, body: int, known: Known, found: Found) -> int:
    first = found.used[GROUPS]
    resource = -1
    while pos < end:
        tag = buf[pos]
        if tag not in (0x0A, 0x12, 0x1A):
            return _ODD
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return _ODD
        if tag == 0x0A:
            if resource >= 0:
                return _ODD
            resource = (start << OFFSET_BITS) | (pos - start)
        elif tag == 0x12:
            code = _scope_spans(buf, start, pos, body, known, found)
            if code != 0:
                return code
    for group in range(first, found.used[GROUPS]):
        found.groups[group, RESOURCE] = max(resource, 0)
    return 0


@jit
def _scope_spans(buf: Bytes, pos: int, end: int, body: int, known: Known, found: Found) -> int:
    group = found.used[GROUPS]
    if group >= len(found.groups):
        return _NO_ROOM
    found.used[GROUPS] = group + 1
    scope = -1
    while pos < end:
        tag = buf[pos]
        if tag not in (0x0A, 0x12, 0x1A):
            return _ODD
        start, pos = piece(buf, pos + 1, end)
        if start < 0:
            return _ODD
        if tag == 0x0A:
            if scope >= 0:
                return _ODD
            scope = (start << OFFSET_BITS) | (pos - start)
        elif tag == 0x12:
            row = found.used[SPANS]
            if row >= len(found.spans):
                return _NO_ROOM
            code = _span(buf, start, pos, row, known, found)
            if code == _NO_ROOM:
                return code
            span = found.spans[row]
            span[GROUP] = group
            span[WHERE] = (start << OFFSET_BITS) | (pos - start)
            span[IS_ODD] = code != 0
            found.used[SPANS] = row + 1
    found.groups[group, SCOPE] = max(scope, 0)
    found.groups[group, BODY] = body
    return 0


@jit
def _span(buf: Bytes, pos: int, end: int, row: int, known: Known, found: Found) -> int:
    span = found.spans[row]
    for field in range(NUM_FIELDS):
        span[field] = 0
    used = found.used
    used[SERIAL] += 1
    span[FIRST_ATTRIBUTE] = used[ATTRIBUTES]
    span[FIRST_EVENT] = used[EVENTS]
    has_status = False
    marks = 0
    before = -1
    while pos < end:
        tag = np.int64(buf[pos])
        if tag == 0x4A:
            start, pos = piece(buf, pos + 1, end)
            if start < 0:
                return _ODD
            if used[ATTRIBUTES] >= len(found.keys):
                return _NO_ROOM
            before = _attribute(buf, start, pos, before, known, found)
            if before < 0:
                return _ODD
            if before < known.num_marks[0]:
                marks |= 1 << before
            continue
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return _ODD
        wire_type = tag & 7
        start = pos
        pos = skip(buf, wire_type, start, end)
        if pos < 0:
            return _ODD
        if wire_type == LEN:
            start, _ = piece(buf, start, end)
        size = pos - start
        if tag == 0x0A:
            if size != 16:
                return _ODD
            span[TRACE_HI], span[TRACE_LO] = big64(buf, start), big64(buf, start + 8)
        elif tag == 0x12:
            if size != 8:
                return _ODD
            span[SPAN_ID] = big64(buf, start)
        elif tag == 0x1A:
            span[STATE] = (start << OFFSET_BITS) | size
        elif tag == 0x22:
            if size != 0 and size != 8:
                return _ODD
            span[PARENT_ID] = big64(buf, start) if size else 0
        elif tag == 0x2A:
            span[NAME] = (start << OFFSET_BITS) | size
        elif tag == 0x30:
            span[KIND] = varint(buf, start, end)[0]
        elif tag == 0x39:
            span[START] = word64(buf, start)
        elif tag == 0x41:
            span[END] = word64(buf, start)
        elif tag == 0x5A:
            if used[EVENTS] >= len(found.events):
                return _NO_ROOM
            if not _event(buf, start, pos, known, found):
                return _ODD
        elif tag == 0x7A:
            if has_status or not _status(buf, start, pos, span):
                return _ODD
            has_status = True
        elif tag not in (0x50, 0x60, 0x70, 0x85):  # what is not stored
            return _ODD
    span[PAST_ATTRIBUTES] = used[ATTRIBUTES]
    span[PAST_EVENTS] = used[EVENTS]
    span[MARKS] = _mark_set(marks, known, used)
    if span[MARKS] < 0 or not _is_good(buf, span):
        return _ODD
    return 0


@inline
def _is_good(buf: Bytes, span: Ints) -> bool:
    return (
        (span[TRACE_HI] != 0 or span[TRACE_LO] != 0)
        and span[SPAN_ID] != 0
        and span[START] >= 0
        and span[END] >= 0
        and 0 <= span[KIND] <= 5
        and 0 <= span[STATUS] <= 2
        and is_utf8(buf, span[NAME] >> OFFSET_BITS, span[NAME] & LENGTH_MASK)
        and is_utf8(buf, span[MESSAGE] >> OFFSET_BITS, span[MESSAGE] & LENGTH_MASK)
    )


@inline
def _attribute(buf: Bytes, pos: int, end: int, before: int, known: Known, found: Found) -> int:
    """Number of the key; -1 if the attribute is odd or its key came before."""
    start, size, kind, value = pair(buf, pos, end)
    if kind < 0:
        return -1
    names = known.keys
    key = np.int64(known.followers[before + 1])
    if (
        key < 0
        or names.entries[key, 3] != size
        or not same(names.text, names.entries[key, 2], buf, start, size)
    ):
        if size > MAX_NAME_BYTES:
            return -1
        key = number_of(names, buf, start, size, 0)
        if key < 0:
            return -1
        known.followers[before + 1] = key
    serial = found.used[SERIAL]
    if known.seen[key] == serial:
        return -1
    known.seen[key] = serial
    row = found.used[ATTRIBUTES]
    found.keys[row] = (key << KIND_BITS) | kind
    found.values[row] = value
    found.used[ATTRIBUTES] = row + 1
    return key


@inline
def _event(buf: Bytes, pos: int, end: int, known: Known, found: Found) -> bool:
    """An event whose time comes first, as it does when a library wrote it."""
    if end - pos < 9 or buf[pos] != 0x09 or end - pos > MAX_EVENT_BYTES:
        return False
    template = number_of(known.templates, buf, pos + 9, end - pos - 9, 0)
    if template < 0:
        return False
    row = found.used[EVENTS]
    found.events[row, 0] = word64(buf, pos + 1)
    found.events[row, 1] = template
    found.used[EVENTS] = row + 1
    return True


@inline
def _status(buf: Bytes, pos: int, end: int, span: Ints) -> bool:
    while pos < end:
        tag = buf[pos]
        if tag == 0x12:
            start, pos = piece(buf, pos + 1, end)
            if start < 0:
                return False
            span[MESSAGE] = (start << OFFSET_BITS) | (pos - start)
        elif tag == 0x18:
            span[STATUS], pos = varint(buf, pos + 1, end)
            if pos < 0:
                return False
        else:
            return False
    return True


@inline
def _mark_set(marks: int, known: Known, used: Ints) -> int:
    """Number of this set of marks; -1 if there are too many sets."""
    for i in range(used[MARK_SETS]):
        if known.mark_sets[i] == marks:
            return i
    if used[MARK_SETS] >= len(known.mark_sets):
        return -1
    known.mark_sets[used[MARK_SETS]] = marks
    used[MARK_SETS] += 1
    return used[MARK_SETS] - 1
