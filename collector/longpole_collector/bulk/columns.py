"""Filled rows -> Arrow arrays with the columns, types and values of ``stores.schema``."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from longpole_collector.bulk import scan as s
from longpole_collector.bulk.fill import ROWS, TEXT, Rows
from longpole_collector.bulk.resolve import Group, GroupFacts
from longpole_collector.bulk.rules import Rules
from longpole_collector.bulk.scan import Found
from longpole_collector.bulk.steps import COLUMNS, FLAG_NAMES, STATED_SHIFT
from longpole_collector.bulk.text import events, pick, strings
from longpole_collector.bulk.wire import LENGTH_MASK, OFFSET_BITS
from longpole_collector.stores.schema import SPANS, arrow_schema
from longpole_collector.tracestate import NOT_SAID, Sampled, sampled

_SCHEMA: Final = arrow_schema(SPANS)
_NOT_NULL: Final = frozenset(("is_model_call", "is_engine", "is_detached"))
_TPOT: Final = "tpot_ms"


def table(
    buf: np.ndarray,
    found: Found,
    rows: Rows,
    facts: Sequence[GroupFacts],
    group: Group,
    rules: Rules,
) -> pa.Table:
    """The rows that are not odd as a table."""
    num = int(rows.used[ROWS])
    spans = found.spans[:num]
    arrays: dict[str, pa.Array] = {}
    text = _Text(buf, rules.arena.bytes)
    groups = spans[:, s.GROUP]

    def of_group(name: str) -> pa.Array:
        return text.column(np.array([getattr(each, name) for each in facts], np.int64)[groups])

    parents = spans[:, s.PARENT_ID].view(np.uint64)
    ends = spans[:, s.END]
    messages = spans[:, s.MESSAGE]
    arrays |= {
        "trace_hi": pa.array(spans[:, s.TRACE_HI].view(np.uint64)),
        "trace_lo": pa.array(spans[:, s.TRACE_LO].view(np.uint64)),
        "span_id": pa.array(spans[:, s.SPAN_ID].view(np.uint64)),
        "parent_id": pa.array(parents, mask=parents == 0),
        "name": text.column(spans[:, s.NAME]),
        "kind": text.column(rules.kinds[spans[:, s.KIND]]),
        "start_ns": pa.array(spans[:, s.START]),
        "end_ns": pa.array(ends, mask=ends == 0),
        "received_ns": pa.array(group.received[groups]),
        "service": of_group("service"),
        "instance_id": of_group("instance"),
        "scope": of_group("scope"),
        "dialect": text.column(rules.dialect_texts[rows.classes[:num]]),
        "status": text.column(rules.statuses[spans[:, s.STATUS]]),
        "status_message": text.column(np.where(messages & LENGTH_MASK, messages, -1)),
        "flags": _flags(rows.flags[:num], rules.word_lists),
        "attributes": _whole(rows.ends[: num + 1].copy(), rows.text[: rows.used[TEXT]].copy()),
        "events": _events(spans, found, rules),
    }
    arrays |= _cells(num, rows, text)
    arrays |= _sampled(buf, spans[:, s.STATE])
    nulls = {kind: pa.nulls(num, kind) for kind in set(_SCHEMA.types)}
    columns = [arrays.get(field.name, nulls[field.type]) for field in _SCHEMA]
    return pa.table(columns, schema=_SCHEMA)


def _cells(num: int, rows: Rows, text: "_Text") -> dict[str, pa.Array]:
    """The columns of the cells that have any value."""
    arrays: dict[str, pa.Array] = {}
    has = rows.has[:num]
    any_has = int(np.bitwise_or.reduce(has)) if num else 0
    for column, name in enumerate(COLUMNS):
        if not any_has >> column & 1:
            if name in _NOT_NULL:
                arrays[name] = pa.array(np.zeros(num, np.bool_))
            continue
        cells, valid = np.empty(num, np.int64), np.empty(num, np.uint8)
        num_valid, num_bytes = pick(rows.cells, has, column, cells, valid)
        kind = _SCHEMA.field(name).type
        if kind == pa.string():
            arrays[name] = text.strings(cells, valid, num_valid, num_bytes)
        elif name in _NOT_NULL:
            arrays[name] = pa.array(cells.astype(np.bool_))
        else:
            mask = None if num_valid == num else valid == 0
            values: Any = cells
            if kind == pa.float64():
                values = cells.view(np.float64)
                if name == _TPOT:
                    known = valid != 0
                    values[known] = [round(value, 6) for value in values[known].tolist()]
            elif kind == pa.bool_():
                values = cells.astype(np.bool_)
            arrays[name] = pa.array(values, mask=mask)
    return arrays


def _sampled(buf: np.ndarray, states: np.ndarray) -> dict[str, pa.Array]:
    """What trace states say of the sender's sampling, if one says anything."""
    rows = np.flatnonzero(states & LENGTH_MASK).tolist()
    if not rows:
        return {}
    said: list[Sampled] = [NOT_SAID] * len(states)
    for row in rows:
        start, size = int(states[row]) >> OFFSET_BITS, int(states[row]) & LENGTH_MASK
        said[row] = sampled(buf[start : start + size].tobytes().decode(errors="replace"))
    columns = zip(Sampled._fields, zip(*said, strict=True), strict=True)
    return {name: pa.array(values, _SCHEMA.field(name).type) for name, values in columns}


class _Text:
    """Makes string columns from starts and lengths in the bodies and the arena."""

    def __init__(self, buf: np.ndarray, arena: np.ndarray) -> None:
        self._buf = buf
        self._arena = arena

    def column(self, cells: np.ndarray) -> pa.Array:
        """A column; a negative cell is null."""
        valid = cells >= 0
        num_bytes = int((cells[valid] & LENGTH_MASK).sum())
        num_valid = int(np.count_nonzero(valid))
        return self.strings(np.ascontiguousarray(cells), valid.view(np.uint8), num_valid, num_bytes)

    def strings(
        self, cells: np.ndarray, valid: np.ndarray, num_valid: int, num_bytes: int
    ) -> pa.Array:
        """A column of which the number of values and their bytes are known."""
        if num_valid == 0:
            return pa.nulls(len(cells), pa.string())
        offsets = np.empty(len(cells) + 1, np.int32)
        out = np.empty(num_bytes, np.uint8)
        strings(self._buf, self._arena, cells, valid, offsets, out)
        return _whole(offsets, out, None if num_valid == len(cells) else valid)


def _whole(offsets: np.ndarray, data: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.StringArray.from_buffers(len(offsets) - 1, buffers[1], buffers[2], buffers[0])


def _flags(flags: np.ndarray, stated: Sequence[Sequence[str]]) -> pa.Array:
    kind = _SCHEMA.field("flags").type
    if not flags.any():
        offsets = pa.array(np.zeros(len(flags) + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], pa.string()))
    distinct, places = np.unique(flags, return_inverse=True)
    lists: list[list[str]] = []
    for each in distinct.tolist():
        number = each >> STATED_SHIFT
        first = stated[number - 1] if number else ()
        lists.append([*first, *(name for i, name in enumerate(FLAG_NAMES) if each >> i & 1)])
    return pa.array(lists, kind).take(pa.array(places))


def _events(spans: np.ndarray, found: Found, rules: Rules) -> pa.Array:
    ranges = np.ascontiguousarray(spans[:, [s.FIRST_EVENT, s.PAST_EVENTS]])
    valid = ranges[:, 1] > ranges[:, 0]
    if not valid.any():
        return pa.nulls(len(spans), pa.string())
    offsets = np.empty(len(spans) + 1, np.int32)
    out = np.empty(1 << 20, np.uint8)
    while (
        size := events(ranges, found.events, rules.templates, rules.arena.bytes, offsets, out)
    ) < 0:
        out = np.empty(4 * len(out), np.uint8)
    return _whole(offsets, out[:size], valid)
