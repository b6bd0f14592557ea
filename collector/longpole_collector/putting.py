"""What every way into a store shares: reading bodies, and keeping aside what no store can hold.

A batch that the store refuses for what it says is tried in halves, down to the one span that is to
blame; that one is counted, written to a file beside the log, and does not hold up the rest.
"""

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.content import Scrubber
from longpole_collector.decode import Received
from longpole_collector.health import Health, num_late
from longpole_collector.normalise import Reader
from longpole_collector.stores.schema import HEAVY, TRACE_HI, TRACE_LO
from longpole_collector.wal import Position

REJECTED: Final = "rejected.jsonl"
"""Spans that the store could not hold, in the data folder: one a line, with the reason."""
_MAX_REJECTED_BYTES: Final = 8 << 20
Full = Callable[[], object]

_log = logging.getLogger("longpole.collector.writer")


class Putter(ABC):
    """Reads bodies and puts their rows into a store: all that the write path asks of every store.

    What it asks of the local store besides, :class:`~longpole_collector.writer.Writer` has.
    """

    bad_value: ClassVar[tuple[type[Exception], ...]]
    """What the store raises where a span may be to blame."""

    def __init__(self, health: Health, scrubber: Scrubber) -> None:
        """Both count and clean what is read."""
        self.health = health
        self._scrubber = scrubber
        self._reader = Reader(health, scrubber)

    def read(self, received: Sequence[Received]) -> pa.Table:
        """The rows of request bodies."""
        return self._reader.table(received)

    def use_key(self, key: bytes) -> None:
        """From now on pseudonyms are made with this key."""
        self._scrubber = Scrubber(replace(self._scrubber.policy, key=key), self.health)
        self._reader = Reader(self.health, self._scrubber)

    def note_stored(self, rows: pa.Table) -> None:
        """Count spans that were new to the store."""
        self.health.add("spans_stored", num=rows.num_rows)
        ended = pc.coalesce(rows["end_ns"], rows["start_ns"])
        self.health.add("spans_late", num=num_late(ended, rows["received_ns"]))

    @abstractmethod
    def write(
        self, rows: pa.Table, stored: Position | None = None, full: Full | None = None
    ) -> int:
        """Store rows; returns how many were taken.

        Args:
            rows: columns of the span table.
            stored: place in the log that is reached with them.
            full: called where it is the best time to save, if there is one.
        """

    @abstractmethod
    def stored(self) -> Position:
        """How far the log is in the store."""

    @abstractmethod
    def num_unsaved(self) -> int:
        """Spans that are stored, and lost if the process dies now."""

    @abstractmethod
    def is_heavy(self) -> bool:
        """Whether it is time to save."""

    @abstractmethod
    def save(self, *, at_once: bool = True) -> None:
        """Bring to disk what was stored: the log up to :meth:`stored` is no longer needed.

        Args:
            at_once: what is in the way is set aside.
        """

    @abstractmethod
    def _insert(self, rows: pa.Table, stored: Position | None, full: Full | None) -> pa.Table:
        """Store rows, wholly or not at all; returns those that were new."""

    @abstractmethod
    def _takes(self, row: pa.Table) -> bool:
        """Whether the store takes a plain span that came when this one did; it is not kept."""

    @abstractmethod
    def _folder(self) -> Path | None:
        """Where spans are kept aside; ``None`` for nowhere."""

    def _put(self, rows: pa.Table, stored: Position | None, full: Full | None) -> pa.Table:
        """Store what can be; a batch that fails is tried in halves, down to single spans."""
        try:
            return self._insert(rows, stored, full)
        except self.bad_value as error:
            if rows.num_rows == 0:
                raise
            if rows.num_rows == 1:
                if not self._takes(rows):  # then it is not this one's fault
                    raise
                self._reject(rows, error)
                return self._put(rows.slice(1), stored, full)
        middle = rows.num_rows // 2
        halves = (rows.slice(0, middle), None), (rows.slice(middle), stored)
        return pa.concat_tables([self._put(part, place, full) for part, place in halves])

    def _reject(self, row: pa.Table, error: Exception) -> None:
        """Count a span as lost, and keep it aside while there is room."""
        self.health.add("spans_dropped", "unstorable")
        is_plain = self._scrubber.policy.content == "drop"
        span = {
            name: _value(row[name][0])
            for name in row.column_names
            if is_plain or name not in HEAVY  # prompts lie only where they can be taken out again
        }
        ids = [span[name] for name in (TRACE_HI, TRACE_LO, "span_id")]
        _log.error("span %s of trace %s, %s cannot be stored: %s", ids[2], *ids[:2], error)
        folder = self._folder()
        if folder is None:
            return
        line = json.dumps({"error": str(error), "span": span}).encode() + b"\n"
        path = folder / REJECTED
        try:
            with open(os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600), "ab") as file:
                if file.tell() + len(line) <= _MAX_REJECTED_BYTES:
                    file.write(line)
        except OSError as failure:
            _log.warning("%s cannot be written: %s", path.name, failure)


def _value(scalar: Any) -> Any:
    """A value as JSON can hold it."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.cast(pa.binary()).as_py().decode(errors="backslashreplace")
