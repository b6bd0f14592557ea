"""Taking out of the store what is not kept: when a trace is decided, and what is then done.

A trace that was rolled up waits until it got no span for a while; then :mod:`sampling
<longpole_collector.sampling>` decides. Until then it is stored like any other and stands for
itself. What is kept gets its weight. What is not is taken out, but goes on being counted by the
minute, and its id is remembered for a while: what comes of it later goes too.

Nothing has to be known over a restart but what is in the store: a trace that has no note of when
it was decided is decided then. A trace that gets more spans is decided again by the same random
number; the smaller probability holds, and its weight tells it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time_ns
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from longpole.config import find_file, read_file
from longpole_collector.dirty import Dirty
from longpole_collector.health import Health
from longpole_collector.sampling import Sampler
from longpole_collector.sampling_rules import CLASSES, SamplingRules
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.sampled import Sampled
from longpole_collector.stores.schema import TRACE_HI, TRACE_LO, hex_ids, matching
from longpole_collector.tracestate import ALL

LATENCIES: Final = (
    *("ttft_ms", "ttfv_ms", "tpot_ms", "e2e_ms", "time_to_useful_ms", "time_to_accepted_ms"),
)
"""Metrics of objectives that one trace alone can break."""
_MANY: Final = 4000
"""Decided at once at most: meanwhile no span is stored."""
_MOST_WAITING: Final = 500_000
"""Of more the longest waiting are decided before they have been quiet for long."""
_PAUSE_S: Final = 1.0
_FORGET_S: Final = 600.0
"""Ids of dropped traces are let go of this often."""
_NS_PER_S: Final = 1_000_000_000
_FIRST_NS: Final = -(1 << 63)
Kept = Callable[[pa.Table, int], object]
"""Takes ``trace_hi, trace_lo, first_start_ns, last_start_ns`` of traces that are kept, and when
that was decided: a number that grows. It is written down, and not saved yet."""
_log = logging.getLogger("longpole.collector.sampling")


class Thinner:
    """Decides about traces and takes out those that are not kept; used by the writing thread."""

    def __init__(
        self,
        store: DuckStore,
        rules: SamplingRules,
        health: Health,
        kin: Callable[[Sequence[str]], set[str]] = lambda _ids: set(),
        kept: Kept | None = None,
    ) -> None:
        """Find what was not decided yet.

        Args:
            store: has the traces.
            rules: which are kept.
            health: counts what was decided.
            kin: the traces that tell of one call with these; they are kept or dropped together.
            kept: is told what is kept, where that leaves for another store; ``None`` where all
                stays in this one.
        """
        self._rules = rules
        self._health = health
        self._kin = kin
        self._kept = kept
        self._sampled = Sampled(store, rules.slices, is_relay=kept is not None)
        self._sampler = Sampler(rules)
        self._conditions = violations()
        self._judge = duckdb.connect(":memory:", config={"enable_external_access": False})
        self._waiting = Dirty()
        self._next_s = self._forget_s = 0.0
        self._waiting.put(self._sampled.undecided(self._oldest_ns()), monotonic())
        window_ns = time_ns() - int(rules.window_s * _NS_PER_S)
        self._sampler.learn(self._sampled.decided(window_ns, _MOST_WAITING), monotonic())

    def num_waiting(self) -> int:
        """Traces that are not decided yet, at most."""
        return len(self._waiting)

    def note(self, traces: pa.Table) -> None:
        """Take in traces that were rolled up just now; columns as of :meth:`Dirty.put`.

        Those from before traces were sampled are left, and old ones, which are rolled up anew.
        """
        is_ours = (traces["first_start_ns"].to_numpy() >= self._sampled.since_ns) & (
            traces["last_start_ns"].to_numpy() >= self._oldest_ns()
        )
        if is_ours.any():
            self._waiting.put(traces.filter(pa.array(is_ours)), monotonic())

    def decide(self, busy: pa.Table | None) -> None:
        """Decide some of the traces that were quiet for long enough, about once a second.

        Args:
            busy: traces with spans that are not rolled up yet: they are left for later.

        Raises:
            duckdb.Error: the store refused; the traces wait on.
        """
        now_s = monotonic()
        if now_s < self._next_s or (waiting := self._waiting.waiting()) is None:
            return
        last_s = waiting["last_s"].to_numpy()
        due = np.flatnonzero(last_s <= now_s - self._rules.quiet_s)
        if waiting.num_rows - len(due) > _MOST_WAITING:
            due = np.argsort(last_s, kind="stable")[: waiting.num_rows - _MOST_WAITING]
        if not len(due):
            self._next_s = now_s + _PAUSE_S
            return
        due = due[:_MANY]
        ids = waiting.take(due).select([TRACE_HI, TRACE_LO, "first_start_ns", "last_start_ns"])
        keys = [TRACE_HI, TRACE_LO]
        free = ids if busy is None else matching(ids, busy.select(keys), is_in=False)
        if free.num_rows:
            self._decide(free, now_s)
        is_kept = np.ones(waiting.num_rows, np.bool_)
        is_kept[due] = False  # a busy one is noted again when it is rolled up
        self._waiting.keep(is_kept)
        if now_s >= self._forget_s:
            self._forget_s = now_s + _FORGET_S
            self._sampled.forget(self._horizon_ns())

    # --- inside ---------------------------------------------------------------------------------
    def _horizon_ns(self) -> int:
        return time_ns() - int(self._rules.remember_s * _NS_PER_S)

    def _oldest_ns(self) -> int:
        """Traces whose last span begins earlier stay as they are; not where all have to leave."""
        return self._horizon_ns() if self._kept is None else _FIRST_NS

    def _decide(self, ids: pa.Table, now_s: float) -> None:
        facts = self._sampled.facts(ids)
        late = self._sampled.gone(ids)
        facts = matching(facts, late, is_in=False) if late.num_rows else facts
        facts, before = self._with_kin(facts), None
        keys = [TRACE_HI, TRACE_LO]
        if self._kept is not None:
            before = self._sampled.kept_before(ids)
            facts = matching(facts, before.select(keys), is_in=False)
        facts = facts.append_column("is_violation", pa.array(self._is_violation(facts)))
        found = self._sampler.decide(facts, now_s)
        kept = facts.select(keys).append_column("weight", pa.array(found.weight))
        kept = kept.filter(pa.array(found.is_kept))
        kept = kept if before is None else pa.concat_tables([kept, before])
        at_ns = self._sampled.apply(
            kept,
            facts.select(keys).filter(pa.array(~found.is_kept)),
            late,
            (ids["first_start_ns"].to_numpy().min(), ids["last_start_ns"].to_numpy().max()),
        )
        if self._kept is not None:
            self._kept(matching(ids, kept.select(keys), is_in=True), at_ns)
        for place, name in enumerate(CLASSES):
            num = int(np.count_nonzero(found.is_kept & (found.reason == place)))
            if num:
                self._health.add("traces_kept", name, num)
        num_gone = facts.num_rows - int(found.is_kept.sum())
        if num_gone:
            self._health.add("traces_dropped", "sampling", num_gone)
        if late.num_rows:
            self._health.add("traces_dropped", "late", late.num_rows)

    def _with_kin(self, facts: pa.Table) -> pa.Table:
        """Traces that tell of one call draw by the random number of the first of them."""
        ids = hex_ids(facts)
        if not self._kin(ids):
            return facts
        numbers = facts["randomness"].to_pylist()
        for row, trace_id in enumerate(ids):
            others = self._kin([trace_id])
            if others and numbers[row] is None:
                numbers[row] = int(min(trace_id, *others), 16) & (ALL - 1)
        place = facts.column_names.index("randomness")
        return facts.set_column(place, "randomness", pa.array(numbers, pa.int64()))

    def _is_violation(self, facts: pa.Table) -> Any:
        """Whether each trace breaks an objective."""
        is_so = np.zeros(facts.num_rows, np.bool_)
        if not facts.num_rows:
            return is_so
        self._judge.register("facts", facts)
        try:
            for name, condition in list(self._conditions.items()):
                try:
                    told = self._judge.sql(
                        f"SELECT coalesce({condition}\n, false)::BOOLEAN AS is_so FROM facts"  # noqa: S608 - of the configuration
                    ).to_arrow_table()
                except duckdb.Error as error:
                    first = str(error).splitlines()[0]
                    _log.warning("traces are not kept for breaking slo.%s: %s", name, first)
                    del self._conditions[name]
                else:
                    is_so |= told["is_so"].to_numpy()
        finally:
            self._judge.unregister("facts")
        return is_so


def violations(tables: Mapping[str, object] | None = None) -> dict[str, str]:
    """SQL over the facts of a trace that says whether it breaks an objective, by its name.

    Args:
        tables: the tables ``[slo.NAME]``; ``None`` reads the nearest ``longpole.toml``.
    """
    if tables is None:
        tables = read_file(find_file()).get("slo", {})
    found: dict[str, str] = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        metric, threshold = table.get("metric"), table.get("threshold")
        where = table.get("where") or "true"
        if metric in LATENCIES and isinstance(threshold, int | float):
            found[name] = f"({where}\n) AND {metric} > {float(threshold)!r}"
    return found
