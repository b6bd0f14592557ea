"""Compiled: which rows belong to one trace, and how its spans hang together."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return, assignment"

from typing import Final

import numpy as np
import numpy.typing as npt

from longpole_analytics.bulk.columns import NONE, ODD_FLAG, ODD_TEXT, Columns
from longpole_analytics.bulk.compiled import Ints, Records, jit, sort
from longpole_analytics.bulk.rooms import Desk

MAX_TIME_NS: Final = 1 << 62
"""Times are from 0 to this, so that the sum of two is a number; others are odd."""
MAX_WALL_NS: Final = 1 << 56
"""A longer trace is odd: a hundred times its length would be no number."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(32)


@jit
def _hash(value: np.uint64, seed: np.uint64) -> np.uint64:
    """Spread bits; the seed is another one in each process, so that no sender can pile ids up."""
    mixed = (value ^ seed) * _MIX
    mixed = (mixed ^ (mixed >> _SHIFT)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


@jit
def number_traces(
    hi: npt.NDArray[np.uint64],
    lo: npt.NDArray[np.uint64],
    seed: np.uint64,
    table: Ints,
    trace: Ints,
    first: Ints,
) -> int:
    """Number the traces in order of their first row; returns how many there are.

    Args:
        hi: upper halves of the trace ids.
        lo: lower halves.
        seed: see :func:`_hash`.
        table: all -1, twice as long as there are rows or longer, a power of two.
        trace: gets the number of each row's trace.
        first: gets the first row of each trace.
    """
    mask = np.uint64(len(table) - 1)
    num = 0
    for row in range(len(hi)):
        if row and hi[row] == hi[row - 1] and lo[row] == lo[row - 1]:
            trace[row] = trace[row - 1]
            continue
        place = _hash(_hash(hi[row], seed) ^ lo[row], seed) & mask
        while True:
            found = table[place]
            if found < 0:
                table[place] = num
                first[num] = row
                trace[row] = num
                num += 1
                break
            if hi[first[found]] == hi[row] and lo[first[found]] == lo[row]:
                trace[row] = found
                break
            place = (place + np.uint64(1)) & mask
    return num


@jit
def place_rows(trace: Ints, ends: Ints, rows: Ints) -> None:
    """List the rows of each trace together, in order.

    Args:
        trace: the number of each row's trace.
        ends: where the rows of each trace begin; afterwards, where they end.
        rows: gets the rows.
    """
    for row in range(len(trace)):
        rows[ends[trace[row]]] = row
        ends[trace[row]] += 1


@jit
def link(
    columns: Columns,
    rows: Ints,
    low: int,
    high: int,
    seed: np.uint64,
    spans: Records,
    desk: Desk,
) -> bool:
    """Put the spans of one trace in order and link them; whether the trace is plain so far.

    Odd are spans that came twice, cycles, times that are none, and texts that are empty.

    Args:
        columns: the spans.
        rows: rows by trace; those of this trace are sorted.
        low: the first of this trace in ``rows``.
        high: the end of this trace.
        seed: see :func:`_hash`.
        spans: gets ``row, up, head, tail, next, order``.
        desk: room.
    """
    num = high - low
    sort(rows, low, high, columns.start_ns, columns.span_id, columns.span_id, desk.spare)
    earliest = columns.start_ns[rows[low]]
    if earliest < 0:
        return False
    for i in range(num):
        row = rows[low + i]
        spans[i].row = row
        start, end = columns.start_ns[row], columns.end_ns[row]
        if start > MAX_TIME_NS or start - earliest > MAX_WALL_NS:
            return False
        if end != NONE and (end < 0 or end > MAX_TIME_NS or end - earliest > MAX_WALL_NS):
            return False
        if ODD_TEXT in (columns.stage[row], columns.operation[row], columns.instance[row]):
            return False
        if columns.flags[row] & ODD_FLAG:
            return False
    return _find_parents(columns, num, seed, spans, desk) and _descend(num, spans)


@jit
def _find_parents(columns: Columns, num: int, seed: np.uint64, spans: Records, desk: Desk) -> bool:
    size = 4
    while size < 2 * num:
        size *= 2
    mask = np.uint64(size - 1)
    table = desk.table
    for place in range(size):
        table[place] = -1
    for i in range(num):
        own = columns.span_id[spans[i].row]
        place = _hash(np.uint64(own), seed) & mask
        while table[place] >= 0:
            if columns.span_id[spans[table[place]].row] == own:
                return False
            place = (place + np.uint64(1)) & mask
        table[place] = i
    for i in range(num):
        spans[i].up = -1
        if not columns.has_parent[spans[i].row]:
            continue
        wanted = columns.parent_id[spans[i].row]
        place = _hash(np.uint64(wanted), seed) & mask
        while table[place] >= 0:
            if columns.span_id[spans[table[place]].row] == wanted:
                spans[i].up = table[place]
                break
            place = (place + np.uint64(1)) & mask
    return True


@jit
def _descend(num: int, spans: Records) -> bool:
    """List children, and all spans parents first; whether there is no cycle."""
    listed = 0
    for i in range(num):
        spans[i].head = spans[i].tail = spans[i].next = -1
    for i in range(num):
        up = spans[i].up
        if up < 0:
            spans[listed].order = i
            listed += 1
        elif spans[up].head < 0:
            spans[up].head = spans[up].tail = i
        else:
            spans[spans[up].tail].next = i
            spans[up].tail = i
    at = 0
    while at < listed:
        child = spans[spans[at].order].head
        while child >= 0:
            spans[listed].order = child
            listed += 1
            child = spans[child].next
        at += 1
    return listed == num
