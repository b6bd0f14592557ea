"""What may lie in a day file, known without reading it: when its rows start, and which traces.

A file that holds nothing of a question's time or trace is left out of that question, so days that
nobody asks for cost nothing. Both are kept in memory: a sorted list of stretches of 73 minutes in
which something starts, so that a row with a wrong clock does not widen the rest; and, of a file
that is over, a Bloom filter of its traces (Bloom, CACM 1970) of about a byte a trace.
"""

from collections.abc import Iterable
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.stores.schema import SPANS, TRACE_LO, TRACES
from longpole_collector.stores.settle import CALLS

_SHIFT: Final = 42
"""2^42 ns are 73 minutes."""
_BITS_A_TRACE: Final = 8
_ODDS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
"""Multipliers that spread an id, one for each bit that it sets."""
_WORD: Final = (1 << 64) - 1

Words = npt.NDArray[np.uint64]


class Extent:
    """The times and traces of one file. Widened by the writing thread, asked by any."""

    def __init__(self, stretches: Iterable[int] | None = (), traces: Words | None = None) -> None:
        """Begin with what the file has.

        Args:
            stretches: numbers of the stretches in which its rows start; ``None``: any.
            traces: lower halves of the ids of all traces that it is and ever will be home of;
                ``None``: any.
        """
        known = None if stretches is None else np.unique(np.array(list(stretches), np.int64))
        self._stretches: npt.NDArray[np.int64] | None = known
        self._filter = None if traces is None else _filter_of(traces)

    def widen(self, starts: Iterable[pa.ChunkedArray]) -> None:
        """Take in the starts of rows before they are there."""
        known = self._stretches
        for column in starts:
            if known is None or len(column) == column.null_count:
                continue
            span = pc.min_max(column).as_py()
            first, last = _stretch(span["min"]), _stretch(span["max"])
            if first == last:
                new = np.array([first])
            else:
                values = pc.drop_null(column).to_numpy()
                new = np.unique(np.maximum(values, 0) >> _SHIFT)
            if not np.isin(new, known).all():
                known = np.union1d(known, new)
        self._stretches = known

    def meets(self, since_ns: int, until_ns: int) -> bool:
        """Whether a row may start in this time, both ends included."""
        known = self._stretches
        if known is None:
            return True
        place = int(np.searchsorted(known, _stretch(since_ns)))
        return place < len(known) and int(known[place]) <= _stretch(until_ns)

    def may_be_home(self, lo: int) -> bool:
        """Whether the roll-up of a trace with this lower half of its id may lie here."""
        if self._filter is None:
            return True
        shift = 64 - (len(self._filter) * 8).bit_length() + 1
        places = [(lo * odd & _WORD) >> shift for odd in _ODDS]
        return all(int(self._filter[place >> 3]) >> (place & 7) & 1 for place in places)


def measure(
    connection: duckdb.DuckDBPyConnection, catalog: str, tables: frozenset[str], *, is_over: bool
) -> Extent:
    """The extent of an attached file; of one that cannot be read, everything.

    Args:
        connection: has the file.
        catalog: its name.
        tables: those it has.
        is_over: no new trace will be at home there.
    """
    stretches: set[int] = set()
    traces: Words | None = None
    try:
        for table in (SPANS, CALLS, TRACES):
            if table.name in tables:
                rows = connection.execute(
                    f"SELECT DISTINCT greatest(start_ns, 0) >> {_SHIFT} "  # noqa: S608
                    f"FROM {catalog}.{table.name} WHERE start_ns IS NOT NULL"
                ).fetchall()
                stretches |= {row[0] for row in rows}
        if is_over and TRACES.name in tables:
            query = f"SELECT {TRACE_LO} FROM {catalog}.{TRACES.name}"  # noqa: S608
            traces = connection.sql(query).to_arrow_table()[TRACE_LO].to_numpy()
    except duckdb.Error:
        return Extent(None)
    return Extent(stretches, traces)


def _stretch(time_ns: int) -> int:
    return max(time_ns, 0) >> _SHIFT


def _filter_of(traces: Words) -> "npt.NDArray[np.uint8]":
    num_bits = 1 << max(10, (_BITS_A_TRACE * len(traces)).bit_length())
    shift = np.uint64(64 - num_bits.bit_length() + 1)
    is_set = np.zeros(num_bits, np.bool_)
    for odd in _ODDS:
        is_set[(traces * np.uint64(odd)) >> shift] = True
    return np.packbits(is_set, bitorder="little")
