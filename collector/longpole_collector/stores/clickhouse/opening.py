"""A ClickHouse store by its address: to read, to write, to import into."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Final

from longpole.errors import LongpoleError, Unreachable
from longpole_collector.importing import Imported, import_into
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.clickhouse.address import OTEL, parse
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.otel import Following
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickReader, ClickStore
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, arrow_schema
from longpole_collector.writer import Writer

POLL_S: Final = 1.0
_RETRY_S: Final = 10.0
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
    num_new = Following(store).follow() if store.client.address.schema == OTEL else 0
    settle(store)
    return num_new


def settle(store: ClickStore) -> int:
    """Settle what is due; returns how many traces were.

    Raises:
        Unreachable: no roll-up is installed.
    """
    rollup = load_rollup()
    if rollup is None:
        raise Unreachable("traces get no roll-up: pip install 'longpole[analytics]'")
    return Settling(store.client, rollup).settle()


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
        self, address: str, *, poll_s: float = POLL_S, told: Callable[[str], None] = _log.warning
    ) -> None:
        """Connect.

        Args:
            address: the store.
            poll_s: seconds between two looks.
            told: is told what goes wrong; it is tried again.

        Raises:
            UsageError, Unreachable: as :func:`open_reader`.
        """
        self._store = open_store(address)
        self._poll_s = poll_s
        self._told = told
        self._has_ended = Event()
        self._thread = Thread(target=self._run, name="longpole-follow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; what is half done is done again next time."""
        self._has_ended.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._has_ended.wait(wait_s):
            try:
                catch_up(self._store)
                wait_s = self._poll_s
            except LongpoleError as error:
                self._told(str(error))
                wait_s = _RETRY_S


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
