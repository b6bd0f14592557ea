"""Between the doors and the store: a bound on bytes, one sync for many requests, batches.

Memory is bounded in bytes, not in requests: a door takes its share of the :class:`Budget` before
it reads on, and the share is given back when the spans are in the store. What does not fit is
refused, and the sender is told to come again.
"""

import asyncio
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import NamedTuple

from longpole.errors import StoreBusy
from longpole_collector.decode import Body
from longpole_collector.wal import Frame, Position, Wal


class Full(StoreBusy):
    """No room for more right now; the same request again may succeed."""


class Budget:
    """Bytes taken and not yet stored, under a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = Lock()

    def take(self, num_bytes: int) -> None:
        """Take a share.

        Raises:
            Full: the limit would be passed; nothing was taken.
        """
        with self._lock:
            if self._used_bytes + num_bytes > self._limit_bytes:
                raise Full(f"more than {self._limit_bytes} bytes wait to be stored: try again")
            self._used_bytes += num_bytes

    def give(self, num_bytes: int) -> None:
        """Give a share back."""
        with self._lock:
            self._used_bytes -= num_bytes

    def used_bytes(self) -> int:
        """Bytes taken now."""
        return self._used_bytes


class Item(NamedTuple):
    """A request on its way to the store: its spans, arrival, share of the budget, place."""

    body: Body
    received_ns: int
    num_bytes: int
    position: Position


class GroupCommit:
    """Many requests, one ``fdatasync``: whoever comes while a sync runs shares the next one."""

    def __init__(
        self, wal: Wal, deliver: Callable[[Item], None], drop: Callable[[Item], None]
    ) -> None:
        """Every item ends in one of two places, whether or not its sender still waits.

        Args:
            wal: the log.
            deliver: gets each item once it is on disk, in the log's order.
            drop: gets each item that could not be written.
        """
        self._wal = wal
        self._deliver = deliver
        self._drop = drop
        self._waiting: list[tuple[Frame, Item, asyncio.Future[None]]] = []
        self._syncer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "longpole-wal")

    async def commit(self, frame: Frame, item: Item) -> None:
        """Return when the frame is on disk.

        Raises:
            OSError: it is not, and was not delivered either.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((frame, item, done))
        if self._syncer is None:
            self._syncer = asyncio.create_task(self._sync())
        await done

    async def close(self) -> None:
        """Wait for what is on its way; later commits are refused."""
        if self._syncer is not None:
            await self._syncer
        self._thread.shutdown()

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            frames = [frame for frame, _, _ in group]
            try:
                ends = await loop.run_in_executor(self._thread, self._wal.write, frames)
            except OSError as error:
                for _, item, done in group:
                    self._drop(item)
                    if not done.done():  # it is when the sender has gone
                        done.set_exception(error)
            else:
                for (_, item, done), end in zip(group, ends, strict=True):
                    self._deliver(item._replace(position=end))
                    if not done.done():
                        done.set_result(None)
        self._syncer = None


class Batches:
    """Items in, batches out: by age or number of spans, whichever comes first."""

    def __init__(self, max_age_s: float, max_spans: int) -> None:
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._max_age_s = max_age_s
        self._max_spans = max_spans
        self._is_closed = False

    def put(self, item: Item) -> None:
        """Add an item; never blocks, the budget bounds what is here."""
        self._queue.put(item)

    def close(self) -> None:
        """Say that nothing follows."""
        self._queue.put(None)

    def next(self, wait_s: float | None) -> Sequence[Item] | None:
        """The next batch; empty when none came in ``wait_s``, ``None`` after the last one."""
        batch: list[Item] = []
        num_spans = 0
        deadline: float | None = None
        while not self._is_closed:
            timeout = wait_s if deadline is None else max(0.0, deadline - monotonic())
            try:
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                return batch
            if item is None:
                self._is_closed = True
                break
            batch.append(item)
            deadline = deadline or monotonic() + self._max_age_s
            num_spans += item.body.num_spans
            if num_spans >= self._max_spans:
                return batch
        return batch or None
