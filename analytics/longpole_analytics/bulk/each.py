"""The roll-ups of many traces trace by trace, from table to tables: the reference."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from longpole.vocab import Span, Trace, TraceStage, columns
from longpole_analytics.frames import by_trace
from longpole_analytics.rollup import roll_up

TRACE: Final = ("trace_hi", "trace_lo")
_IDS: Final = frozenset(("span_id", "parent_id"))
_TYPES: Final[dict[type, Any]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.string()),
}


@cache
def schema(record: Any) -> pa.Schema:
    """The columns of a table of records as the collector has them, ids as numbers.

    Args:
        record: :class:`Span`, :class:`Trace` or :class:`TraceStage`.
    """
    fields: list[tuple[str, Any]] = [(name, pa.uint64()) for name in TRACE]
    for column in columns(record)[1:]:
        kind = pa.uint64() if column.unit == "span_id" else _TYPES.get(column.type)
        if kind is not None:
            fields.append((column.name, kind))
    return pa.schema(fields)


def roll_up_each(spans: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of the traces and of their stages.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
    """
    rolled = [roll_up(trace) for trace in by_trace(records(spans)).values()]
    return (
        _table(Trace, [trace for trace, _ in rolled]),
        _table(TraceStage, [stage for _, stages in rolled for stage in stages]),
    )


def records(spans: pa.Table) -> Iterator[Span]:
    """The spans of a table with ids as numbers, in its order.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
    """
    hi, lo = (spans.column(name).to_pylist() for name in TRACE)
    values: list[Iterable[Any]] = [[f"{a:016x}{b:016x}" for a, b in zip(hi, lo, strict=True)]]
    for name in Span._fields[1:]:
        default = Span._field_defaults.get(name)
        column = spans.column(name) if name in spans.column_names else None
        if column is None or column.null_count == len(column):
            values.append(repeat(default, spans.num_rows))
        elif name in _IDS:
            ids = column.to_pylist()
            values.append([None if number is None else f"{number:016x}" for number in ids])
        else:
            found = column.to_pylist()
            if default is not None and column.null_count:
                found = [default if value is None else value for value in found]
            values.append(found)
    return map(Span._make, zip(*values, strict=True))


def _table(record: Any, rows: Sequence[Any]) -> pa.Table:
    """Records as a table with the collector's columns."""
    values = dict(zip(record._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    ids = values.pop("trace_id", ())
    arrays = {
        "trace_hi": [int(trace_id[:16], 16) for trace_id in ids],
        "trace_lo": [int(trace_id[16:], 16) for trace_id in ids],
        **values,
    }
    wanted = schema(record)
    return pa.table(
        [pa.array(arrays.get(field.name, ()), field.type) for field in wanted], schema=wanted
    )
