"""Between the doors and the store: a bound on bytes, one sync for many requests, batches.

Memory is bounded in bytes, not in requests: a door takes its share of the :class:`Budget` before
it reads on, and the share is given back when the spans are in the store. What does not fit is
refused, and the sender is told to come again.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from time import monotonic, time_ns
from typing import Final, NamedTuple

from longpole.errors import StoreBusy
from longpole_collector.decode import Received
from longpole_collector.wal import Frame, Position, Signal, Wal

_GATHER_S: Final = 0.001


class Full(StoreBusy):
    """No room for more right now; the same request again may succeed."""


class LogFull(Full):
    """The log has no room while the store does not answer; the same request may succeed later."""


class Budget:
    """Bytes taken and not yet stored, or sent, under a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._refused_s = -math.inf
        self._lock = Lock()

    def take(self, num_bytes: int) -> None:
        """Take a share.

        Raises:
            Full: the limit would be passed; nothing was taken.
        """
        with self._lock:
            if self._used_bytes + num_bytes > self._limit_bytes:
                self._refused_s = monotonic()
                raise Full(f"more than {self._limit_bytes} bytes wait already: try again")
            self._used_bytes += num_bytes

    def give(self, num_bytes: int) -> None:
        """Give a share back."""
        with self._lock:
            self._used_bytes -= num_bytes

    def used_bytes(self) -> int:
        """Bytes taken now."""
        return self._used_bytes

    def is_half_used(self) -> bool:
        """Whether half of it is taken."""
        return 2 * self._used_bytes > self._limit_bytes

    def since_refused_s(self) -> float:
        """How long ago a share was refused; infinite if none ever was."""
        return monotonic() - self._refused_s


class Item(NamedTuple):
    """A request on its way to the store.

    Its signal, its body (decompressed) with form and arrival, how many spans or log records it
    holds, its share of the budget, its place in the log.
    """

    signal: Signal
    received: Received
    num_records: int
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
            if len(group) > 1:  # more of their kind are on their way: let them share a sync
                await asyncio.sleep(_GATHER_S)
        self._syncer = None


class Batches:
    """Items in, batches out: by age or number of spans, whichever comes first.

    Large batches cost less a span, so under load a batch may grow older.
    """

    def __init__(self, max_age_s: float, loaded_age_s: float, max_records: int) -> None:
        """Make an empty queue.

        Args:
            max_age_s: how long the first item of a batch waits for others.
            loaded_age_s: the same, after a batch of more than a tenth of ``max_records``.
            max_records: a batch that has reached this many spans does not wait.
        """
        self._items: deque[Item] = deque()
        self._num_put = 0
        self._num_taken = 0
        self._max_age_s = max_age_s
        self._loaded_age_s = loaded_age_s
        self._max_records = max_records
        self._wake = Event()
        self._is_gathering = False
        self._is_loaded = False
        self._is_closed = False

    def put(self, item: Item) -> None:
        """Add an item, from one thread; never blocks, the budget bounds what is here."""
        self._items.append(item)
        self._num_put += item.num_records
        # whoever gathers need not wake for every item
        if not self._is_gathering or self._is_full():
            self._wake.set()

    def close(self) -> None:
        """Say that nothing follows."""
        self._is_closed = True
        self._wake.set()

    def wake(self) -> None:
        """Let whoever waits for a batch look elsewhere."""
        self._wake.set()

    def is_empty(self) -> bool:
        """Whether nothing waits right now."""
        return not self._items

    def next(self, wait_s: float | None, max_records: int | None = None) -> Sequence[Item] | None:
        """The next batch; empty when none came in ``wait_s``, ``None`` after the last one.

        ``max_records``, if given, stands in for that of all batches.
        """
        max_records = max_records or self._max_records
        self._wake.clear()
        if not self._items and not self._is_closed:
            self._wake.wait(wait_s)
        if not self._items:
            return None if self._is_closed else []
        self._gather(self._loaded_age_s if self._is_loaded else self._max_age_s)
        batch: list[Item] = []
        num_records = 0
        while self._items and num_records < max_records:
            item = self._items.popleft()
            batch.append(item)
            num_records += item.num_records
        self._num_taken += num_records
        self._is_loaded = num_records > self._max_records // 10
        return batch

    def _is_full(self) -> bool:
        return self._num_put - self._num_taken >= self._max_records

    def _gather(self, age_s: float) -> None:
        """Wait for more until the batch is old or large enough.

        What has waited while the thread did other things counts.
        """
        waited_s = (time_ns() - self._items[0].received.received_ns) / 1e9
        self._is_gathering = True
        self._wake.clear()
        if not self._is_full() and not self._is_closed:
            self._wake.wait(min(age_s, max(0.0, age_s - waited_s)))
        self._is_gathering = False
