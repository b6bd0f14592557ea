"""Spans as the Arrow table that a store returns."""

import pyarrow as pa

from longpole.vocab import Span, columns

_TYPES = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.string()),
    dict: pa.map_(pa.string(), pa.string()),
}


def spans_table(spans):
    """Columns of the view ``spans`` in their types; attributes are a MAP."""
    arrays = {}
    for column in columns(Span):
        values = [getattr(span, column.name) for span in spans]
        if column.type is dict:
            values = [list(value.items()) for value in values]
        arrays[column.name] = pa.array(values, _TYPES[column.type])
    return pa.table(arrays)
