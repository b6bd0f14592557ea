"""What a running collector does to its stores now and then: retention, and days that are over."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Final, Protocol

import duckdb

from longpole.errors import LongpoleError
from longpole_collector.kept_content import (
    ContentRetention,
    holds_content,
    note_kept,
    remove_expired,
)
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention, prune, rewrite
from longpole_collector.stores.minutes import refresh

_PERIOD_S: Final = 60.0
_GRACE: Final = timedelta(hours=1)
"""A day is rewritten this long after its end, when its last traces are rolled up."""

_log = logging.getLogger("longpole.collector.housekeeping")


class Kept(Protocol):
    """What is tidied: a project."""

    @property
    def local(self) -> DuckStore:
        """Its store."""

    @property
    def content(self) -> ContentRetention:
        """How its prompts and answers end."""


class Housekeeper:
    """Tidies projects in a thread of its own, one file at a time."""

    def __init__(self, projects: Callable[[], Iterable[Kept]], retention: Retention) -> None:
        """``projects`` gives those that are open now."""
        self._projects = projects
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
            for project in list(self._projects()):
                try:
                    tidy(
                        project.local,
                        self._retention,
                        content=project.content,
                        is_stopping=self._stopping.is_set,
                    )
                except (duckdb.Error, OSError, LongpoleError) as error:  # next time, perhaps
                    _log.warning("cannot tidy a store: %s", error)


def tidy(
    store: DuckStore,
    retention: Retention,
    now: datetime | None = None,
    *,
    content: ContentRetention | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Drop what is too old or too much, count minutes, and rewrite one day that is over.

    A day that holds prompts and answers is rewritten when they are taken out of it.
    """
    now = now or datetime.now(UTC)
    prune(store, retention, now)
    if content is not None:
        note_kept(store, content)
        remove_expired(store, content, now, is_stopping)
    refresh(store, int(now.timestamp()) * 1_000_000_000, is_stopping)
    today = (now - _GRACE).strftime("%Y%m%d")
    for day in list(store.days):
        is_over = not day.is_sorted and day.date < today
        if is_over and not holds_content(store, day) and rewrite(store, day):
            return
