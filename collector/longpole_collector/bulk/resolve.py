# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""Between scanning and filling: each span's dialect, and the values that Python must convert."""

from typing import Final, NamedTuple

import numpy as np

from longpole_collector.bulk import scan as s
from longpole_collector.bulk.convert import NONE, PYTHON, REFUSE, WORDS
from longpole_collector.bulk.hashing import MAX_MESSAGE_BYTES, Words32, digest_with
from longpole_collector.bulk.scan import Found
from longpole_collector.bulk.wire import (
    ARRAY,
    DOUBLE,
    LENGTH_MASK,
    OFFSET_BITS,
    STRING,
    Bytes,
    Ints,
    Names,
    Small,
    inline,
    is_utf8,
    jit,
    number_of,
    same,
    word64,
)

# kinds of a value that was converted in Python, beside those of ``wire``
DONE: Final = 7
"""The value is a number of ``Values``."""
DONE_DOUBLE: Final = 8
"""The value is a number of ``doubles``, for its text."""
JOB: Final = 9
"""The value is content: only its length and hash are kept."""
DONE_PERSON: Final = 10
"""The value is a number of ``Persons``."""

# bits of an operation: column, converter, whether it is a fallback, whether it names a person
COLUMN_BITS: Final = 8
CONVERTER_BITS: Final = 8
IS_FALLBACK: Final = 1 << 16
IS_PERSON: Final = 1 << 17

# what is done with a key's text, as numbers of ``content.Action``
KEEP: Final = 0
CONTENT: Final = 1
SECRET: Final = 2
URL: Final = 3
PERSON: Final = 4

MAX_VALUE_BYTES: Final = 1024
PSEUDONYM_BYTES: Final = 20
"""A pseudonym with its quotes: ``"h:0123456789abcdef"``."""
MAX_CLASSES: Final = 64


class Plan(NamedTuple):
    """What ``rules`` worked out."""

    operations: Small
    """Class, key -> operation."""
    tags: Ints
    """Class, key -> tag of the value's conversion in Python."""
    actions: Small
    """Key -> action."""
    key_texts: Ints
    """Key -> its JSON text, quotes and colon included, in the arena; 0 if its spans are odd."""
    is_measure: Bytes
    """Key -> whether it is the length or hash of a content value, or a resource's."""
    arena: Bytes
    class_of: Small
    """Scope and set of marks -> class; -1 for the reference."""
    steps: Ints
    """Class -> steps."""


class Group(NamedTuple):
    """Per group: what its resource and scope say."""

    scopes: Ints
    """First place in ``Plan.class_of``; -1 for the reference."""
    prefixes: Ints
    """JSON of the resource's attributes, without the closing brace, in the arena."""
    num_names: Ints
    received: Ints


class GroupFacts(NamedTuple):
    """What a resource and a scope say; ``first`` is negative for the reference."""

    first: int
    prefix: int
    num_names: int
    service: int
    instance: int
    scope: int
    num_secret: int


ODD_GROUP: Final = GroupFacts(-1, 0, 0, -1, -1, -1, 0)


class Values(NamedTuple):
    """Values converted in Python."""

    names: Names
    columns: Ints
    """Number -> text for the column, in the arena; -1 if not convertible, -2 if odd."""
    texts: Ints
    """Number -> JSON text with its quotes, in the arena."""
    codes: Ints
    """Number -> what the steps must know of it."""


class Doubles(NamedTuple):
    """Distinct floating-point numbers that become text."""

    slots: Small
    bits: Ints
    texts: Ints
    used: Ints


class Jobs(NamedTuple):
    """Content values to be measured and hashed."""

    values: Ints
    """Kind and value, then length and hash as JSON text in the arena."""
    used: Ints


class Persons(NamedTuple):
    """Pseudonyms of users and sessions."""

    text: Bytes
    """JSON strings of :data:`PSEUDONYM_BYTES` each."""
    values: Ints
    """The id that each stands for, packed."""
    recent: Small
    """Hash of an id -> number of a pseudonym that may be its; -1 for none."""
    used: Ints
    base: Ints
    """Where ``text`` is in the arena, packed without a length, once it is there."""
    states: Words32
    state: Words32
    words: Words32


@inline
def _operation(plan: Plan, klass: int, key: int) -> int:
    return np.int64(plan.operations[klass, key])


@jit
def resolve(
    buf: Bytes,
    found: Found,
    group: Group,
    plan: Plan,
    values: Values,
    doubles: Doubles,
    jobs: Jobs,
    persons: Persons,
) -> None:
    """Choose each span's class and number the values that Python must convert."""
    for row in range(found.used[s.SPANS]):
        span = found.spans[row]
        if span[s.IS_ODD]:
            continue
        first = group.scopes[span[s.GROUP]]
        klass = np.int64(-1)
        if first >= 0:
            klass = np.int64(plan.class_of[first + span[s.MARKS]])
        if klass < 0:
            span[s.IS_ODD] = 1
            continue
        for place in range(span[s.FIRST_ATTRIBUTE], span[s.PAST_ATTRIBUTES]):
            code = np.int64(found.keys[place])
            key, kind = code >> s.KIND_BITS, code & 15
            operation = _operation(plan, klass, key)
            converter = (operation >> COLUMN_BITS) & 255
            action = plan.actions[key]
            if converter == REFUSE or plan.is_measure[key] == 2:
                span[s.IS_ODD] = 1
                break
            if converter == NONE:
                if action == SECRET:
                    continue
                if action == CONTENT:
                    if jobs.used[0] >= len(jobs.values):
                        span[s.IS_ODD] = 1
                        break
                    jobs.values[jobs.used[0], 0] = kind
                    jobs.values[jobs.used[0], 1] = found.values[place]
                    found.values[place] = jobs.used[0]
                    jobs.used[0] += 1
                    found.keys[place] = (key << s.KIND_BITS) | JOB
                    continue
                if action == PERSON:
                    converter = PYTHON
                    operation = IS_PERSON
                elif kind == DOUBLE:
                    found.values[place] = _number_of_double(found.values[place], doubles)
                    found.keys[place] = (key << s.KIND_BITS) | DONE_DOUBLE
                    continue
            if operation & IS_PERSON and kind == STRING:
                number = _pseudonym(buf, found.values[place], persons)
                if number >= 0:
                    found.values[place] = number
                    found.keys[place] = (key << s.KIND_BITS) | DONE_PERSON
                    continue
            if converter in (PYTHON, WORDS) or kind >= ARRAY:
                number = np.int64(-1)
                if kind == STRING or kind >= ARRAY:
                    value = found.values[place]
                    size = value & LENGTH_MASK
                    if size <= MAX_VALUE_BYTES:
                        tag = (plan.tags[klass, key] << s.KIND_BITS) | kind
                        number = number_of(values.names, buf, value >> OFFSET_BITS, size, tag)
                if number < 0:
                    span[s.IS_ODD] = 1
                    break
                found.values[place] = number
                found.keys[place] = (key << s.KIND_BITS) | DONE


@inline
def _number_of_double(bits: int, doubles: Doubles) -> int:
    last = len(doubles.slots) - 1
    mixed = np.uint64(bits) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(24)) & last
    while doubles.slots[slot] >= 0:
        number = np.int64(doubles.slots[slot])
        if doubles.bits[number] == bits:
            return number
        slot = (slot + 1) & last
    number = doubles.used[0]
    doubles.bits[number] = bits
    doubles.slots[slot] = number
    doubles.used[0] = number + 1
    return number


@inline
def _hash(buf: Bytes, start: int, size: int) -> int:
    """Of the ends of a text; the calls of one trace are near each other, so few collide."""
    mixed = np.uint64(size)
    if size >= 8:
        mixed ^= np.uint64(word64(buf, start)) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= np.uint64(word64(buf, start + size - 8))
    else:
        for i in range(size):
            mixed = (mixed << np.uint64(8)) ^ np.uint64(buf[start + i])
    return np.int64((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40))


@inline
def _pseudonym(buf: Bytes, value: int, persons: Persons) -> int:
    """Number of the pseudonym of a plain id; -1 if Python must look, see ``content.Scrubber``."""
    start, size = value >> OFFSET_BITS, value & LENGTH_MASK
    number = persons.used[0]
    if (
        size == 0
        or size > MAX_MESSAGE_BYTES
        or (number + 1) * PSEUDONYM_BYTES > len(persons.text)
        or buf[start] == 0x22
        or buf[start + size - 1] == 0x22
        or (buf[start] == 0x68 and size > 1 and buf[start + 1] == 0x3A)
        or not is_utf8(buf, start, size)
    ):
        return -1
    slot = _hash(buf, start, size) & (len(persons.recent) - 1)
    before = np.int64(persons.recent[slot])
    if before >= 0:
        known = persons.values[before]
        if known & LENGTH_MASK == size and same(buf, known >> OFFSET_BITS, buf, start, size):
            return before
    persons.recent[slot] = number
    persons.values[number] = value
    persons.used[0] = number + 1
    digest_with(persons.states, buf, start, size, persons.state, persons.words)
    at = number * PSEUDONYM_BYTES
    text = persons.text
    text[at] = 0x22
    text[at + 1] = 0x68
    text[at + 2] = 0x3A
    for i in range(16):
        nibble = (np.int64(persons.state[i >> 3]) >> (28 - 4 * (i & 7))) & 15
        text[at + 3 + i] = np.uint8(nibble + 48 if nibble < 10 else nibble + 87)
    text[at + 19] = 0x22
    return number
