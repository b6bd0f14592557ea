"""The way into a ClickHouse store that may be away: one block after the other, each once.

What is inserted carries a token, and rows replace themselves: what is sent again because its
answer never came, or read back from the log after a crash, is there once. Only when the store has
answered is the place reached in the log written down beside it. A crash in between costs work,
never a span.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Received
from longpole_collector.health import Health
from longpole_collector.putting import Full, Putter
from longpole_collector.stores.clickhouse.client import BadValue
from longpole_collector.stores.clickhouse.far import STORING, FarStore
from longpole_collector.stores.clickhouse.otel import shared_key
from longpole_collector.wal import Position

MARK: Final = "stored"
"""The file that says how far a log is stored, beside it."""


class FarWriter(Putter):
    """Inserts what is taken; settling is done elsewhere, over there nothing is unsaved."""

    bad_value = (BadValue,)

    def __init__(
        self, store: FarStore, folder: Path, log_folder: Path, health: Health, policy: Policy
    ) -> None:
        """Look how far the log is stored; the store itself need not answer.

        Args:
            store: where spans go.
            folder: data folder; what cannot be stored is kept aside in it.
            log_folder: where the log lies, and the place reached in it.
            health: counts what is stored and dropped.
            policy: what is kept of prompts and ids; the key is the store's own.
        """
        super().__init__(health, Scrubber(policy, health))
        self._store = store
        self._place = folder
        self._mark = log_folder / MARK
        self._stored = self._saved = _marked(self._mark)
        self._sender = secrets.token_hex(8)
        self._has_key = False

    def read(self, received: Sequence[Received]) -> pa.Table:
        """The rows of request bodies.

        Raises:
            Unreachable: the key of pseudonyms, which all who write there share, is not known yet.
        """
        if not self._has_key:
            with self._store.reached(STORING) as store:
                self.use_key(shared_key(store.client))
            self._has_key = True
        return super().read(received)

    def write(
        self, rows: pa.Table, stored: Position | None = None, full: Full | None = None
    ) -> int:
        """Insert rows; returns how many were taken, which may have been there before.

        ``full`` is never called: there is nothing to save.

        Raises:
            Unreachable: the store has not taken all; the same call again does no harm.
        """
        taken = self._put(rows, stored, full)
        self.note_stored(taken)
        self._stored = stored or self._stored
        return int(taken.num_rows)

    def save(self, *, at_once: bool = True) -> None:
        """Write down the place reached in the log.

        Raises:
            OSError: the disk refuses.
        """
        put_text(self._mark, "{}:{}".format(*self._stored))
        self._saved = self._stored

    def stored(self) -> Position:
        """How far the log is in the store."""
        return self._stored

    def is_heavy(self) -> bool:
        """Whether more is stored than is written down."""
        return self._stored != self._saved

    def num_unsaved(self) -> int:
        """None: what is taken is stored."""
        return 0

    # --- inside ---------------------------------------------------------------------------------
    def _insert(self, rows: pa.Table, stored: Position | None, full: Full | None) -> pa.Table:
        if not rows.num_rows:
            return rows
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadValue(str(error)) from error
        with self._store.reached(STORING) as store:
            store.insert(rows, self._token(rows, stored))
        return rows

    def _token(self, rows: pa.Table, stored: Position | None) -> str | None:
        """Tells these rows from all others: of those up to one place no two parts are as long."""
        if stored is None:
            return None
        return f"{self._sender}:{stored.segment}:{stored.offset}:{rows.num_rows}"

    def _takes(self, row: pa.Table) -> bool:
        """What is raised says that the value is to blame."""
        return True

    def _folder(self) -> Path | None:
        return self._place


def put_text(path: Path, text: str) -> None:
    """Put a short text into a file, wholly or not at all.

    Raises:
        OSError: the disk refuses.
    """
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="ascii")
    draft.replace(path)


def _marked(path: Path) -> Position:
    """The place that is written down; the begin where there is none."""
    try:
        segment, _, offset = path.read_text(encoding="ascii").partition(":")
        return Position(int(segment), int(offset))
    except (OSError, ValueError):
        return Position(0, 0)
