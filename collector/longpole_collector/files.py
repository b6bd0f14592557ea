"""Trace files in and out.

Read: OTLP protobuf (one request, or many that each follow their length, as a varint or as the
four bytes that the OpenTelemetry Collector's file exporter writes), OTLP JSON, JSON Lines (a
request or a resource's spans a line), Jaeger's JSON, any of these gzipped, and our own Parquet
export. OTLP requests may be of log records, too: GenAI events among them belong to spans. The
form is told from the content, never from the name. Written: OTLP JSON Lines, Parquet and Jaeger's
JSON; all come back as the same spans, Jaeger's to the microsecond.
"""

import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from time import time_ns
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from longpole.errors import BadInput
from longpole.vocab import Span, columns
from longpole_collector import jaeger
from longpole_collector.decode import Body, Format, TooLarge, upb
from longpole_collector.decode import json as otlp_json
from longpole_collector.decode.logs import LogBody, parse_logs
from longpole_collector.jaeger_out import to_jaeger
from longpole_collector.otlp_out import to_otlp, to_raw
from longpole_collector.signals import METRICS, count_records
from longpole_collector.stores.base import Reader, Value

MAX_FILE_BYTES: Final = 2 << 30
"""Largest file that is read, decompressed."""
_PAGE_ROWS: Final = 20_000
_BATCH_SPANS: Final = 8192
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_NAMES: Final = Span._fields
_LENGTH_BYTES: Final = 4
_MAX_SHIFT: Final = 28
_BY_TIME: Final[Mapping[str, Value]] = {"start_ns": -1, "trace_id": "", "span_id": ""}
_BY_TRACE: Final[Mapping[str, Value]] = {"trace_id": "", "start_ns": -1, "span_id": ""}
"""Columns in the order of an export, each with a value below all others."""


class Piece(NamedTuple):
    """A request in a file: understood, and as it is written; ``None`` if that is no OTLP."""

    body: Body
    form: Format
    data: bytes | None


class Logs(NamedTuple):
    """A logs request in a file: understood, and as it is written."""

    body: LogBody
    form: Format
    data: bytes


def read(path: Path) -> Iterator[Piece | Logs | list[Span]]:
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


def _read_json(data: bytes, path: Path) -> Iterator[Piece | Logs]:
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


def _document(data: bytes, where: str) -> Piece | Logs:
    try:
        document = otlp_json.load(data)
        if isinstance(document, dict) and "scopeSpans" in document:
            document = {"resourceSpans": [document]}
            data = b'{"resourceSpans":[' + data + b"]}"
        if isinstance(document, dict) and "resourceSpans" in document:
            return Piece(otlp_json.parse_document(document), Format.JSON, data)
        if jaeger.is_jaeger(document):
            return Piece(jaeger.parse_document(document), Format.JSON, None)
        if isinstance(document, dict) and "resourceLogs" in document:
            return Logs(parse_logs(data, Format.JSON, sys.maxsize), Format.JSON, data)
        return Piece(_metrics(document, data), Format.JSON, None)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def _metrics(document: Any, data: bytes) -> Body:
    """Metrics that one file exporter wrote between the traces: counted as rejected."""
    if isinstance(document, dict) and "resourceMetrics" in document:
        num = count_records(data, Format.JSON, METRICS)
        return Body(lambda _: iter(()), 0, num, "metrics are not kept, only traces")
    raise BadInput("no traces: it has neither OTLP's 'resourceSpans' nor Jaeger's 'spans'")


def _read_protobuf(data: bytes, path: Path) -> Iterator[Piece | Logs]:
    """One request, or requests that each follow their length."""
    try:
        yield _request(data)
        return
    except BadInput as error:
        whole = error
    for length_at in (_four_bytes, _varint):
        try:
            pieces = [_request(piece) for piece in _delimited(data, length_at)]
        except BadInput:
            continue
        yield from pieces
        return
    raise BadInput(
        f"{path}: no trace file: expected OTLP (protobuf, JSON, JSON Lines), Jaeger's JSON or a "
        f"Parquet export of spans ({whole})"
    ) from whole


def _request(data: bytes) -> Piece | Logs:
    """A request of traces, or else of logs: as the other, each is without a single good id."""
    try:
        piece = Piece(upb.parse(data, max_spans=None), Format.PROTOBUF, data)
        upb.refuse_other_signals(data, piece.body)
    except BadInput:
        logs = _logs(data)
        if logs is None:
            raise
        return logs
    if piece.body.num_rejected and not piece.body.num_spans:
        return _logs(data) or piece
    return piece


def _logs(data: bytes) -> Logs | None:
    try:
        body = parse_logs(data, Format.PROTOBUF, sys.maxsize)
    except BadInput:
        return None
    return Logs(body, Format.PROTOBUF, data) if body.events or body.num_dropped else None


def _delimited(data: bytes, length_at: Callable[[bytes, int], tuple[int, int]]) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        length, offset = length_at(data, offset)
        if offset + length > len(data):
            raise BadInput("cut off")
        yield data[offset : offset + length]
        offset += length


def _four_bytes(data: bytes, offset: int) -> tuple[int, int]:
    """A length as the file exporter writes it (big-endian), and where its message begins."""
    end = offset + _LENGTH_BYTES
    return int.from_bytes(data[offset:end], "big"), end


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A length as protobuf's own delimited streams have it, and where its message begins."""
    length = shift = 0
    while offset < len(data) and shift <= _MAX_SHIFT:
        byte = data[offset]
        offset += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, offset
    raise BadInput("no length")


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
        for table in _pages(reader, _BY_TIME):
            file.write(_json(to_otlp(map(to_raw, _spans(table)))) + "\n")
            num_spans += table.num_rows
    return num_spans


def write_jaeger(reader: Reader, path: Path) -> int:
    """Write every trace as JSON that Jaeger's UI loads; returns how many spans."""
    num_spans = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"data":[')
        for trace in _traces(reader):
            file.write(("," if num_spans else "") + "\n" + _json(to_jaeger(map(to_raw, trace))))
            num_spans += len(trace)
        file.write("]}\n")
    return num_spans


def write_parquet(reader: Reader, path: Path) -> int:
    """Write every span as the view ``spans`` shows it; returns how many."""
    num_spans = 0
    empty = reader.sql("SELECT * FROM spans LIMIT 0")
    with pq.ParquetWriter(path, empty.schema, compression="zstd") as file:
        for table in _pages(reader, _BY_TIME):
            file.write_table(table.cast(empty.schema))
            num_spans += table.num_rows
    return num_spans


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _traces(reader: Reader) -> Iterator[list[Span]]:
    """The spans of one trace after the other, by trace id; each trace in order of start."""
    spans = (span for table in _pages(reader, _BY_TRACE) for span in _spans(table))
    for _, members in groupby(spans, key=lambda span: span.trace_id):
        yield list(members)


def _pages(reader: Reader, lowest: Mapping[str, Value]) -> Iterator[pa.Table]:
    """The view ``spans`` in the order of these columns, in pieces that any row limit allows."""
    columns = ", ".join(lowest)
    query = (
        f"SELECT * FROM spans WHERE {next(iter(lowest))} >= $1 AND ({columns}) > ($1, $2, $3) "  # noqa: S608
        f"ORDER BY {columns} LIMIT $4"
    )
    last = list(lowest.values())
    while True:
        table = reader.sql(query, (*last, _PAGE_ROWS))
        if table.num_rows == 0:
            return
        yield table
        end = table.slice(table.num_rows - 1).to_pylist(maps_as_pydicts="strict")[0]
        last = [end[name] for name in lowest]
