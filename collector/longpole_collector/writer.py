"""Request bodies into the store, one batch after the other: decode, insert, roll up.

The common end of every way in: the ingest thread, the replay after a crash, and the import of
files. Used by one thread at a time.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from time import monotonic, time_ns
from typing import Final

import duckdb
import pyarrow as pa

from longpole.vocab import Rollup, Span
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import RawEvent, RawLink, RawSpan, Received
from longpole_collector.decode.logs import LogEvent, parse_logs
from longpole_collector.events import clean, from_rows, join, to_rows
from longpole_collector.health import Health
from longpole_collector.putting import Full, Putter
from longpole_collector.rollup import Settler
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.stores.duckdb import DuckStore, add_rows
from longpole_collector.stores.events import WaitingEvents
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.thinning import Kept
from longpole_collector.wal import Position

_BAD_VALUE: Final = (
    duckdb.DataError,  # a conversion, a number out of range
    duckdb.IntegrityError,  # null where a value must be
    duckdb.InvalidInputException,  # text that is not UTF-8
)
"""What a span can be to blame for."""
_JOIN_S: Final = 0.5
"""Events are looked at this often."""
_PATIENCE_NS: Final = 3_600_000_000_000
"""An event whose span has not come by then is dropped."""


class Writer(Putter):
    """Puts spans into a local store and keeps its roll-ups."""

    bad_value = _BAD_VALUE

    def __init__(
        self,
        store: DuckStore,
        rollup: Rollup | None,
        health: Health | None = None,
        *,
        scrubber: Scrubber | None = None,
        sampling: SamplingRules | None = None,
        kept: Kept | None = None,
    ) -> None:
        """Open the way into a store.

        Args:
            store: where spans go.
            rollup: computes the traces' roll-ups; ``None`` for none.
            health: counts what is stored and dropped.
            scrubber: decides what of prompts, answers and ids is kept; drops content if absent.
            sampling: which traces are kept; all if absent.
            kept: is told which, where they leave for another store.
        """
        health = health or Health()
        super().__init__(health, scrubber or Scrubber(Policy(), health))
        self._store = store
        self._events = WaitingEvents(store)
        self._next_join_s = 0.0
        self._settler = Settler(store, rollup, self.health, sampling, kept)
        self.health.gauge("dirty_traces", self._settler.num_dirty)
        self.health.gauge("pending_events", self._events.num_waiting)

    def save(self, *, at_once: bool = True) -> None:
        """Bring the store to disk: what the log has up to :meth:`stored` is no longer needed.

        Raises:
            StoreBusy, duckdb.Error: as :meth:`DuckStore.save
                <longpole_collector.stores.duckdb.DuckStore.save>`.
        """
        self._store.save(at_once=at_once)

    def alone(self) -> AbstractContextManager[None]:
        """With all of the store's memory: queries are set aside meanwhile."""
        return self._store.alone()

    def is_short(self, error: Exception) -> bool:
        """Whether the database had not enough memory."""
        cause = error.__cause__ or error
        is_at_commit = isinstance(cause, duckdb.TransactionException) and "block" in str(cause)
        return is_at_commit or isinstance(cause, duckdb.OutOfMemoryException)

    def num_unsaved(self) -> int:
        """Spans stored since."""
        return self._store.num_unsaved()

    def stored(self) -> Position:
        """How far the write-ahead log is in the store."""
        return self._store.stored()

    def spans(self, raws: Iterable[RawSpan]) -> list[Span]:
        """The canonical spans of raw ones."""
        return self._reader.spans(raws)

    def cleaned(self, span: Span) -> Span:
        """A canonical span from elsewhere, by this store's rules of what may be kept."""
        events = [RawEvent(**event) for event in json.loads(span.events or "[]")]
        links = [RawLink(**link) for link in json.loads(span.links or "[]")]
        return self._scrubber.clean(span, events, links)

    def write_spans(self, spans: Sequence[Span]) -> int:
        """Store canonical spans; returns how many were new."""
        return self.write(to_arrow(SPANS, spans))

    def write(
        self,
        rows: pa.Table,
        stored: Position | None = None,
        full: Full | None = None,
        *,
        is_again: bool = False,
    ) -> int:
        """Store rows and mark their traces; returns how many were new.

        A span that the store cannot hold for what it says is kept aside alone, and counted.

        Args:
            rows: columns of the span table.
            stored: place in the write-ahead log that is reached with them.
            full: called when it is the best time to save, perhaps between two of the rows.
            is_again: they were written before and lost by a save that failed: not counted again.

        Raises:
            duckdb.Error: the disk or memory refused, or the store is broken; the same call again
                stores what was not stored.
        """
        new = self._put(rows, stored, full)
        if is_again:
            return int(new.num_rows)
        self.note_stored(new)
        if new.num_rows < rows.num_rows:
            self.health.add("spans_duplicate", num=rows.num_rows - new.num_rows)
        return int(new.num_rows)

    def write_events(self, received: Sequence[Received]) -> None:
        """Store the GenAI events of logs requests; they are joined to their spans later.

        Raises:
            duckdb.Error: the disk or memory refused; the same call again may do.
        """
        rows = [
            to_rows(clean(_events_of(each), self._scrubber), each.received_ns) for each in received
        ]
        self._events.add(pa.concat_tables(rows))

    def settle(
        self, max_traces: int = 1000, *, everything: bool = False, for_s: float = inf
    ) -> int:
        """Join waiting events, compute due roll-ups; returns how many traces are left waiting.

        Where the memory does not suffice, queries make room and it is tried once more.

        Args:
            max_traces: how many traces at most.
            everything: compute all that is dirty, due or not.
            for_s: begin no more after so many seconds.
        """
        try:
            return self._settle(max_traces, everything=everything, for_s=for_s)
        except duckdb.OutOfMemoryException:
            with self.alone():
                return self._settle(max_traces, everything=everything, for_s=for_s)

    def num_dirty(self) -> int:
        """Traces that wait for their roll-up, or to be decided about."""
        return self._settler.num_waiting()

    def is_behind(self) -> bool:
        """Whether so many traces wait that no more spans should be taken before some are done."""
        return self._settler.is_behind()

    def waits_s(self) -> float:
        """How long the trace that waits longest for its roll-up has waited."""
        return self._settler.waits_s()

    def is_heavy(self) -> bool:
        """Whether so many roll-ups are not saved that they fill the memory."""
        return self._store.is_heavy()

    def _settle(self, max_traces: int, *, everything: bool, for_s: float) -> int:
        self._join_events(at_once=everything)
        return self._settler.settle(max_traces, everything=everything, for_s=for_s)

    def _join_events(self, *, at_once: bool) -> None:
        now_s = monotonic()
        if not self._events.num_waiting() or (now_s < self._next_join_s and not at_once):
            return
        self._next_join_s = now_s + _JOIN_S
        given_up = self._events.drop_before(time_ns() - _PATIENCE_NS)
        if given_up:
            self.health.add("events_dropped", "no_span", given_up)
        while True:
            before = self._events.num_waiting()
            rows = self._events.join(lambda span, events: join(span, from_rows(events)))
            if rows.num_rows:
                self._settler.mark(rows)
                self.health.add("events_joined", num=before - self._events.num_waiting())
            if not at_once or self._events.is_round:
                break

    def _insert(self, rows: pa.Table, stored: Position | None, full: Full | None) -> pa.Table:
        new = self._store.insert(rows, stored, full)
        self._settler.mark(new)
        return new

    def _takes(self, row: pa.Table) -> bool:
        received_ns = row["received_ns"][0].as_py()
        probe = to_arrow(SPANS, [_PROBE._replace(received_ns=received_ns)])
        try:
            with self._store.exclusive():
                day = self._store.days.of(received_ns)
                with self._store.transaction(day) as writer:
                    add_rows(writer, day, probe)
                    raise _Undo
        except _Undo:
            return True
        except duckdb.Error:
            return False

    def _folder(self) -> Path | None:
        place = self._store.latest_day().path
        return place and place.parent


class _Undo(Exception):
    """Take a transaction back."""


_PROBE: Final = Span(
    trace_id="0" * 31 + "1", span_id="0" * 15 + "1", parent_id=None, name="", kind="internal",
    start_ns=0, end_ns=0, received_ns=0, service=None, instance_id=None, scope=None,
    dialect="unknown", status="unset",
)  # fmt: skip


def _events_of(received: Received) -> list[LogEvent]:
    """The events of a request that the door let in."""
    return parse_logs(received.body, received.format, sys.maxsize).events
