"""Keeping one row and the stages of every trace up to date.

What a trace's stages are is analytics and comes in as a plug-in (:class:`longpole.vocab.Rollup`);
here is only when: a trace becomes dirty when a span of it is stored and is computed anew once it
has been quiet for a moment, or when it has waited long enough. After a restart the traces whose
last spans were not rolled up yet are found by their arrival.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from longpole.errors import LongpoleError
from longpole.family import load
from longpole.vocab import Rollup, Span
from longpole.vocab.trace import Trace, TraceStage
from longpole_collector.health import Health
from longpole_collector.stores.duckdb import DuckStore

QUIET_S: Final = 0.3
"""A trace is computed this long after its last span."""
PATIENCE_S: Final = 0.8
"""A trace that never gets quiet is computed this often."""
_MAX_TRACES: Final = 500
_MAX_HELD: Final = 100_000
"""Spans of dirty traces held in memory at most."""
_RECEIVED_MARGIN_NS: Final = 60_000_000_000
"""Arrivals are not stored strictly in order; a restart looks back this much further."""

_log = logging.getLogger("longpole.collector.rollup")


def load_rollup() -> Rollup | None:
    """The installed roll-up; ``None``, said once in the log, when there is none that works."""
    try:
        members = load(None, "ROLLUP", Rollup)
    except (ImportError, LongpoleError) as error:
        _log.warning("traces get no roll-up: %s", error)
        return None
    if not members:
        _log.warning("traces get no roll-up: no plug-in in the group longpole.rollup")
    return next(iter(members.values()), None)


@dataclass(slots=True)
class _Mark:
    """A dirty trace: since when, its last span, its earliest start and arrival, its new spans.

    ``spans`` by span id, so that a new trace need not be read back from the store; ``None`` when
    there were too many to hold.
    """

    since_s: float
    last_s: float
    first_start_ns: int
    first_received_ns: int
    spans: dict[str, Span] | None


class Settler:
    """Computes the roll-ups of dirty traces; used by the writing thread only."""

    def __init__(self, store: DuckStore, rollup: Rollup | None, health: Health) -> None:
        self._store = store
        self._rollup = rollup
        self._health = health
        self._dirty: dict[str, _Mark] = {}
        self._num_held = 0
        self._last_received_ns = 0
        if rollup is not None:
            for trace in store.unsettled(rollup.version, _RECEIVED_MARGIN_NS):
                self._dirty[trace.trace_id] = _Mark(
                    0.0, 0.0, trace.first_start_ns, trace.first_received_ns, None
                )

    def num_dirty(self) -> int:
        """Traces that wait."""
        return len(self._dirty)

    def mark(self, spans: Sequence[Span]) -> None:
        """Note that these spans are now stored."""
        if self._rollup is None:
            return
        now_s = monotonic()
        for span in spans:
            mark = self._dirty.get(span.trace_id)
            if mark is None:
                mark = _Mark(now_s, now_s, span.start_ns, span.received_ns, {})
                self._dirty[span.trace_id] = mark
            mark.last_s = now_s
            if span.start_ns < mark.first_start_ns:
                mark.first_start_ns = span.start_ns
            self._hold(mark, span)
            if span.received_ns > self._last_received_ns:
                self._last_received_ns = span.received_ns

    def _hold(self, mark: _Mark, span: Span) -> None:
        if mark.spans is None or span.span_id in mark.spans:
            return
        if self._num_held < _MAX_HELD:
            mark.spans[span.span_id] = span
            self._num_held += 1
        else:
            self._num_held -= len(mark.spans)
            mark.spans = None

    def settle(self, *, everything: bool = False) -> int:
        """Compute what is due, a bounded number of traces; returns how many are left waiting.

        Args:
            everything: compute all that is dirty, due or not.
        """
        if self._rollup is None or not self._dirty:
            return 0
        now_s = monotonic()
        due = [
            trace_id
            for trace_id, mark in self._dirty.items()
            if everything or now_s - mark.last_s >= QUIET_S or now_s - mark.since_s >= PATIENCE_S
        ]
        if not everything:
            del due[_MAX_TRACES:]
        for start in range(0, len(due), _MAX_TRACES):
            self._compute(self._rollup, due[start : start + _MAX_TRACES])
        return len(self._dirty)

    def _compute(self, rollup: Rollup, trace_ids: Sequence[str]) -> None:
        marks = {trace_id: self._dirty[trace_id] for trace_id in trace_ids}
        known_ns = self._store.first_starts(trace_ids)
        found = self._spans_of(marks, known_ns)
        rolled: dict[str, tuple[Trace, Sequence[TraceStage], int]] = {}
        for trace_id, spans in found.items():
            try:
                trace, stages = rollup.compute(spans)
            except Exception:  # noqa: BLE001 - a plug-in's fault must not stop ingest
                self._health.add("rollup_errors")
                _log.exception("roll-up of trace %s failed", trace_id)
            else:
                rolled[trace_id] = (trace, stages, min(span.start_ns for span in spans))
        self._store.replace_rollups(rolled, known_ns.keys(), self._settled_ns(marks))
        for trace_id in trace_ids:  # a failed one is not tried again before its next span
            del self._dirty[trace_id]
        self._num_held -= sum(len(mark.spans or ()) for mark in marks.values())

    def _spans_of(
        self, marks: Mapping[str, _Mark], known_ns: Mapping[str, int]
    ) -> dict[str, Sequence[Span]]:
        """All spans of these traces: as held, or from the store if it has earlier ones."""
        found: dict[str, Sequence[Span]] = {}
        since_ns: dict[str, int] = {}
        for trace_id, mark in marks.items():
            if mark.spans is None or trace_id in known_ns:
                first_ns = mark.first_start_ns
                since_ns[trace_id] = min(first_ns, known_ns.get(trace_id, first_ns))
            else:
                found[trace_id] = list(mark.spans.values())
        return found | self._store.spans_of(since_ns)

    def _settled_ns(self, done: Mapping[str, _Mark]) -> int | None:
        """Arrival up to which everything is rolled up once ``done`` is.

        ``None`` when nothing new is known.
        """
        waiting = [
            mark.first_received_ns for trace_id, mark in self._dirty.items() if trace_id not in done
        ]
        return min(waiting) - 1 if waiting else self._last_received_ns or None
