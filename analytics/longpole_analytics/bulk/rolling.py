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
        num = high - low
        rows.is_plain[trace] = False
        if link(columns, by_trace, low, high, seed, spans, desk):
            num_calls = find_calls(columns, answers, num, spans, desk)
            if (
                num_calls >= 0
                and tell(columns, times, facts, num, spans, known)
                and explain(columns, num, num_calls, spans, known, calls)
            ):
                rows.flags[trace] = calls.pen[MARKS]
                if _partition(columns, num, spans, calls, nodes, desk, rows, trace):
                    state_facts(columns, facts, num, num_calls, spans, known, desk, rows, trace)
                    rows.is_plain[trace] = True
        low = high


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
    num_nodes, marks = plant(columns, num, spans, nodes)
    rows.root_row[trace] = -1
    if not num_nodes:
        rows.start_ns[trace] = rows.end_ns[trace] = columns.start_ns[spans[0].row]
        rows.flags[trace] |= marks
        return True
    num_nodes, doubts = choose_root(num_nodes, nodes)
    find_detached(columns, num_nodes, nodes)
    skew = shift_clocks(num_nodes, nodes)
    if skew < 0:
        return False
    num_nodes = add_phases(num_nodes, spans, calls, nodes)
    marks |= doubts | skew | block(columns, num_nodes, nodes)
    walk(num_nodes, nodes, desk)
    sum_stages(num_nodes, nodes, desk, rows.critical_ns, rows.total_ns, trace)
    root = nodes[0].order
    rows.root_row[trace] = nodes[root].row
    rows.start_ns[trace], rows.end_ns[trace] = nodes[root].start, nodes[root].end
    rows.flags[trace] |= marks
    return True
