"""Request bodies into the store, one batch after the other: decode, insert, roll up.

The common end of every way in: the ingest thread, the replay after a crash, and the import of
files. Used by one thread at a time.
"""

import json
import logging
import sys
from collections.abc import Iterable, Sequence
from time import monotonic, time_ns
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Rollup, Span
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import RawEvent, RawLink, RawSpan, Received
from longpole_collector.decode.logs import LogEvent, parse_logs
from longpole_collector.events import clean, from_rows, join, to_rows
from longpole_collector.health import Health, num_late
from longpole_collector.normalise import Reader
from longpole_collector.rollup import Settler
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.events import WaitingEvents
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.wal import Position

_TRANSIENT: Final = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.TransactionException,
)
_JOIN_S: Final = 0.5
"""Events are looked at this often."""
_PATIENCE_NS: Final = 3_600_000_000_000
"""An event whose span has not come by then is dropped."""

_log = logging.getLogger("longpole.collector.writer")


class Writer:
    """Puts spans into a store and keeps its roll-ups."""

    def __init__(
        self,
        store: DuckStore,
        rollup: Rollup | None,
        health: Health | None = None,
        *,
        scrubber: Scrubber | None = None,
    ) -> None:
        """Open the way into a store.

        Args:
            store: where spans go.
            rollup: computes the traces' roll-ups; ``None`` for none.
            health: counts what is stored and dropped.
            scrubber: decides what of prompts, answers and ids is kept; drops content if absent.
        """
        self.health = health or Health()
        scrubber = scrubber or Scrubber(Policy(), self.health)
        self._store = store
        self._reader = Reader(self.health, scrubber)
        self._scrubber = scrubber
        self._events = WaitingEvents(store)
        self._next_join_s = 0.0
        self._settler = Settler(store, rollup, self.health)
        self.health.gauge("dirty_traces", self._settler.num_dirty)
        self.health.gauge("pending_events", self._events.num_waiting)

    def save(self) -> None:
        """Bring the store to disk: what the log has up to :meth:`stored` is no longer needed."""
        self._store.save()

    def stored(self) -> Position:
        """How far the write-ahead log is in the store."""
        return self._store.stored()

    def read(self, received: Sequence[Received]) -> pa.Table:
        """The rows of request bodies."""
        return self._reader.table(received)

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

    def write(self, rows: pa.Table, stored: Position | None = None) -> int:
        """Store rows and mark their traces; returns how many were new.

        A span that the store cannot hold is dropped alone and counted.

        Args:
            rows: columns of the span table.
            stored: place in the write-ahead log that is reached with them.

        Raises:
            duckdb.Error: the disk or memory refused; the same call again may do.
        """
        new = self._insert(rows, stored)
        self._settler.mark(new)
        self.health.add("spans_stored", num=new.num_rows)
        ended = pc.coalesce(new["end_ns"], new["start_ns"])
        self.health.add("spans_late", num=num_late(ended, new["received_ns"]))
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

    def settle(self, max_traces: int = 1000, *, everything: bool = False) -> int:
        """Join waiting events, compute due roll-ups; returns how many traces are left waiting.

        Args:
            max_traces: how many traces at most.
            everything: compute all that is dirty, due or not.
        """
        self._join_events(at_once=everything)
        return self._settler.settle(max_traces, everything=everything)

    def num_dirty(self) -> int:
        """Traces that wait for their roll-up."""
        return self._settler.num_dirty()

    def is_behind(self) -> bool:
        """Whether so many traces wait that no more spans should be taken before some are done."""
        return self._settler.is_behind()

    def _join_events(self, *, at_once: bool) -> None:
        now_s = monotonic()
        if not self._events.num_waiting() or (now_s < self._next_join_s and not at_once):
            return
        self._next_join_s = now_s + _JOIN_S
        given_up = self._events.drop_before(time_ns() - _PATIENCE_NS)
        if given_up:
            self.health.add("events_dropped", "no_span", given_up)
        before = self._events.num_waiting()
        rows = self._events.join(lambda span, events: join(span, from_rows(events)))
        if rows.num_rows:
            self._settler.mark(rows)
            self.health.add("events_joined", num=before - self._events.num_waiting())

    def _insert(self, rows: pa.Table, stored: Position | None) -> pa.Table:
        try:
            return self._store.insert(rows, stored)
        except _TRANSIENT:
            raise
        except Exception as error:
            if rows.num_rows <= 1:
                if rows.num_rows == 0:
                    raise
                self.health.add("spans_dropped", "unstorable")
                _log.warning("span %x cannot be stored: %s", rows["span_id"][0].as_py(), error)
                return self._insert(rows.slice(1), stored)
        middle = rows.num_rows // 2
        halves = (rows.slice(0, middle), None), (rows.slice(middle), stored)
        return pa.concat_tables([self._insert(part, place) for part, place in halves])


def _events_of(received: Received) -> list[LogEvent]:
    """The events of a request that the door let in."""
    return parse_logs(received.body, received.format, sys.maxsize).events
