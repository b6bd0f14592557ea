"""Trace files in and out.

Read: OTLP protobuf (one request, or length-delimited ones), OTLP JSON, JSON Lines (a request or
a resource's spans a line), any of these gzipped, and our own Parquet export. The form is told
from the content, never from the name. Written: OTLP JSON Lines and Parquet; both come back as
the same spans.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time_ns
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from longpole.errors import BadInput
from longpole.vocab import Span, columns
from longpole_collector.decode import Body, Format, TooLarge, parse
from longpole_collector.decode import json as otlp_json
from longpole_collector.otlp_out import to_otlp
from longpole_collector.stores.base import Reader

MAX_FILE_BYTES: Final = 2 << 30
"""Largest file that is read, decompressed."""
_PAGE_ROWS: Final = 20_000
_BATCH_SPANS: Final = 8192
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_NAMES: Final = Span._fields


class Piece(NamedTuple):
    """A request in a file: understood, and as it is written."""

    body: Body
    form: Format
    data: bytes


def read(path: Path) -> Iterator[Piece | list[Span]]:
    """The pieces of a file: requests, or spans that are canonical already.

    Raises:
        BadInput: not a trace file, or a broken one; the message names file and line.
    """
    try:
        data = path.read_bytes()
        if data[:2] == _GZIP:
            data = _gunzip(data)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise BadInput(f"{path}: broken gzip: {error}") from error
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if data[:4] == _PARQUET:
        yield from _read_parquet(data, path)
    elif start[:1] in (b"{", b"["):
        yield from _read_json(data.removeprefix(b"\xef\xbb\xbf"), path)
    else:
        yield from _read_protobuf(data, path)


def _gunzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        plain = file.read(MAX_FILE_BYTES + 1)
    if len(plain) > MAX_FILE_BYTES:
        raise TooLarge(f"more than {MAX_FILE_BYTES >> 30} GiB when decompressed")
    return plain


def _read_json(data: bytes, path: Path) -> Iterator[Piece]:
    """One JSON document, or one a line."""
    lines = data.splitlines()
    is_lines = len(lines) > 1 and _is_json(lines[0])
    if not is_lines:
        yield _document(data, f"{path}")
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _document(line, f"{path}: line {number}")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _document(data: bytes, where: str) -> Piece:
    try:
        document = otlp_json.load(data)
        if isinstance(document, dict) and "scopeSpans" in document:
            document = {"resourceSpans": [document]}
            data = b'{"resourceSpans":[' + data + b"]}"
        if not isinstance(document, dict) or "resourceSpans" not in document:
            raise BadInput("no OTLP trace document (it has no 'resourceSpans')")
        return Piece(otlp_json.parse_document(document), Format.JSON, data)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def _read_protobuf(data: bytes, path: Path) -> Iterator[Piece]:
    """One request, or requests that each follow their length as a varint."""
    try:
        yield _request(data)
        return
    except BadInput as error:
        whole = error
    try:
        pieces = [_request(piece) for piece in _delimited(data)]
    except BadInput:
        raise BadInput(
            f"{path}: no trace file: expected OTLP (protobuf, JSON, JSON Lines) or a Parquet "
            f"export of spans ({whole})"
        ) from whole
    yield from pieces


def _request(data: bytes) -> Piece:
    return Piece(parse(data, Format.PROTOBUF), Format.PROTOBUF, data)


def _delimited(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        length = shift = 0
        while True:
            if offset >= len(data) or shift > 28:
                raise BadInput("no length")
            byte = data[offset]
            offset += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if offset + length > len(data):
            raise BadInput("cut off")
        yield data[offset : offset + length]
        offset += length


def _read_parquet(data: bytes, path: Path) -> Iterator[list[Span]]:
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        names = set(file.schema_arrow.names)
        missing = [c.name for c in columns(Span) if not c.is_nullable and c.name not in names]
        if missing:
            raise BadInput(f"{path}: no Parquet export of spans: column '{missing[0]}' is missing")
        present = [name for name in _NAMES if name in names]
        for batch in file.iter_batches(_BATCH_SPANS, columns=present):
            yield _spans(pa.Table.from_batches([batch]), received_ns=time_ns())
    except pa.ArrowException as error:
        raise BadInput(f"{path}: broken Parquet: {error}") from error


def _spans(table: pa.Table, received_ns: int | None = None) -> list[Span]:
    values: dict[str, Sequence[Any]] = {
        name: table[name].to_pylist(maps_as_pydicts="strict") for name in table.column_names
    }
    if received_ns is not None:
        values["received_ns"] = [received_ns] * table.num_rows
    return [
        Span(**dict(zip(values, row, strict=True))) for row in zip(*values.values(), strict=True)
    ]


# --- out ----------------------------------------------------------------------------------------
def write_jsonl(reader: Reader, path: Path) -> int:
    """Write every span as OTLP JSON, some traces a line; returns how many spans."""
    num_spans = 0
    with path.open("w", encoding="utf-8") as file:
        for table in _pages(reader):
            document = to_otlp(_spans(table))
            file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
            num_spans += table.num_rows
    return num_spans


def write_parquet(reader: Reader, path: Path) -> int:
    """Write every span as the view ``spans`` shows it; returns how many."""
    num_spans = 0
    empty = reader.sql("SELECT * FROM spans LIMIT 0")
    with pq.ParquetWriter(path, empty.schema, compression="zstd") as file:
        for table in _pages(reader):
            file.write_table(table.cast(empty.schema))
            num_spans += table.num_rows
    return num_spans


def _pages(reader: Reader) -> Iterator[pa.Table]:
    """The view ``spans`` in order of start, in pieces that any reader's row limit allows."""
    last: tuple[int, str, str] = (-1, "", "")
    while True:
        table = reader.sql(
            "SELECT * FROM spans WHERE start_ns >= $1 AND (start_ns, trace_id, span_id) > "
            "($1, $2, $3) ORDER BY start_ns, trace_id, span_id LIMIT $4",
            (*last, _PAGE_ROWS),
        )
        if table.num_rows == 0:
            return
        yield table
        end = table.slice(table.num_rows - 1).select(["start_ns", "trace_id", "span_id"])
        row = end.to_pylist()[0]
        last = (row["start_ns"], row["trace_id"], row["span_id"])
