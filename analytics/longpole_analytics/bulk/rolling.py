"""Compiled: one trace after the other, from linked spans to its row."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

import numpy as np

from longpole_analytics.bulk.calls import explain, find_calls
from longpole_analytics.bulk.columns import Answers, Columns, Facts, Times
from longpole_analytics.bulk.compiled import ZERO, Ints, Records, jit
from longpole_analytics.bulk.facts import state_facts
from longpole_analytics.bulk.grouping import link
from longpole_analytics.bulk.paths import sum_stages, walk
from longpole_analytics.bulk.rooms import MARKS, Calls, Desk, Rows
from longpole_analytics.bulk.telling import tell
from longpole_analytics.bulk.trees import (
    add_phases,
    block,
    choose_root,
    find_detached,
    plant,
    shift_clocks,
)


@jit
def roll(
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
    rows: Rows,
) -> None:
    """Roll up every trace; ``is_plain`` says which were, and have a row.

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
        rows: gets the rows.
    """
    low = ZERO
    for trace in range(len(ends)):
        high = ends[trace]
        rows.is_plain[trace] = False
        num_calls = read(
            columns, times, facts, answers, by_trace, low, high, seed, spans, known, calls, desk
        )
        if num_calls >= 0:
            num = high - low
            rows.flags[trace] = calls.pen[MARKS]
            if _partition(columns, num, spans, calls, nodes, desk, rows, trace):
                state_facts(columns, facts, num, num_calls, spans, known, desk, rows, trace)
                rows.is_plain[trace] = True
        low = high


@jit
def read(
    columns: Columns,
    times: Times,
    facts: Facts,
    answers: Answers,
    by_trace: Ints,
    low: int,
    high: int,
    seed: np.uint64,
    spans: Records,
    known: Records,
    calls: Calls,
    desk: Desk,
) -> int:
    """Link one trace and explain its calls; how many calls there are, or -1 if it is odd.

    Args:
        columns: the spans.
        times: what is known of the calls.
        facts: what they say of the whole.
        answers: the ids of their answers.
        by_trace: rows by trace.
        low: where the rows of the trace begin there.
        high: where they end.
        seed: for tables of hashes.
        spans: gets the trace.
        known: gets what is known of its calls.
        calls: gets their phases.
        desk: room to sort.
    """
    num = high - low
    if not link(columns, by_trace, low, high, seed, spans, desk):
        return -1
    num_calls = find_calls(columns, answers, num, spans, desk)
    if (
        num_calls < 0
        or not tell(columns, times, facts, num, spans, known)
        or not explain(columns, num, num_calls, spans, known, calls)
    ):
        return -1
    return num_calls


@jit
def grow(
    columns: Columns, num: int, spans: Records, calls: Calls, nodes: Records
) -> tuple[int, int]:
    """Prepare the tree of a trace (``prepare.prepare``).

    Args:
        columns: the spans.
        num: how many spans the trace has.
        spans: the trace, read.
        calls: the phases of its calls.
        nodes: gets the tree.

    Returns:
        How many nodes there are, 0 when no span has finished, -1 if the trace is odd; the flags.
    """
    num_nodes, marks = plant(columns, num, spans, nodes)
    if not num_nodes:
        return num_nodes, marks
    num_nodes, doubts = choose_root(num_nodes, nodes)
    find_detached(columns, num_nodes, nodes)
    skew = shift_clocks(num_nodes, nodes)
    if skew < 0:
        return -1, marks
    num_nodes = add_phases(num_nodes, spans, calls, nodes)
    return num_nodes, marks | doubts | skew | block(columns, num_nodes, nodes)


@jit
def _partition(
    columns: Columns,
    num: int,
    spans: Records,
    calls: Calls,
    nodes: Records,
    desk: Desk,
    rows: Rows,
    trace: int,
) -> bool:
    """Split the wall time of a trace into stages (``stages.partition``); whether it is plain."""
    num_nodes, marks = grow(columns, num, spans, calls, nodes)
    if num_nodes < 0:
        return False
    rows.flags[trace] |= marks
    rows.root_row[trace] = -1
    if not num_nodes:
        rows.start_ns[trace] = rows.end_ns[trace] = columns.start_ns[spans[0].row]
        return True
    walk(num_nodes, nodes, desk)
    sum_stages(num_nodes, nodes, desk, rows.critical_ns, rows.total_ns, trace)
    root = nodes[0].order
    rows.root_row[trace] = nodes[root].row
    rows.start_ns[trace], rows.end_ns[trace] = nodes[root].start, nodes[root].end
    return True
