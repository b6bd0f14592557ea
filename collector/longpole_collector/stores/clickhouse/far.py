"""A ClickHouse store that may be away: connected when it is asked for, and again after a failure.

A collector runs whether or not its store answers. What goes wrong is kept until the same goes
well, for whoever asks how the store does; it holds no credentials.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

import pyarrow as pa

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable, UsageError
from longpole_collector.stores.base import Params, Stream
from longpole_collector.stores.clickhouse.address import Address
from longpole_collector.stores.clickhouse.client import BadValue, Client
from longpole_collector.stores.clickhouse.store import ClickStore

STORING: Final = "storing"
SETTLING: Final = "settling"
_READING: Final = "reading"
_CONNECTING: Final = "connecting"
_PAUSE_S: Final = 0.5
"""Whoever asks so soon after an attempt to connect has failed is told the same."""


class FarStore:
    """Reads and writes through a connection that comes and goes; safe for several threads."""

    def __init__(self, address: Address) -> None:
        """Nothing is asked yet."""
        self.address = address
        self._lock = Lock()
        self._store: ClickStore | None = None
        self._is_closed = False
        self._failed_s = -inf
        self._failure = ""
        self._problems = {_CONNECTING: f"{address} has not answered yet"}

    @property
    def problem(self) -> str | None:
        """What is wrong now, in one sentence; ``None`` where all went well the last time."""
        problems = dict(self._problems)
        for what in (STORING, SETTLING, _READING, _CONNECTING):
            if what in problems:
                return problems[what]
        return None

    @contextmanager
    def reached(self, what: str = _READING) -> Iterator[ClickStore]:
        """The store, connected.

        Args:
            what: is done with it; a failure is kept under this name.

        Raises:
            Unreachable: it does not answer, or refuses; ``StoreBusy`` where it may soon.
        """
        store: ClickStore | None = None
        try:
            store = self._connected()
            yield store
        except (Unreachable, UsageError) as error:
            self._problems[what] = str(error)
            if isinstance(error, StoreBusy):
                raise
            self._drop(store)
            # wrong credentials may be set right over there: no reason to end
            raise Unreachable(str(error)) from error
        except BadInput as error:
            if what != _READING and not isinstance(error, BadValue):  # else it is no fault of ours
                self._problems[what] = str(error)
            raise
        for done in (what, _CONNECTING):
            self._problems.pop(done, None)

    def sql(self, query: str, params: Params = (), timeout_s: float | None = None) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        with self.reached() as store:
            return store.sql(query, params, timeout_s)

    @contextmanager
    def stream(
        self, query: str, params: Params = (), timeout_s: float | None = None
    ) -> Iterator[Stream]:
        """The answer batch by batch."""
        with self.reached() as store, store.stream(query, params, timeout_s) as stream:
            yield stream

    def close(self) -> None:
        """Let go of it; later calls raise ``Unreachable``."""
        self._is_closed = True
        with self._lock:
            if self._store is not None:
                self._store.close()

    def _connected(self) -> ClickStore:
        with self._lock:
            if self._is_closed:
                raise Unreachable("the store is closed")
            if self._store is None:
                if monotonic() - self._failed_s < _PAUSE_S:
                    raise Unreachable(self._failure)
                try:
                    self._store = ClickStore(Client(self.address))
                except LongpoleError as error:
                    self._failed_s, self._failure = monotonic(), str(error)
                    raise
            return self._store

    def _drop(self, store: ClickStore | None) -> None:
        """Connect anew next time: it may come back without its tables."""
        with self._lock:
            if store is not None and self._store is store and not self._is_closed:
                self._store = None  # others may still read with it, so it is not closed here
