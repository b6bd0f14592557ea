"""Keeping a store small and safe: retention, rewriting days that are over, backup.

Each works on whole files, so the space comes back at once, and while others read and write.
"""

import logging
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from longpole.errors import BadInput
from longpole_collector.stores import sealed
from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import OPTIONS, Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import DAY_TABLES, OF_TRACES, listed
from longpole_collector.stores.schema import SPANS, TRACES
from longpole_collector.stores.settle import CALLS
from longpole_collector.stores.stale import mark_where

_DRAFT: Final = "rewritten.tmp"
_COPY: Final = "backup.tmp"
_GONE: Final = "(trace_hi, trace_lo) IN (SELECT (trace_hi, trace_lo) FROM gone)"
_log = logging.getLogger("longpole.collector.store")


class Retention(NamedTuple):
    """How long and how much is kept: days of receipt, bytes of all day files; ``None``: any."""

    days: int | None = 30
    max_bytes: int | None = None


def prune(store: DuckStore, retention: Retention, now: datetime | None = None) -> list[str]:
    """Drop the days that are too old, then the oldest while all are too large; names them.

    The day that is being filled stays.
    """
    today = (now or datetime.now(UTC)).date()
    dropped: list[str] = []
    with store.exclusive():
        days = [day for day in store.days if day is not store.latest_day()]
        if retention.days is not None:
            first = (today - timedelta(days=retention.days)).strftime("%Y%m%d")
            for day in [day for day in days if day.date < first]:
                days.remove(day)
                store.days.detach(day, unlink=True)
                dropped.append(day.date)
        if retention.max_bytes is not None:
            while days and sum(day.num_bytes() for day in store.days) > retention.max_bytes:
                day = days.pop(0)
                store.days.detach(day, unlink=True)
                dropped.append(day.date)
    if dropped:
        _log.info("dropped the days %s", ", ".join(dropped))
    return dropped


def rewrite(store: DuckStore, day: Day) -> bool:
    """Write a day's file anew in order, in its place; whether that was done.

    It is not when the file was written to meanwhile: then it is tried again later. A crash leaves
    the old file or the new one.
    """
    if day.path is None or day.is_sorted:
        return False
    draft = day.path.with_name(_DRAFT)
    _remove(draft)
    generation = day.generation
    cursor = store.cursor()
    try:
        cursor.execute(
            f"ATTACH '{_quoted(draft)}' AS draft ({OPTIONS}, BLOCK_SIZE {sealed.BLOCK_SIZE})"
        )
        try:
            _copy_ordered(cursor, day.catalog)
        finally:
            cursor.execute("DETACH draft")
        _to_disk(draft)
        with store.exclusive():
            if day.generation != generation:
                return False
            store.days.replace(day, draft)
            _to_disk(day.path.parent)
        return True
    finally:
        cursor.close()
        _remove(draft)


def backup(store: DuckStore, target: Path) -> list[str]:
    """Copy every day file as it is now into a new folder; names the files.

    Spans that were acknowledged and are not stored yet (they take about a second) are not in it.

    Raises:
        BadInput: the target is there already, or the store is in memory.
    """
    if target.exists():
        raise BadInput(f"{target} is there already: name a new folder")
    target.mkdir(mode=0o700, parents=True)
    names: list[str] = []
    cursor = store.cursor()
    try:
        for day in list(store.days):
            if day.path is None:
                raise BadInput("a store in memory cannot be backed up")
            copy = day.path.with_name(_COPY)
            _remove(copy)
            size = f", BLOCK_SIZE {sealed.BLOCK_SIZE}" if day.is_sorted else ""
            cursor.execute(f"ATTACH '{_quoted(copy)}' AS copy ({OPTIONS}{size})")
            try:
                cursor.execute(f"COPY FROM DATABASE {day.catalog} TO copy")
                cursor.execute("CHECKPOINT copy")
            finally:
                cursor.execute("DETACH copy")
            shutil.move(copy, target / day.path.name)
            (target / day.path.name).chmod(0o600)
            names.append(day.path.name)
    finally:
        cursor.close()
    return names


def copy_ledgers(folder: Path, target: Path) -> list[str]:
    """Copy what others keep beside the spans, as ``alerts/alerts.sqlite``; names the files.

    They may be written meanwhile: a copy is whole, as of one moment.
    """
    names: list[str] = []
    for path in sorted(folder.glob("*/*.sqlite")):
        name = path.relative_to(folder)
        copy = target / name
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        copy.touch(mode=0o600)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as sink:
            source.backup(sink)
        names.append(str(name))
    return names


def forget_person(store: DuckStore, pseudonym: str) -> int:
    """Remove every trace that carries a user's or session's pseudonym; returns how many."""
    column = "strpos(attributes, $1) > 0 OR strpos(events, $1) > 0 OR conversation_id = $1"
    with store.exclusive() as writer:
        traces = writer.sql(
            f"SELECT DISTINCT trace_hi, trace_lo FROM {SPANS.name} WHERE {column}",  # noqa: S608
            params=[pseudonym],
        ).to_arrow_table()
        if not traces.num_rows:
            return 0
        for day in store.days:
            with store.transaction(day) as cursor, registered(cursor, gone=traces):
                for table in (SPANS, CALLS, TRACES):
                    mark_where(cursor, day.catalog, table.name, _GONE)
                for table in OF_TRACES:
                    cursor.execute(
                        f"DELETE FROM {day.catalog}.{table.name} AS old USING gone WHERE "  # noqa: S608
                        "old.trace_hi = gone.trace_hi AND old.trace_lo = gone.trace_lo"
                    )
        store.save()
    return int(traces.num_rows)


def _copy_ordered(cursor: duckdb.DuckDBPyConnection, catalog: str) -> None:
    cursor.execute(f"CREATE TABLE draft.meta AS FROM {catalog}.meta")
    for table in DAY_TABLES:
        columns = listed(sealed.columns(cursor, catalog, table))
        cursor.execute(f"CREATE TABLE draft.{table.name} ({columns})")
        rows = sealed.written(cursor, catalog, table)
        cursor.execute(f"INSERT INTO draft.{table.name} BY NAME {rows}")
    cursor.execute("CHECKPOINT draft")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
