"""From rows of the view ``spans`` to :class:`~longpole.vocab.Span`, checked against the vocabulary.

The columns are those of the record, by name; the record in ``longpole.vocab`` is the only list of
them. A table from an older version may lack a nullable column, which is then unknown.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from longpole.errors import BadInput
from longpole.vocab import Column, Span, columns

if TYPE_CHECKING:
    import polars as pl

COLUMNS: Final = columns(Span)
_ARROW_TYPES: Final[dict[type, Any]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.string()),
}


def spans_from_table(table: "pa.Table | pl.DataFrame") -> list[Span]:
    """The spans of a table with the columns of the view ``spans``, in its order.

    An empty table gives none; columns that the record does not have are ignored.

    Raises:
        BadInput: a column that every span has is missing or holds a null, or a column has a type
            that cannot be read.
    """
    arrow = table if isinstance(table, pa.Table) else table.to_arrow()
    values = [_values(arrow, column) for column in COLUMNS]
    return [Span(*row) for row in zip(*values, strict=True)]


def by_trace(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Spans grouped by trace id, in order of first appearance."""
    traces: dict[str, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    return traces


def _values(table: pa.Table, column: Column) -> list[Any]:
    is_required = not column.is_nullable and column.name not in Span._field_defaults
    default = Span._field_defaults.get(column.name)
    if column.name not in table.column_names:
        if is_required:
            raise BadInput(f"no column {column.name}: give rows of the view spans")
        return [default] * table.num_rows
    found = table.column(column.name)
    if column.type in _ARROW_TYPES:
        try:
            found = found.cast(_ARROW_TYPES[column.type])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadInput(f"column {column.name} holds {found.type}: {error}") from error
    values: list[Any] = found.to_pylist()
    if column.type is dict:
        values = [value if value is None else _attributes(value) for value in values]
    if found.null_count and is_required:
        raise BadInput(f"column {column.name} holds a null: every span has a value there")
    if column.is_nullable or not found.null_count:
        return values
    return [default if value is None else value for value in values]


def _attributes(pairs: Iterable[Any]) -> dict[str, str]:
    """A MAP as Arrow gives it (pairs), or polars (structs of key and value)."""
    if isinstance(pairs, dict):
        return pairs
    return dict((pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in pairs)
