"""What a running collector does to its stores now and then: retention, and days that are over."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Final

import duckdb

from longpole.errors import LongpoleError
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention, prune, rewrite

_PERIOD_S: Final = 60.0
_GRACE: Final = timedelta(hours=1)
"""A day is rewritten this long after its end, when its last traces are rolled up."""

_log = logging.getLogger("longpole.collector.housekeeping")


class Housekeeper:
    """Tidies stores in a thread of its own, one file at a time."""

    def __init__(self, stores: Callable[[], Iterable[DuckStore]], retention: Retention) -> None:
        """``stores`` gives those that are open now."""
        self._stores = stores
        self._retention = retention
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="longpole-housekeeping", daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after a minute."""
        self._thread.start()

    def stop(self) -> None:
        """End after the file that is being written."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for store in list(self._stores()):
                try:
                    tidy(store, self._retention)
                except (duckdb.Error, OSError, LongpoleError) as error:  # next time, perhaps
                    _log.warning("cannot tidy a store: %s", error)


def tidy(store: DuckStore, retention: Retention, now: datetime | None = None) -> None:
    """Drop what is too old or too much, and rewrite one day that is over."""
    now = now or datetime.now(UTC)
    prune(store, retention, now)
    today = (now - _GRACE).strftime("%Y%m%d")
    for day in list(store.days):
        if not day.is_sorted and day.date < today and rewrite(store, day):
            return
