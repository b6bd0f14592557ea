"""Tables derived from the records of the vocabulary: DDL, Arrow columns and back.

Ids are integers in the store (two unsigned 64-bit for a trace, one for a span: half the bytes
of text and fast in joins) and lower-case hex everywhere else. A field added to a record becomes
a column of its table when the store is next opened.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from longpole.vocab import Column, Span, Trace, TraceStage, columns

TRACE_HI: Final = "trace_hi"
TRACE_LO: Final = "trace_lo"
_TRACE: Final = "trace_id"
_SPAN: Final = "span_id"
_SQL_TYPES: Final[dict[type, str]] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    list: "VARCHAR[]",
    dict: "VARCHAR",
}
_ARROW_TYPES: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.string()),
    dict: pa.string(),
}
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
HEAVY: Final = frozenset(("attributes", "events", "links"))
"""Columns that may be large; a population is never asked for them."""
_FROM_THE_FIRST: Final = HEAVY | {"parent_id", "end_ns", "first_chunk_ns", "ttft_ns"}
PACKED: Final = " USING COMPRESSION zstd"
_PACKED: Final = {"attributes": PACKED}
"""Half the bytes of the engine's own choice for such text, and less work at a checkpoint.

It costs four bytes a row even where the column is null, so it is for none that often is.
"""


class TableOf(NamedTuple):
    """A table, the record it holds, and the columns the store adds to it."""

    name: str
    columns: tuple[Column, ...]
    computed: Mapping[str, str] = MappingProxyType({})


SPANS: Final = TableOf("span_rows", columns(Span), {"call_role": "TINYINT"})
"""``call_role``: 0 no row of its own in ``calls``, 1 a call by itself, 2 part of a merged row."""
TRACES: Final = TableOf(
    "trace_rows",
    columns(Trace),
    {
        "first_start_ns": "BIGINT",
        "last_start_ns": "BIGINT",
        "weight": "DOUBLE",
        "decided_ns": "BIGINT",
    },
)
"""When the trace's first and last span start: where its spans lie in the store. How many traces
it stands for (null: itself), and when that was decided (null: not yet, or nothing is sampled)."""
STAGES: Final = TableOf("trace_stage_rows", columns(TraceStage))
EVENTS: Final = TableOf(
    "event_rows",
    (),
    {
        TRACE_HI: "UBIGINT NOT NULL",
        TRACE_LO: "UBIGINT NOT NULL",
        "span_id": "UBIGINT NOT NULL",
        "time_ns": "BIGINT",
        "received_ns": "BIGINT",
        "name": "VARCHAR",
        "attributes": "VARCHAR",
    },
)
"""Events that came as log records and wait for their span to be settled."""
MINUTES: Final = TableOf(
    "minute_rows",
    (),
    {
        "start_ns": "BIGINT NOT NULL",
        "width": "TINYINT NOT NULL",
        "service": "VARCHAR",
        "route": "VARCHAR",
        "prompt_version": "VARCHAR",
        "request_model": "VARCHAR",
        "metric": "VARCHAR NOT NULL",
        "bucket": "INTEGER",
        "num": "BIGINT NOT NULL",
        "sum_ns": "BIGINT NOT NULL",
        "min_ms": "DOUBLE NOT NULL",
        "max_ms": "DOUBLE NOT NULL",
        "is_stage": "BOOLEAN NOT NULL",
        "is_gone": "BOOLEAN NOT NULL",
    },
)
"""Calls and workflows of the file, counted; ``start_ns`` of a stretch of ``width`` minutes, which
is 1 or 60. ``is_stage``: workflows are counted by stage, ``metric`` is its name. ``is_gone``: what
sampling took out of the minute is counted, which its other rows count too."""
STALE: Final = TableOf(
    "stale_minute_rows", (), {"minute": "BIGINT NOT NULL", "is_taken": "BOOLEAN NOT NULL"}
)
"""Minutes since the epoch to be counted anew, each perhaps several times."""
GONE: Final = TableOf(
    "gone_trace_rows",
    (),
    {
        TRACE_HI: "UBIGINT NOT NULL",
        TRACE_LO: "UBIGINT NOT NULL",
        "decided_ns": "BIGINT NOT NULL",
    },
)
"""Traces that sampling took out lately: what comes of them later goes too."""
KEPT: Final = TableOf(
    "kept_trace_rows",
    (),
    dict(GONE.computed) | {"weight": "DOUBLE NOT NULL"},
)
"""Traces that sampling kept lately for another store, which may have them by now: what comes of
them later is kept too, with that weight."""
MINUTE_NS: Final = 60_000_000_000


def ddl(table: TableOf) -> dict[str, str]:
    """Column name -> SQL type, in order."""
    found: dict[str, str] = {}
    for column in table.columns:
        if column.unit == _TRACE:
            found |= {TRACE_HI: "UBIGINT NOT NULL", TRACE_LO: "UBIGINT NOT NULL"}
        elif column.unit == _SPAN:
            found[column.name] = "UBIGINT" if column.is_nullable else "UBIGINT NOT NULL"
        else:
            found[column.name] = _SQL_TYPES[column.type] + _PACKED.get(column.name, "")
    return found | dict(table.computed)


def first_ddl(table: TableOf) -> dict[str, str]:
    """The columns that a new file's table begins with, as :func:`ddl` gives them.

    A column costs at insert and at a save even where all is null. Most senders know few of a
    span's facts, so those that may be null come with the first span that has them.
    """
    if table is not SPANS:
        return ddl(table)
    later = {column.name for column in table.columns if column.is_nullable} - _FROM_THE_FIRST
    return {name: sql_type for name, sql_type in ddl(table).items() if name not in later}


def select_list(table: TableOf) -> str:
    """The record's fields in order, ids as hex, for a SELECT from its table."""
    parts: list[str] = []
    for column in table.columns:
        if column.unit == _TRACE:
            parts.append(f"trace_hex({TRACE_HI}, {TRACE_LO}) AS {column.name}")
        elif column.unit == _SPAN:
            parts.append(f"span_hex({column.name}) AS {column.name}")
        elif column.type is dict:
            parts.append(f"{column.name}::JSON::MAP(VARCHAR, VARCHAR) AS {column.name}")
        else:
            parts.append(column.name)
    return ", ".join(parts)


def to_json(attributes: Mapping[str, str]) -> str:
    """Attributes as the store keeps them: JSON text costs a tenth of a MAP at insert."""
    return _encode(attributes)


def to_arrow(table: TableOf, rows: Sequence[Any]) -> pa.Table:
    """Records as an Arrow table with the store's columns (the computed ones left out)."""
    if not rows:
        return arrow_schema(table).empty_table()
    arrays: dict[str, pa.Array] = {}
    for column, values in zip(table.columns, zip(*rows, strict=True), strict=True):
        if column.unit == _TRACE:
            halves = struct.unpack(f">{2 * len(values)}Q", bytes.fromhex("".join(values)))
            arrays[TRACE_HI] = pa.array(halves[0::2], pa.uint64())
            arrays[TRACE_LO] = pa.array(halves[1::2], pa.uint64())
        elif column.unit == _SPAN:
            arrays[column.name] = pa.array(_span_numbers(values), pa.uint64())
        elif column.is_nullable and values.count(None) == len(values):
            arrays[column.name] = pa.nulls(len(values), _ARROW_TYPES[column.type])
        elif column.type is dict:
            arrays[column.name] = pa.array([to_json(value) for value in values], pa.string())
        else:
            arrays[column.name] = pa.array(values, _ARROW_TYPES[column.type])
    return pa.table(arrays)


def arrow_schema(table: TableOf) -> pa.Schema:
    """The columns that :func:`to_arrow` gives."""
    fields: list[tuple[str, pa.DataType]] = []
    for column in table.columns:
        if column.unit == _TRACE:
            fields += [(TRACE_HI, pa.uint64()), (TRACE_LO, pa.uint64())]
        elif column.unit == _SPAN:
            fields.append((column.name, pa.uint64()))
        else:
            fields.append((column.name, _ARROW_TYPES[column.type]))
    return pa.schema(fields)


def from_arrow(table: TableOf, record: Any, rows: pa.Table) -> Iterator[Any]:
    """The records of a table's rows; columns that ``rows`` lacks have the record's default.

    Ids come as hex again. ``record`` is the class that ``table`` was made of.
    """
    values: list[Iterable[Any]] = []
    for column in table.columns:
        found: Iterable[Any]
        if column.unit == _TRACE:
            pairs = zip(rows[TRACE_HI].to_pylist(), rows[TRACE_LO].to_pylist(), strict=True)
            found = [f"{hi:016x}{lo:016x}" for hi, lo in pairs]
        elif column.name not in rows.column_names:
            found = repeat(record._field_defaults[column.name], rows.num_rows)
        elif column.unit == _SPAN:
            ids = rows[column.name].to_pylist()
            found = [None if value is None else f"{value:016x}" for value in ids]
        elif rows[column.name].null_count == rows.num_rows:
            found = repeat(None, rows.num_rows)
        elif column.type is dict:
            found = [json.loads(value) for value in rows[column.name].to_pylist()]
        else:
            found = rows[column.name].to_pylist()
        values.append(found)
    yield from map(record._make, zip(*values, strict=True))


def matching(rows: pa.Table, ids: pa.Table, *, is_in: bool) -> pa.Table:
    """The rows whose ids are, or are not, in a table of ids alone; their order stays."""
    places = rows.select(ids.column_names).append_column(
        "place", pa.array(range(rows.num_rows), pa.int64())
    )
    kind = "left semi" if is_in else "left anti"
    found = places.join(ids, keys=ids.column_names, join_type=kind)
    return rows.take(found["place"].combine_chunks().sort())


def hex_ids(rows: pa.Table) -> list[str]:
    """The trace ids of rows with the two halves of an id."""
    halves = np.stack([rows[TRACE_HI].to_numpy(), rows[TRACE_LO].to_numpy()], axis=1)
    text = halves.astype(">u8").tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]


def trace_numbers(trace_ids: Sequence[str]) -> pa.Table:
    """Trace ids in hex as a table of their two halves."""
    raw = bytes.fromhex("".join(trace_ids))
    halves = struct.unpack(f">{2 * len(trace_ids)}Q", raw)
    return pa.table(
        {
            TRACE_HI: pa.array(halves[0::2], pa.uint64()),
            TRACE_LO: pa.array(halves[1::2], pa.uint64()),
        }
    )


def _span_numbers(ids: Sequence[str | None]) -> list[int | None]:
    return [None if value is None else int(value, 16) for value in ids]
