"""Raw spans into the store, one after the other: dialect, append, roll-up.

The common end of every way in: the ingest thread, the replay after a crash, and the import of
files. Used by one thread at a time.
"""

import logging
from collections.abc import Iterable, Sequence

import duckdb

from longpole.vocab import Rollup, Span
from longpole_collector.decode import RawSpan
from longpole_collector.health import Health
from longpole_collector.normalise import Normaliser
from longpole_collector.rollup import Settler
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.wal import Position

_TRANSIENT = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.TransactionException,
)
_log = logging.getLogger("longpole.collector.writer")


class Writer:
    """Puts spans into a store and keeps its roll-ups."""

    def __init__(
        self,
        store: DuckStore,
        rollup: Rollup | None,
        health: Health | None = None,
        *,
        keep_content: bool = False,
    ) -> None:
        self.health = health or Health()
        self._store = store
        self._normaliser = Normaliser(self.health, keep_content=keep_content)
        self._settler = Settler(store, rollup, self.health)
        self.health.gauge("dirty_traces", self._settler.num_dirty)

    def normalise(self, raws: Iterable[RawSpan]) -> list[Span]:
        """The canonical spans of raw ones."""
        return [self._normaliser.span(raw) for raw in raws]

    def write(self, spans: Sequence[Span], stored: Position | None = None) -> int:
        """Store spans and mark their traces; returns how many were new.

        A span that the store cannot hold is dropped alone and counted.

        Args:
            spans: canonical spans.
            stored: place in the write-ahead log that is reached with them.

        Raises:
            duckdb.Error: the disk or memory refused; the same call again may do.
        """
        num_new = self._append(spans, stored)
        self._settler.mark(spans)
        self.health.add("spans_stored", num=num_new)
        self.health.add("spans_duplicate", num=len(spans) - num_new)
        return num_new

    def settle(self, *, everything: bool = False) -> int:
        """Compute due roll-ups; returns how many traces are left waiting."""
        return self._settler.settle(everything=everything)

    def _append(self, spans: Sequence[Span], stored: Position | None) -> int:
        try:
            return self._store.append(spans, stored)
        except _TRANSIENT:
            raise
        except Exception as error:
            if len(spans) <= 1:
                if not spans:
                    raise
                self.health.add("spans_dropped", "unstorable")
                _log.warning("span %s cannot be stored: %s", spans[0].span_id, error)
                return self._append((), stored)
        middle = len(spans) // 2
        return self._append(spans[:middle], None) + self._append(spans[middle:], stored)
