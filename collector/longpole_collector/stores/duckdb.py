"""The store: a folder of day files, or memory, that this process owns.

DuckDB lets one process in, so the collector holds the files and everybody else asks it over
HTTP. One thread writes; each reader gets a cursor of its own and a read-only transaction, so
neither waits for the other. The place reached in the write-ahead log is stored in the same
transaction as the spans, and both reach the disk together when the store is saved: after a crash
the log is replayed from there, nothing twice and nothing left out.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, RLock, Timer
from time import sleep, time_ns
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import BadInput, Unreachable
from longpole.vocab import Span
from longpole_collector.stores.base import Params, Stream
from longpole_collector.stores.connection import Limits, connect, hold, plain_schema
from longpole_collector.stores.days import ROW_GROUP, Day, Days
from longpole_collector.stores.guard import check, first_line
from longpole_collector.stores.migrations import SINGLE_FILE, adopt, note, noted, widen
from longpole_collector.stores.narrow import Place, narrow
from longpole_collector.stores.schema import (
    SPANS,
    TRACE_HI,
    TRACE_LO,
    TRACES,
    matching,
    to_arrow,
)
from longpole_collector.stores.stale import mark
from longpole_collector.stores.views import script, views
from longpole_collector.wal import Position

_log = logging.getLogger("longpole.collector.store")
_BATCH_ROWS: Final = 10_000
_MAX_RESULT_BYTES: Final = 512 << 20
_ANYWHERE: Final = Place(-(2**63) + 1, 2**63 - 1, None)
_GAP_NS: Final = 60_000_000_000
_MAX_STRETCHES: Final = 64
_IS_BROKEN: Final = (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException)


class DuckStore:
    """Spans, roll-ups and the views over them.

    ``is_settled`` tells of a trace, by the halves of its id, whether its roll-up knows all of
    its spans; who computes the roll-ups sets it.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        is_read_only: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """Open or make the store.

        Args:
            folder: where the day files lie; ``None`` keeps everything in memory.
            is_read_only: several processes may read a folder that nobody writes.
            limits: bounds of one query.

        Raises:
            StoreBusy: another process has the folder open.
            Unreachable: a newer longpole wrote it.
        """
        if folder is not None and not is_read_only:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.is_settled: Callable[[int, int], bool] = lambda _hi, _lo: True
        self._is_read_only = is_read_only
        self._limits = limits or Limits()
        self._is_closed = False
        self._write_lock = RLock()
        self._reading: set[duckdb.DuckDBPyConnection] = set()
        self._lock = None if folder is None else hold(folder, is_read_only=is_read_only)
        self._connection = connect(folder, self._limits)
        try:
            self._writer = self._connection.cursor()
            self.days = Days(self._writer, folder, is_read_only=is_read_only)
            if folder is not None and not is_read_only and (folder / SINGLE_FILE).is_file():
                adopt(self._writer, folder, self.days)
            self._writer.execute(script())
        except BaseException:
            self._let_go()
            raise

    # --- reading --------------------------------------------------------------------------------
    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        with self.stream(query, params) as stream:
            return pa.Table.from_batches(stream.batches, stream.schema)

    @contextmanager
    def stream(self, query: str, params: Params = ()) -> Iterator[Stream]:
        """The answer batch by batch, under the same limits; errors may come at any batch.

        Raises:
            BadInput, Unreachable: as :meth:`sql`.
        """
        cursor = self.cursor()
        self._reading.add(cursor)
        has_expired = Event()

        def expire() -> None:
            has_expired.set()
            with suppress(duckdb.Error):  # it has just finished
                cursor.interrupt()

        timer = Timer(self._limits.timeout_s, expire)
        timer.daemon = True
        try:
            tree = check(cursor, query, views())
            timer.start()
            narrowed = narrow(query, tree, params, lambda hi, lo: self._place(cursor, hi, lo))
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            given = dict(params) if isinstance(params, Mapping) else list(params)
            reader = cursor.sql(narrowed, params=given or None).to_arrow_reader(_BATCH_ROWS)
            schema = plain_schema(reader.schema)
            yield Stream(schema, self._bounded(reader, schema))
        except duckdb.Error as error:
            if has_expired.is_set():
                limit = f"{self._limits.timeout_s:g} s (query_timeout_s)"
                raise BadInput(f"the query took longer than {limit}") from error
            if isinstance(error, _IS_BROKEN) and self._quarantine():
                broken = ", ".join(sorted(self.days.broken))
                raise BadInput(
                    f"{broken} cannot be read and is left out from now on: ask again"
                ) from error
            raise BadInput(first_line(error)) from error
        finally:
            timer.cancel()
            cursor.close()
            self._reading.discard(cursor)

    def close(self) -> None:
        """Write everything out, stop queries, let go of the files; twice is fine."""
        if not self._is_closed:
            self._save_last()
            self._is_closed = True
            while self._reading:
                for cursor in tuple(self._reading):
                    with suppress(duckdb.Error):  # it has just finished
                        cursor.interrupt()
                sleep(0.01)
            self._writer.close()
            self._let_go()

    def _bounded(self, reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
            try:
                yield batch.cast(schema)
            except pa.ArrowInvalid as error:
                raise BadInput(f"a sum beyond 64 bits: cast it to DOUBLE ({error})") from error

    def _place(self, cursor: duckdb.DuckDBPyConnection, hi: int, lo: int) -> Place:
        """Where a trace lies, if its roll-up knows; ids compare faster as numbers than as text."""
        if not self.is_settled(hi, lo):
            return _ANYWHERE
        rows = cursor.execute(
            f"SELECT first_start_ns, last_start_ns, day FROM {TRACES.name} "  # noqa: S608
            f"WHERE {TRACE_HI} = {hi} AND {TRACE_LO} = {lo}"
        ).fetchall()
        return Place._make(rows[0]) if rows and None not in rows[0] else _ANYWHERE

    def _save_last(self) -> None:
        try:
            if not self._is_read_only:
                self.save()
        except duckdb.Error as error:  # the log has what it has
            _log.error("the store cannot be saved: %s", error)

    def _let_go(self) -> None:
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)

    def _quarantine(self) -> bool:
        with self._write_lock:
            return not self._is_closed and self.days.quarantine()

    # --- writing --------------------------------------------------------------------------------
    def append(self, spans: Sequence[Span]) -> int:
        """Store spans; returns how many were new."""
        return int(self.insert(to_arrow(SPANS, spans)).num_rows)

    def insert(
        self,
        rows: pa.Table,
        stored: Position | None = None,
        full: Callable[[], object] | None = None,
    ) -> pa.Table:
        """Store rows of the span table; returns the new ones among them.

        A span counts as there already if one of the same trace id, span id and start is; within
        ``rows`` the first of two counts. ``stored`` is noted in the same transaction as the last
        of them. ``full`` is called when it is the best time to save: what it raises comes
        through, and then some of the rows are stored.
        """
        new = self._new(rows)
        if new.num_rows == 0 and stored is None:
            return new
        with self._write_lock:
            day = self._day_of(new)
            left = new
            while True:
                num = left.num_rows if full is None else day.room(left.num_rows)
                part, left = left.slice(0, num), left.slice(num)
                with self.transaction(day) as writer:
                    add_rows(writer, day, part)
                    if stored is not None and left.num_rows == 0:
                        note(writer, day.catalog, "stored", f"{stored.segment}:{stored.offset}")
                day.num_unsaved += num
                if full is not None and day.is_full and left.num_rows < ROW_GROUP:
                    full()
                if left.num_rows == 0:
                    return new

    def save(self) -> None:
        """Bring what was written to disk; until then it is lost when the process dies.

        Oldest file first: the place reached in the log lies in the latest, so after a crash in
        between the log is read from an earlier place, which stores nothing twice.

        Raises:
            duckdb.Error: the disk refused. The store is as it was when last saved.
        """
        with self._write_lock:
            self._open_writer()
            unsaved = [
                day
                for day in self.days
                if day.path is not None and day.generation != day.saved_generation
            ]
            for number, day in enumerate(unsaved):
                try:
                    self.days.save(day)
                except duckdb.Error:
                    # the later ones too: they hold places in the log beyond what this one has lost
                    self.days.reopen(unsaved[number:])
                    raise

    def num_unsaved(self) -> int:
        """Spans that are lost if the process dies now."""
        return sum(day.num_unsaved for day in self.days)

    def stored(self) -> Position:
        """How far the write-ahead log is in the store."""
        with self._write_lock:
            self.days.restore()
        found = [self.noted(day, "stored", "0:0").partition(":") for day in self.days]
        places = [Position(int(segment), int(offset)) for segment, _, offset in found]
        return max(places, default=Position(0, 0))

    def _new(self, rows: pa.Table) -> pa.Table:
        """The rows whose spans are not stored yet, each once."""
        if rows.num_rows == 0:
            return rows
        hi, lo, span_id = (
            rows[name].to_numpy().astype(np.uint64) for name in (TRACE_HI, TRACE_LO, "span_id")
        )
        mixed = hi * np.uint64(0x9E3779B97F4A7C15) ^ lo ^ span_id * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed.sort()
        if np.any(mixed[1:] == mixed[:-1]):  # very likely the same span twice
            ids = np.stack([hi, lo, span_id], axis=1)
            _, first = np.unique(ids, axis=0, return_index=True)
            rows = rows.take(np.sort(first))
        with self.writing(incoming=rows) as writer:
            old = writer.sql(_search(rows["start_ns"].to_numpy())).to_arrow_table()
        if old.num_rows == 0:
            return rows
        return matching(rows, old, is_in=False)

    def _day_of(self, rows: pa.Table) -> Day:
        """The file that takes these rows; without any, the latest."""
        if rows.num_rows:
            return self.days.of(pc.max(rows["received_ns"]).as_py())
        return self.latest_day()

    # --- inside ---------------------------------------------------------------------------------
    @contextmanager
    def transaction(self, day: Day) -> Iterator[duckdb.DuckDBPyConnection]:
        """Write into one file, wholly or not at all."""
        with self._write_lock:
            writer = self._open_writer()
            writer.execute("BEGIN TRANSACTION")
            try:
                yield writer
            except BaseException:
                writer.execute("ROLLBACK")
                raise
            writer.execute("COMMIT")
            day.generation += 1

    @contextmanager
    def writing(self, **tables: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
        """The writing cursor, alone, with Arrow tables under these names."""
        with self._write_lock, registered(self._open_writer(), **tables) as writer:
            yield writer

    @contextmanager
    def exclusive(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The writing cursor while nobody else writes or changes the set of files."""
        with self._write_lock:
            yield self._open_writer()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one's own long reading or copying; the caller closes it.

        Raises:
            Unreachable: the store is closed.
        """
        try:
            if not self._is_closed:
                return self._connection.cursor()
        except duckdb.ConnectionException:  # closed just now
            pass
        raise Unreachable("the store is closed")

    def latest_day(self) -> Day:
        """The file that is being filled."""
        latest = [day for day in self.days if not day.is_sorted]
        return latest[-1] if latest else self.days.of(time_ns())

    def noted(self, day: Day, key: str, default: str) -> str:
        """A fact written down in a file."""
        with self._write_lock:
            return noted(self._open_writer(), day.catalog, key, default)

    def _open_writer(self) -> duckdb.DuckDBPyConnection:
        if self._is_closed:
            raise Unreachable("the store is closed")
        return self._writer


@contextmanager
def registered(
    writer: duckdb.DuckDBPyConnection, **tables: pa.Table
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Arrow tables as views of one cursor."""
    for name, table in tables.items():
        writer.register(name, table)
    try:
        yield writer
    finally:
        for name in tables:
            with suppress(duckdb.TransactionException):  # aborted: it goes at the next rollback
                writer.unregister(name)


def add_rows(writer: duckdb.DuckDBPyConnection, day: Day, rows: pa.Table) -> None:
    """Insert rows of the span table into a file."""
    if rows.num_rows:
        columns = ", ".join(widen(writer, day.catalog, rows))
        with registered(writer, incoming=rows):
            writer.execute(
                f"INSERT INTO {day.catalog}.{SPANS.name} BY NAME "  # noqa: S608
                f"SELECT {columns}, is_model_call::TINYINT AS call_role FROM incoming"
            )
        mark(writer, day.catalog, [rows.filter(rows["is_model_call"])["start_ns"]])


def _search(starts_ns: "np.ndarray[Any, np.dtype[np.int64]]") -> str:
    """SELECT of the ids in ``incoming`` that are stored.

    A span sent twice has the same start both times, so only the stretches of time that the
    batch covers are searched; the store keeps rows near time order and skips the rest.
    """
    starts = np.sort(starts_ns)
    breaks = np.flatnonzero(np.diff(starts) > _GAP_NS)
    lows = starts[np.concatenate(([0], breaks + 1))]
    highs = starts[np.concatenate((breaks, [len(starts) - 1]))]
    if len(lows) > _MAX_STRETCHES:
        lows, highs = lows[:1], highs[-1:]
    where = " OR ".join(
        f"start_ns BETWEEN {low} AND {high}" for low, high in zip(lows, highs, strict=True)
    )
    keys = f"{TRACE_HI}, {TRACE_LO}, span_id"
    return f"SELECT {keys} FROM {SPANS.name} SEMI JOIN incoming USING ({keys}) WHERE {where}"  # noqa: S608
