"""The whole write path on one screen.

    door -> accept: decompress, check, refuse what is bad  (door's thread)
         -> log: body as received, group fdatasync          (wal)
         -> the sender gets its answer
         -> batch -> decode -> store -> roll-up              (ingest thread)

After a restart the ingest thread first reads back what the log has and the store has not; until
then the doors say 503. Where the store is far away (:mod:`longpole_collector.far`) they are open
at once, and stay so while it does not answer and the log has room.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Final, TypeVar

import duckdb
import numpy as np

from longpole.errors import StoreBusy, Unreachable
from longpole_collector import bulk
from longpole_collector.batch import Budget, GroupCommit, Item
from longpole_collector.decode import Compression, Format, Received, check, inflate
from longpole_collector.decode.logs import parse_logs
from longpole_collector.pressure import Pressure
from longpole_collector.putting import Putter
from longpole_collector.replay import Lost, replay
from longpole_collector.signals import Receipt
from longpole_collector.stores.guard import first_line
from longpole_collector.waiting import BATCH_SPANS, Waiting, segment_bytes
from longpole_collector.wal import Frame, Position, Signal, Wal
from longpole_collector.writer import Writer

WAL_FOLDER: Final = "wal"
OUTBOX_FOLDER: Final = "outbox"
"""The log where the store is far away: nobody takes it for a local store's."""
UNDECIDED_FOLDER: Final = "undecided"
"""What waits there for a decision of sampling, and for a store that is far away."""
_TICK_S: Final = 0.2
_SETTLE_TRACES: Final = 4000
"""Rolled up in one go: about a third of a second, in which nothing is stored."""
_MANY_TRACES: Final = 20_000
_REST_S: Final = 0.5
"""Between roll-ups of all that is due: a few traces each time would take a third of a core."""
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
_MAX_FAR_RETRY_S: Final = 5.0
_NO_EVENTS: Final = "only the local store joins events of log records to their spans"
_T = TypeVar("_T")
_NOWHERE: Final = Position(0, 0)

_log = logging.getLogger("longpole.collector.ingest")


class NotReady(StoreBusy):
    """The collector starts up or shuts down, or its disk refuses; try again."""


class _Stopped(Exception):
    """The collector closes before the store works again; the log has what is not stored."""


class _Unsaved(Exception):
    """The store could not be saved."""


class Ingest:
    """Takes request bodies and brings their spans into the store."""

    def __init__(
        self,
        folder: Path,
        writer: Putter,
        *,
        max_body_bytes: int,
        budget: Budget,
        max_log_bytes: int | None = None,
    ) -> None:
        """Open the log.

        Args:
            folder: data folder; the log lies in it.
            writer: the way into the store.
            max_body_bytes: largest body, before and after decompression.
            budget: the decompressed bytes that may wait for the store in memory.
            max_log_bytes: what may wait in the log for a store that is far away.
        """
        self.health = writer.health
        self.budget = budget
        self._writer = writer
        self._local = writer if isinstance(writer, Writer) else None  # joins events, rolls up
        self._max_body_bytes = max_body_bytes
        self._stored = writer.stored()
        self._is_changed = False
        self._saved_s = time.monotonic()
        self._folder = folder
        self._saved = self._stored
        self._is_whole = self._local is None
        self._caught_up: Position | None = None
        self._is_stuck = False
        self._rests_until_s = 0.0
        log_folder = folder / (WAL_FOLDER if self._local else OUTBOX_FOLDER)
        self._wal = Wal(log_folder, self._stored, segment_bytes(max_log_bytes))
        self._waiting = Waiting(self._wal, self._stored, budget, self.health, max_log_bytes)
        self._commits = GroupCommit(self._wal, self._deliver, self._forget)
        self._parsers = ThreadPoolExecutor(2, "longpole-parse")
        self._is_ready = Event()
        self._is_closing = False
        self._has_ended = Event()
        self._pressure = Pressure(self.budget)
        self._thread = Thread(target=self._run, name="longpole-ingest", daemon=True)
        self.health.gauge("queue_spans", self._waiting.num_spans)

    @property
    def is_ready(self) -> bool:
        """Whether bodies are taken: replay is done, the store works, shutdown has not begun.

        A store that is far away need not work.
        """
        is_alive = self._thread.is_alive() and not self._is_closing
        return self._is_ready.is_set() and is_alive and not (self._local and self._is_stuck)

    def num_log_bytes(self) -> int:
        """Bytes of the log that are not known to be in the store."""
        return self._wal.num_bytes_after(self._saved)

    def start(self) -> None:
        """Start the ingest thread; it replays first, unless the store is far away."""
        if self._local is None:
            self._is_ready.set()
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
        self._has_ended.set()
        await self._commits.close()
        self._waiting.close()
        await asyncio.to_thread(self._thread.join)
        self._parsers.shutdown()
        self._wal.close(self._saved)

    async def _accept(
        self, signal: Signal, body: bytes, form: Format, compression: Compression
    ) -> Receipt:
        if not self.is_ready:
            raise NotReady("the collector is not ready: try again")
        with self._waiting.room(len(body)):
            return await self._take(signal, body, form, compression)

    async def _take(
        self, signal: Signal, body: bytes, form: Format, compression: Compression
    ) -> Receipt:
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
        if self._local is None:
            return plain, Receipt(0, len(logs.events) + logs.num_dropped, _NO_EVENTS)
        return plain, Receipt(len(logs.events), logs.num_dropped, logs.reason)

    def _deliver(self, item: Item) -> None:
        self._pressure.note_door()
        self._waiting.add(item)

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
        most = BATCH_SPANS if bulk.is_ready() else _COLD_SPANS
        batch = self._waiting.next(wait_s, most)
        if not batch and self._waiting.is_in_log():
            return self._insist(self._waiting.read_back)
        return batch

    def _insist(self, step: Callable[[], _T]) -> _T:
        """Do it, again and again until it is done: what was acknowledged is never passed over.

        Raises:
            _Stopped: the collector closes first.
        """
        wait_s = _RETRY_S
        room: Callable[[], AbstractContextManager[None]] = nullcontext
        while True:
            try:
                with room():
                    if self._local and not self._is_whole:
                        self._catch_up(self._local)
                    result = step()
            except Exception as error:
                if self._is_closing:
                    raise _Stopped from error
                if self._local and room is nullcontext and self._local.is_short(error):
                    _log.warning("memory is short, queries make room: %s", first_line(error))
                    room = self._local.alone
                    continue
                message = "the store fails, trying again (all is in the log): %s"
                is_told = self._is_stuck or isinstance(error, Unreachable)
                _log.error(message, error, exc_info=not is_told)
                self._is_stuck = True
                self._has_ended.wait(wait_s)
                wait_s = min(2 * wait_s, _MAX_RETRY_S if self._local else _MAX_FAR_RETRY_S)
            else:
                self._is_stuck = False
                return result

    def _catch_up(self, writer: Writer) -> None:
        """Read from the log what the store has not, or has lost with a save that failed."""
        if self._is_ready.is_set():
            lost = Lost(self._caught_up or self._saved, self._stored, self._note_caught_up)
            replay(self._wal, writer, lost)
        else:
            self._stored = self._saved = replay(self._wal, writer)
        self._is_whole = True

    def _note_caught_up(self, place: Position) -> None:
        self._caught_up = place

    def _store(self, batch: Sequence[Item]) -> None:
        traces = [item.received for item in batch if item.signal is Signal.TRACES]
        logs = [item.received for item in batch if item.signal is Signal.LOGS]

        rows = self._insist(lambda: self._writer.read(traces))

        def write() -> None:
            if self._local and logs:
                self._local.write_events(logs)
            # full: it is the best time to save, unless a query is in the way
            full = partial(self._save, at_once=False)
            self._writer.write(rows, batch[-1].position, full)

        self._insist(write)
        self._stored = batch[-1].position
        self._is_changed |= bool(logs)
        self._waiting.done(batch)
        spans_of = [item.num_records for item in batch if item.signal is Signal.TRACES]
        arrivals = np.repeat([each.received_ns for each in traces], spans_of)
        self.health.observe_many("freshness_seconds", (time.time_ns() - arrivals) / 1e9)

    def _settle(self, *, everything: bool = False) -> int:
        """Roll up some of what is due; returns how many traces are left waiting.

        Under load spans come first, until too many traces wait or one has waited for long.
        Traces of a store that is far away are rolled up elsewhere.
        """
        if (writer := self._local) is None:
            return 0
        if time.monotonic() < self._rests_until_s and not everything:
            return writer.num_dirty()
        try:
            while True:
                before = writer.num_dirty()
                is_late = writer.is_behind() or writer.waits_s() > _PATIENCE_S
                if self._pressure.is_high() and not (is_late or everything):
                    return before
                num = _MANY_TRACES if is_late else _SETTLE_TRACES
                since_s = time.thread_time()
                for_s = _FAREWELL_S if everything else inf
                waiting = writer.settle(num, everything=everything, for_s=for_s)
                self._pressure.leave_out(time.thread_time() - since_s)
                self._is_changed |= waiting != before
                self._rests_until_s = time.monotonic() + _REST_S * (before - waiting < num)
                is_done = waiting in (0, before) or everything or not self._waiting.is_empty()
                if is_done or self._is_save_due():
                    return waiting
        except duckdb.Error as error:  # the traces stay dirty, also over a restart
            _log.error("cannot store roll-ups: %s", error)
            return 1

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
