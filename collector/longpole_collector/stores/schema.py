"""Tables derived from the records of the vocabulary: DDL, Arrow columns and back.

Ids are integers in the store (two unsigned 64-bit for a trace, one for a span: half the bytes
of text and fast in joins) and lower-case hex everywhere else. A field added to a record becomes
a column of its table when the store is next opened.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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
    dict: "MAP(VARCHAR, VARCHAR)",
}
_ARROW_TYPES: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.string()),
    dict: pa.map_(pa.string(), pa.string()),
}


class TableOf(NamedTuple):
    """A table and the record it holds."""

    name: str
    columns: tuple[Column, ...]


SPANS: Final = TableOf("span_rows", columns(Span))
TRACES: Final = TableOf("trace_rows", columns(Trace))
STAGES: Final = TableOf("trace_stage_rows", columns(TraceStage))
TABLES: Final = (SPANS, TRACES, STAGES)


def ddl(table: TableOf) -> dict[str, str]:
    """Column name -> SQL type, in order."""
    found: dict[str, str] = {}
    for column in table.columns:
        if column.unit == _TRACE:
            found |= {TRACE_HI: "UBIGINT NOT NULL", TRACE_LO: "UBIGINT NOT NULL"}
        elif column.unit == _SPAN:
            found[column.name] = "UBIGINT" if column.is_nullable else "UBIGINT NOT NULL"
        else:
            found[column.name] = _SQL_TYPES[column.type]
    return found


def select_list(table: TableOf) -> str:
    """The record's fields in order, ids as hex, for a SELECT from its table."""
    parts: list[str] = []
    for column in table.columns:
        if column.unit == _TRACE:
            parts.append(f"trace_hex({TRACE_HI}, {TRACE_LO}) AS {column.name}")
        elif column.unit == _SPAN:
            parts.append(f"span_hex({column.name}) AS {column.name}")
        else:
            parts.append(column.name)
    return ", ".join(parts)


def to_arrow(table: TableOf, rows: Sequence[Any]) -> pa.Table:
    """Records as an Arrow table with the store's columns; ``rows`` must not be empty."""
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
            pairs = [tuple(value.items()) for value in values]
            arrays[column.name] = pa.array(pairs, _ARROW_TYPES[dict])
        else:
            arrays[column.name] = pa.array(values, _ARROW_TYPES[column.type])
    return pa.table(arrays)


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
