# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""Attributes to columns and JSON text: the compiled form of ``dialects.base.draft`` and the steps.

What a value becomes is told by numbers that ``rules`` has worked out for each key; a value that
needs Python was converted before, once for all its occurrences.
"""

from typing import Final, NamedTuple

import numpy as np

from longpole_collector.bulk import scan as s
from longpole_collector.bulk.convert import (
    LEFT,
    NONE,
    ODD,
    PYTHON,
    TAKEN,
    WORDS,
    convert,
)
from longpole_collector.bulk.resolve import (
    COLUMN_BITS,
    CONTENT,
    CONVERTER_BITS,
    DONE,
    DONE_DOUBLE,
    DONE_PERSON,
    IS_FALLBACK,
    JOB,
    PERSON,
    PSEUDONYM_BYTES,
    SECRET,
    URL,
    Doubles,
    Group,
    Jobs,
    Persons,
    Plan,
    Values,
)
from longpole_collector.bulk.scan import Found
from longpole_collector.bulk.steps import (
    COLUMNS,
    IS_BROKEN,
    NEGATIVE,
    NO_START,
    STATED_SHIFT,
    Words,
    take_steps,
)
from longpole_collector.bulk.text import ARENA, decimal, escaped
from longpole_collector.bulk.wire import (
    BOOL,
    LENGTH_MASK,
    OFFSET_BITS,
    STRING,
    Bytes,
    Ints,
    Small,
    copy,
    inline,
    jit,
)


class Rows(NamedTuple):
    """The result, a row a span that is not odd."""

    cells: Ints
    """A column each of :data:`COLUMNS`."""
    has: Ints
    """Bits of the columns that have a value."""
    flags: Ints
    classes: Ints
    text: Bytes
    """JSON text of the attributes."""
    ends: Small
    """End of each row's text, after a leading 0."""
    odd: Ints
    """Where an odd span is, and its group."""
    used: Ints
    """Rows, odd spans, bytes of text; values dropped as content and as credentials."""


MAX_NAMES: Final = 256
"""Most attributes of a span; a span with more is odd."""
MAX_JOBS: Final = 16
_ROOM: Final = 64
"""Bytes an attribute's text may need beside its key and value."""
_OPERATION: Final = COLUMNS.index("operation")
_FINISH: Final = COLUMNS.index("finish_reason")
_PROVIDER: Final = COLUMNS.index("provider")

# places in ``Rows.used``
ROWS: Final = 0
ODDS: Final = 1
TEXT: Final = 2
NUM_CONTENT: Final = 3
NUM_SECRET: Final = 4
NEEDED: Final = 5


@jit
def fill(
    buf: Bytes,
    found: Found,
    group: Group,
    plan: Plan,
    values: Values,
    doubles: Doubles,
    jobs: Jobs,
    persons: Persons,
    templates: Ints,
    words: Words,
    first: int,
    rows: Rows,
) -> int:
    """Fill rows from span ``first`` on; returns the first whose text found no room, or the number.

    ``found.spans`` is compacted: row ``i`` of the result is row ``i`` of it afterwards.
    """
    used = rows.used
    for row in range(first, found.used[s.SPANS]):
        span = found.spans[row]
        is_odd = span[s.IS_ODD] != 0
        if not is_odd:
            code = _row(
                buf,
                found,
                group,
                plan,
                values,
                doubles,
                jobs,
                persons,
                templates,
                words,
                span,
                rows,
            )
            if code == _NO_ROOM:
                return row
            is_odd = code == _ODD
        if is_odd:
            rows.odd[used[ODDS], 0] = span[s.WHERE]
            rows.odd[used[ODDS], 1] = span[s.GROUP]
            used[ODDS] += 1
        else:
            out = used[ROWS]
            for field in range(s.NUM_FIELDS):
                found.spans[out, field] = span[field]
            used[ROWS] = out + 1
            rows.ends[out + 1] = used[TEXT]
    return found.used[s.SPANS]


_ODD: Final = -1
_NO_ROOM: Final = -2


@jit
def _row(
    buf: Bytes,
    found: Found,
    group: Group,
    plan: Plan,
    values: Values,
    doubles: Doubles,
    jobs: Jobs,
    persons: Persons,
    templates: Ints,
    words: Words,
    span: Ints,
    rows: Rows,
) -> int:
    out = rows.used[ROWS]
    cells = rows.cells[out]
    place = span[s.GROUP]
    klass = np.int64(plan.class_of[group.scopes[place] + span[s.MARKS]])
    text, at = rows.text, rows.used[TEXT]
    prefix = group.prefixes[place]
    room = len(text)
    if at + (prefix & LENGTH_MASK) + 2 > room:
        return _NO_ROOM
    begin = at
    at = copy(plan.arena, (prefix >> OFFSET_BITS) - ARENA, prefix & LENGTH_MASK, text, at)
    has = np.int64(0)
    operation_code = finish_code = provider_code = np.int64(0)
    num_names = group.num_names[place]
    num_secret = num_jobs = 0
    has_measure = False
    stated = np.int64(0)
    for i in range(span[s.FIRST_ATTRIBUTE], span[s.PAST_ATTRIBUTES]):
        key, kind = np.int64(found.keys[i]) >> s.KIND_BITS, np.int64(found.keys[i]) & 15
        value = found.values[i]
        operation = np.int64(plan.operations[klass, key])
        converter = (operation >> COLUMN_BITS) & ((1 << CONVERTER_BITS) - 1)
        if converter != NONE and kind != JOB:
            column = operation & ((1 << COLUMN_BITS) - 1)
            is_fallback = operation & IS_FALLBACK
            if kind == DONE:
                cell = values.columns[value]
                verdict = LEFT
                if converter in (PYTHON, WORDS) and cell >= 0:
                    verdict = TAKEN
                elif cell == -2:
                    return _ODD
            elif kind == DONE_PERSON:
                verdict, cell = TAKEN, _pseudonym_at(persons, value, 1)
            elif converter in (PYTHON, WORDS):
                return _ODD
            else:
                verdict, cell = convert(buf, converter, kind, value)
            if verdict == ODD:
                return _ODD
            if verdict == TAKEN and converter == WORDS:
                stated = (cell + 1) << STATED_SHIFT
                continue
            if verdict == TAKEN:
                if not (is_fallback and (has >> column) & 1):
                    cells[column] = cell
                    has |= np.int64(1) << column
                    if column == _OPERATION:
                        operation_code = values.codes[value]
                    elif column == _FINISH:
                        finish_code = values.codes[value]
                    elif column == _PROVIDER:
                        provider_code = values.codes[value]
                continue
        # what stays an attribute
        num_names += 1
        has_measure |= plan.is_measure[key] != 0
        action = plan.actions[key]
        if action == SECRET:
            num_secret += 1
            continue
        if kind == JOB:
            num_jobs += 1
            continue
        key_text = plan.key_texts[key]
        is_told = kind in (DONE, DONE_PERSON)
        if key_text < 0 or (action in (CONTENT, PERSON) and not is_told):
            return _ODD
        source, size = np.int64(0), np.int64(0)
        if kind == DONE:
            source = values.texts[value]
        elif kind == DONE_DOUBLE:
            source = doubles.texts[value]
        elif kind == DONE_PERSON:
            source = _pseudonym_at(persons, value, 0)
        if source < 0:
            return _ODD
        if source > 0:
            size = source & LENGTH_MASK
        elif kind == STRING:
            size = value & LENGTH_MASK
            if size > s.MAX_TEXT_BYTES:
                return _ODD
        if at + (key_text & LENGTH_MASK) + 6 * size + _ROOM > room:
            rows.used[NEEDED] = at - begin + (key_text & LENGTH_MASK) + 6 * size + _ROOM
            return _NO_ROOM
        if at > begin + 1:
            text[at] = 0x2C
            at += 1
        at = copy(plan.arena, (key_text >> OFFSET_BITS) - ARENA, key_text & LENGTH_MASK, text, at)
        if source > 0:
            at = copy(plan.arena, (source >> OFFSET_BITS) - ARENA, size, text, at)
        else:
            text[at] = 0x22
            at += 1
            if kind == STRING:
                start = value >> OFFSET_BITS
                if action == URL:
                    for k in range(size):
                        if buf[start + k] == 0x3F:
                            # what is cut off must be valid too, or the span is flagged
                            if escaped(buf, start, size, text, at) < 0:
                                return _ODD
                            size = k
                            break
                at = escaped(buf, start, size, text, at)
                if at < 0:
                    return _ODD
            elif kind == BOOL:
                at = _bool(value, text, at)
            else:
                at = decimal(value, text, at)
            text[at] = 0x22
            at += 1
    if num_names > MAX_NAMES or num_jobs > MAX_JOBS or (num_jobs and has_measure):
        return _ODD
    if num_jobs:
        at = _measures(found, span, plan, jobs, text, begin, at)
        if at < 0:
            return at
    if at + 1 > room:
        return _NO_ROOM
    text[at] = 0x7D
    at += 1
    exception = np.int64(-1)
    for event in range(span[s.FIRST_EVENT], span[s.PAST_EVENTS]):
        template = templates[found.events[event, 1]]
        if template[0] < 0 or (template[2] >= 0 and exception >= 0):
            return _ODD
        exception = max(exception, template[2])
    flags = _repair(span, group.received[place])
    has, flags = take_steps(
        span,
        cells,
        has,
        flags,
        operation_code,
        finish_code,
        provider_code,
        exception,
        plan.steps[klass],
        words,
    )
    if flags & IS_BROKEN:
        return _ODD
    rows.has[out] = has
    rows.flags[out] = flags | stated
    rows.classes[out] = klass
    rows.used[TEXT] = at
    rows.used[NUM_CONTENT] += num_jobs
    rows.used[NUM_SECRET] += num_secret
    return 0


@inline
def _pseudonym_at(persons: Persons, number: int, num_quotes: int) -> int:
    """Where a pseudonym is, with its quotes or without."""
    start = persons.base[0] + number * PSEUDONYM_BYTES + num_quotes
    return (start << OFFSET_BITS) | (PSEUDONYM_BYTES - 2 * num_quotes)


@inline
def _bool(value: int, text: Bytes, at: int) -> int:
    word = (0x74, 0x72, 0x75, 0x65, 0) if value else (0x66, 0x61, 0x6C, 0x73, 0x65)
    size = 4 if value else 5
    for k in range(size):
        text[at + k] = word[k]
    return at + size


@inline
def _repair(span: Ints, received_ns: int) -> int:
    """See ``dialects.base``: a span without a start has its end for one, else its arrival."""
    if span[s.START] == 0:
        span[s.START] = span[s.END] or received_ns
        return NO_START
    if span[s.END] and span[s.END] < span[s.START]:
        return NEGATIVE
    return 0


@jit
def _measures(
    found: Found, span: Ints, plan: Plan, jobs: Jobs, text: Bytes, begin: int, at: int
) -> int:
    """Length and hash of each content value, behind all other attributes."""
    for i in range(span[s.FIRST_ATTRIBUTE], span[s.PAST_ATTRIBUTES]):
        if found.keys[i] & 15 != JOB:
            continue
        key_text = plan.key_texts[found.keys[i] >> s.KIND_BITS]
        job = jobs.values[found.values[i]]
        if key_text < 0 or job[2] < 0:
            return _ODD
        start, size = (key_text >> OFFSET_BITS) - ARENA, (key_text & LENGTH_MASK) - 2
        if at + 2 * size + 96 > len(text):
            return _NO_ROOM
        for k in range(2):
            if at > begin + 1:
                text[at] = 0x2C
                at += 1
            at = copy(plan.arena, start, size, text, at)
            ending = job[2 + k]
            at = copy(plan.arena, (ending >> OFFSET_BITS) - ARENA, ending & LENGTH_MASK, text, at)
    return at
