"""Compiled: the tree of one trace; the rules are those of ``prepare`` and ``skew``."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Any, Final

import numpy as np

from longpole_analytics.bulk.columns import (
    CONSUMER,
    FLAGS,
    NO_TEXT,
    NONE,
    PRODUCER,
    STAGES,
    Columns,
)
from longpole_analytics.bulk.compiled import ZERO, Records, jit
from longpole_analytics.bulk.rooms import MAX_CLOCKS, NUM_PHASES, Calls
from longpole_analytics.prepare import ROOT_SHARE_PERCENT
from longpole_analytics.skew import MAX_SHIFT_NS, TOLERANCE_NS

_UNFINISHED: Final = 1 << FLAGS.index("unfinished_span")
_NEGATIVE: Final = 1 << FLAGS.index("negative_duration")
_INCOMPLETE: Final = 1 << FLAGS.index("incomplete_trace")
_SKEW: Final = 1 << FLAGS.index("clock_skew")
_UNCERTAIN: Final = 1 << FLAGS.index("skew_uncertain")
_TOO_LARGE: Final = 1 << FLAGS.index("skew_too_large")
_OUTLIVES: Final = 1 << FLAGS.index("stream_outlives_parent")
_DETACHED: Final = 1 << FLAGS.index("overhang_detached")
_CLIPPED: Final = 1 << FLAGS.index("overhang_clipped")
_NO_ROW: Final[Any] = np.int64(-1)
_OTHER: Final = STAGES.index("other")


@jit
def plant(columns: Columns, num: int, spans: Records, nodes: Records) -> tuple[int, int]:
    """Make a tree of the finished spans that are not hidden (``prepare._linked``).

    Args:
        columns: the spans.
        num: how many spans the trace has.
        spans: the trace, explained; gets ``above`` and ``node``.
        nodes: gets the tree, without a root.

    Returns:
        How many nodes there are, and the flags.
    """
    num_nodes, marks = ZERO, ZERO
    for k in range(num):
        i = spans[k].order
        up = spans[i].up
        is_open = up >= 0 and columns.end_ns[spans[up].row] == NONE
        spans[i].above = spans[up].above if is_open else up
    for i in range(num):
        row = spans[i].row
        spans[i].node = -1
        if spans[i].is_hidden:
            continue
        if columns.end_ns[row] == NONE:
            marks |= _UNFINISHED
            continue
        spans[i].node = num_nodes
        _put_node(nodes, num_nodes, row, columns.span_id[row])
        nodes[num_nodes].start = nodes[num_nodes].end = columns.start_ns[row]
        if columns.end_ns[row] < columns.start_ns[row]:
            marks |= _NEGATIVE
        else:
            nodes[num_nodes].end = columns.end_ns[row]
        nodes[num_nodes].stage = spans[i].stage
        nodes[num_nodes].clock = columns.instance[row]
        num_nodes += 1
    for i in range(num):
        node = spans[i].node
        if node < 0:
            continue
        above = spans[i].above
        nodes[node].parent = spans[above].node if above >= 0 else -1
        nodes[node].is_orphan = nodes[node].parent < 0 and columns.has_parent[spans[i].row]
    for node in range(num_nodes):
        if nodes[node].parent >= 0:
            _adopt(nodes, nodes[node].parent, node)
    return num_nodes, marks


@jit
def _put_node(nodes: Records, node: int, row: int, own_id: int) -> None:
    nodes[node].row = row
    nodes[node].own_id = own_id
    nodes[node].parent = nodes[node].head = nodes[node].tail = nodes[node].next = -1


@jit
def _adopt(nodes: Records, parent: int, child: int) -> None:
    nodes[child].parent = parent
    if nodes[parent].head < 0:
        nodes[parent].head = child
    else:
        nodes[nodes[parent].tail].next = child
    nodes[parent].tail = child


@jit
def _descend(nodes: Records, listed: int) -> None:
    """List what lies under the first nodes of ``order``, parents first."""
    at = 0
    while at < listed:
        child = nodes[nodes[at].order].head
        while child >= 0:
            nodes[listed].order = child
            listed += 1
            child = nodes[child].next
        at += 1


@jit
def choose_root(num_nodes: int, nodes: Records) -> tuple[int, int]:
    """Put everything under one root and fill ``order`` (``prepare._choose_root``).

    Args:
        num_nodes: how many nodes there are, at least one.
        nodes: the tree.

    Returns:
        How many nodes there are now, and the flags. A stand-in for the root has row -1.
    """
    num_tops = ZERO
    for node in range(num_nodes):
        if nodes[node].parent < 0:
            nodes[num_tops].order = node
            num_tops += 1
    marks = _INCOMPLETE if num_tops > 1 or nodes[nodes[0].order].is_orphan else 0
    _descend(nodes, num_tops)
    if num_tops == 1:
        return num_nodes, marks
    for node in range(num_nodes):
        nodes[node].low, nodes[node].high = nodes[node].start, nodes[node].end
    for k in range(num_nodes - 1, num_tops - 1, -1):
        node = nodes[k].order
        parent = nodes[node].parent
        nodes[parent].low = min(nodes[parent].low, nodes[node].low)
        nodes[parent].high = max(nodes[parent].high, nodes[node].high)
    start, end = nodes[0].low, nodes[0].high
    for node in range(num_nodes):
        start, end = min(start, nodes[node].low), max(end, nodes[node].high)
    root = _NO_ROW
    for k in range(num_tops):
        node = nodes[k].order
        covered = nodes[node].high - nodes[node].low
        if 100 * covered >= ROOT_SHARE_PERCENT * (end - start) and (
            root < 0 or _is_better_root(nodes, node, root)
        ):
            root = node
    if root < 0:
        root = num_nodes
        num_nodes += 1
        _put_node(nodes, root, _NO_ROW, ZERO)
        nodes[root].start, nodes[root].end = start, end
        nodes[root].stage, nodes[root].clock = _OTHER, NO_TEXT
    for node in range(num_nodes):
        if nodes[node].parent < 0 and node != root:
            _adopt(nodes, root, node)
    nodes[0].order = root
    _descend(nodes, ZERO + 1)
    return num_nodes, marks


@jit
def _is_better_root(nodes: Records, node: int, root: int) -> bool:
    if nodes[node].is_orphan != nodes[root].is_orphan:
        return not nodes[node].is_orphan
    long, best = nodes[node].high - nodes[node].low, nodes[root].high - nodes[root].low
    if long != best:
        return long > best
    long, best = nodes[node].end - nodes[node].start, nodes[root].end - nodes[root].start
    if long != best:
        return long > best
    return nodes[node].own_id < nodes[root].own_id


@jit
def find_detached(columns: Columns, num_nodes: int, nodes: Records) -> None:
    """Fill ``is_off`` with those nobody waits for (``prepare._detached``).

    Args:
        columns: the spans.
        num_nodes: how many nodes there are.
        nodes: the tree, with its root.
    """
    for node in range(num_nodes):
        row, parent = nodes[node].row, nodes[node].parent
        is_consumed = (
            row >= 0
            and columns.kind[row] == CONSUMER
            and parent >= 0
            and nodes[parent].row >= 0
            and columns.kind[nodes[parent].row] == PRODUCER
        )
        nodes[node].is_off = is_consumed or (row >= 0 and columns.is_detached[row])


@jit
def shift_clocks(num_nodes: int, nodes: Records) -> int:
    """Put all nodes on the root's clock (``skew.shift_clocks``).

    Args:
        num_nodes: how many nodes there are.
        nodes: the tree, with its root and what is detached.

    Returns:
        The flags, or -1 if there are too many clocks: then the trace is odd.
    """
    if not _has_clocks(num_nodes, nodes):
        for node in range(num_nodes):
            nodes[node].clock = NO_TEXT
        return 0
    for k in range(1, num_nodes):
        node = nodes[k].order
        if nodes[node].clock == NO_TEXT:
            nodes[node].clock = nodes[nodes[node].parent].clock
    num_clocks, marks = ZERO, ZERO
    for k in range(num_nodes):
        node = nodes[k].order
        clock = nodes[node].clock
        if clock == NO_TEXT or _clock_place(nodes, num_clocks, clock) >= 0:
            continue
        if num_clocks == MAX_CLOCKS:
            return -1
        above = nodes[nodes[node].parent].clock if k else NO_TEXT
        place = _clock_place(nodes, num_clocks, above)
        shift, doubts = 0, 0
        if above != NO_TEXT:
            shift, doubts = _offset(num_nodes, nodes, above, clock, nodes[place].clock_shift)
        marks |= doubts
        nodes[num_clocks].clock_of = clock
        nodes[num_clocks].clock_shift = shift
        num_clocks += 1
        if shift:
            marks |= _SKEW
    if marks & _SKEW:
        for node in range(num_nodes):
            if nodes[node].clock != NO_TEXT:
                place = _clock_place(nodes, num_clocks, nodes[node].clock)
                shift = nodes[place].clock_shift
                nodes[node].start += shift
                nodes[node].end += shift
    return marks


@jit
def _has_clocks(num_nodes: int, nodes: Records) -> bool:
    known = NO_TEXT
    for node in range(num_nodes):
        clock = nodes[node].clock
        if clock != NO_TEXT:
            if known not in (NO_TEXT, clock):
                return True
            known = clock
    return False


@jit
def _clock_place(nodes: Records, num_clocks: int, clock: int) -> int:
    for place in range(num_clocks):
        if nodes[place].clock_of == clock:
            return place
    return -1


@jit
def _offset(
    num_nodes: int, nodes: Records, above: int, clock: int, above_shift: int
) -> tuple[int, int]:
    """What to add to a clock, and the doubts (``skew._offset``)."""
    low, high, longest, best = 0, 0, -1, -1
    for k in range(1, num_nodes):
        node = nodes[k].order
        parent = nodes[node].parent
        if nodes[node].clock != clock or nodes[parent].clock != above or nodes[node].is_off:
            continue
        after = nodes[parent].start + above_shift - nodes[node].start
        before = nodes[parent].end + above_shift - nodes[node].end
        low = after if best < 0 else max(low, after)
        high = before if best < 0 else min(high, before)
        length = nodes[parent].end - nodes[parent].start
        if best < 0 or (length, nodes[node].end - nodes[node].start) > (
            longest,
            nodes[best].end - nodes[best].start,
        ):
            longest, best = length, node
    if best < 0 or (low < TOLERANCE_NS and high > -TOLERANCE_NS):
        return 0, 0
    doubts = 0
    if low <= high:
        shift = low if low > 0 else high
    else:
        doubts = _UNCERTAIN
        parent = nodes[best].parent
        # halves of two differences: the sum of four times may be no number
        starts = nodes[parent].start + above_shift - nodes[best].start
        ends = nodes[parent].end + above_shift - nodes[best].end
        shift = (starts + ends) >> 1
    if abs(shift) > MAX_SHIFT_NS:
        return 0, doubts | _TOO_LARGE
    return shift, doubts


@jit
def add_phases(num_nodes: int, spans: Records, calls: Calls, nodes: Records) -> int:
    """Lay the phases of calls under them (``prepare._add_phases``); how many nodes there are now.

    Args:
        num_nodes: how many nodes there are.
        spans: the trace.
        calls: the phases.
        nodes: the tree, on one clock.
    """
    for k in range(calls.pen[NUM_PHASES]):
        owner = spans[calls.phases[k].owner].node
        _put_node(nodes, num_nodes, _NO_ROW, calls.phases[k].shown_id)
        nodes[num_nodes].start = nodes[owner].start + calls.phases[k].start
        nodes[num_nodes].end = nodes[owner].start + calls.phases[k].end
        nodes[num_nodes].stage = calls.phases[k].stage
        nodes[num_nodes].clock = nodes[owner].clock
        nodes[num_nodes].is_off = False
        nodes[num_nodes].order = num_nodes
        _adopt(nodes, owner, num_nodes)
        num_nodes += 1
    return num_nodes


@jit
def block(columns: Columns, num_nodes: int, nodes: Records) -> int:
    """Fill ``is_off`` and ``num_blocking`` (``prepare._block``, detaching); returns the flags.

    Args:
        columns: the spans.
        num_nodes: how many nodes there are.
        nodes: the tree, on one clock, with its phases.
    """
    # low: the latest end of a stream at or below the node, NONE without any
    for k in range(num_nodes - 1, -1, -1):
        nodes[k].low = NONE
        nodes[k].num_blocking = 0
    for k in range(num_nodes - 1, 0, -1):
        node = nodes[k].order
        parent = nodes[node].parent
        if nodes[node].row >= 0 and columns.is_streamed[nodes[node].row]:
            nodes[node].low = max(nodes[node].low, nodes[node].end)
        if not nodes[node].is_off:
            nodes[parent].low = max(nodes[parent].low, nodes[node].low)
    marks = 0
    for k in range(1, num_nodes):
        node = nodes[k].order
        parent = nodes[node].parent
        if not nodes[node].is_off and nodes[node].end > nodes[parent].end:
            if nodes[node].low > nodes[parent].end:
                marks |= _OUTLIVES
            elif nodes[node].clock == nodes[parent].clock:
                nodes[node].is_off = True
                marks |= _DETACHED
            elif nodes[node].end - nodes[parent].end >= TOLERANCE_NS:
                marks |= _CLIPPED
        if not nodes[node].is_off:
            nodes[parent].num_blocking += 1
    return marks
