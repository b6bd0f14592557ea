"""Projects: each has a data folder, a log, a store and an ingest thread of its own.

The default project lies in the data folder itself, the others below ``projects`` in it. Whoever
asks for data gets one project's reader, so no statement can reach another's rows.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from longpole.errors import StoreBusy
from longpole.vocab import Rollup
from longpole_collector.batch import Budget
from longpole_collector.content import Scrubber, make_policy
from longpole_collector.health import Health
from longpole_collector.ingest import WAL_FOLDER, Ingest, NotReady
from longpole_collector.kept_content import ContentRetention, content_retention, note_kept
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.pricing import Price, configured
from longpole_collector.redact import Redactor, load_hook
from longpole_collector.settings import Settings, project_folder
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.whereabouts import find, withdraw
from longpole_collector.writer import Writer

MAX_OPEN: Final = 32
_log = logging.getLogger("longpole.collector.projects")
_STEP_S: Final = 0.01
_READY_STEPS: Final = 200
"""Whoever opens a project waits so long for its log to be read back; most logs are empty."""


class Project(NamedTuple):
    """One open project."""

    name: str
    folder: Path
    store: DuckStore
    ingest: Ingest
    content: ContentRetention


class Projects:
    """The projects of a data folder, opened when they are first asked for."""

    def __init__(self, settings: Settings, rollup: Rollup | None) -> None:
        """Open the default project.

        Raises:
            StoreBusy: another collector runs on this folder.
            UsageError: a project's redaction rule or hook cannot be used.
        """
        for own in settings.projects.values():
            Redactor(own.redact)
            if own.redact_hook is not None:
                load_hook(own.redact_hook)
        self._settings = settings
        self._rollup = rollup
        self.budget = Budget(settings.max_queue_bytes)
        self._price = configured()
        self.default = open_project(settings, DEFAULT_PROJECT, rollup, self.budget, self._price)
        self._open = {DEFAULT_PROJECT: self.default}
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._started: Callable[[Project], None] = lambda project: None

    def start(self, started: Callable[[Project], None]) -> None:
        """Start the default project's ingest thread.

        Args:
            started: called for this project, and for every other that is opened later.
        """
        self._started = started
        self.default.ingest.start()
        started(self.default)

    async def get(self, name: str) -> Project:
        """The project of that name; opened, and made, if it is not open yet.

        Raises:
            StoreBusy: too many are open, another process has it, the disk refuses, or the
                collector stops.
            Unreachable: a newer longpole wrote it.
        """
        found = self._open.get(name)
        return found if found is not None else await self._get_slowly(name)

    def opened(self) -> list[Project]:
        """The projects that are open."""
        return list(self._open.values())

    def withdraw(self) -> None:
        """No longer say in the folders that a collector runs; open no other project."""
        self._is_closed = True
        for project in self._open.values():
            withdraw(project.folder)

    async def close(self) -> None:
        """Bring everything taken into the stores, let go of the folders."""
        async with self._opening:  # one that is being opened is closed with the others
            self.withdraw()
        for project in self._open.values():
            await project.ingest.close()
            with suppress(duckdb.Error):  # the next start notes it
                note_kept(project.store, project.content)
            project.store.close()

    async def _get_slowly(self, name: str) -> Project:
        async with self._opening:
            if name in self._open:
                return self._open[name]
            if self._is_closed:
                raise NotReady("the collector stops")
            if len(self._open) >= MAX_OPEN:
                raise StoreBusy(f"{MAX_OPEN} projects are open, which is all one collector takes")
            try:
                project = await asyncio.to_thread(
                    open_project, self._settings, name, self._rollup, self.budget, self._price
                )
            except (OSError, duckdb.Error) as error:
                _log.error("project '%s' cannot be opened: %s", name, error)
                raise StoreBusy(f"project '{name}' cannot be opened: see the log") from error
            project.ingest.start()
            self._open[name] = project
            self._started(project)
        for _ in range(_READY_STEPS):
            if project.ingest.is_ready:
                break
            await asyncio.sleep(_STEP_S)
        return project


def open_project(
    settings: Settings, name: str, rollup: Rollup | None, budget: Budget, price: Price | None
) -> Project:
    """A project's store and the way into it; its ingest thread is not started yet.

    Args:
        settings: where the data folder is, and the limits.
        name: the project's name.
        rollup: computes the traces' roll-ups.
        budget: bytes that may wait in all projects together.
        price: prices calls; ``None`` is what is configured now.

    Raises:
        StoreBusy: another process has the project's folder open.
    """
    folder = project_folder(settings.db, name)
    limits = Limits(settings.query_rows, settings.query_timeout_s, settings.query_memory)
    try:
        store = DuckStore(folder, limits=limits, price=price)
    except StoreBusy as error:
        other = find(folder)
        if other is None:
            raise
        raise StoreBusy(
            f"a collector already runs on {folder} (pid {other.pid}, {other.url}): "
            "stop it, or pass another --db"
        ) from error
    try:
        health = Health()
        _watch(health, budget, store, folder)
        policy = make_policy(folder, settings.project(name))
        own = settings.project(name)
        content = content_retention(policy, own)
        if policy.content != "drop":
            for_long = f" for {own.keep_days} days" if content.is_kept else ""
            _log.warning(
                "project '%s' stores prompts and answers (%s%s)", name, policy.content, for_long
            )
        scrubber = Scrubber(policy, health)
        writer = Writer(store, rollup, health, scrubber=scrubber, sampling=settings.sampling)
        ingest = Ingest(folder, writer, max_body_bytes=settings.max_body_bytes, budget=budget)
    except BaseException:
        store.close()
        raise
    return Project(name, folder, store, ingest, content)


def _watch(health: Health, budget: Budget, store: DuckStore, folder: Path) -> None:
    def stored_bytes() -> dict[str, int]:
        num_log_bytes = 0
        for path in (folder / WAL_FOLDER).glob("*.wal"):
            with suppress(FileNotFoundError):  # stored just now
                num_log_bytes += path.stat().st_size
        return {"store": sum(day.num_bytes() for day in store.days), "log": num_log_bytes}

    health.gauge("queue_bytes", budget.used_bytes)
    health.gauge("stored_files", lambda: len(store.days))
    health.gauge("broken_files", lambda: len(store.days.broken))
    health.gauge("stored_bytes", stored_bytes)
