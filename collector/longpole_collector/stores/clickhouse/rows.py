"""Rows of the span table on their way to ClickHouse and back.

The local store keeps ids as numbers, ClickHouse keeps them as hex text: what people and other
tools filter by is then the column itself and its index, and compressed both take the same room.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Span, columns
from longpole_collector.stores.schema import HEAVY, SPANS, TRACE_HI, TRACE_LO, arrow_schema

JSON: Final = "attributes_json"
"""Attributes are sent as the text they are kept as and taken apart over there."""
_NO_ATTRIBUTES: Final = "{}"
_PAIRS: Final = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2")
_VALUES: Final = np.full(256, 255, np.uint8)
_VALUES[[ord(digit) for digit in "0123456789abcdef"]] = range(16)
_IDS: Final = tuple(c.name for c in columns(Span) if c.unit in ("trace_id", "span_id"))
_COMPUTED: Final = ("end_ns", "first_chunk_ns")
READ: Final = ", ".join(
    f"toJSONString({c.name}) AS {c.name}" if c.type is dict else c.name for c in columns(Span)
)
"""The columns that :func:`from_clickhouse` takes, for a SELECT."""
LIGHT: Final = ", ".join(c.name for c in columns(Span) if c.name not in HEAVY)
"""Those without what may be large."""


def to_clickhouse(rows: pa.Table) -> pa.Table:
    """Rows in the columns of the local span table as ClickHouse takes them."""
    first = pc.subtract(pc.fill_null(rows["ttft_ns"], 0), rows["first_chunk_ns"])
    made: dict[str, pa.ChunkedArray | pa.Array] = {
        "length_ns": pc.subtract(rows["end_ns"], rows["start_ns"]),
        "first_chunk_lag_ns": first,
    }
    for column in columns(Span):
        name = column.name
        if column.unit == "trace_id":
            made[name] = _hex([rows[TRACE_HI], rows[TRACE_LO]])
        elif column.unit == "span_id":
            made[name] = _hex([rows[name]])
        elif column.type is dict:
            made[JSON] = rows[name]
        elif name in _COMPUTED:
            continue
        elif rows[name].null_count < rows.num_rows or not rows.num_rows:
            made[name] = rows[name]  # what is null everywhere is so by default
    return pa.table(made)


def from_clickhouse(rows: pa.Table) -> pa.Table:
    """The other way round, of a SELECT of :data:`READ` or a part of it; the rest is empty."""
    made: dict[str, pa.ChunkedArray | pa.Array] = {}
    known = {TRACE_HI, TRACE_LO, *rows.column_names}
    for field in arrow_schema(SPANS):
        if field.name not in known:
            value = _NO_ATTRIBUTES if field.name == "attributes" else None
            made[field.name] = pa.repeat(pa.scalar(value, field.type), rows.num_rows)
        elif field.name == TRACE_HI:
            made[TRACE_HI], made[TRACE_LO] = _words(rows["trace_id"], 2)
        elif field.name in _IDS:
            (made[field.name],) = _words(rows[field.name], 1)
        elif field.name != TRACE_LO:
            made[field.name] = rows[field.name].cast(field.type)
    return pa.table(made)


def _hex(words: list[pa.ChunkedArray]) -> pa.Array:
    """Numbers, one or more side by side, as hex text; null where the first is null."""
    known = words[0].is_valid().combine_chunks()
    numbers = np.stack([word.fill_null(0).to_numpy() for word in words], axis=1)
    text = _PAIRS[numbers.astype(">u8").view(np.uint8)].tobytes()
    size = 16 * len(words)
    ends = np.arange(len(numbers) + 1, dtype=np.int64) * size
    made = pa.LargeStringArray.from_buffers(
        len(numbers), pa.py_buffer(ends.tobytes()), pa.py_buffer(text)
    )
    plain = made.cast(pa.string())
    return plain if not words[0].null_count else pc.if_else(known, plain, None)


def _words(column: pa.ChunkedArray, num: int) -> list[pa.Array]:
    """Hex text as ``num`` numbers of 64 bits; text of another length is null."""
    size = 16 * num
    text = column.cast(pa.string()).combine_chunks()
    is_known = pc.fill_null(pc.equal(pc.binary_length(text), size), False)
    filled = pc.if_else(is_known, text, "0" * size).cast(pa.large_string())
    data = np.frombuffer(_bytes(filled), np.uint8)
    digits = _VALUES[data].reshape(len(text), num, 8, 2)
    joined = (digits[..., 0] << 4 | digits[..., 1] & 15).astype(np.uint8)
    numbers = np.ascontiguousarray(joined).view(">u8").reshape(len(text), num).astype(np.uint64)
    missing = ~is_known.to_numpy(zero_copy_only=False)
    return [pa.array(numbers[:, place], mask=missing) for place in range(num)]


def _bytes(text: pa.LargeStringArray) -> bytes:
    if not len(text):
        return b""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])
