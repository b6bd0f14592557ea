"""The whole write path on one screen.

    door -> accept: decompress, parse, refuse what is bad  (door's thread)
         -> log: body as received, group fdatasync          (wal)
         -> the sender gets its answer
         -> batch -> dialect -> store -> roll-up            (ingest thread)

After a restart the ingest thread first reads back what the log has and the store has not; until
then the doors say 503.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

import duckdb

from longpole.errors import BadInput, StoreBusy
from longpole.vocab import Span
from longpole_collector.batch import Batches, Budget, GroupCommit, Item
from longpole_collector.decode import Body, Compression, Format, inflate, parse
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import FILE_NAME, DuckStore
from longpole_collector.wal import Frame, Position, Wal
from longpole_collector.writer import Writer

WAL_FOLDER: Final = "wal"
BATCH_AGE_S: Final = 0.2
BATCH_SPANS: Final = 4096
_TICK_S: Final = 0.2
_INLINE_BYTES: Final = 128 << 10
_REPLAY_SPANS: Final = 16_384
_RETRY_S: Final = 1.0
_NOWHERE: Final = Position(0, 0)

_log = logging.getLogger("longpole.collector.ingest")


class NotReady(StoreBusy):
    """The collector starts up or shuts down, or its disk refuses; try again."""


class Receipt(NamedTuple):
    """The answer to a request: spans taken, spans refused, and why the first of these was."""

    num_accepted: int
    num_rejected: int
    reason: str


class Ingest:
    """Takes request bodies and brings their spans into the store."""

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        stored: Position,
        *,
        max_body_bytes: int,
        max_queue_bytes: int,
    ) -> None:
        """Open the log.

        Args:
            folder: data folder; the log lies in it.
            writer: the way into the store.
            stored: what of the log is in the store already.
            max_body_bytes: largest body, before and after decompression.
            max_queue_bytes: most decompressed bytes that may wait for the store.
        """
        self.health = writer.health
        self.budget = Budget(max_queue_bytes)
        self.health.gauge("queue_bytes", self.budget.used_bytes)
        self._writer = writer
        self._max_body_bytes = max_body_bytes
        self._stored = stored
        self._wal = Wal(folder / WAL_FOLDER, stored)
        self._batches = Batches(BATCH_AGE_S, BATCH_SPANS)
        self._commits = GroupCommit(self._wal, self._batches.put, self._forget)
        self._parsers = ThreadPoolExecutor(2, "longpole-parse")
        self._is_ready = Event()
        self._is_closing = False
        self._thread = Thread(target=self._run, name="longpole-ingest", daemon=True)

    @property
    def is_ready(self) -> bool:
        """Whether bodies are taken: replay is done, shutdown has not begun."""
        return self._is_ready.is_set() and self._thread.is_alive() and not self._is_closing

    def start(self) -> None:
        """Start the ingest thread; it replays first."""
        self._thread.start()

    async def accept(self, body: bytes, form: Format, compression: Compression) -> Receipt:
        """Take one body; its good spans are on disk when this returns.

        Raises:
            TooLarge: larger than the limit, as sent or decompressed.
            BadInput: not OTLP, or broken compression.
            Full: too much waits to be stored.
            NotReady: starting, stopping, or the disk refuses.
        """
        if not self.is_ready:
            raise NotReady("the collector is not ready: try again")
        self.budget.take(len(body))
        taken = len(body)
        try:
            parsed, size = await self._parse(body, form, compression)
            self.health.add("requests_received")
            if parsed.num_rejected:
                self.health.add("spans_rejected", num=parsed.num_rejected)
            if parsed.num_spans:
                if size > taken:
                    self.budget.take(size - taken)
                    taken = size
                now_ns = time.time_ns()
                item = Item(parsed, now_ns, taken, _NOWHERE)
                taken = 0  # whoever has the item gives it back, also if the sender goes away
                await self._commits.commit(Frame(form, compression, now_ns, body), item)
                self.health.add("spans_received", num=parsed.num_spans)
            return Receipt(parsed.num_spans, parsed.num_rejected, parsed.reason)
        except OSError as error:
            _log.error("the log cannot be written: %s", error)
            raise NotReady(f"the log cannot be written: {error}") from error
        finally:
            self.budget.give(taken)

    async def close(self) -> None:
        """Stop taking bodies, bring what was taken into the store, roll up, end the thread."""
        self._is_closing = True
        await self._commits.close()
        self._batches.close()
        await asyncio.to_thread(self._thread.join)
        self._parsers.shutdown()
        self._wal.close(self._stored)

    async def _parse(self, body: bytes, form: Format, compression: Compression) -> tuple[Body, int]:
        if len(body) <= _INLINE_BYTES:
            return self._parse_now(body, form, compression)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parsers, self._parse_now, body, form, compression)

    def _parse_now(self, body: bytes, form: Format, compression: Compression) -> tuple[Body, int]:
        plain = inflate(body, compression, self._max_body_bytes)
        return parse(plain, form), len(plain)

    def _forget(self, item: Item) -> None:
        self.budget.give(item.num_bytes)

    # --- the ingest thread ----------------------------------------------------------------------
    def _run(self) -> None:
        self._stored = replay(self._wal, self._writer, self._stored)
        self._is_ready.set()
        num_waiting = self._settle()
        while (batch := self._batches.next(_TICK_S if num_waiting else None)) is not None:
            if batch:
                self._store(batch)
            num_waiting = self._settle()
        self._settle(everything=True)

    def _store(self, batch: Sequence[Item]) -> None:
        spans = [
            span
            for item in batch
            for span in self._writer.normalise(item.body.spans(item.received_ns))
        ]
        while True:
            try:
                self._writer.write(spans, batch[-1].position)
                break
            except duckdb.Error as error:  # the spans are safe in the log
                _log.error("cannot store, trying again: %s", error)
                if self._is_closing:
                    return
                time.sleep(_RETRY_S)
        self._stored = batch[-1].position
        self._wal.forget(self._stored)
        self.budget.give(sum(item.num_bytes for item in batch))

    def _settle(self, *, everything: bool = False) -> int:
        try:
            return self._writer.settle(everything=everything)
        except duckdb.Error as error:  # the traces stay dirty, also over a restart
            _log.error("cannot store roll-ups: %s", error)
            return 1


def replay(wal: Wal, writer: Writer, stored: Position) -> Position:
    """Bring what the log has and the store has not into the store; returns the place reached.

    What is in the log has passed the door's limits, whatever they were then.
    """
    spans: list[Span] = []
    num_frames = 0
    for position, frame in wal.replay(stored):
        stored = position
        num_frames += 1
        try:
            if frame is None:
                raise BadInput("damaged")
            plain = inflate(frame.body, frame.compression, sys.maxsize)
            body = parse(plain, frame.format, max_spans=None)  # the door let it in
            spans += writer.normalise(body.spans(frame.received_ns))
        except BadInput as error:
            writer.health.add("log_frames_damaged")
            _log.warning("log at %d:%d: %s", *position, error)
        if len(spans) >= _REPLAY_SPANS:
            writer.write(spans, stored)
            spans = []
    if num_frames:
        writer.write(spans, stored)
        wal.forget(stored)
        _log.info("read %d requests back from the log", num_frames)
    return stored


def recover(folder: Path) -> None:
    """Bring what a killed collector left in its log into the store; nothing to do is fine.

    Raises:
        StoreBusy: a collector runs on the folder.
    """
    if not any((folder / WAL_FOLDER).glob("*.wal")):
        return
    store = DuckStore(folder / FILE_NAME)
    try:
        writer = Writer(store, load_rollup())
        wal = Wal(folder / WAL_FOLDER, store.stored())
        stored = replay(wal, writer, store.stored())
        writer.settle(everything=True)
        wal.close(stored)
    finally:
        store.close()
