"""The store: one DuckDB file, or one in memory, that this process owns.

DuckDB lets one process in, so the collector holds the file and everybody else asks it over
HTTP. One thread writes; each reader gets a cursor of its own and a read-only transaction, so
neither waits for the other. The place reached in the write-ahead log is stored in the same
transaction as the spans: after a crash nothing is replayed twice and nothing is left out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Timer
from time import sleep
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import BadInput, StoreBusy, Unreachable
from longpole.vocab import Span, Trace, TraceStage
from longpole_collector.stores.base import Params
from longpole_collector.stores.guard import check, first_line
from longpole_collector.stores.schema import (
    SPANS,
    STAGES,
    TABLES,
    TRACE_HI,
    TRACE_LO,
    TRACES,
    ddl,
    select_list,
    to_arrow,
    trace_numbers,
)
from longpole_collector.stores.views import script, views
from longpole_collector.wal import Position

SCHEMA_VERSION: Final = 1
FILE_NAME: Final = "spans.duckdb"
_BATCH_ROWS: Final = 10_000
_MAX_RESULT_BYTES: Final = 512 << 20
_GAP_NS: Final = 60_000_000_000
_FIRST_START: Final = "first_start_ns"


@dataclass(frozen=True)
class Limits:
    """What one query may take: rows of its result, seconds, memory of the engine."""

    max_rows: int = 100_000
    timeout_s: float = 30.0
    memory: str = "2GB"


class Unsettled(NamedTuple):
    """A trace with spans newer than its roll-up."""

    trace_id: str
    first_start_ns: int
    first_received_ns: int


class DuckStore:
    """Spans, roll-ups and the views over them."""

    def __init__(
        self, path: Path | None = None, *, is_read_only: bool = False, limits: Limits | None = None
    ) -> None:
        """Open or make the store.

        Args:
            path: the file; ``None`` keeps everything in memory.
            is_read_only: several processes may read one file that nobody writes.
            limits: bounds of one query.

        Raises:
            StoreBusy: another process has the file open.
            Unreachable: the file cannot be opened, or a newer longpole wrote it.
        """
        self._limits = limits or Limits()
        self._is_closed = False
        self._write_lock = Lock()
        self._reading: set[duckdb.DuckDBPyConnection] = set()
        self._connection = _connect(path, is_read_only=is_read_only, limits=self._limits)
        self._writer = self._connection.cursor()
        if not is_read_only:
            self._prepare(path)

    # --- reading --------------------------------------------------------------------------------
    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        cursor = self._cursor()
        self._reading.add(cursor)
        has_expired = Event()

        def expire() -> None:
            has_expired.set()
            with suppress(duckdb.Error):  # it has just finished
                cursor.interrupt()

        timer = Timer(self._limits.timeout_s, expire)
        timer.daemon = True
        try:
            check(cursor, query, views())
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            timer.start()
            given = dict(params) if isinstance(params, Mapping) else list(params)
            relation = cursor.sql(query, params=given or None)
            return self._collect(relation)
        except duckdb.Error as error:
            if has_expired.is_set():
                limit = f"{self._limits.timeout_s:g} s (query_timeout_s)"
                raise BadInput(f"the query took longer than {limit}") from error
            raise BadInput(first_line(error)) from error
        finally:
            timer.cancel()
            cursor.close()
            self._reading.discard(cursor)

    def close(self) -> None:
        """Write everything out, stop queries, let go of the file; twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            while self._reading:
                for cursor in tuple(self._reading):
                    with suppress(duckdb.Error):  # it has just finished
                        cursor.interrupt()
                sleep(0.01)
            self._writer.close()
            self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            if not self._is_closed:
                return self._connection.cursor()
        except duckdb.ConnectionException:  # closed just now
            pass
        raise Unreachable("the store is closed")

    def _collect(self, relation: Any) -> pa.Table:
        reader = relation.to_arrow_reader(_BATCH_ROWS)
        batches: list[pa.RecordBatch] = []
        num_rows = num_bytes = 0
        for batch in reader:
            num_rows += batch.num_rows
            num_bytes += batch.nbytes
            if num_rows > self._limits.max_rows:
                raise BadInput(
                    f"more than {self._limits.max_rows} rows (query_rows): "
                    "aggregate, or narrow the query with WHERE or LIMIT"
                )
            if num_bytes > _MAX_RESULT_BYTES:
                raise BadInput(f"the result is larger than {_MAX_RESULT_BYTES >> 20} MiB")
            batches.append(batch)
        return _plain(pa.Table.from_batches(batches, reader.schema))

    # --- writing --------------------------------------------------------------------------------
    def append(self, spans: Sequence[Span], stored: Position | None = None) -> int:
        """Store spans; returns how many were new.

        A span counts as there already if one of the same trace id, span id and start is; within
        ``spans`` the first of two counts. ``stored`` is noted in the same transaction.
        """
        unique = {(span.trace_id, span.span_id): span for span in reversed(spans)}
        batch = sorted(unique.values(), key=lambda span: span.start_ns)
        num_new = 0
        with self._transaction() as writer:
            if batch:
                writer.register("incoming", to_arrow(SPANS, batch))
                try:
                    found = writer.execute(_insert_new(batch)).fetchone()
                finally:
                    writer.unregister("incoming")
                num_new = found[0] if found else 0
            if stored is not None:
                self._note(writer, "stored", f"{stored.segment}:{stored.offset}")
        return num_new

    def stored(self) -> Position:
        """How far the write-ahead log is in the store."""
        segment, _, offset = self._noted("stored", "0:0").partition(":")
        return Position(int(segment), int(offset))

    # --- roll-ups -------------------------------------------------------------------------------
    def first_starts(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """The start of the earliest span of each of these traces that has a roll-up."""
        with self._wanted(trace_ids) as writer:
            rows = writer.execute(
                f"SELECT trace_hex({TRACE_HI}, {TRACE_LO}), {_FIRST_START} "  # noqa: S608
                f"FROM {TRACES.name} SEMI JOIN wanted ON {_qualified(TRACES.name)}"
            ).fetchall()
        return dict(rows)

    def spans_of(self, since_ns: Mapping[str, int]) -> dict[str, Sequence[Span]]:
        """All spans of some traces, by trace id.

        Args:
            since_ns: trace id -> the start of its earliest span, or earlier.
        """
        if not since_ns:
            return {}
        with self._wanted(list(since_ns)) as writer:
            rows = writer.execute(
                f"SELECT {select_list(SPANS)} FROM {SPANS.name} SEMI JOIN wanted ON "  # noqa: S608
                f"{_qualified(SPANS.name)} WHERE start_ns >= {min(since_ns.values())}"
            ).fetchall()
        found: dict[str, list[Span]] = {}
        for values in rows:
            span = Span._make(values)
            found.setdefault(span.trace_id, []).append(span)
        return dict(found)

    def replace_rollups(
        self,
        rolled: Mapping[str, tuple[Trace, Sequence[TraceStage], int]],
        known: Collection[str],
        settled_ns: int | None,
    ) -> None:
        """Put the new roll-ups of some traces in place of their old ones.

        Args:
            rolled: trace id -> its row, its stages, the start of its earliest span.
            known: those among them that have a roll-up already.
            settled_ns: every span received up to then is rolled up; noted for the next start.
        """
        traces = [trace for trace, _, _ in rolled.values()]
        old = [trace_id for trace_id in rolled if trace_id in known]
        stages = [stage for _, parts, _ in rolled.values() for stage in parts]
        with self._transaction() as writer:
            if old:
                self._delete(writer, TRACES.name, old)
                self._delete(writer, STAGES.name, old)
            if traces:
                firsts = pa.array([first for _, _, first in rolled.values()], pa.int64())
                rows = to_arrow(TRACES, traces).append_column(_FIRST_START, firsts)
                _insert(writer, TRACES.name, rows)
            if stages:
                _insert(writer, STAGES.name, to_arrow(STAGES, stages))
            if settled_ns is not None:
                self._note(writer, "settled_ns", str(settled_ns))

    def unsettled(self, rollup_version: int, margin_ns: int) -> list[Unsettled]:
        """The traces with spans that came after the last noted ``settled_ns``, less a margin.

        A roll-up of another version than noted makes every trace unsettled.
        """
        since_ns = int(self._noted("settled_ns", "0")) - margin_ns
        if self._noted("rollup_version", "") != str(rollup_version):
            since_ns = -1
            with self._transaction() as writer:
                self._note(writer, "settled_ns", "0")
                self._note(writer, "rollup_version", str(rollup_version))
        rows = self._writer.execute(
            f"SELECT trace_hex({TRACE_HI}, {TRACE_LO}), min(start_ns), min(received_ns) "  # noqa: S608
            f"FROM {SPANS.name} WHERE received_ns > {since_ns} GROUP BY {TRACE_HI}, {TRACE_LO}"
        ).fetchall()
        return [Unsettled._make(row) for row in rows]

    # --- inside ---------------------------------------------------------------------------------
    def _prepare(self, path: Path | None) -> None:
        """Make or extend the tables, make the views anew."""
        with self._transaction() as writer:
            writer.execute("CREATE TABLE IF NOT EXISTS meta (key VARCHAR, value VARCHAR)")
            version = int(self._noted("schema_version", "0"))
            if version > SCHEMA_VERSION:
                raise Unreachable(
                    f"{path} has schema {version}, this longpole knows {SCHEMA_VERSION}: upgrade it"
                )
            self._note(writer, "schema_version", str(SCHEMA_VERSION))
            for table in TABLES:
                extra = {_FIRST_START: "BIGINT"} if table is TRACES else {}
                _extend(writer, table.name, ddl(table) | extra)
            writer.execute(script())

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._write_lock:
            if self._is_closed:
                raise Unreachable("the store is closed")
            self._writer.execute("BEGIN TRANSACTION")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextmanager
    def _wanted(self, trace_ids: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._write_lock:
            self._writer.register("wanted", trace_numbers(trace_ids))
            try:
                yield self._writer
            finally:
                self._writer.unregister("wanted")

    def _delete(
        self, writer: duckdb.DuckDBPyConnection, table: str, trace_ids: Sequence[str]
    ) -> None:
        writer.register("wanted", trace_numbers(trace_ids))
        try:
            writer.execute(f"DELETE FROM {table} USING wanted WHERE {_qualified(table)}")  # noqa: S608
        finally:
            writer.unregister("wanted")

    def _note(self, writer: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
        updated = writer.execute("UPDATE meta SET value = $2 WHERE key = $1", [key, value])
        if updated.fetchall() == [(0,)]:
            writer.execute("INSERT INTO meta VALUES ($1, $2)", [key, value])

    def _noted(self, key: str, default: str) -> str:
        row = self._writer.execute("SELECT value FROM meta WHERE key = $1", [key]).fetchone()
        return str(row[0]) if row else default


def _connect(path: Path | None, *, is_read_only: bool, limits: Limits) -> duckdb.DuckDBPyConnection:
    """A locked-down database: no files but its own, no extensions, settings frozen."""
    if path is not None and not is_read_only:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        connection = duckdb.connect(
            str(path) if path is not None else ":memory:",
            read_only=is_read_only,
            config={
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                "checkpoint_threshold": "256MB",
                "memory_limit": limits.memory,
                "lock_configuration": "true",
            },
        )
    except duckdb.Error as error:
        if "lock" in str(error) or isinstance(error, duckdb.ConnectionException):
            raise StoreBusy(f"{path} is open elsewhere: {first_line(error)}") from error
        raise Unreachable(f"cannot open {path}: {first_line(error)}") from error
    if path is not None and not is_read_only:
        path.chmod(0o600)
    return connection


def _extend(writer: duckdb.DuckDBPyConnection, table: str, types: Mapping[str, str]) -> None:
    lines = ", ".join(f"{name} {sql_type}" for name, sql_type in types.items())
    writer.execute(f"CREATE TABLE IF NOT EXISTS {table} ({lines})")
    present = {row[0] for row in writer.execute(f"DESCRIBE {table}").fetchall()}
    for name, sql_type in types.items():
        if name not in present:
            writer.execute(f"ALTER TABLE {table} ADD COLUMN {name} {sql_type}")


def _insert(writer: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    writer.register("incoming", rows)
    try:
        writer.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")  # noqa: S608
    finally:
        writer.unregister("incoming")


def _insert_new(batch: Sequence[Span]) -> str:
    """INSERT of what is not there yet.

    A span sent twice has the same start both times, so only the stretches of time that the
    batch covers are searched; the store keeps rows near time order and skips the rest.
    """
    stretches: list[tuple[int, int]] = []
    for span in batch:  # sorted by start
        if stretches and span.start_ns - stretches[-1][1] <= _GAP_NS:
            stretches[-1] = (stretches[-1][0], span.start_ns)
        else:
            stretches.append((span.start_ns, span.start_ns))
    if len(stretches) > 64:
        stretches = [(stretches[0][0], stretches[-1][1])]
    where = " OR ".join(f"old.start_ns BETWEEN {low} AND {high}" for low, high in stretches)
    return (
        f"INSERT INTO {SPANS.name} BY NAME SELECT * FROM incoming new WHERE NOT EXISTS "  # noqa: S608
        f"(SELECT 1 FROM {SPANS.name} old WHERE ({where}) AND old.{TRACE_HI} = new.{TRACE_HI} "
        f"AND old.{TRACE_LO} = new.{TRACE_LO} AND old.span_id = new.span_id)"
    )


def _qualified(table: str) -> str:
    """The join condition of a table with ``wanted``."""
    return f"{table}.{TRACE_HI} = wanted.{TRACE_HI} AND {table}.{TRACE_LO} = wanted.{TRACE_LO}"


def _plain(table: pa.Table) -> pa.Table:
    """DuckDB sums integers to 128 bits; as 64-bit integers they are usable everywhere."""
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with suppress(pa.ArrowInvalid):  # does not fit: stays a decimal
                table = table.set_column(i, field.name, pc.cast(table[i], pa.int64()))
    return table
