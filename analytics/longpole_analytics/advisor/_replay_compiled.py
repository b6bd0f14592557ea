"""Compiled: the replay of single spans' changes; the rules are those of ``replay_each``."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from longpole_analytics.advisor._replay import (
    DECODE,
    DECODE_STAGES,
    FIRST,
    FIRST_STAGES,
    OWN,
    WHOLE,
    Bools,
    Floats,
    Ints,
    Lengths,
    no_lengths,
)
from longpole_analytics.advisor._replay_each import INCOMPLETE
from longpole_analytics.bulk.columns import FLAGS, STAGES, Answers, Columns, Facts, Times, flatten
from longpole_analytics.bulk.compiled import ZERO, Records, jit
from longpole_analytics.bulk.replaying import Room, cut, list_children, room_for
from longpole_analytics.bulk.rolling import grow, read
from longpole_analytics.bulk.rooms import MARKS, Calls, Desk
from longpole_analytics.bulk.table import SEED, sort_rows

_KINDS: Final = np.array(
    [FIRST if s in FIRST_STAGES else DECODE if s in DECODE_STAGES else -1 for s in STAGES] + [-1],
    np.int64,
)
"""By stage, the part of a call it belongs to; the last one is of a stage that is none of ours."""
_INCOMPLETE: Final = 1 << FLAGS.index(INCOMPLETE)


class Work(NamedTuple):
    """Room by node: what is left of the time of all below, and of its own; parts of calls."""

    passed: Floats
    pace: Floats
    first: Ints
    decode: Ints
    begun: Floats


@jit
def _own(num: int, nodes: Records, desk: Desk, node: int) -> int:
    """Time of a node in which none of its children runs; they lie in ``desk.items``."""
    covered, total = nodes[node].low, ZERO
    for at in range(num):
        child = desk.items[at]
        if nodes[child].low > covered:
            total += nodes[child].low - covered
        covered = max(covered, nodes[child].high)
    return total + max(nodes[node].high - covered, 0)


@jit
def _sum_parts(num_nodes: int, nodes: Records, kinds: Ints, work: Work) -> None:
    for node in range(num_nodes):
        work.first[node] = work.decode[node] = 0
    for node in range(num_nodes):
        parent = nodes[node].parent
        length = nodes[node].high - nodes[node].low
        if nodes[node].row < 0 and parent >= 0 and length > 0:
            if kinds[nodes[node].stage] == FIRST:
                work.first[parent] += length
            elif kinds[nodes[node].stage] == DECODE:
                work.decode[parent] += length


@jit
def measure_all(
    columns: Columns,
    times: Times,
    facts: Facts,
    answers: Answers,
    by_trace: Ints,
    ends: Ints,
    seed: np.uint64,
    spans: Records,
    known: Records,
    calls: Calls,
    nodes: Records,
    desk: Desk,
    room: Room,
    work: Work,
    kinds: Ints,
    lengths: Lengths,
) -> None:
    """Fill what the trees say of each span and trace."""
    low = ZERO
    for trace in range(len(ends)):
        high = ends[trace]
        num_calls = read(
            columns, times, facts, answers, by_trace, low, high, seed, spans, known, calls, desk
        )
        num_nodes, marks = -1, 0
        if num_calls >= 0:
            num_nodes, marks = grow(columns, high - low, spans, calls, nodes)
        if num_nodes > 0:
            marks |= calls.pen[MARKS]
            root = nodes[0].order
            lengths.wall_ns[trace] = nodes[root].end - nodes[root].start
            lengths.is_sound[trace] = not marks & _INCOMPLETE
            cut(num_nodes, nodes)
            _sum_parts(num_nodes, nodes, kinds, work)
            for node in range(num_nodes):
                row = nodes[node].row
                if row < 0:
                    continue
                lengths.is_node[row] = True
                if nodes[node].high >= nodes[node].low:
                    num = list_children(nodes, desk, room, node)
                    lengths.own_ns[row] = _own(num, nodes, desk, node)
                    lengths.first_ns[row] = work.first[node]
                    lengths.decode_ns[row] = work.decode[node]
        low = high


@jit
def _left(whole: float, less: float) -> float:
    return max(1.0 - less / whole, 0.0) if whole > 0 else 1.0


@jit
def _set_paces(
    num_nodes: int, nodes: Records, desk: Desk, room: Room, work: Work, kinds: Ints, less: Floats
) -> None:
    for k in range(num_nodes):
        node = nodes[k].order
        parent, row = nodes[node].parent, nodes[node].row
        above = work.passed[parent] if parent >= 0 else 1.0
        work.passed[node] = work.pace[node] = above
        length = nodes[node].high - nodes[node].low
        if length < 0:
            continue
        if row >= 0:
            work.passed[node] = work.pace[node] = above * _left(length, less[row, WHOLE])
            if less[row, OWN] > 0:
                num = list_children(nodes, desk, room, node)
                work.pace[node] *= _left(_own(num, nodes, desk, node), less[row, OWN])
        elif parent >= 0 and nodes[parent].row >= 0:
            owner = nodes[parent].row
            kind = kinds[nodes[node].stage]
            decode = less[owner, DECODE]
            if kind == DECODE:
                work.pace[node] = above * _left(work.decode[parent], decode)
            elif kind == FIRST:
                more = 0.0 if work.decode[parent] else decode
                work.pace[node] = above * _left(work.first[parent], less[owner, FIRST] + more)


@jit
def _length(
    num_nodes: int, nodes: Records, desk: Desk, room: Room, work: Work, leader: Ints
) -> float:
    """The new duration of the root (``replay_each._length``)."""
    for k in range(num_nodes - 1, -1, -1):
        node = nodes[k].order
        low, high = nodes[node].low, nodes[node].high
        if high < low:
            continue
        pace = work.pace[node]
        num = list_children(nodes, desk, room, node)
        ended = 0
        ready = last = 0.0
        base = latest = low
        for at in range(num):
            child = desk.items[at]
            start, row = nodes[child].low, nodes[child].row
            while nodes[room.by_end[ended]].high <= start:
                earlier = room.by_end[ended]
                ready = max(ready, room.new_ends[earlier])
                base = nodes[earlier].high
                ended += 1
            starts = ready + (start - base) * pace
            group = leader[row] if row >= 0 else -1
            if group >= 0:
                if work.begun[group] < 0:
                    work.begun[group] = starts
                starts = work.begun[group]
            room.new_ends[child] = starts + room.lengths[child]
            last = max(last, room.new_ends[child])
            latest = max(latest, nodes[child].high)
        room.lengths[node] = last + (high - latest) * pace
    return room.lengths[nodes[0].order]


@jit
def replay_touched(
    columns: Columns,
    times: Times,
    facts: Facts,
    answers: Answers,
    by_trace: Ints,
    ends: Ints,
    seed: np.uint64,
    spans: Records,
    known: Records,
    calls: Calls,
    nodes: Records,
    desk: Desk,
    room: Room,
    work: Work,
    kinds: Ints,
    less: Floats,
    leader: Ints,
    touched: Bools,
    saved: Floats,
) -> None:
    """Replay the touched traces; ``saved`` gets what each would save."""
    low = ZERO
    for trace in range(len(ends)):
        high = ends[trace]
        if touched[trace]:
            num_calls = read(
                columns, times, facts, answers, by_trace, low, high, seed, spans, known, calls, desk
            )
            num_nodes = -1
            if num_calls >= 0:
                num_nodes, _ = grow(columns, high - low, spans, calls, nodes)
            if num_nodes > 0:
                root = nodes[0].order
                cut(num_nodes, nodes)
                _sum_parts(num_nodes, nodes, kinds, work)
                _set_paces(num_nodes, nodes, desk, room, work, kinds, less)
                length = _length(num_nodes, nodes, desk, room, work, leader)
                saved[trace] = nodes[root].end - nodes[root].start - length
        low = high


class Engine:
    """The table as arrays, and the replays; a trace that is odd is not sound."""

    def __init__(self, spans: pa.Table, trace: Ints, num_traces: int) -> None:
        spans = spans.combine_chunks()
        flat = flatten(spans)
        rows = sort_rows(spans, flat)
        num, num_nodes = spans.num_rows, len(rows.rooms.nodes)
        room = room_for(num_nodes)
        floats: list[Any] = [np.zeros(num_nodes) for _ in range(2)]
        sums: list[Any] = [np.zeros(num_nodes, np.int64) for _ in range(2)]
        self._work = Work(floats[0], floats[1], sums[0], sums[1], np.full(num, -1.0))
        loops = (flat.columns, flat.times, flat.facts, flat.answers)
        self._given = (*loops, rows.by_trace, rows.ends, SEED, *rows.rooms, room)
        self.lengths = no_lengths(num, num_traces)
        measure_all(*self._given, self._work, _KINDS, self.lengths)

    def saved_ns(self, less: Floats, leader: Ints, touched: Bools) -> Floats:
        """By trace, what is saved; 0 where nothing is touched."""
        saved = np.zeros(len(touched))
        self._work.begun.fill(-1.0)
        replay_touched(*self._given, self._work, _KINDS, less, leader, touched, saved)
        return saved
