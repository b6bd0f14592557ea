"""What is kept of reports: when the next one is due, which were made, what is still to be sent.

One SQLite file in the project's data folder. That a week's report was made is written in one
transaction with who is to get it, so a restart neither makes it twice nor loses it.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from longpole.errors import Unreachable

FOLDER: Final = "reports"
FILE: Final = "reports.sqlite"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reports (week TEXT PRIMARY KEY, made_s REAL NOT NULL,
    folder TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (week TEXT NOT NULL, sink TEXT NOT NULL,
    created_s REAL NOT NULL, due_s REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting', error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (week, sink));
"""


class Message(NamedTuple):
    """A report that is to be sent to one sink."""

    week: str
    sink: str
    folder: Path
    created_s: float
    tries: int


class Book:
    """One connection to the file."""

    def __init__(self, folder: Path) -> None:
        """Open or make it.

        Args:
            folder: the project's data folder.

        Raises:
            Unreachable: it cannot be read.
        """
        own = folder / FOLDER
        path = own / FILE
        try:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(
                path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise Unreachable(f"{path} cannot be opened: {error}") from error

    def close(self) -> None:
        """Let go of it."""
        self._db.close()

    def next_ns(self, schedule: str) -> int | None:
        """When the next report of a schedule is due; ``None`` where it is another's, or none."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", [schedule]).fetchone()
        return None if row is None else int(row[0])

    def note_next(self, schedule: str, next_ns: int) -> None:
        """Write down when it is; there is one schedule at a time."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM meta")
        self._db.execute("INSERT INTO meta VALUES (?, ?)", [schedule, str(next_ns)])
        self._db.execute("COMMIT")

    def is_made(self, week: str) -> bool:
        """Whether the report of a week was made."""
        found = self._db.execute("SELECT 1 FROM reports WHERE week = ?", [week]).fetchone()
        return found is not None

    def made(
        self, week: str, folder: Path, sinks: Iterable[str], now_s: float, schedule: str,
        next_ns: int,
    ) -> None:  # fmt: skip
        """A week's report stands in a folder: it goes to the sinks, and the next one is known."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("INSERT INTO reports VALUES (?, ?, ?)", [week, now_s, str(folder)])
            self._db.executemany(
                "INSERT INTO outbox (week, sink, created_s, due_s) VALUES (?, ?, ?, ?)",
                [(week, sink, now_s, now_s) for sink in sinks],
            )
            self._db.execute("DELETE FROM meta")
            self._db.execute("INSERT INTO meta VALUES (?, ?)", [schedule, str(next_ns)])
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def due(self, now_s: float) -> list[Message]:
        """What is to be sent at a moment."""
        rows = self._db.execute(
            "SELECT week, sink, folder, created_s, tries FROM outbox JOIN reports USING (week) "
            "WHERE state = 'waiting' AND due_s <= ? ORDER BY week, sink",
            [now_s],
        ).fetchall()
        return [Message(w, s, Path(f), float(c), int(t)) for w, s, f, c, t in rows]

    def note_sent(self, message: Message, state: str, due_s: float, error: str) -> None:
        """What came of a try: ``sent``, ``failed``, or ``waiting`` for the next one."""
        self._db.execute(
            "UPDATE outbox SET state = ?, due_s = ?, error = ?, tries = tries + 1 "
            "WHERE week = ? AND sink = ?",
            [state, due_s, error, message.week, message.sink],
        )

    def states(self) -> dict[tuple[str, str], str]:
        """What came of each report and sink."""
        rows = self._db.execute("SELECT week, sink, state FROM outbox").fetchall()
        return {(week, sink): state for week, sink, state in rows}

    def last_made_s(self) -> float | None:
        """When the last report was made."""
        row = self._db.execute("SELECT max(made_s) FROM reports").fetchone()
        return None if row is None or row[0] is None else float(row[0])
