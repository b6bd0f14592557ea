"""Compiled: the replay of every trace with a stage made faster; the rules are those of ``whatif``.

Prepared trees come from the same loops as the roll-up's; ``_replayed`` names the same formula as
``whatif._replayed``, in the same order of operations, so that both give the same numbers.
"""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole_analytics.bulk.columns import Answers, Columns, Facts, Times
from longpole_analytics.bulk.compiled import ZERO, Bools, Ints, Records, jit, sort
from longpole_analytics.bulk.rolling import grow, read
from longpole_analytics.bulk.rooms import MARKS, Calls, Desk

Floats = npt.NDArray[np.float64]


class Questions(NamedTuple):
    """What is asked of every trace: a stage's number and the fraction it is faster by."""

    stage: Ints
    faster_by: Floats


class Replays(NamedTuple):
    """What was found of each trace; ``saved_ns`` has one column per question."""

    is_plain: Bools
    flags: Ints
    wall_ns: Ints
    saved_ns: Floats


class Room(NamedTuple):
    """Room for one replay, by node: children in order of their ends, new ends, new lengths."""

    by_end: Ints
    new_ends: Floats
    lengths: Floats


@jit
def replay_all(
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
    questions: Questions,
    found: Replays,
) -> None:
    """Replay every trace once a question; ``is_plain`` says of which there is an answer.

    Args:
        columns: the spans.
        times: what is known of the calls.
        facts: what they say of the whole.
        answers: the ids of their answers.
        by_trace: rows by trace; the rows of each are sorted.
        ends: where the rows of each trace end there.
        seed: for tables of hashes.
        spans: room for a trace.
        known: room for what is known of its calls.
        calls: room for its calls.
        nodes: room for its tree.
        desk: room to sort.
        room: room for a replay.
        questions: what is asked.
        found: gets the answers.
    """
    low = ZERO
    for trace in range(len(ends)):
        high = ends[trace]
        num_calls = read(
            columns, times, facts, answers, by_trace, low, high, seed, spans, known, calls, desk
        )
        num_nodes, marks = -1, 0
        if num_calls >= 0:
            num_nodes, marks = grow(columns, high - low, spans, calls, nodes)
        found.is_plain[trace] = num_nodes >= 0
        if num_nodes >= 0:
            found.flags[trace] = calls.pen[MARKS] | marks
        if num_nodes > 0:
            root = nodes[0].order
            found.wall_ns[trace] = nodes[root].end - nodes[root].start
            cut(num_nodes, nodes)
            for k in range(len(questions.stage)):
                stage, faster_by = questions.stage[k], questions.faster_by[k]
                length = _replayed(num_nodes, nodes, desk, room, stage, faster_by)
                found.saved_ns[trace, k] = found.wall_ns[trace] - length
        low = high


@jit
def cut(num_nodes: int, nodes: Records) -> None:
    """Cut what is waited for to its parent: [``low``, ``high``], empty of what is not played."""
    for node in range(num_nodes):
        nodes[node].low, nodes[node].high = 0, -1
    root = nodes[0].order
    nodes[root].low, nodes[root].high = nodes[root].start, nodes[root].end
    for k in range(num_nodes):
        node = nodes[k].order
        if nodes[node].high < nodes[node].low:
            continue
        child = nodes[node].head
        while child >= 0:
            low = max(nodes[child].start, nodes[node].low)
            high = min(nodes[child].end, nodes[node].high)
            if high > low and not nodes[child].is_off:
                nodes[child].low, nodes[child].high = low, high
            child = nodes[child].next


@jit
def _replayed(
    num_nodes: int, nodes: Records, desk: Desk, room: Room, stage: int, faster_by: float
) -> float:
    """The new duration of the root (``whatif._saved``)."""
    for k in range(num_nodes - 1, -1, -1):
        node = nodes[k].order
        low, high = nodes[node].low, nodes[node].high
        if high < low:
            continue
        pace = 1.0 - (faster_by if nodes[node].stage == stage else 0.0)
        num = list_children(nodes, desk, room, node)
        ended = 0
        ready = last = 0.0
        base = latest = low
        for at in range(num):
            child = desk.items[at]
            start = nodes[child].low
            while nodes[room.by_end[ended]].high <= start:
                earlier = room.by_end[ended]
                ready = max(ready, room.new_ends[earlier])
                base = nodes[earlier].high
                ended += 1
            room.new_ends[child] = ready + (start - base) * pace + room.lengths[child]
            last = max(last, room.new_ends[child])
            latest = max(latest, nodes[child].high)
        room.lengths[node] = last + (high - latest) * pace
    return room.lengths[nodes[0].order]


@jit
def list_children(nodes: Records, desk: Desk, room: Room, node: int) -> int:
    """The children that are played, by start in ``items`` and by end; how many there are."""
    num = ZERO
    child = nodes[node].head
    while child >= 0:
        if nodes[child].high > nodes[child].low:
            desk.items[num] = room.by_end[num] = child
            desk.first[child], desk.second[child] = nodes[child].low, nodes[child].high
            num += 1
        child = nodes[child].next
    if num > 1:
        sort(desk.items, ZERO, num, desk.first, desk.second, desk.second, desk.spare)
        sort(room.by_end, ZERO, num, desk.second, desk.first, desk.first, desk.spare)
    return num


def room_for(num_nodes: int) -> Room:
    """Room for a replay of so many nodes."""
    arrays: list[Any] = [np.zeros(num_nodes, np.int64), np.zeros(num_nodes), np.zeros(num_nodes)]
    return Room(*arrays)
