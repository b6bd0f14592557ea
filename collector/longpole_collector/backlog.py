"""Requests that wait in the log alone, because memory has no room for them.

While a store that is far does not answer, what is acknowledged would fill the memory; it is on
disk anyhow. So what comes then is remembered by its place in the log only, and read back in its
order when the store is there again; likewise what an earlier process left.
"""

import logging
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final

from longpole_collector.batch import Item
from longpole_collector.health import Health
from longpole_collector.replay import unpacked
from longpole_collector.wal import Frame, Position, Wal

_MAX_BYTES: Final = 32 << 20
"""Of decompressed bodies that are read back at once."""
_log = logging.getLogger("longpole.collector.ingest")


class Backlog:
    """A stretch of the log; one thread adds to its end, another takes from its begin."""

    def __init__(self, wal: Wal, stored: Position, health: Health) -> None:
        """Begin with what the log has now.

        Args:
            wal: the log; nothing has been written to it yet.
            stored: everything up to here is in the store.
            health: counts what cannot be read back.
        """
        self._wal = wal
        self._health = health
        self._lock = Lock()
        self._since = self._last = stored
        self._until = self._found = max(stored, wal.end())
        self._goal = stored
        self._frames: Iterator[tuple[Position, Frame | None]] | None = None
        self._is_left = self._until > stored
        self.num_found = 0
        """Spans that an earlier process left, as far as they were read."""

    @property
    def is_left(self) -> bool:
        """Whether something waits here: then all that comes has to wait here too."""
        return self._is_left

    def takes(self, position: Position, *, is_crowded: bool) -> bool:
        """Whether what just came waits here; told of everything that comes, in the log's order.

        Args:
            position: its end in the log.
            is_crowded: memory has no room for it.
        """
        with self._lock:
            if is_crowded and not self._is_left:
                self._is_left, self._since = True, self._last
            if self._is_left:
                self._until = position
            self._last = position
            return self._is_left

    def take(self, max_records: int) -> Sequence[Item]:
        """Read the oldest requests back; none if nothing is left.

        Raises:
            OSError: the log cannot be read; the same call again begins where this one did.
        """
        before = self._since
        items: list[Item] = []
        num_records = num_bytes = 0
        try:
            while num_records < max_records and num_bytes < _MAX_BYTES:
                found = self._next()
                if found is None:
                    break
                self._since = found[0]
                item = unpacked(*found, self._health)
                if item is not None:
                    items.append(item)
                    num_records += item.num_records
                    num_bytes += len(item.received.body)
        except OSError:
            self._since, self._frames = before, None
            raise
        self.num_found += sum(i.num_records for i in items if i.position <= self._found)
        return items

    def _next(self) -> tuple[Position, Frame | None] | None:
        """The next frame and its end; ``None`` when all that waits was read."""
        while True:
            if self._frames is None:
                with self._lock:
                    if self._since >= self._until:
                        self._is_left = False
                        return None
                    self._goal = self._until
                self._frames = self._wal.replay(self._since, self._goal)
            found = next(self._frames, None)
            if found is not None:
                return found
            self._frames = None
            if self._since < self._goal:
                _log.warning("the log is damaged before %d:%d: cut off", *self._goal)
                self._health.add("log_frames_damaged")
                self._since = self._goal
