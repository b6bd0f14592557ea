"""What is kept of alerts: their state, what was told, what is still to be sent, silences.

One SQLite file in the project's data folder. The watch and its couriers write it, and so do the
commands, at the same time and from other processes. What a look decided is written in one
transaction with what is to be sent, so a restart neither loses nor repeats an alert.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from longpole.errors import Unreachable
from longpole_analytics.alerts.book import Ack, Entry, Silence
from longpole_analytics.alerts.event import Event

FOLDER: Final = "alerts"
FILE: Final = "alerts.sqlite"
MAX_WAITING: Final = 1000
"""Messages that wait for one sink; the oldest beyond are given up."""
KEPT_S: Final = 30 * 86_400.0
"""How long what was sent, and what has ended, is remembered."""
_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS alerts (fingerprint TEXT PRIMARY KEY, entry TEXT NOT NULL,
    event TEXT);
CREATE TABLE IF NOT EXISTS history (id INTEGER PRIMARY KEY, ended_s REAL NOT NULL,
    event TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS silences (id INTEGER PRIMARY KEY, slo TEXT NOT NULL,
    severity TEXT NOT NULL, until_s REAL NOT NULL, comment TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS acks (fingerprint TEXT PRIMARY KEY, at_s REAL NOT NULL,
    until_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, sink TEXT NOT NULL,
    fingerprint TEXT NOT NULL, status TEXT NOT NULL, is_refresh INTEGER NOT NULL,
    event TEXT NOT NULL, created_s REAL NOT NULL, due_s REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT 'waiting',
    error TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (sink, state, fingerprint, id);
"""


class Message(NamedTuple):
    """Something to be sent to one sink."""

    id: int
    sink: str
    fingerprint: str
    status: str
    is_refresh: bool
    event: Event
    created_s: float
    tries: int


class Ledger:
    """One connection to the file; used by one thread."""

    def __init__(self, folder: Path) -> None:
        """Open or make it.

        Args:
            folder: the project's data folder.

        Raises:
            Unreachable: it cannot be read, or a newer longpole wrote it.
        """
        own = folder / FOLDER
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = own / FILE
        try:
            path.touch(mode=0o600)
            self._db = sqlite3.connect(
                path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_TABLES)
            found = int(self.meta("version") or 0)
            if not found:
                self.note("version", str(_VERSION))
        except (sqlite3.Error, OSError) as error:
            raise Unreachable(f"{path} cannot be opened: {error}") from error
        if found > _VERSION:
            self.close()
            raise Unreachable(f"{path} was written by a newer longpole")

    def close(self) -> None:
        """Let go of it."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is written within is written wholly or not at all."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- facts ----------------------------------------------------------------------------------
    def meta(self, key: str) -> str | None:
        """A fact written down."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
        return None if row is None else str(row[0])

    def note(self, key: str, value: str) -> None:
        """Write a fact down."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])

    # --- alerts ---------------------------------------------------------------------------------
    def entries(self) -> dict[str, Entry]:
        """The alerts that fire, by fingerprint."""
        rows = self._db.execute("SELECT fingerprint, entry FROM alerts").fetchall()
        return {str(name): Entry(**json.loads(text)) for name, text in rows}

    def events(self) -> dict[str, Event]:
        """What was last told of the alerts that fire."""
        rows = self._db.execute("SELECT fingerprint, event FROM alerts WHERE event IS NOT NULL")
        return {str(name): json.loads(text) for name, text in rows.fetchall()}

    def keep(self, entries: Mapping[str, Entry], events: Mapping[str, Event]) -> None:
        """Write the alerts that fire in place of those before."""
        known = self.events()
        self._db.execute("DELETE FROM alerts")
        for name, entry in entries.items():
            event = events.get(name) or known.get(name)
            told = None if event is None else json.dumps(event)
            self._db.execute(
                "INSERT INTO alerts VALUES (?, ?, ?)", [name, json.dumps(asdict(entry)), told]
            )

    def ended(self, event: Event, now_s: float) -> None:
        """Remember an alert that has ended."""
        self._db.execute(
            "INSERT INTO history (ended_s, event) VALUES (?, ?)", [now_s, json.dumps(event)]
        )
        self._db.execute("DELETE FROM acks WHERE fingerprint = ?", [event["fingerprint"]])

    def history(self, num: int) -> list[Event]:
        """The alerts that ended last, the latest first."""
        rows = self._db.execute("SELECT event FROM history ORDER BY id DESC LIMIT ?", [num])
        return [json.loads(row[0]) for row in rows.fetchall()]

    # --- people ---------------------------------------------------------------------------------
    def silence(self, silence: Silence, comment: str) -> int:
        """Keep something quiet; returns the silence's number."""
        cursor = self._db.execute(
            "INSERT INTO silences (slo, severity, until_s, comment) VALUES (?, ?, ?, ?)",
            [*silence, comment],
        )
        return int(cursor.lastrowid or 0)

    def silences(self, now_s: float) -> list[tuple[int, Silence, str]]:
        """Those that hold, with number and comment."""
        rows = self._db.execute(
            "SELECT id, slo, severity, until_s, comment FROM silences WHERE until_s > ?", [now_s]
        ).fetchall()
        return [(row[0], Silence(*row[1:4]), row[4]) for row in rows]

    def unsilence(self, number: int, now_s: float) -> bool:
        """End a silence; false where there is no such."""
        cursor = self._db.execute(
            "UPDATE silences SET until_s = ? WHERE id = ? AND until_s > ?", [now_s, number, now_s]
        )
        return cursor.rowcount > 0

    def ack(self, name: str, ack: Ack) -> None:
        """Note that somebody has taken an alert on."""
        self._db.execute("INSERT OR REPLACE INTO acks VALUES (?, ?, ?)", [name, *ack])

    def acks(self) -> dict[str, Ack]:
        """Who has taken what on, by fingerprint."""
        rows = self._db.execute("SELECT fingerprint, at_s, until_s FROM acks").fetchall()
        return {str(row[0]): Ack(*row[1:]) for row in rows}

    # --- outbox ---------------------------------------------------------------------------------
    def put(
        self, sinks: Iterable[str], event: Event, now_s: float, *, is_refresh: bool = False
    ) -> None:
        """Write down what is to be sent to each of these sinks.

        A refresh is put only where nothing of the same alert waits. What waits of an alert is
        dropped for its news, if it only says again what the news say better.
        """
        name, status = event["fingerprint"], event["status"]
        for sink in sinks:
            waiting = self._db.execute(
                "SELECT id, is_refresh, tries, status FROM outbox "
                "WHERE sink = ? AND fingerprint = ? AND state = 'waiting'",
                [sink, name],
            ).fetchall()
            if is_refresh and waiting:
                continue
            same = [row[0] for row in waiting if row[1] or row[3] == status]
            self._db.executemany("DELETE FROM outbox WHERE id = ?", [[each] for each in same])
            self._db.execute(
                "INSERT INTO outbox (sink, fingerprint, status, is_refresh, event, created_s, "
                "due_s) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [sink, name, status, is_refresh, json.dumps(event), now_s, now_s],
            )
            self._db.execute(
                "UPDATE outbox SET state = 'failed', error = 'too many waited' WHERE id IN ("
                "SELECT id FROM outbox WHERE sink = ? AND state = 'waiting' "
                "ORDER BY id DESC LIMIT -1 OFFSET ?)",
                [sink, MAX_WAITING],
            )

    def due(self, sink: str, now_s: float) -> Message | None:
        """The next message for a sink: of each alert the oldest, as its news come in order."""
        row = self._db.execute(
            "SELECT id, sink, fingerprint, status, is_refresh, event, created_s, tries "
            "FROM outbox WHERE id IN (SELECT min(id) FROM outbox "
            "WHERE sink = ? AND state = 'waiting' GROUP BY fingerprint) "
            "AND due_s <= ? ORDER BY due_s, id LIMIT 1",
            [sink, now_s],
        ).fetchone()
        if row is None:
            return None
        return Message(row[0], row[1], row[2], row[3], bool(row[4]), json.loads(row[5]), *row[6:])

    def sent(self, message: Message) -> None:
        """A message has arrived."""
        self._db.execute(
            "UPDATE outbox SET state = 'sent', tries = tries + 1, error = '' WHERE id = ?",
            [message.id],
        )

    def later(self, message: Message, due_s: float, error: str, tries: int) -> None:
        """A message is to be tried again then."""
        self._db.execute(
            "UPDATE outbox SET due_s = ?, error = ?, tries = ? WHERE id = ?",
            [due_s, error, tries, message.id],
        )

    def failed(self, message: Message, error: str) -> None:
        """A message is given up."""
        self._db.execute(
            "UPDATE outbox SET state = 'failed', error = ?, tries = tries + 1 WHERE id = ?",
            [error, message.id],
        )

    def deliveries(self, num: int) -> list[dict[str, Any]]:
        """What was sent or is to be, the latest first; without what only refreshes."""
        names = ("sink", "fingerprint", "status", "state", "tries", "error", "created_s")
        rows = self._db.execute(
            f"SELECT {', '.join(names)} FROM outbox WHERE NOT is_refresh "  # noqa: S608 - ours
            "ORDER BY id DESC LIMIT ?",
            [num],
        ).fetchall()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def num_waiting(self) -> dict[str, int]:
        """How many messages wait, by sink."""
        rows = self._db.execute(
            "SELECT sink, count(*) FROM outbox WHERE state = 'waiting' GROUP BY sink"
        ).fetchall()
        return {str(row[0]): int(row[1]) for row in rows}

    def tidy(self, now_s: float, sinks: Sequence[str]) -> None:
        """Forget what is old, and what waits for a sink that is no more."""
        old = now_s - KEPT_S
        self._db.execute("DELETE FROM outbox WHERE state <> 'waiting' AND created_s < ?", [old])
        self._db.execute(
            "DELETE FROM outbox WHERE is_refresh AND state <> 'waiting' AND created_s < ?",
            [now_s - 600],
        )
        self._db.execute("DELETE FROM history WHERE ended_s < ?", [old])
        self._db.execute("DELETE FROM silences WHERE until_s < ?", [old])
        marks = ", ".join("?" * len(sinks))
        self._db.execute(f"DELETE FROM outbox WHERE sink NOT IN ({marks})", list(sinks))  # noqa: S608
