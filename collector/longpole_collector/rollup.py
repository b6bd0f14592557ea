"""Keeping one row and the stages of every trace, and its calls, up to date.

What a trace's stages are is analytics and comes in as a plug-in (:class:`longpole.vocab.Rollup`);
here is only when: a trace becomes dirty when a span of it is stored and is computed anew once it
has been quiet for a moment, or when it has waited long enough. Which of its spans are calls is
settled at the same time (:mod:`longpole_collector.stores.settle`). After a restart the traces
whose last spans were not settled yet are found by their arrival.
"""

import gc
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import LongpoleError
from longpole.family import load
from longpole.vocab import Rollup, Span
from longpole.vocab.trace import Trace, TraceStage
from longpole_collector.dirty import Dirty
from longpole_collector.health import Health
from longpole_collector.kin import Kin, recent
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.narrow import Place
from longpole_collector.stores.rollups import Rollups, Unsettled
from longpole_collector.stores.schema import (
    SPANS,
    STAGES,
    TRACE_HI,
    TRACE_LO,
    TRACES,
    from_arrow,
    hex_ids,
    matching,
    to_arrow,
    trace_numbers,
)
from longpole_collector.stores.settle import Calls, Settled
from longpole_collector.thinning import Kept, Thinner

QUIET_S: Final = 0.3
"""A trace is computed this long after its last span."""
PATIENCE_S: Final = 0.8
"""A trace that never gets quiet is computed this often."""
MAX_DIRTY: Final = 1_000_000
_MANY_TRACES: Final = 2_500
"""Computed at once at most: the more, the less a read of the store costs a trace."""
_RECEIVED_MARGIN_NS: Final = 60_000_000_000
"""Arrivals are not stored strictly in order; a restart looks back this much further."""
_KIN_WINDOW_NS: Final = 600_000_000_000
_MAX_KIN: Final = 200_000
"""How far back, and how many, spans are looked at for kin after a restart."""

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


class Settler:
    """Settles dirty traces: their calls and their roll-ups; used by the writing thread only."""

    def __init__(
        self,
        store: DuckStore,
        rollup: Rollup | None,
        health: Health,
        sampling: SamplingRules | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._store = store
        self._rollups = Rollups(store)
        self._rollup = rollup
        self._health = health
        self._dirty = Dirty()
        self._kin = Kin()
        self._calls = Calls(store.price)
        self._last_received_ns = 0
        if rollup is not None:
            unsettled = self._rollups.unsettled(rollup.version, _RECEIVED_MARGIN_NS)
            self._dirty.put(_waiting(unsettled), 0.0)
            # all that arrived until then is among these: once they are settled, so is that
            firsts = (each.first_received_ns for each in unsettled)
            self._last_received_ns = max(firsts, default=0)
            with store.writing() as reader:
                self._note_kin(recent(reader, _KIN_WINDOW_NS, _MAX_KIN))
        store.is_settled = self.is_settled
        self._thinner: Thinner | None = None
        if rollup is not None and sampling is not None and sampling.is_on:
            self._thinner = Thinner(store, sampling, health, self._kin.of, kept)
            health.gauge("undecided_traces", self._thinner.num_waiting)

    def num_dirty(self) -> int:
        """Traces that wait for their roll-up, at most."""
        return len(self._dirty)

    def num_waiting(self) -> int:
        """Those, and those that wait to be decided about."""
        return len(self._dirty) + (self._thinner.num_waiting() if self._thinner else 0)

    def is_behind(self) -> bool:
        """Whether so many wait that no more spans should be taken before some are settled."""
        return len(self._dirty) > MAX_DIRTY

    def waits_s(self) -> float:
        """How long the trace that waits longest has waited."""
        return max(0.0, monotonic() - self._dirty.since_s())

    def is_settled(self, hi: int, lo: int) -> bool:
        """Whether the roll-up of a trace, if it has one, knows all of its spans; any thread."""
        return self._rollup is not None and not self._dirty.has(hi, lo)

    def mark(self, rows: pa.Table) -> None:
        """Note that these rows of the span table are now stored."""
        if self._rollup is None or not rows.num_rows:
            return
        self._dirty.add(rows, monotonic())
        self._last_received_ns = max(self._last_received_ns, _most(rows["received_ns"]))
        self._note_kin(rows)

    def settle(
        self, max_traces: int = 1000, *, everything: bool = False, for_s: float = inf
    ) -> int:
        """Settle what is due; returns how many traces are left waiting.

        Args:
            max_traces: how many at most.
            everything: settle all that is dirty, due or not.
            for_s: begin no more after so many seconds.
        """
        if self._rollup is None:
            return 0
        left, end_s = max_traces, monotonic() + for_s
        while left > 0 and (waiting := self._dirty.waiting()) is not None:
            now_s = monotonic()
            if now_s > end_s:
                break
            is_due = (waiting["last_s"].to_numpy() <= now_s - QUIET_S) | (
                waiting["since_s"].to_numpy() <= now_s - PATIENCE_S
            )
            due = np.flatnonzero(is_due | everything)
            if not len(due):
                break
            num = _MANY_TRACES if everything else min(left, _MANY_TRACES)
            self._settle(self._rollup, waiting, due[:num])
            left -= 0 if everything else num
        if self._thinner is not None and not everything:
            self._thinner.decide(self._dirty.waiting())
        return self.num_waiting()

    # --- inside ---------------------------------------------------------------------------------
    def _note_kin(self, rows: pa.Table) -> None:
        """Remember who may be kin; traces whose kin changed are dirty too."""
        changed = sorted(self._kin.note(rows))
        if changed:
            self._dirty.put(_waiting([Unsettled(each, *_UNKNOWN) for each in changed]), monotonic())

    def _settle(self, rollup: Rollup, waiting: pa.Table, due: "np.ndarray[Any, Any]") -> None:
        """Settle these of the waiting, and with them all their kin."""
        is_kept = np.ones(waiting.num_rows, np.bool_)
        is_kept[due] = False
        ids = hex_ids(waiting.take(due))
        kin = self._kin.of(ids)
        if kin:
            ids += sorted(kin)
            is_kept[_rows_of(waiting, kin)] = False
        traces = waiting.filter(pa.array(~is_kept))
        places = self._rollups.places(ids)
        since_ns = min([_least(traces["first_start_ns"]), *(p.since_ns for p in places.values())])
        until_ns = max([_most(traces["last_start_ns"]), *(p.until_ns for p in places.values())])
        with self._store.writing() as reader:
            settled = self._calls.settle(reader, trace_numbers(ids), since_ns, until_ns)
        with _no_collection():
            traces, stages = self._rolled(rollup, settled.spans)
        left = waiting.filter(pa.array(is_kept))
        traces = _completed(traces, settled)
        self._replace(traces, stages, places, settled, left)
        if self._thinner is not None:
            self._thinner.note(_undecided(traces))
        self._dirty.keep(is_kept)  # a failed one is not tried again before its next span

    def _rolled(self, rollup: Rollup, spans: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows of all traces among these spans, and of their stages."""
        if rollup.compute_table is not None:
            try:
                return rollup.compute_table(spans)
            except Exception:  # noqa: BLE001 - a plug-in's fault must not stop ingest
                self._health.add("rollup_errors")
                _log.exception("roll-up of many traces failed, trying each")
        of_trace: dict[str, list[Span]] = defaultdict(list)
        for span in from_arrow(SPANS, Span, spans):
            of_trace[span.trace_id].append(span)
        traces: list[Trace] = []
        stages: list[TraceStage] = []
        for trace_id, its_spans in of_trace.items():
            try:
                trace, its_stages = rollup.compute(its_spans)
            except Exception:  # noqa: BLE001 - as above
                self._health.add("rollup_errors")
                _log.exception("roll-up of trace %s failed", trace_id)
            else:
                traces.append(trace)
                stages += its_stages
        return to_arrow(TRACES, traces), to_arrow(STAGES, stages)

    def _replace(
        self,
        traces: pa.Table,
        stages: pa.Table,
        places: Mapping[str, Place],
        settled: Settled,
        left: pa.Table,
    ) -> None:
        roles = settled.roles
        if (
            roles.num_rows and traces.num_rows < settled.scope.num_rows
        ):  # no roll-up, no home for its merged calls
            roles = matching(roles, traces.select([TRACE_HI, TRACE_LO]), is_in=True)
        first_left_ns = _least(left["first_received_ns"])
        settled_ns = min(first_left_ns - 1, self._last_received_ns) or None
        self._rollups.replace(traces, stages, places, settled.calls, roles, settled_ns)
        if settled.attempts.num_rows:
            self._rollups.put_attempts(settled.attempts)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's search for cycles: all the spans live until the end, and none is in one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_COUNTS: Final = ("num_calls", "num_retries")
_SUMS: Final = (*_COUNTS, "input_tokens", "cached_input_tokens", "output_tokens")
_UNKNOWN: Final = (np.iinfo(np.int64).max, np.iinfo(np.int64).min, np.iinfo(np.int64).max)
"""First start, last start and first arrival that widen nothing."""


def _undecided(traces: pa.Table) -> pa.Table:
    """What :meth:`Dirty.put <longpole_collector.dirty.Dirty.put>` takes of rows of traces."""
    found = traces.select([TRACE_HI, TRACE_LO, "first_start_ns", "last_start_ns"])
    return found.append_column("first_received_ns", traces["first_start_ns"])


def _weights(spans: pa.Table) -> pa.Table:
    """What traces stand for as their senders say: the root, else the span that says least."""
    keys = [TRACE_HI, TRACE_LO]
    told = spans.select([*keys, "parent_id", "weight"]).filter(spans["weight"].is_valid())
    is_root = told["parent_id"].is_null()
    inner = pc.if_else(is_root, None, told["weight"])
    root = pc.if_else(is_root, told["weight"], None)
    parts = told.select(keys).append_column("root", root).append_column("inner", inner)
    found = parts.group_by(keys).aggregate([("root", "min"), ("inner", "min")])
    weight = pc.coalesce(found["root_min"], found["inner_min"])
    return found.select(keys).append_column("weight", weight)


def _waiting(traces: Sequence[Unsettled]) -> pa.Table:
    table = trace_numbers([trace.trace_id for trace in traces])
    for name in Unsettled._fields[1:]:
        values = [getattr(trace, name) for trace in traces]
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table


def _rows_of(waiting: pa.Table, trace_ids: set[str]) -> list[int]:
    """Which of the waiting these are."""
    wanted = trace_numbers(list(trace_ids))
    near = np.flatnonzero(np.isin(waiting[TRACE_LO].to_numpy(), wanted[TRACE_LO].to_numpy()))
    found = zip(near.tolist(), hex_ids(waiting.take(near)), strict=True)
    return [row for row, trace_id in found if trace_id in trace_ids]


def _completed(traces: pa.Table, settled: Settled) -> pa.Table:
    """Rows of traces with where their spans lie and what their calls sum up to.

    A call that two traces tell of counts in one.
    """
    keys = [TRACE_HI, TRACE_LO]
    starts = settled.spans.select([*keys, "start_ns"]).group_by(keys)
    starts = starts.aggregate([("start_ns", "min"), ("start_ns", "max")])
    numbers = pa.array(range(traces.num_rows), pa.int64())
    found = traces.select(keys).append_column("row", numbers)
    found = found.join(starts, keys=keys).join(settled.sums, keys=keys).sort_by("row")
    for name in _SUMS:
        values = found[name]
        if name in _COUNTS:
            values = pc.fill_null(values, 0)
        values = values.cast(pa.int64())
        traces = traces.set_column(traces.column_names.index(name), name, values)
    # no call is no cost, not one of 0
    costs = pc.if_else(pc.greater(found["num_calls"], 0), found["cost_usd"], None)
    traces = traces.set_column(traces.column_names.index("cost_usd"), "cost_usd", costs)
    elsewhere = [bool(value) for value in found["is_elsewhere"].to_pylist()]
    if any(elsewhere):
        flags = [
            [*marks, "call_elsewhere"] if is_so else marks
            for marks, is_so in zip(traces["flags"].to_pylist(), elsewhere, strict=True)
        ]
        place = traces.column_names.index("flags")
        traces = traces.set_column(place, "flags", pa.array(flags, pa.list_(pa.string())))
    if settled.spans["weight"].null_count < settled.spans.num_rows:
        weights = traces.select(keys).append_column("row", numbers)
        weights = weights.join(_weights(settled.spans), keys=keys).sort_by("row")
        traces = traces.append_column("weight", weights["weight"])
    traces = traces.append_column("first_start_ns", found["start_ns_min"])
    return traces.append_column("last_start_ns", found["start_ns_max"])


def _least(values: pa.ChunkedArray) -> int:
    return int(values.to_numpy().min(initial=_UNKNOWN[0]))


def _most(values: pa.ChunkedArray) -> int:
    return int(values.to_numpy().max(initial=_UNKNOWN[1]))
