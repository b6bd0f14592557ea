"""The queries that run on one database: bounded in time, aside while storing needs the memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Event, Lock, Timer
from time import monotonic, sleep
from typing import Final

import duckdb
import pyarrow as pa

from longpole.errors import BadInput, LongpoleError, StoreBusy
from longpole_collector.stores.connection import Limits

_MAX_RESULT_BYTES: Final = 512 << 20
_POLL_S: Final = 0.01
_ASIDE_S: Final = 5.0
"""So long at most until the others are gone: one whose reader fetches slowly keeps what it has."""


class Turn:
    """One query.

    Attributes:
        cursor: what it runs on.
        timeout_s: what bounds it.
        has_expired: whether it was broken off for taking too long.
        aside_for: what needed the memory, for which it was broken off.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, timeout_s: float) -> None:
        self.cursor = cursor
        self.timeout_s = timeout_s
        self.has_expired = False
        self.aside_for: str | None = None

    def expire(self) -> None:
        """Break it off: its time is over."""
        self.has_expired = True
        self.interrupt()

    def interrupt(self) -> None:
        """Break it off, unless it has just finished."""
        with suppress(duckdb.Error):
            self.cursor.interrupt()


class Readers:
    """Knows every query that runs; usable from any thread."""

    def __init__(self, timeout_s: float, num_at_once: int) -> None:
        """No more than ``num_at_once`` run at a time, none longer than ``timeout_s``."""
        self.timeout_s = timeout_s
        self._places = BoundedSemaphore(num_at_once)
        self._running: set[Turn] = set()
        self._has_room = Event()
        self._has_room.set()
        self._num_asides = 0
        self._count = Lock()
        self._lone = Lock()

    @contextmanager
    def lone_turn(
        self, cursor: duckdb.DuckDBPyConnection, timeout_s: float | None = None
    ) -> Iterator[Turn]:
        """As :meth:`turn`, while no other query runs: those that do are waited for."""
        with self._lone, self.aside(self.timeout_s, "a large query"):
            yield from self._turn(cursor, timeout_s)

    @contextmanager
    def turn(
        self, cursor: duckdb.DuckDBPyConnection, timeout_s: float | None = None
    ) -> Iterator[Turn]:
        """Run a query of this cursor, which is closed at the end.

        Args:
            cursor: what it runs on.
            timeout_s: bounds it where that is less than what bounds each.

        Raises:
            StoreBusy: others run, or need the memory, for as long as a query may take.
        """
        if not self._places.acquire(timeout=self.timeout_s):
            cursor.close()
            raise StoreBusy("other queries run for long: try again")
        try:
            if not self._has_room.wait(self.timeout_s):
                cursor.close()
                raise StoreBusy("the memory is needed for something else for long: try again")
            yield from self._turn(cursor, timeout_s)
        finally:
            self._places.release()

    @contextmanager
    def aside(self, patience_s: float = 0.0, needed_for: str = "storing") -> Iterator[None]:
        """Break off what still runs after ``patience_s``; what comes waits until this is over."""
        with self._count:
            self._num_asides += 1
            self._has_room.clear()
        try:
            end_s = monotonic() + patience_s
            while self._running and monotonic() < end_s:
                sleep(_POLL_S)
            end_s = monotonic() + _ASIDE_S
            while self._running and monotonic() < end_s:
                for turn in tuple(self._running):
                    turn.aside_for = needed_for
                    turn.interrupt()
                sleep(_POLL_S)
            yield
        finally:
            with self._count:
                self._num_asides -= 1
                if not self._num_asides:
                    self._has_room.set()

    def end(self) -> None:
        """Break off what runs, until nothing does."""
        while self._running:
            for turn in tuple(self._running):
                turn.interrupt()
            sleep(_POLL_S)

    def _turn(self, cursor: duckdb.DuckDBPyConnection, timeout_s: float | None) -> Iterator[Turn]:
        turn = Turn(cursor, min(timeout_s or self.timeout_s, self.timeout_s))
        timer = Timer(turn.timeout_s, turn.expire)
        timer.daemon = True
        self._running.add(turn)
        try:
            timer.start()
            yield turn
        finally:
            timer.cancel()
            cursor.close()
            self._running.discard(turn)


def bounded(
    reader: pa.RecordBatchReader,
    schema: pa.Schema,
    limits: Limits,
    told: Callable[[Exception], LongpoleError],
) -> Iterator[pa.RecordBatch]:
    """The batches of an answer in its schema, as long as it keeps to the limits.

    Args:
        reader: the database's.
        schema: with types that are usable everywhere.
        limits: of one query.
        told: what a reader is told of an error of the database.

    Raises:
        LongpoleError: what ``told`` says, or the answer is too large.
    """
    num_rows = num_bytes = 0
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except OSError as error:  # what the database raises comes through Arrow like this
            raise told(error) from error
        num_rows += batch.num_rows
        num_bytes += batch.nbytes
        if num_rows > limits.max_rows:
            raise BadInput(
                f"more than {limits.max_rows} rows (query_rows): "
                "aggregate, or narrow the query with WHERE or LIMIT"
            )
        if num_bytes > _MAX_RESULT_BYTES:
            raise BadInput(f"the result is larger than {_MAX_RESULT_BYTES >> 20} MiB")
        try:
            yield batch.cast(schema)
        except pa.ArrowInvalid as error:
            raise BadInput(f"a sum beyond 64 bits: cast it to DOUBLE ({error})") from error
