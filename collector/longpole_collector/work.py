"""A worker: settles a share of the traces of a ClickHouse store until it is stopped.

It keeps nothing itself. What is due is asked of the store each time, so a worker that was killed
is replaced by starting it again, and others beside it need not be told.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic
from typing import Final, NamedTuple

import pyarrow as pa

from longpole.errors import StoreBusy, Unreachable, UsageError
from longpole.vocab import Rollup
from longpole_collector.rollup import load_rollup
from longpole_collector.stores import clickhouse

POLL_S: Final = 1.0
_RETRY_S: Final = 10.0
_REST: Final = 3
"""Looking what is due takes at most a quarter of a worker's time."""
_log = logging.getLogger("longpole.collector.work")


class Work(NamedTuple):
    """What to do.

    Attributes:
        address: the ClickHouse store.
        shard: which share of the traces, as ``i/n``.
        since_ns: only traces with spans that begin then or later; ``None`` is open.
        until_ns: likewise, that begin before.
        is_once: settle what is due now and end.
        poll_s: seconds between two looks, at least.
    """

    address: str
    shard: str = "1/1"
    since_ns: int | None = None
    until_ns: int | None = None
    is_once: bool = False
    poll_s: float = POLL_S


def work(
    asked: Work,
    stopping: Event,
    told: Callable[[str], None] = _log.warning,
    settled: Callable[[int], None] = lambda num: None,
) -> int:
    """Settle; returns how many traces were.

    Args:
        asked: what to do.
        stopping: set by whoever wants it to end; what is half done is done again next time.
        told: is told what goes wrong while it runs on: it is tried again.
        settled: is told each time how many traces were settled.

    Raises:
        UsageError: the address or the shard cannot be used.
        Unreachable: nobody answers there at the beginning, or no roll-up is installed.
    """
    if not clickhouse.is_address(asked.address):
        raise UsageError("workers settle a ClickHouse store: give --url clickhouse://...")
    rollup = load_rollup()
    if rollup is None:
        raise Unreachable("traces get no roll-up: pip install 'longpole[analytics]'")
    with _one_thread():
        return _run(asked, rollup, stopping, told, settled)


def _run(
    asked: Work,
    rollup: Rollup,
    stopping: Event,
    told: Callable[[str], None],
    settled: Callable[[int], None],
) -> int:
    from longpole_collector.stores.clickhouse.address import OTEL
    from longpole_collector.stores.clickhouse.due import Window, shard_of
    from longpole_collector.stores.clickhouse.opening import open_store
    from longpole_collector.stores.clickhouse.otel import Following
    from longpole_collector.stores.clickhouse.settling import Settling

    shard = shard_of(asked.shard)
    is_all = asked.since_ns is None and asked.until_ns is None
    window = None if is_all else Window(asked.since_ns, asked.until_ns)
    store = open_store(asked.address)
    num = 0
    try:
        follows = store.client.address.schema == OTEL and shard.number == 1
        following = Following(store) if follows else None
        settling = Settling(store.client, rollup, shard=shard)
        while True:
            begun_s, wait_s = monotonic(), 0.0
            try:
                if following is not None:
                    following.follow()
                done = settling.settle(window=window, is_busy=not asked.is_once, stopping=stopping)
                num += done
                settled(done)
                if not done:
                    wait_s = max(asked.poll_s, _REST * (monotonic() - begun_s))
            except (StoreBusy, Unreachable) as error:
                if asked.is_once:
                    raise
                told(str(error))
                wait_s = _RETRY_S
            if asked.is_once or stopping.wait(wait_s):
                return num
    finally:
        store.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread a worker, as far as it can be told: who has more cores starts more workers."""
    num_cpu, num_io = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(num_cpu)
        pa.set_io_thread_count(num_io)
