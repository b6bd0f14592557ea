"""The views over the part of a store that a query can need."""

from collections.abc import Callable
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt

from longpole_collector.stores import sealed
from longpole_collector.stores.base import Params
from longpole_collector.stores.days import Day, Days
from longpole_collector.stores.guard import skipped
from longpole_collector.stores.narrow import Place, Wanted, narrow
from longpole_collector.stores.schema import SPANS, TRACE_HI, TRACE_LO, TRACES
from longpole_collector.stores.views import COUNTS, over

_GAP_NS: Final = 60_000_000_000
_MAX_STRETCHES: Final = 64
_HOUR_NS: Final = 3_600_000_000_000
"""A count of minutes starts up to this long before what is counted."""


class Parts:
    """Narrows queries; used by any thread.

    Args:
        days: the store's files.
        is_settled: whether a trace's roll-up, if it has one, knows all of its spans.
    """

    def __init__(self, days: Days, is_settled: Callable[[int, int], bool]) -> None:
        self._days = days
        self._is_settled = is_settled

    def narrowed(
        self, cursor: duckdb.DuckDBPyConnection, query: str, tree: Any, params: Params
    ) -> str:
        """The query over what it can need; as it is where that is everything."""
        return narrow(query, tree, params, lambda each: self._of(cursor, each), skipped(query))

    def _of(self, cursor: duckdb.DuckDBPyConnection, wanted: Wanted) -> str | None:
        view, since_ns, until_ns, trace, among = wanted
        days = list(self._days)
        if trace is None:
            near = [day for day in days if self._meets(day, view, since_ns, until_ns)]
            if among is not None:
                return over(view, self._rows_among(near, among))
            return None if len(near) == len(days) else over(view, self._rows(near, ""))
        is_trace = f"{TRACE_HI} = {trace[0]}::UBIGINT AND {TRACE_LO} = {trace[1]}::UBIGINT"
        place = self._place(cursor, days, trace, is_trace)
        if place is None:
            return over(
                view,
                self._rows(
                    [day for day in days if self._meets(day, view, since_ns, until_ns)], is_trace
                ),
            )
        near = [day for day in days if day.extent.meets(place.since_ns, place.until_ns)]
        home = [day for day in days if day.catalog == place.home]
        is_near = f"{is_trace} AND start_ns BETWEEN {place.since_ns} AND {place.until_ns}"
        spans, rest = self._rows(near, is_near), self._rows(home, is_trace)
        return over(view, lambda table: (spans if table == SPANS.name else rest)(table))

    def _rows(self, days: list[Day], condition: str) -> Callable[[str], str]:
        where = f" WHERE {condition}" if condition else ""
        return lambda table: self._days.union(table, days, where)

    def _rows_among(self, days: list[Day], among: str) -> Callable[[str], str]:
        """Rows of the listed traces and, as half an id is enough, perhaps a few others."""
        ids = (
            f"SELECT concat('0x', substr(id, 17))::UBIGINT "  # noqa: S608
            f"FROM (SELECT unnest(string_split(${among}, ',')) AS id)"
        )
        rows = self._rows(days, "")
        return lambda table: f"SELECT * FROM ({rows(table)}) WHERE {TRACE_LO} IN ({ids})"  # noqa: S608

    @staticmethod
    def _meets(day: Day, view: str, since_ns: int, until_ns: int) -> bool:
        earlier_ns = _HOUR_NS if view in COUNTS else 0
        return day.extent.meets(since_ns, until_ns + earlier_ns)

    def _place(
        self,
        cursor: duckdb.DuckDBPyConnection,
        days: list[Day],
        trace: tuple[int, int],
        is_trace: str,
    ) -> Place | None:
        """Where a trace lies, if its roll-up knows; ids compare faster as numbers than as text."""
        if not self._is_settled(*trace):
            return None
        parts = [
            f"SELECT first_start_ns, last_start_ns, '{day.catalog}' FROM (SELECT "  # noqa: S608
            f"{sealed.read(TRACES) if day.is_sorted else '*'} "
            f"FROM {day.catalog}.{TRACES.name} WHERE {is_trace})"
            for day in days
            if TRACES.name in day.tables and day.extent.may_be_home(trace[1])
        ]
        rows = cursor.execute(" UNION ALL ".join(parts)).fetchall() if parts else []
        return Place._make(rows[0]) if rows and None not in rows[0] else None


def search(starts_ns: npt.NDArray[np.int64]) -> str:
    """SELECT of the ids in ``incoming`` that are stored.

    A span sent twice has the same start both times, so only the stretches of time that the
    batch covers are searched; the store keeps rows near time order and skips the rest.
    """
    starts = np.sort(starts_ns)
    breaks = np.flatnonzero(np.diff(starts) > _GAP_NS)
    lows = starts[np.concatenate(([0], breaks + 1))]
    highs = starts[np.concatenate((breaks, [len(starts) - 1]))]
    if len(lows) > _MAX_STRETCHES:
        lows, highs = lows[:1], highs[-1:]
    where = " OR ".join(
        f"start_ns BETWEEN {low} AND {high}" for low, high in zip(lows, highs, strict=True)
    )
    keys = f"{TRACE_HI}, {TRACE_LO}, span_id"
    return f"SELECT {keys} FROM {SPANS.name} SEMI JOIN incoming USING ({keys}) WHERE {where}"  # noqa: S608
