"""Bodies -> one Arrow table: scan, resolve, fill, and the reference for what is odd."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from longpole_collector.bulk import columns as to_columns
from longpole_collector.bulk import scan as s
from longpole_collector.bulk.arena import length_prefix, value_at
from longpole_collector.bulk.fill import (
    NEEDED,
    NUM_CONTENT,
    NUM_SECRET,
    ODDS,
    ROWS,
    TEXT,
    Rows,
    fill,
)
from longpole_collector.bulk.resolve import (
    PSEUDONYM_BYTES,
    Doubles,
    Group,
    GroupFacts,
    Jobs,
    Persons,
    resolve,
)
from longpole_collector.bulk.rules import Rules
from longpole_collector.bulk.scan import BODY, RESOURCE, SCOPE, SPANS, Found, scan
from longpole_collector.bulk.steps import COLUMNS
from longpole_collector.bulk.wire import DOUBLE, LENGTH_MASK, OFFSET_BITS
from longpole_collector.decode import Format, Received
from longpole_collector.stores.schema import SPANS as SPAN_TABLE
from longpole_collector.stores.schema import to_arrow

CHUNK_BYTES: Final = 4 << 20
"""Bodies are taken together up to about so many bytes: they and their rows fit the caches."""
_MAX_BODY_BYTES: Final = 64 << 20
MAX_JOBS: Final = 1 << 16
"""Most content values of a chunk; the spans of more are odd."""
_MAX_TEXT_BYTES: Final = 1 << 31
"""Arrow's offsets are signed 32-bit numbers."""
_MAX_ROOM_BYTES: Final = 16 << 20
_BYTES_A_SPAN: Final = 256
_BYTES_AN_ATTRIBUTE: Final = 32
_RECENT_PERSONS: Final = 1024
"""A power of two."""


class Bulk:
    """The fast way of a reader; for one thread at a time."""

    def __init__(self, reader: Any, unknown: str, unclaimed: Any) -> None:
        self._reader = reader
        self._unknown = unknown
        self._unclaimed = unclaimed
        self._room = _Room()
        self._rules = Rules(reader, unknown, unclaimed)

    def table(self, received: Sequence[Received]) -> pa.Table:
        """See ``Reader.table``."""
        tables: list[pa.Table] = []
        slow: list[Received] = []
        chunk: list[Received] = []
        num_bytes = 0
        for each in received:
            if each.format != Format.PROTOBUF or len(each.body) > _MAX_BODY_BYTES:
                slow.append(each)
                continue
            chunk.append(each)
            num_bytes += len(each.body)
            if num_bytes >= CHUNK_BYTES:
                tables += self._chunk(chunk, slow)
                chunk, num_bytes = [], 0
        if chunk:
            tables += self._chunk(chunk, slow)
        spans = [span for each in slow for span in self._reader.read(each)]
        tables.append(to_arrow(SPAN_TABLE, spans))
        return pa.concat_tables(tables)

    def _chunk(self, chunk: Sequence[Received], slow: list[Received]) -> list[pa.Table]:
        """Rows of some bodies; bodies of odd frame are added to ``slow``."""
        if self._rules.is_full():
            self._rules = Rules(self._reader, self._unknown, self._unclaimed)
        rules = self._rules
        rules.refresh()
        data = b"".join(each.body for each in chunk)
        buf = np.frombuffer(data, np.uint8)
        bounds = np.zeros(len(chunk) + 1, np.int64)
        np.cumsum([len(each.body) for each in chunk], out=bounds[1:])
        found = _scan(buf, bounds, rules, self._room)
        slow += [chunk[i] for i in np.flatnonzero(found.body_is_odd).tolist()]
        rules.learn()
        facts, group = _groups(data, found, chunk, rules)
        resolved, kept = _resolve(buf, found, group, rules, self._room)
        rows = _fill(buf, found, group, rules, resolved, self._room)
        self._count(found, rows, facts)
        tables = [to_columns.table(buf, found, rows, facts, group, rules)]
        rules.arena.size = kept
        num_odd = int(rows.used[ODDS])
        if num_odd:
            tables.append(self._read_odd(data, found, rows.odd[:num_odd], chunk))
        return tables

    def _count(self, found: Found, rows: Rows, facts: Sequence[GroupFacts]) -> None:
        health, rules, num_rows = self._reader.health, self._rules, int(rows.used[ROWS])
        per_class = np.bincount(rows.classes[:num_rows], minlength=1)
        for klass, num in enumerate(per_class.tolist()):
            if num and rules.class_names[klass] == self._unknown:
                health.add("spans_unknown_dialect", num=num)
        secrets = np.array([each.num_secret for each in facts], np.int64)
        spans = found.spans[:num_rows]
        num_secret = int(rows.used[NUM_SECRET])
        if secrets.any():
            num_secret += int(secrets[spans[:, s.GROUP]].sum())
        dropped = {"content": int(rows.used[NUM_CONTENT]), "secret": num_secret}
        events = spans[:, [s.FIRST_EVENT, s.PAST_EVENTS]]
        events = events[events[:, 1] > events[:, 0]]
        if len(events):
            sizes = events[:, 1] - events[:, 0]
            places = np.repeat(events[:, 0] - np.cumsum(sizes) + sizes, sizes)
            templates = found.events[places + np.arange(len(places)), 1]
            for cause, num in rules.dropped_in_events(templates).items():
                dropped[cause] = dropped.get(cause, 0) + num
        for cause, num in dropped.items():
            if num:
                health.add("values_dropped", cause, num)

    def _read_odd(
        self, data: bytes, found: Found, odd: np.ndarray, chunk: Sequence[Received]
    ) -> pa.Table:
        """Rows of odd spans, by the reference: a body for each run of them in one group."""
        spans: list[Any] = []
        first = 0
        wheres, groups = odd[:, 0].tolist(), odd[:, 1].tolist()
        while first < len(groups):
            past = first + 1
            while past < len(groups) and groups[past] == groups[first]:
                past += 1
            resource, scope, body = found.groups[groups[first]].tolist()
            inner = b"".join(_field(0x12, _cut(data, where)) for where in wheres[first:past])
            scope_spans = _field(0x0A, _cut(data, scope)) + inner
            holder = _field(0x0A, _cut(data, resource)) + _field(0x12, scope_spans)
            spans += self._reader.read(
                Received(_field(0x0A, holder), Format.PROTOBUF, chunk[body].received_ns)
            )
            first = past
        return to_arrow(SPAN_TABLE, spans)


def _cut(data: bytes, where: int) -> bytes:
    start = where >> OFFSET_BITS
    return data[start : start + (where & LENGTH_MASK)]


def _field(tag: int, data: bytes) -> bytes:
    """A length-prefixed field."""
    return bytes((tag, *length_prefix(len(data)))) + data


class _Room:
    """Arrays by name that are used again for the next chunk, unless they are large."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], kind: Any = np.int64) -> np.ndarray:
        """An array of that shape, holding anything."""
        size = math.prod(shape)
        found = self._arrays.get(name)
        if found is None or len(found) < size:
            found = np.empty(size + size // 4, kind)
            if found.nbytes <= _MAX_ROOM_BYTES:
                self._arrays[name] = found
        return found[:size].reshape(shape)


def _scan(buf: np.ndarray, bounds: np.ndarray, rules: Rules, room: _Room) -> Found:
    """Scan, with more room as long as it is too little."""
    num_bytes, num_bodies = len(buf), len(bounds) - 1
    num_spans = num_bytes // _BYTES_A_SPAN + 16
    num_attributes = num_bytes // _BYTES_AN_ATTRIBUTE + 64
    used = np.zeros(8, np.int64)
    used[s.SERIAL] = rules.serial
    used[s.MARK_SETS] = rules.num_mark_sets
    found = Found(
        room.array("spans", (num_spans, s.NUM_FIELDS)),
        room.array("groups", (num_bodies + 16, 3)),
        room.array("keys", (num_attributes,), np.int32),
        room.array("values", (num_attributes,)),
        room.array("events", (num_spans, 2)),
        np.zeros(num_bodies, np.uint8),
        used,
    )
    first = 0
    while (first := scan(buf, bounds, first, rules.known, found)) < num_bodies:
        found = found._replace(
            **{name: _doubled(getattr(found, name)) for name in Found._fields[:5]}
        )
    rules.serial, rules.num_mark_sets = int(used[s.SERIAL]), int(used[s.MARK_SETS])
    return found


def _doubled(array: np.ndarray) -> np.ndarray:
    grown = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _groups(
    data: bytes, found: Found, chunk: Sequence[Received], rules: Rules
) -> tuple[list[GroupFacts], Group]:
    rows = found.groups[: found.used[s.GROUPS]].tolist()
    facts = [rules.group(_cut(data, row[RESOURCE]), _cut(data, row[SCOPE])) for row in rows]
    received = [chunk[row[BODY]].received_ns for row in rows]
    group = Group(
        np.array([each.first for each in facts], np.int64),
        np.array([each.prefix for each in facts], np.int64),
        np.array([each.num_names for each in facts], np.int64),
        np.array(received, np.int64),
    )
    spans = found.spans[: found.used[SPANS]]
    if len(spans):
        firsts = group.scopes[spans[:, s.GROUP]]
        is_told = (firsts >= 0) & (spans[:, s.IS_ODD] == 0)
        seen = np.zeros(len(rules.class_of), np.bool_)
        seen[(firsts + spans[:, s.MARKS])[is_told]] = True
        rules.choose(np.flatnonzero(seen).tolist())
    return facts, group


def _resolve(
    buf: np.ndarray, found: Found, group: Group, rules: Rules, room: _Room
) -> tuple[tuple[Doubles, Jobs, Persons], int]:
    """Have the values converted; also the size of the arena without what is of this chunk only."""
    num_spans, num_attributes = int(found.used[SPANS]), int(found.used[s.ATTRIBUTES])
    num_doubles = int(np.count_nonzero((found.keys[:num_attributes] & 15) == DOUBLE))
    slots = room.array("double_slots", (1 << (2 * num_doubles + 1).bit_length(),), np.int32)
    slots.fill(-1)
    bits, texts = room.array("double_bits", (num_doubles,)), room.array("doubles", (num_doubles,))
    doubles = Doubles(slots, bits, texts, np.zeros(1, np.int64))
    jobs = Jobs(room.array("jobs", (MAX_JOBS, 4)), np.zeros(1, np.int64))
    persons = Persons(
        room.array("persons", (2 * num_spans * PSEUDONYM_BYTES,), np.uint8),
        room.array("person_values", (2 * num_spans,)),
        np.full(_RECENT_PERSONS, -1, np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        rules.states,
        np.empty(8, np.uint32),
        np.empty(16, np.uint32),
    )
    resolve(buf, found, group, rules.plan(), rules.values, doubles, jobs, persons)
    rules.convert()
    kept = rules.arena.size
    numbers = bits[: doubles.used[0]].view(np.float64).tolist()
    texts[: len(numbers)] = rules.arena.put_all([b'"%a"' % number for number in numbers])
    names = persons.text[: persons.used[0] * PSEUDONYM_BYTES].tobytes()
    persons.base[0] = rules.arena.put(names) >> OFFSET_BITS
    for job in jobs.values[: jobs.used[0]]:  # measure and hash the content values
        value = value_at(buf, int(job[0]), int(job[1]))
        job[2:] = -1 if value is None else rules.arena.put_all(rules.measure(value))
    return (doubles, jobs, persons), kept


def _fill(
    buf: np.ndarray,
    found: Found,
    group: Group,
    rules: Rules,
    resolved: tuple[Doubles, Jobs, Persons],
    room: _Room,
) -> Rows:
    num_spans = int(found.used[SPANS])
    rows = Rows(
        room.array("cells", (num_spans, len(COLUMNS))),
        room.array("has", (num_spans,)),
        room.array("flags", (num_spans,)),
        room.array("classes", (num_spans,)),
        room.array("text", (len(buf) + 4096,), np.uint8),
        room.array("ends", (num_spans + 1,), np.int32),
        room.array("odd", (num_spans, 2)),
        np.zeros(8, np.int64),
    )
    rows.ends[0] = 0
    first = 0
    plan = rules.plan()
    while True:
        first = fill(
            buf, found, group, plan, rules.values, *resolved, rules.templates, rules.words,
            first, rows,
        )  # fmt: skip
        if first == num_spans:
            return rows
        size = 2 * len(rows.text) + int(rows.used[NEEDED])
        if size > _MAX_TEXT_BYTES:
            raise ValueError("the attributes of one chunk are too long for one column")
        text = np.empty(size, np.uint8)
        text[: rows.used[TEXT]] = rows.text[: rows.used[TEXT]]
        rows = rows._replace(text=text)


def warm_up() -> None:
    """Compile everything, with a batch of one small body."""
    from longpole_collector.bulk.sample import sample_body
    from longpole_collector.content import Policy, Scrubber
    from longpole_collector.health import Health
    from longpole_collector.normalise import UNCLAIMED, UNKNOWN, Reader

    health = Health()
    reader = Reader(health, Scrubber(Policy(key=bytes(32)), health))
    body = sample_body()
    Bulk(reader, UNKNOWN, UNCLAIMED).table([Received(body, Format.PROTOBUF, 1)])
