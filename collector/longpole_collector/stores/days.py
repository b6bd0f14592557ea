"""A folder of day files: one DuckDB file for the spans received on one day (UTC).

All are attached to one database in memory, and the union views there are all a reader sees. A
file is dropped as a whole, which gives its disk space back at once; one file cannot take the
others down; and a day that is over is written anew in order, smaller and faster to search.

    spans-20261129.duckdb    as received
    spans-20261129b.duckdb   the same day again: the first file is broken, or rewritten already
    spans-20261129s.duckdb   spans-20261129.duckdb rewritten in order, which it replaces
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Final

import duckdb

from longpole.errors import StoreBusy, Unreachable
from longpole_collector.stores import sealed
from longpole_collector.stores.extent import Extent, measure
from longpole_collector.stores.guard import first_line
from longpole_collector.stores.migrations import (
    DAY_TABLES,
    TooNew,
    migrate,
    schema_of,
)
from longpole_collector.stores.schema import MINUTES

SORTED: Final = "s"
_LETTERS: Final = ("", *"abcdefghijklmnopqr")
_FILE: Final = re.compile(r"spans-(\d{8})([a-r]?s?)\.duckdb")
OPTIONS: Final = "STORAGE_VERSION 'v1.5.0', RECOVERY_MODE 'no_wal_writes'"
"""Files stay readable by the database's previous major version. What is not yet in them is in
the collector's own log, so the database need not keep a second one."""
ROW_GROUP: Final = 30_720
"""Rows that a file being filled keeps together: what a save writes again is never more."""
_EMPTY: Final = "empty"
_TABLES: Final = {table.name: table for table in DAY_TABLES}
_ALL: Final = frozenset(_TABLES)
_TRIES: Final = 50
_PAUSE_S: Final = 0.1

_log = logging.getLogger("longpole.collector.store")


@dataclass
class Day:
    """One attached file.

    Attributes:
        date: YYYYMMDD, the day of receipt.
        catalog: its name in SQL.
        path: the file; ``None`` in memory.
        generation: counts the writes since it was attached.
        saved_generation: as of when it was last brought to disk.
        num_unsaved: spans written since.
        num_unsaved_traces: roll-ups written since.
        tables: those it has; one that is only read may lack what came later.
        is_coded: it is only read, and its minutes tell by ``width`` what they count.
        extent: what may lie in it.
    """

    date: str
    catalog: str
    path: Path | None
    generation: int = 0
    saved_generation: int = 0
    num_unsaved: int = 0
    num_unsaved_traces: int = 0
    tables: frozenset[str] = _ALL
    is_coded: bool = False
    extent: Extent = field(default_factory=Extent)

    @property
    def is_sorted(self) -> bool:
        """Whether it was rewritten in order."""
        return self.catalog.endswith(SORTED)

    @property
    def is_unsaved(self) -> bool:
        """Whether it was written to since it was brought to disk."""
        return self.path is not None and self.generation != self.saved_generation

    @property
    def is_full(self) -> bool:
        """Whether what is not saved fills whole row groups: saved now, each is written once."""
        return self.num_unsaved > 0 and self.num_unsaved % ROW_GROUP == 0

    def room(self, num_rows: int) -> int:
        """How many of these rows to write at once, so that row groups get full.

        Whole groups written at once go straight to the disk.
        """
        left = ROW_GROUP - self.num_unsaved % ROW_GROUP
        if num_rows < left:
            return num_rows
        return left if left < ROW_GROUP else num_rows // ROW_GROUP * ROW_GROUP

    def num_bytes(self) -> int:
        """Bytes on disk, the database's own log included; 0 in memory."""
        if self.path is None:
            return 0
        sizes = 0
        for path in (self.path, _log_of(self.path)):
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes


class Days:
    """The attached files, oldest first, and the union views over them.

    ``broken`` tells of files that cannot be read: name -> reason. Used under the store's lock.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, folder: Path | None, *, is_read_only: bool
    ) -> None:
        """Attach what is there.

        Raises:
            StoreBusy: another process has a file open.
            Unreachable: a newer longpole wrote a file.
        """
        self.broken: dict[str, str] = {}
        self._connection = connection
        self._folder = folder
        self._is_read_only = is_read_only
        self._days: dict[str, Day] = {}
        self._lost: dict[str, Path] = {}
        for table in DAY_TABLES:
            connection.execute(f"CREATE TABLE {_EMPTY}_{table.name} ({schema_of(table)})")
        for path in files_of(folder):
            self._try_attach(path)
        self._drop_replaced()
        self.show()

    def __iter__(self) -> Iterator[Day]:
        return iter(sorted(self._days.values(), key=lambda day: day.catalog))

    def __len__(self) -> int:
        return len(self._days)

    def of(self, received_ns: int) -> Day:
        """The file for spans received then; made if there is none."""
        date = datetime.fromtimestamp(received_ns // 1_000_000_000, UTC).strftime("%Y%m%d")
        found = [day for day in self if day.date == date and not day.is_sorted]
        if found:
            return found[-1]
        if self._folder is None:
            day = self._attach(f"d{date}", None)
        else:
            day = self._make(self._folder, date)
        self.show()
        return day

    def named(self, catalog: str) -> Day:
        """The attached file of this name in SQL."""
        return self._days[catalog]

    def detach(self, day: Day, *, unlink: bool) -> None:
        """Let go of a file; running queries end undisturbed. ``unlink`` removes it for good."""
        self._days.pop(day.catalog, None)
        self.show()
        with suppress(duckdb.Error):  # what could not be attached whole
            self._connection.execute(f"DETACH {day.catalog}")
        if unlink and day.path is not None:
            _unlink(day.path)

    def replace(self, old: Day, draft: Path) -> Day:
        """Put a rewritten file in a file's place: attached first, so that no reader misses it."""
        path = draft.with_name(f"spans-{old.catalog[1:]}{SORTED}.duckdb")
        draft.rename(path)
        new = self._attach(_catalog(path), path)
        self.detach(old, unlink=True)
        return new

    def save(self, day: Day) -> None:
        """Bring a file to disk.

        Raises:
            duckdb.TransactionException: a query still sees what was deleted or replaced since;
                nothing has happened.
            duckdb.Error: it cannot be.
        """
        self._connection.execute(f"CHECKPOINT {day.catalog}")
        day.saved_generation = day.generation
        day.num_unsaved = day.num_unsaved_traces = 0

    def reopen(self, days: Iterable[Day]) -> None:
        """Attach files anew after a save that failed: what was not saved is gone from them.

        Raises:
            duckdb.Error: not all can be yet; those are left out until :meth:`restore` succeeds.
        """
        for day in days:
            if day.path is not None:
                self._lost[day.catalog] = day.path
                self.detach(day, unlink=False)
        self.restore()

    def restore(self) -> None:
        """Attach what :meth:`reopen` could not; nothing to do is fine.

        Raises:
            duckdb.Error: it still cannot be.
        """
        for catalog, path in list(self._lost.items()):
            for left in reversed(range(_TRIES)):
                try:
                    self._attach(catalog, path)
                    break
                except duckdb.Error:  # a query still has it
                    if not left:
                        raise
                    sleep(_PAUSE_S)
            del self._lost[catalog]
            self.show()

    def show(self) -> None:
        """Make the union views anew over what is attached now."""
        for table in DAY_TABLES:
            union = self.union(table.name, self)
            self._connection.execute(f"CREATE OR REPLACE VIEW {table.name} AS {union}")

    @staticmethod
    def union(table: str, days: Iterable[Day], where: str = "") -> str:
        """SELECT of a table's rows in some files: ``day`` names the file, ``place`` is the row's.

        Args:
            table: its name.
            days: the files.
            where: a WHERE over its columns, for each file.
        """
        # the empty one gives every column, also those a file of an older schema lacks
        parts = [f"SELECT *, NULL::VARCHAR AS day, NULL::BIGINT AS place FROM {_EMPTY}_{table}"]  # noqa: S608
        parts += [
            "SELECT "  # noqa: S608
            f"{sealed.read(_TABLES[table], is_sorted=day.is_sorted, is_coded=day.is_coded)}, "
            f"'{day.catalog}' AS day, rowid AS place FROM {day.catalog}.{table}{where}"
            for day in days
            if table in day.tables
        ]
        return " UNION ALL BY NAME ".join(parts)

    def measure(self) -> None:
        """Look anew at what lies in the files."""
        for day in self:
            is_over = day.is_sorted
            day.extent = measure(self._connection, day.catalog, day.tables, is_over=is_over)

    def quarantine(self) -> bool:
        """After a failed read: detach every file that cannot be read; whether one was found."""
        bad = [(day, reason) for day in self if (reason := self._fault(day))]
        for day, reason in bad:
            self._mark_broken(day.path, reason)
            self.detach(day, unlink=False)
        return bool(bad)

    # --- inside ---------------------------------------------------------------------------------
    def _make(self, folder: Path, date: str) -> Day:
        taken = {path.name for path in folder.glob("spans-*.duckdb")}
        for letter in _LETTERS:
            stem = f"spans-{date}{letter}"
            if not {f"{stem}.duckdb", f"{stem}{SORTED}.duckdb"} & taken:
                path = folder / f"{stem}.duckdb"
                day = self._attach(_catalog(path), path)
                self._connection.execute(f"CHECKPOINT {day.catalog}")  # its tables are there
                return day
        raise Unreachable(f"no free name for {date} in {folder}: move the broken files away")

    def _try_attach(self, path: Path) -> None:
        try:
            self._attach(_catalog(path), path)
        except TooNew as error:
            raise Unreachable(f"{path.name}: {error}") from error
        except duckdb.Error as error:
            reason = first_line(error)
            if "set lock" in reason:
                raise StoreBusy(f"{path} is open elsewhere: {reason}") from error
            with suppress(duckdb.Error):
                self._connection.execute(f"DETACH {_catalog(path)}")
            self._mark_broken(path, reason)

    def _attach(self, catalog: str, path: Path | None) -> Day:
        target = ":memory:" if path is None else str(path).replace("'", "''")
        options = f"{OPTIONS}, ROW_GROUP_SIZE {ROW_GROUP}"
        if self._is_read_only:
            options = "READ_ONLY"
        how = "" if path is None else f" ({options})"
        self._connection.execute(f"ATTACH '{target}' AS {catalog}{how}")
        if not self._is_read_only:
            if path is not None:
                path.chmod(0o600)
            if migrate(self._connection, catalog):
                with suppress(duckdb.Error):  # without room on the disk it is done again next time
                    self._connection.execute(f"CHECKPOINT {catalog}")
        day = Day(catalog[1:9], catalog, path)
        if self._is_read_only:
            query = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = $1"
            found = self._connection.execute(query, [catalog]).fetchall()
            day.tables = _ALL & {name for name, _ in found}
            day.is_coded = (MINUTES.name, "is_stage") not in found
        day.extent = measure(self._connection, catalog, day.tables, is_over=day.is_sorted)
        self._days[catalog] = day
        return day

    def _drop_replaced(self) -> None:
        """A crash between the two steps of a rewrite leaves both files; the new one is whole."""
        for day in list(self):
            if day.catalog + SORTED in self._days:
                self._days.pop(day.catalog)
                self._connection.execute(f"DETACH {day.catalog}")
                if not self._is_read_only and day.path is not None:
                    _unlink(day.path)

    def _fault(self, day: Day) -> str:
        """Why a file cannot be read; empty if every block of it can."""
        for name in sorted(day.tables):
            query = f"SELECT count(hash(t)) FROM {day.catalog}.{name} t"  # noqa: S608
            try:
                self._connection.cursor().execute(query).fetchall()
            except duckdb.Error as error:
                return first_line(error)
        return ""

    def _mark_broken(self, path: Path | None, reason: str) -> None:
        name = path.name if path is not None else "memory"
        self.broken[name] = reason
        _log.error("%s cannot be read and is left out: %s", name, reason)


def files_of(folder: Path | None) -> list[Path]:
    """The day files in a folder, oldest first."""
    if folder is None:
        return []
    return sorted(path for path in folder.glob("spans-*.duckdb") if _FILE.fullmatch(path.name))


def _catalog(path: Path) -> str:
    found = _FILE.fullmatch(path.name)
    assert found is not None  # noqa: S101 - the names are ours
    return f"d{found[1]}{found[2]}"


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    _log_of(path).unlink(missing_ok=True)
