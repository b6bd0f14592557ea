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
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock
from time import time_ns
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable
from longpole.vocab import Span
from longpole_collector.pricing import Price, configured
from longpole_collector.stores.base import Params, Stream
from longpole_collector.stores.connection import Limits, connect, hold, plain_schema, registered
from longpole_collector.stores.days import ROW_GROUP, Day, Days
from longpole_collector.stores.guard import check, first_line
from longpole_collector.stores.migrations import SINGLE_FILE, adopt, note, noted, widen
from longpole_collector.stores.parts import Parts, search
from longpole_collector.stores.readers import Readers, Turn, bounded
from longpole_collector.stores.schema import SPANS, TRACE_HI, TRACE_LO, matching, to_arrow
from longpole_collector.stores.stale import mark
from longpole_collector.stores.views import script, views
from longpole_collector.wal import Position

_log = logging.getLogger("longpole.collector.store")
_BATCH_ROWS: Final = 10_000
_MAX_UNSAVED_TRACES: Final = 2 * ROW_GROUP
"""Each takes 0.7 kB of memory until it is saved."""
_MAX_UNSAVED: Final = 8 * ROW_GROUP  # spans; they take memory that nothing else can have
_PATIENCE_S: Final = 1.0
_BROKEN: Final = (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException)
_BROKEN_TEXTS: Final = ("IO Error", "INTERNAL Error", "Serialization Error")  # as Arrow says it


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
        price: Price | None = None,
    ) -> None:
        """Open or make the store.

        Args:
            folder: where the day files lie; ``None`` keeps everything in memory.
            is_read_only: several processes may read a folder that nobody writes.
            limits: bounds of one query.
            price: prices calls; ``None`` is what is configured now.

        Raises:
            StoreBusy: another process has the folder open.
            Unreachable: a newer longpole wrote it.
            UsageError: the configured prices cannot be used.
        """
        self.price = price or configured()
        if folder is not None and not is_read_only:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.is_settled: Callable[[int, int], bool] = lambda _hi, _lo: True
        self._is_read_only = is_read_only
        self._limits = limits or Limits()
        self._is_closed = False
        self._write_lock = RLock()
        self._untold: list[pa.Table] = []  # stored, but by a call that failed later
        self._readers = Readers(self._limits.timeout_s, 2 * self._limits.threads)  # one a core
        self._lock = None if folder is None else hold(folder, is_read_only=is_read_only)
        self._connection = connect(folder, self._limits, self.price)
        try:
            self._writer = self._connection.cursor()
            self.days = Days(self._writer, folder, is_read_only=is_read_only)
            if folder is not None and not is_read_only and (folder / SINGLE_FILE).is_file():
                adopt(self._writer, folder, self.days)
                self.days.measure()
            self._writer.execute(script())
            self._parts = Parts(self.days, self._is_settled)
            self._saved_place = self.stored()
        except BaseException:
            self._let_go()
            raise

    # --- reading --------------------------------------------------------------------------------
    def sql(self, query: str, params: Params = (), timeout_s: float | None = None) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        with self.stream(query, params, timeout_s) as stream:
            return pa.Table.from_batches(stream.batches, stream.schema)

    @contextmanager
    def stream(
        self, query: str, params: Params = (), timeout_s: float | None = None
    ) -> Iterator[Stream]:
        """The answer batch by batch, under the same limits; errors may come at any batch.

        A query that had to make room for storing before its answer began is run again, and one
        for which the memory did not suffice once more, alone. ``timeout_s`` bounds it where that
        is less than the store's own limit.

        Raises:
            BadInput, Unreachable: as :meth:`sql`.
            StoreBusy: storing, or a large query, needed the memory meanwhile.
        """
        reader: pa.RecordBatchReader | None = None
        run = self._readers.turn
        while reader is None:
            with run(self.cursor(), timeout_s) as turn:
                try:
                    reader = self._asked(turn.cursor, query, params).to_arrow_reader(_BATCH_ROWS)
                    with closing(reader):  # what it has not given yet holds up saving
                        schema = plain_schema(reader.schema)
                        told = partial(self._told, turn)
                        yield Stream(schema, bounded(reader, schema, self._limits, told))
                except duckdb.Error as error:
                    is_short = isinstance(error, duckdb.OutOfMemoryException)
                    is_lone = run == self._readers.lone_turn
                    is_over = not (turn.aside_for or (is_short and not is_lone))
                    if reader is not None or is_over:
                        raise self._told(turn, error) from error
                    run = self._readers.lone_turn if is_short else run

    def close(self) -> None:
        """Write everything out, stop queries, let go of the files; twice is fine."""
        if not self._is_closed:
            self._save_last()
            self._is_closed = True
            self._readers.end()
            self._writer.close()
            self._let_go()

    def _asked(
        self, cursor: duckdb.DuckDBPyConnection, query: str, params: Params
    ) -> duckdb.DuckDBPyRelation:
        """The query in a transaction that reads, over the files that it can need."""
        tree = check(cursor, query, views())
        given = dict(params) if isinstance(params, Mapping) else list(params)
        try:
            narrowed = self._parts.narrowed(cursor, query, tree, params)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return cursor.sql(narrowed, params=given or None)
        except (duckdb.CatalogException, duckdb.BinderException):  # perhaps a file went just now
            with suppress(duckdb.TransactionException):  # it had not begun
                cursor.execute("ROLLBACK")
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return cursor.sql(query, params=given or None)

    def _told(self, turn: Turn, error: Exception) -> LongpoleError:
        """What a reader is told of an error of the database."""
        if turn.aside_for:
            return StoreBusy(f"{turn.aside_for} needed the memory: try again")
        if turn.has_expired:
            is_own = turn.timeout_s == self._limits.timeout_s
            name = " (query_timeout_s)" if is_own else ""
            return BadInput(f"the query took longer than {turn.timeout_s:g} s{name}")
        is_broken = isinstance(error, _BROKEN) or str(error).startswith(_BROKEN_TEXTS)
        if is_broken and self._quarantine():
            broken = ", ".join(sorted(self.days.broken))
            return BadInput(f"{broken} cannot be read and is left out from now on: ask again")
        return BadInput(first_line(error))

    def _is_settled(self, hi: int, lo: int) -> bool:
        return self.is_settled(hi, lo)

    def _save_last(self) -> None:
        try:
            if not self._is_read_only:
                self.save()
        except (duckdb.Error, StoreBusy) as error:  # the log has what it has
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
        through. If not all could be stored, the next call returns what was with its own.
        """
        left = self._new(rows)
        if left.num_rows == 0 and stored is None and not self._untold:
            return left
        with self._write_lock:
            day = self._day_of(left)
            while True:
                num = left.num_rows if full is None else day.room(left.num_rows)
                part, left = left.slice(0, num), left.slice(num)
                with self.transaction(day) as writer:
                    add_rows(writer, day, part)
                    if stored is not None and left.num_rows == 0:
                        note(writer, day.catalog, "stored", f"{stored.segment}:{stored.offset}")
                day.num_unsaved += num
                self._untold.append(part)
                if full is not None and day.is_full and left.num_rows < ROW_GROUP:
                    full()
                if left.num_rows == 0:
                    told, self._untold = self._untold, []
                    return pa.concat_tables(told, promote_options="default")

    def save(self, *, at_once: bool = True) -> None:
        """Bring what was written to disk; until then it is lost when the process dies.

        A query that began before a roll-up was replaced is in the way. ``at_once`` gives such
        queries a second, then sets them aside.

        The place reached in the log is told by the last of several files alone, so after a crash
        in between the log is read from an earlier place, which stores nothing twice.

        Raises:
            StoreBusy: queries are in the way. The store has what it had, unsaved.
            duckdb.Error: the disk refused. The store is as it was when last saved.
        """
        with self._write_lock:
            self._open_writer()
            unsaved = [day for day in self.days if day.is_unsaved]
            place = self.stored()
            if len(unsaved) > 1:
                for day in unsaved:
                    self._note_place(day, place if day is unsaved[-1] else self._saved_place)
            for number, day in enumerate(unsaved):
                try:
                    self._save(day, at_once=at_once)
                except duckdb.TransactionException as error:
                    raise StoreBusy("queries are in the way of saving: try again") from error
                except duckdb.Error:
                    # the later ones too: they hold places in the log beyond what this one has lost,
                    # and letting go of a file may save it
                    for left in unsaved[number:]:
                        with suppress(duckdb.Error):
                            self._note_place(left, self._saved_place)
                    self._untold.clear()
                    self.days.reopen(unsaved[number:])
                    raise
            self._saved_place = place

    def _save(self, day: Day, *, at_once: bool) -> None:
        try:
            self.days.save(day)
        except duckdb.TransactionException:
            if not at_once:
                raise
            with self._readers.aside(_PATIENCE_S):
                self.days.save(day)

    def num_unsaved(self) -> int:
        """Spans that are lost if the process dies now."""
        return sum(day.num_unsaved for day in self.days)

    def is_heavy(self) -> bool:
        """Whether so much is not saved that it fills the memory."""
        num_traces = sum(day.num_unsaved_traces for day in self.days)
        return num_traces > _MAX_UNSAVED_TRACES or self.num_unsaved() > _MAX_UNSAVED

    def stored(self) -> Position:
        """How far the write-ahead log is in the store."""
        with self._write_lock:
            self.days.restore()
        found = [self.noted(day, "stored", "0:0").partition(":") for day in self.days]
        places = [Position(int(segment), int(offset)) for segment, _, offset in found]
        return max(places, default=Position(0, 0))

    def _note_place(self, day: Day, place: Position) -> None:
        with self.transaction(day) as writer:
            note(writer, day.catalog, "stored", f"{place.segment}:{place.offset}")

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
            old = writer.sql(search(rows["start_ns"].to_numpy())).to_arrow_table()
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
    def alone(self) -> Iterator[None]:
        """With all of the database's memory for writing: queries are set aside meanwhile."""
        with self._write_lock, self._readers.aside():
            yield

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


def add_rows(writer: duckdb.DuckDBPyConnection, day: Day, rows: pa.Table) -> None:
    """Insert rows of the span table into a file."""
    if rows.num_rows:
        day.extent.widen([rows["start_ns"]])
        columns = ", ".join(widen(writer, day.catalog, rows))
        with registered(writer, incoming=rows):
            writer.execute(
                f"INSERT INTO {day.catalog}.{SPANS.name} BY NAME "  # noqa: S608
                f"SELECT {columns}, is_model_call::TINYINT AS call_role FROM incoming"
            )
        mark(writer, day.catalog, [rows["start_ns"].filter(rows["is_model_call"])])
