"""Requests that are acknowledged and not yet stored: in memory, or in the log alone.

In memory while there is room for their bodies. Where the store is far away the doors stay open
without it; then what memory has no room for waits in the log (:mod:`longpole_collector.backlog`),
up to a limit, beyond which the senders have to wait.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from longpole_collector.backlog import Backlog
from longpole_collector.batch import Batches, Budget, Item, LogFull
from longpole_collector.health import Health
from longpole_collector.wal import SEGMENT_BYTES, Position, Wal

BATCH_SPANS: Final = 65_536
_BATCH_AGE_S: Final = 0.2
_LOADED_AGE_S: Final = 0.5
_NUM_SEGMENTS: Final = 16
"""Of a log at its limit, or more: each is let go of as a whole."""


class Waiting:
    """The requests, oldest first; the doors' thread adds, the store's thread takes."""

    def __init__(
        self,
        wal: Wal,
        stored: Position,
        budget: Budget,
        health: Health,
        max_log_bytes: int | None = None,
    ) -> None:
        """Begin with what an earlier process left in the log, if it may wait there.

        Args:
            wal: the log; nothing has been written to it yet.
            stored: how far the store has it.
            budget: the bytes of bodies in memory.
            health: counts what cannot be read back.
            max_log_bytes: what may wait in the log alone; ``None`` lets nothing wait there.
        """
        self._wal = wal
        self._stored = stored
        self._budget = budget
        self._max_log_bytes = max_log_bytes
        self._batches = Batches(_BATCH_AGE_S, _LOADED_AGE_S, BATCH_SPANS)
        self._backlog = None if max_log_bytes is None else Backlog(wal, stored, health)
        self._num_queued = self._num_done = self._num_writing = 0

    def num_spans(self) -> int:
        """Spans that wait, as far as they have been counted."""
        num_found = 0 if self._backlog is None else self._backlog.num_found
        return self._num_queued + num_found - self._num_done

    @contextmanager
    def room(self, num_bytes: int) -> Iterator[None]:
        """With room in the log for so many bytes, until they are written; of the doors' thread.

        Raises:
            LogFull: it has none.
        """
        if self._max_log_bytes is not None:
            num_waiting = self._wal.num_bytes_after(self._stored) + self._num_writing
            if num_waiting + num_bytes > self._max_log_bytes:
                raise LogFull(f"{num_waiting} bytes wait in the log for the store: try again")
        self._num_writing += num_bytes
        try:
            yield
        finally:
            self._num_writing -= num_bytes

    def add(self, item: Item) -> None:
        """Add one that is on disk now."""
        self._num_queued += item.num_records
        is_crowded = self._budget.is_half_used()
        if self._backlog is not None and self._backlog.takes(item.position, is_crowded=is_crowded):
            self._budget.give(item.num_bytes)
            self._batches.wake()
        else:
            self._batches.put(item)

    def next(self, wait_s: float | None, max_records: int) -> Sequence[Item] | None:
        """As :meth:`Batches.next <longpole_collector.batch.Batches.next>`, of what is in memory.

        It does not wait while others wait in the log.
        """
        is_left = self._backlog is not None and self._backlog.is_left
        return self._batches.next(0.0 if is_left else wait_s, max_records)

    def is_in_log(self) -> bool:
        """Whether the oldest one is in the log alone."""
        # in this order: what came to memory before is there by now, and nothing comes any more
        return self._backlog is not None and self._backlog.is_left and self._batches.is_empty()

    def read_back(self) -> Sequence[Item]:
        """The next batch of the log; may be empty.

        Raises:
            OSError: it cannot be read now.
        """
        return () if self._backlog is None else self._backlog.take(BATCH_SPANS)

    def done(self, batch: Sequence[Item]) -> None:
        """Note that a batch is stored."""
        self._stored = batch[-1].position
        self._num_done += sum(item.num_records for item in batch)
        self._budget.give(sum(item.num_bytes for item in batch))

    def is_empty(self) -> bool:
        """Whether nothing waits right now."""
        return self._batches.is_empty() and not self.is_in_log()

    def close(self) -> None:
        """Say that nothing follows."""
        self._batches.close()


def segment_bytes(max_log_bytes: int | None) -> int:
    """How large a log's segments are."""
    if max_log_bytes is None:
        return SEGMENT_BYTES
    return min(SEGMENT_BYTES, max(1, max_log_bytes // _NUM_SEGMENTS))
