"""The traces that got spans since they were last settled."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longpole_collector.stores.schema import TRACE_HI, TRACE_LO

_KEYS: Final = [TRACE_HI, TRACE_LO]
_FACTS: Final = {
    "first_start_ns": "min",
    "last_start_ns": "max",
    "first_received_ns": "min",
    "since_s": "min",
    "last_s": "max",
}


class Dirty:
    """A table of them: their earliest and latest new span, and since when they wait.

    Changed by one thread, asked by any.
    """

    def __init__(self) -> None:
        self._new: tuple[pa.Table, ...] = ()
        self._waiting: pa.Table | None = None

    def __len__(self) -> int:
        """How many there are, at most: one that got spans several times may count for each."""
        return sum(table.num_rows for table in (*self._new, self._waiting) if table is not None)

    def has(self, hi: int, lo: int) -> bool:
        """Whether a trace, by the halves of its id, is among them."""
        tables = (*self._new, self._waiting)
        return any(
            bool(np.any((table[TRACE_HI].to_numpy() == hi) & (table[TRACE_LO].to_numpy() == lo)))
            for table in tables
            if table is not None
        )

    def since_s(self) -> float:
        """When the one that waits longest came; infinite if there is none."""
        tables = [table for table in (*self._new, self._waiting) if table is not None]
        return min(
            (float(table["since_s"].to_numpy().min(initial=np.inf)) for table in tables),
            default=np.inf,
        )

    def add(self, rows: pa.Table, now_s: float) -> None:
        """Add the traces of spans.

        Args:
            rows: ``trace_hi, trace_lo, start_ns, received_ns``, in any order.
            now_s: when they came, on a clock that never goes back.
        """
        if not rows.num_rows:
            return
        facts = {
            **{name: rows[name] for name in _KEYS},
            "first_start_ns": rows["start_ns"],
            "last_start_ns": rows["start_ns"],
            "first_received_ns": rows["received_ns"],
        }
        self.put(pa.table(facts), now_s)

    def put(self, traces: pa.Table, now_s: float) -> None:
        """Add traces.

        Args:
            traces: ``trace_hi, trace_lo, first_start_ns, last_start_ns, first_received_ns``.
            now_s: when they came.
        """
        times = pa.array(np.full(traces.num_rows, now_s))
        table = traces.append_column("since_s", times).append_column("last_s", times)
        self._new = (*self._new, _gathered(table))

    def waiting(self) -> pa.Table | None:
        """All of them, once each, the longest waiting first; ``None`` if there are none."""
        if self._new:
            tables = [table for table in (self._waiting, *self._new) if table is not None]
            self._waiting = _gathered(pa.concat_tables(tables)) if len(tables) > 1 else tables[0]
            self._new = ()
        return self._waiting if self._waiting and self._waiting.num_rows else None

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> None:
        """Forget those of :meth:`waiting` that are not marked to be kept."""
        if self._waiting is not None:
            self._waiting = self._waiting.filter(pa.array(is_kept))


def _gathered(table: pa.Table) -> pa.Table:
    """One row a trace, in order of first appearance."""
    found: Any = table.group_by(_KEYS, use_threads=False).aggregate(list(_FACTS.items()))
    return found.rename_columns([*_KEYS, *_FACTS])
