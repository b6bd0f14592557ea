"""Projects: each has a data folder, a log, a store and an ingest thread of its own.

The default project lies in the data folder itself, the others below ``projects`` in it. Whoever
asks for data gets one project's reader, so no statement can reach another's rows.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb

from longpole.errors import BadInput, StoreBusy, Unreachable, UsageError
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
from longpole_collector.stores.connection import Limits, hold
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.whereabouts import find, withdraw
from longpole_collector.writer import Writer

if TYPE_CHECKING:
    from longpole_collector.relay import Relay
    from longpole_collector.stores.clickhouse.far import FarStore
    from longpole_collector.stores.clickhouse.opening import Follower

MAX_OPEN: Final = 32
_log = logging.getLogger("longpole.collector.projects")
_STEP_S: Final = 0.01
_READY_STEPS: Final = 200
"""Whoever opens a project waits so long for its log to be read back; most logs are empty."""


class Project(NamedTuple):
    """One open project.

    Attributes:
        name: its name.
        folder: where its log lies, and its data unless they are in a ClickHouse store.
        store: reads it.
        ingest: takes spans for it.
        content: how its prompts and answers end.
        far: of a ClickHouse store, what has to be let go of.
    """

    name: str
    folder: Path
    store: "DuckStore | FarStore"
    ingest: Ingest
    content: ContentRetention
    far: "Far | None" = None

    @property
    def local(self) -> DuckStore:
        """The store, if this collector holds its files.

        Raises:
            BadInput: it does not.
        """
        if not isinstance(self.store, DuckStore):
            raise BadInput(
                f"the data are at {self.store.address}, where this is done by other means: "
                "ttl_days in its address, and ClickHouse's own BACKUP"
            )
        return self.store

    @property
    def problem(self) -> str | None:
        """What is wrong with its ClickHouse store; ``None`` if all is well or it has none."""
        return None if isinstance(self.store, DuckStore) else self.store.problem

    def start(self) -> None:
        """Begin to store, and to settle."""
        self.ingest.start()
        if self.far is not None:
            self.far.follower.start()
            if self.far.relay is not None:
                self.far.relay.start()

    async def close(self) -> None:
        """Bring everything taken into the store, let go of the folder."""
        await self.ingest.close()
        if self.far is not None:
            if self.far.relay is not None:
                await asyncio.to_thread(self.far.relay.stop)
            await asyncio.to_thread(self.far.follower.stop)
            if self.far.lock is not None:
                os.close(self.far.lock)
            return
        with suppress(duckdb.Error):  # the next start notes it
            note_kept(self.local, self.content)
        self.local.close()


class Far(NamedTuple):
    """What a project with a ClickHouse store holds.

    Its settling thread, its folder's lock; where traces are sampled what sends on the kept ones.
    """

    follower: "Follower"
    lock: int | None
    relay: "Relay | None" = None


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
        self.default.start()
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

    def local(self) -> list[Project]:
        """The projects that are open and whose files are here."""
        return [project for project in self._open.values() if project.far is None]

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
            await project.close()

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
            except UsageError as error:
                raise Unreachable(str(error)) from error
            project.start()
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
        UsageError: its settings cannot be used.
    """
    if settings.store is not None:
        return _open_far(settings, settings.store, name, rollup, budget)
    folder = project_folder(settings.db, name)
    limits = Limits(settings.query_rows, settings.query_timeout_s, settings.query_memory)
    try:
        store = DuckStore(folder, limits=limits, price=price)
    except StoreBusy as error:
        raise _taken(folder, error) from error
    try:
        health = Health()
        watch(health, budget, folder / WAL_FOLDER)
        _watch_files(health, store)
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


def _open_far(
    settings: Settings, address: str, name: str, rollup: Rollup | None, budget: Budget
) -> Project:
    """A project whose data are in a ClickHouse store, which need not answer now."""
    from longpole_collector.far_project import open_way
    from longpole_collector.stores.clickhouse.address import of_project, parse
    from longpole_collector.stores.clickhouse.far import FarStore
    from longpole_collector.stores.clickhouse.opening import Follower

    store = FarStore(of_project(parse(address), name))
    folder = project_folder(settings.db, name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = hold(folder, is_read_only=False)
    except StoreBusy as error:
        raise _taken(folder, error) from error
    try:
        ingest, relay, policy = open_way(settings, name, folder, store, rollup, budget)
    except BaseException:
        if lock is not None:
            os.close(lock)
        raise
    follower = Follower(store, is_settling=settings.settle, policy=policy)
    content = content_retention(policy, settings.project(name))
    return Project(name, folder, store, ingest, content, Far(follower, lock, relay))


def _taken(folder: Path, error: StoreBusy) -> StoreBusy:
    """What to say of a folder that another process has."""
    other = find(folder)
    if other is None:
        return error
    return StoreBusy(
        f"a collector already runs on {folder} (pid {other.pid}, {other.url}): "
        "stop it, or pass another --db"
    )


def watch(health: Health, budget: Budget, log_folder: Path) -> None:
    """Show what waits in memory and in a log."""

    def log_bytes() -> dict[str, int]:
        num_bytes = 0
        for path in log_folder.glob("*.wal"):
            with suppress(FileNotFoundError):  # stored just now
                num_bytes += path.stat().st_size
        return {"log": num_bytes}

    health.gauge("queue_bytes", budget.used_bytes)
    health.gauge("stored_bytes", log_bytes)


def _watch_files(health: Health, store: DuckStore) -> None:
    health.gauge("stored_files", lambda: len(store.days))
    health.gauge("broken_files", lambda: len(store.days.broken))
    health.gauge("stored_bytes", lambda: {"store": sum(day.num_bytes() for day in store.days)})
