"""A ClickHouse store by its address: to read, to write, to import into."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Final

from longpole.errors import LongpoleError, Unreachable
from longpole.vocab import Rollup
from longpole_collector.content import Policy
from longpole_collector.importing import Imported, import_into
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.clickhouse.address import OTEL, parse
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.far import SETTLING, FarStore
from longpole_collector.stores.clickhouse.otel import Following
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickReader, ClickStore
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, arrow_schema
from longpole_collector.writer import Writer

POLL_S: Final = 1.0
_RETRY_S: Final = 5.0
_REST: Final = 3
"""Looking takes at most a quarter of the thread's time where nothing is new."""
_PAGE: Final = 100_000
_log = logging.getLogger("longpole.collector.clickhouse")


def open_reader(address: str) -> ClickReader:
    """A reader over the store at an address, as it is now.

    Of a collector's own table what is new in it is taken over and settled first.

    Raises:
        UsageError: the address or the credentials cannot be used.
        Unreachable: nobody answers there, or there is no data.
    """
    place = parse(address)
    client = Client(place)
    if place.schema != OTEL:
        return ClickReader(client)
    store = ClickStore(client)
    try:
        catch_up(store)
    except BaseException:
        store.close()
        raise
    return store


def open_store(address: str) -> ClickStore:
    """The store at an address, to write too; made where there is none.

    Raises:
        UsageError, Unreachable: as :func:`open_reader`.
    """
    return ClickStore(Client(parse(address)))


def catch_up(store: ClickStore) -> int:
    """Take over what is new in the collector's table, and settle what is due.

    Returns:
        The spans that were new.
    """
    num_new = 0
    if store.client.address.schema == OTEL:
        following = Following(store)
        while num := following.follow():
            num_new += num
    settle(store)
    return num_new


def settle(store: ClickStore) -> int:
    """Settle what is due; returns how many traces were.

    Raises:
        Unreachable: no roll-up is installed.
    """
    return Settling(store.client, _rollup()).settle()


def import_files(files: Sequence[Path], address: str) -> Imported:
    """Import files into the store at an address.

    Raises:
        BadInput: a file cannot be read; nothing is imported.
        UsageError, Unreachable: as :func:`open_reader`.
    """
    memory = DuckStore()
    try:
        writer = Writer(memory, None)
        done = [import_into(writer, path) for path in files]
        writer.settle(everything=True)  # events of log records join their spans
        store = open_store(address)
        try:
            num_new = _copy(memory, store)
            settle(store)
        finally:
            store.close()
    finally:
        memory.close()
    return Imported(
        num_spans=sum(part.num_spans for part in done),
        num_new=num_new,
        num_rejected=sum(part.num_rejected for part in done),
        reason=next((part.reason for part in done if part.reason), ""),
        num_events=sum(part.num_events for part in done),
    )


class Follower:
    """A thread that takes over and settles what is new, until it is stopped."""

    def __init__(
        self,
        store: FarStore | str,
        *,
        is_settling: bool = True,
        policy: Policy | None = None,
        poll_s: float = POLL_S,
        told: Callable[[str], None] = _log.warning,
    ) -> None:
        """Nothing is done yet.

        Args:
            store: the store or its address; it need not answer now.
            is_settling: else only look whether it answers: workers do the rest.
            policy: what is kept of prompts and answers in the collector's table.
            poll_s: seconds between two looks, at least.
            told: is told what goes wrong, once; it is tried again.

        Raises:
            UsageError: the address cannot be used.
        """
        self._store = FarStore(parse(store)) if isinstance(store, str) else store
        self._is_settling = is_settling
        self._policy = policy
        self._poll_s = poll_s
        self._told = told
        self._has_ended = Event()
        self._thread = Thread(target=self._run, name="longpole-follow", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it; what is half done is done again next time."""
        self._has_ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._store.close()

    def _run(self) -> None:
        at: ClickStore | None = None
        look: Callable[[], int] = int
        wait_s, said = 0.0, ""
        while not self._has_ended.wait(wait_s):
            begun_s = monotonic()
            try:
                with self._store.reached(SETTLING) as store:
                    if store is not at:
                        at, look = store, self._look(store)
                    num_new = look()
                passed_s = monotonic() - begun_s
                wait_s, said = 0.0 if num_new else max(self._poll_s, _REST * passed_s), ""
            except Exception as error:  # noqa: BLE001 - else nothing would be settled any more
                is_ours = isinstance(error, LongpoleError)
                if str(error) != said:
                    self._told(str(error) if is_ours else repr(error))
                at, said, wait_s = None, str(error), _RETRY_S

    def _look(self, store: ClickStore) -> Callable[[], int]:
        """What is done each time; it gives how many spans were taken over."""
        if not self._is_settling:
            return partial(_ping, store)
        settling = Settling(store.client, _rollup())
        following = None
        if store.client.address.schema == OTEL:
            following = Following(store, self._policy)

        def look() -> int:
            num_new = 0 if following is None else following.follow()
            settling.settle(is_busy=True, stopping=self._has_ended)
            return num_new

        return look


def _rollup() -> Rollup:
    rollup = load_rollup()
    if rollup is None:
        raise Unreachable("traces get no roll-up: pip install 'longpole[analytics]'")
    return rollup


def _ping(store: ClickStore) -> int:
    store.client.ask("SELECT 1 AS one")
    return 0


def _copy(memory: DuckStore, store: ClickStore) -> int:
    """Put all spans of a store in memory into another; returns how many were new."""
    names = ", ".join(arrow_schema(SPANS).names)
    before = store.num_spans()
    with memory.writing() as reader:
        num = reader.execute("SELECT count(*) FROM span_rows").fetchall()[0][0]
        for first in range(0, num, _PAGE):
            rows = reader.sql(
                f"SELECT {names} FROM span_rows ORDER BY start_ns, span_id "  # noqa: S608
                f"LIMIT {_PAGE} OFFSET {first}"
            ).to_arrow_table()
            store.insert(rows)
    return store.num_spans() - before
