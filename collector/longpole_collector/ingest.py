"""The whole write path on one screen.

    door -> accept: decompress, check, refuse what is bad  (door's thread)
         -> log: body as received, group fdatasync          (wal)
         -> the sender gets its answer
         -> batch -> decode -> store -> roll-up              (ingest thread)

After a restart the ingest thread first reads back what the log has and the store has not; until
then the doors say 503.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple, TypeVar

import duckdb
import numpy as np

from longpole.errors import StoreBusy
from longpole_collector import bulk
from longpole_collector.batch import Batches, Budget, GroupCommit, Item
from longpole_collector.decode import Compression, Format, Received, check, inflate
from longpole_collector.decode.logs import parse_logs
from longpole_collector.pressure import Pressure
from longpole_collector.replay import Lost, replay
from longpole_collector.stores.guard import first_line
from longpole_collector.wal import Frame, Position, Signal, Wal
from longpole_collector.writer import Writer

WAL_FOLDER: Final = "wal"
BATCH_SPANS: Final = 65_536
_BATCH_AGE_S: Final = 0.2
_LOADED_AGE_S: Final = 0.5
_TICK_S: Final = 0.2
_SETTLE_TRACES: Final = 4000
"""Rolled up in one go: about a third of a second, in which nothing is stored."""
_MANY_TRACES: Final = 20_000
_PATIENCE_S: Final = 60.0
"""While storing takes all there is, roll-ups wait about this long at most."""
_FAREWELL_S: Final = 10.0
"""A collector that stops rolls up for so long; the rest is due again when it starts."""
_SAVE_S: Final = 20.0
"""Saved at least this often while there is something to save; the log keeps what is not."""
_SPAN_BYTES: Final = 1000
"""Room on the disk that an unsaved span may need."""
_INLINE_BYTES: Final = 512 << 10
_COLD_SPANS: Final = 4096
"""A batch while the compiled decoder is being loaded: a moment later one is read much faster."""
_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_T = TypeVar("_T")
_NOWHERE: Final = Position(0, 0)

_log = logging.getLogger("longpole.collector.ingest")


class NotReady(StoreBusy):
    """The collector starts up or shuts down, or its disk refuses; try again."""


class _Stopped(Exception):
    """The collector closes before the store works again; the log has what is not stored."""


class _Unsaved(Exception):
    """The store could not be saved."""


class Receipt(NamedTuple):
    """The answer to a request: spans taken, spans refused, and why the first of these was.

    Of a logs request: events taken, records dropped, and why.
    """

    num_accepted: int
    num_rejected: int
    reason: str


class Ingest:
    """Takes request bodies and brings their spans into the store."""

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        *,
        max_body_bytes: int,
        budget: Budget,
    ) -> None:
        """Open the log.

        Args:
            folder: data folder; the log lies in it.
            writer: the way into the store.
            max_body_bytes: largest body, before and after decompression.
            budget: the decompressed bytes that may wait for the store.
        """
        self.health = writer.health
        self.budget = budget
        self._writer = writer
        self._max_body_bytes = max_body_bytes
        self._stored = writer.stored()
        self._is_changed = False
        self._saved_s = time.monotonic()
        self._folder = folder
        self._saved = self._stored
        self._is_whole = False
        self._caught_up: Position | None = None
        self._is_stuck = False
        self._wal = Wal(folder / WAL_FOLDER, self._stored)
        self._batches = Batches(_BATCH_AGE_S, _LOADED_AGE_S, BATCH_SPANS)
        self._commits = GroupCommit(self._wal, self._deliver, self._forget)
        self._parsers = ThreadPoolExecutor(2, "longpole-parse")
        self._is_ready = Event()
        self._is_closing = False
        self._num_queued = 0
        self._num_done = 0
        self._pressure = Pressure(self.budget)
        self._thread = Thread(target=self._run, name="longpole-ingest", daemon=True)
        self.health.gauge("queue_spans", lambda: self._num_queued - self._num_done)

    @property
    def is_ready(self) -> bool:
        """Whether bodies are taken: replay is done, the store works, shutdown has not begun."""
        is_working = self._thread.is_alive() and not self._is_closing and not self._is_stuck
        return self._is_ready.is_set() and is_working

    def start(self) -> None:
        """Start the ingest thread; it replays first."""
        self._thread.start()

    async def accept(self, body: bytes, form: Format, compression: Compression) -> Receipt:
        """Take one body of spans; its good spans are on disk when this returns.

        Raises:
            TooLarge: larger than the limit, as sent or decompressed.
            BadInput: not OTLP, or broken compression.
            Full: too much waits to be stored.
            NotReady: starting, stopping, or the disk refuses.
        """
        receipt = await self._accept(Signal.TRACES, body, form, compression)
        self.health.add("requests_received")
        if receipt.num_rejected:
            self.health.add("spans_rejected", num=receipt.num_rejected)
        if receipt.num_accepted:
            self.health.add("spans_received", num=receipt.num_accepted)
        return receipt

    async def accept_logs(self, body: bytes, form: Format, compression: Compression) -> Receipt:
        """Take one body of log records; its GenAI events are on disk when this returns.

        Raises:
            TooLarge, BadInput, Full, NotReady: as :meth:`accept`.
        """
        receipt = await self._accept(Signal.LOGS, body, form, compression)
        if receipt.num_accepted:
            self.health.add("events_received", num=receipt.num_accepted)
        return receipt

    async def close(self) -> None:
        """Stop taking bodies, bring what was taken into the store, roll up, end the thread."""
        self._is_closing = True
        await self._commits.close()
        self._batches.close()
        await asyncio.to_thread(self._thread.join)
        self._parsers.shutdown()
        self._wal.close(self._saved)

    async def _accept(
        self, signal: Signal, body: bytes, form: Format, compression: Compression
    ) -> Receipt:
        if not self.is_ready:
            raise NotReady("the collector is not ready: try again")
        self.budget.take(len(body))
        taken = len(body)
        try:
            if len(body) <= _INLINE_BYTES and signal is Signal.TRACES:
                plain, receipt = self._look(signal, body, form, compression)
            else:
                loop = asyncio.get_running_loop()
                plain, receipt = await loop.run_in_executor(
                    self._parsers, self._look, signal, body, form, compression
                )
            if receipt.num_accepted:
                if len(plain) > taken:
                    self.budget.take(len(plain) - taken)
                    taken = len(plain)
                now_ns = time.time_ns()
                received = Received(plain, form, now_ns)
                item = Item(signal, received, receipt.num_accepted, taken, _NOWHERE)
                taken = 0  # whoever has the item gives it back, also if the sender goes away
                await self._commits.commit(Frame(form, compression, now_ns, body, signal), item)
            return receipt
        except OSError as error:
            _log.error("the log cannot be written: %s", error)
            raise NotReady(f"the log cannot be written: {error}") from error
        finally:
            self.budget.give(taken)

    def _look(
        self, signal: Signal, body: bytes, form: Format, compression: Compression
    ) -> tuple[bytes, Receipt]:
        plain = inflate(body, compression, self._max_body_bytes)
        if signal is Signal.TRACES:
            return plain, Receipt._make(check(plain, form))
        logs = parse_logs(plain, form)
        return plain, Receipt(len(logs.events), logs.num_dropped, logs.reason)

    def _deliver(self, item: Item) -> None:
        self._num_queued += item.num_records
        self._pressure.note_door()
        self._batches.put(item)

    def _forget(self, item: Item) -> None:
        self.budget.give(item.num_bytes)

    # --- the ingest thread ----------------------------------------------------------------------
    def _run(self) -> None:
        try:
            self._insist(lambda: None)
            self._is_ready.set()
            num_waiting = self._settle()
            while (batch := self._next(num_waiting)) is not None:
                if batch:
                    self._store(batch)
                num_waiting = self._settle()
                if self._is_save_due():
                    self._insist(self._save)
            self._settle(everything=True)
            self._insist(self._save)
        except _Stopped:
            _log.error("stopped while the store does not work: the rest is in the log")

    def _next(self, num_waiting: int) -> Sequence[Item] | None:
        """The next batch."""
        is_unsaved = self._is_changed or self._writer.num_unsaved()
        wait_s = _TICK_S if num_waiting else _SAVE_S if is_unsaved else None
        return self._batches.next(wait_s, BATCH_SPANS if bulk.is_ready() else _COLD_SPANS)

    def _insist(self, step: Callable[[], _T]) -> _T:
        """Do it, again and again until it is done: what was acknowledged is never passed over.

        Raises:
            _Stopped: the collector closes first.
        """
        wait_s = _RETRY_S
        is_short = False
        while True:
            try:
                with self._writer.alone() if is_short else nullcontext():
                    if not self._is_whole:
                        self._catch_up()
                    result = step()
            except Exception as error:
                if self._is_closing:
                    raise _Stopped from error
                if not is_short and _is_memory(error):
                    _log.warning("memory is short, queries make room: %s", first_line(error))
                    is_short = True
                    continue
                message = "the store fails, trying again (all is in the log): %s"
                _log.error(message, error, exc_info=not self._is_stuck)
                self._is_stuck = True
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _MAX_RETRY_S)
            else:
                self._is_stuck = False
                return result

    def _catch_up(self) -> None:
        """Read from the log what the store has not, or has lost with a save that failed."""
        if self._is_ready.is_set():
            lost = Lost(self._caught_up or self._saved, self._stored, self._note_caught_up)
            replay(self._wal, self._writer, lost)
        else:
            self._stored = self._saved = replay(self._wal, self._writer)
        self._is_whole = True

    def _note_caught_up(self, place: Position) -> None:
        self._caught_up = place

    def _store(self, batch: Sequence[Item]) -> None:
        traces = [item.received for item in batch if item.signal is Signal.TRACES]
        logs = [item.received for item in batch if item.signal is Signal.LOGS]

        rows = self._insist(lambda: self._writer.read(traces))

        def write() -> None:
            if logs:
                self._writer.write_events(logs)
            self._writer.write(rows, batch[-1].position, self._save_in_passing)

        self._insist(write)
        self._stored = batch[-1].position
        self._is_changed |= bool(logs)
        self._num_done += sum(item.num_records for item in batch)
        self.budget.give(sum(item.num_bytes for item in batch))
        spans_of = [item.num_records for item in batch if item.signal is Signal.TRACES]
        arrivals = np.repeat([each.received_ns for each in traces], spans_of)
        self.health.observe_many("freshness_seconds", (time.time_ns() - arrivals) / 1e9)

    def _settle(self, *, everything: bool = False) -> int:
        """Roll up some of what is due; returns how many traces are left waiting.

        Under load spans come first, until too many traces wait or one has waited for long.
        """
        try:
            while True:
                before = self._writer.num_dirty()
                is_late = self._writer.is_behind() or self._writer.waits_s() > _PATIENCE_S
                if self._pressure.is_high() and not (is_late or everything):
                    return before
                num = _MANY_TRACES if is_late else _SETTLE_TRACES
                since_s = time.thread_time()
                for_s = _FAREWELL_S if everything else inf
                waiting = self._roll_up(num, everything=everything, for_s=for_s)
                self._pressure.leave_out(time.thread_time() - since_s)
                self._is_changed |= waiting != before
                is_done = waiting in (0, before) or everything or not self._batches.is_empty()
                if is_done or self._is_save_due():
                    return waiting
        except duckdb.Error as error:  # the traces stay dirty, also over a restart
            _log.error("cannot store roll-ups: %s", error)
            return 1

    def _roll_up(self, num: int, *, everything: bool, for_s: float) -> int:
        try:
            return self._writer.settle(num, everything=everything, for_s=for_s)
        except duckdb.OutOfMemoryException:
            with self._writer.alone():
                return self._writer.settle(num, everything=everything, for_s=for_s)

    def _is_save_due(self) -> bool:
        """Whether what is not saved is old, or fills the memory."""
        is_long = time.monotonic() - self._saved_s > _SAVE_S
        is_unsaved = self._is_changed or self._writer.num_unsaved() > 0
        return (is_long and is_unsaved) or self._writer.is_heavy()

    def _save(self, *, at_once: bool = True) -> None:
        """Bring the store to disk, if there is room and no query is in the way.

        Args:
            at_once: queries make room.

        Raises:
            _Unsaved: the disk refused; the store has lost what was not saved.
        """
        if at_once:
            self._saved_s = time.monotonic()
        num_spans = self._writer.num_unsaved()
        if shutil.disk_usage(self._folder).free < num_spans * _SPAN_BYTES:
            _log.error("no room to save %d spans: they stay in the log", num_spans)
            return
        try:
            self._writer.save(at_once=at_once)
        except StoreBusy as error:
            if at_once:
                _log.warning("%d spans stay in the log for now: %s", num_spans, error)
            return
        except duckdb.Error as error:
            self._is_whole, self._caught_up = False, None
            raise _Unsaved(str(error)) from error
        self._saved_s = time.monotonic()
        self._saved = self._stored
        self._wal.forget(self._saved)
        self._is_changed = False

    def _save_in_passing(self) -> None:
        """Save now that it writes the least, unless a query is in the way."""
        self._save(at_once=False)


def _is_memory(error: Exception) -> bool:
    """Whether the database had not enough memory."""
    cause = error.__cause__ or error
    is_at_commit = isinstance(cause, duckdb.TransactionException) and "block" in str(cause)
    return is_at_commit or isinstance(cause, duckdb.OutOfMemoryException)
