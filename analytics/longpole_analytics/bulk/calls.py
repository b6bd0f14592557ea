"""Compiled: the model calls of one trace, and which of them are explained.

The rules are those of ``longpole_analytics.calls`` (``model_calls``) and ``stages`` (``_explain``,
``_below``), for traces in which no client's span lies beside another one of its call, none below
an engine's, and no call has two engines. Every other trace is odd.
"""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np

from longpole.vocab import Stage
from longpole_analytics.bulk.columns import (
    FLAGS,
    NO_TEXT,
    NONE,
    STAGES,
    STREAM_ERROR,
    UNKNOWN_STAGE,
    Answers,
    Columns,
)
from longpole_analytics.bulk.compiled import ZERO, Records, jit, sort
from longpole_analytics.bulk.phases import lay_client, lay_engine
from longpole_analytics.bulk.rooms import MARKS, NUM_PHASES, Calls, Desk
from longpole_analytics.calls import MAX_HOPS, MIN_INNER_PARTS
from longpole_analytics.stages import STATED
from longpole_analytics.twins import FAILED_ATTEMPT, STREAM_HEAD, STREAM_SUMMARY

_TOLD_IN_PARTS: Final = sum(
    1 << FLAGS.index(flag) for flag in (STREAM_HEAD, STREAM_SUMMARY, FAILED_ATTEMPT)
)
_IS_STATED: Final = np.array([stage in STATED for stage in Stage] + [False])
_RETRY: Final = STAGES.index(Stage.RETRY.value)
_OTHER: Final = STAGES.index(Stage.OTHER.value)
_MAX_PAIRS: Final = 1 << 22
"""Comparing more calls with one another than that is left to the reference."""
_FNV: Final = np.uint64(0x100000001B3)


@jit
def find_calls(columns: Columns, answers: Answers, num: int, spans: Records, desk: Desk) -> int:
    """Find the calls of a linked trace; returns how many there are, or -1 if it is odd.

    Args:
        columns: the spans.
        answers: the ids of their answers.
        num: how many spans the trace has.
        spans: gets ``leader`` and ``engine`` of model calls, and in ``call`` the spans that stand
            for calls, in order.
        desk: room to sort.
    """
    num_clients = num_parts = num_calls = ZERO
    for i in range(num):
        row = spans[i].row
        spans[i].outer = spans[i].engine = -1
        spans[i].leader = i
        spans[i].num_inner = 0
        spans[i].is_around_many = spans[i].is_lost = False
        if not columns.is_call[row]:
            continue
        outer = _call_above(columns, i, spans)
        if outer >= 0 and columns.is_engine[spans[outer].row]:
            return -1
        spans[i].outer = outer
        if not columns.is_engine[row]:
            num_clients += 1
            num_parts += columns.flags[row] & _TOLD_IN_PARTS != 0
    if num_clients > 1:
        if num_parts or _has_twins(columns, answers, num, spans, desk):
            return -1
        if not _group(columns, num, spans):
            return -1
    for i in range(num):
        row = spans[i].row
        if not columns.is_call[row]:
            continue
        outer = spans[i].outer
        if not columns.is_engine[row]:
            if spans[i].leader != i or spans[i].is_lost:
                continue
        elif outer >= 0 and not spans[spans[outer].leader].is_lost:
            leader = spans[outer].leader
            if spans[leader].engine >= 0:
                return -1
            spans[leader].engine = i
            continue
        spans[num_calls].call = i
        num_calls += 1
    return num_calls


@jit
def _group(columns: Columns, num: int, spans: Records) -> bool:
    """Find the leader of each client's span (``calls._grouped``); whether it was a short way."""
    for i in range(num):
        outer = spans[i].outer
        row = spans[i].row
        if outer < 0 or columns.is_engine[row]:
            continue
        outer_row = spans[outer].row
        if _length(columns, row) * MIN_INNER_PARTS >= _length(columns, outer_row):
            spans[outer].num_inner += 1
            operations = columns.operation[row], columns.operation[outer_row]
            if spans[outer].num_inner > 1 or (
                operations[0] != operations[1]
                and operations[0] != NO_TEXT
                and operations[1] != NO_TEXT
            ):
                spans[outer].is_around_many = True
    hops_left = _MAX_PAIRS
    for i in range(num):
        row = spans[i].row
        if not columns.is_call[row] or columns.is_engine[row]:
            continue
        leader = i
        while spans[leader].outer >= 0 and not spans[spans[leader].outer].is_around_many:
            leader = spans[leader].outer
            hops_left -= 1
            if hops_left < 0:
                return False
        spans[i].leader = leader
        if spans[i].is_around_many:
            spans[leader].is_lost = True
    return True


@jit
def _length(columns: Columns, row: int) -> int:
    end = columns.end_ns[row]
    return ZERO if end == NONE else max(end - columns.start_ns[row], 0)


@jit
def _call_above(columns: Columns, i: int, spans: Records) -> int:
    above = spans[i].up
    for _ in range(MAX_HOPS):
        if above < 0:
            break
        row = spans[above].row
        if (
            columns.is_call[row]
            or columns.operation[row] != NO_TEXT
            or columns.stage[row] != NO_TEXT
        ):
            break
        above = spans[above].up
    return above if above >= 0 and columns.is_call[spans[above].row] else -1


@jit
def _has_twins(columns: Columns, answers: Answers, num: int, spans: Records, desk: Desk) -> bool:
    """Whether two clients' spans beside one another may have the same answer (``twins``)."""
    num_answers = ZERO
    for i in range(num):
        row = spans[i].row
        if not columns.is_call[row] or columns.is_engine[row] or not answers.is_known[row]:
            continue
        hashed = np.uint64(0xCBF29CE484222325)
        for at in range(answers.offsets[row], answers.offsets[row + 1]):
            hashed = (hashed ^ np.uint64(answers.text[at])) * _FNV
        if columns.has_parent[row]:
            hashed = (hashed ^ np.uint64(columns.parent_id[row])) * _FNV
        desk.first[num_answers] = np.int64(hashed)
        desk.items[num_answers] = num_answers
        num_answers += 1
    sort(desk.items, ZERO, num_answers, desk.first, desk.first, desk.first, desk.spare)
    for k in range(1, num_answers):
        if desk.first[desk.items[k]] == desk.first[desk.items[k - 1]]:
            return True
    return False


@jit
def explain(
    columns: Columns, num: int, num_calls: int, spans: Records, known: Records, calls: Calls
) -> bool:
    """Lay the phases of the calls and hide what they stand for; whether the trace is plain.

    Args:
        columns: the spans.
        num: how many spans the trace has.
        num_calls: how many calls it has.
        spans: gets ``stage``, ``is_told`` and ``is_hidden``.
        known: what is known of the calls.
        calls: gets the phases.
    """
    calls.pen[NUM_PHASES] = calls.pen[MARKS] = 0
    for i in range(num):
        spans[i].is_told = spans[i].is_hidden = spans[i].is_over_call = False
        stage = columns.stage[spans[i].row]
        spans[i].stage = stage if 0 <= stage < UNKNOWN_STAGE else _OTHER
    for c in range(num_calls):
        above = spans[spans[c].call].up
        while above >= 0 and not spans[above].is_over_call:
            spans[above].is_over_call = True
            above = spans[above].up
    pairs_left = _MAX_PAIRS
    for c in range(num_calls):
        i = spans[c].call
        row = spans[i].row
        if columns.end_ns[row] == NONE or spans[i].is_over_call:
            continue
        if _IS_STATED[columns.stage[row]]:
            spans[i].is_told = True
            continue
        if known[i].is_error or known[i].stream_state == STREAM_ERROR:
            pairs_left -= num_calls
            if pairs_left < 0:
                return False
            if _is_followed(columns, i, num_calls, spans):
                spans[i].stage = _RETRY
                spans[i].is_told = True
                continue
        if not columns.is_engine[row]:
            spans[i].is_told = True
            lay_client(columns, i, spans, known, calls)
        elif not _has_stages(columns, i, spans):
            before = calls.pen[NUM_PHASES]
            lay_engine(columns, i, spans, known, calls)
            spans[i].is_told = calls.pen[NUM_PHASES] > before
    for k in range(num):
        i = spans[k].order
        up = spans[i].up
        spans[i].is_hidden = up >= 0 and (spans[up].is_told or spans[up].is_hidden)
    return True


@jit
def _is_followed(columns: Columns, i: int, num_calls: int, spans: Records) -> bool:
    """Whether a call of the same kind under the same parent starts after the end of this one."""
    row = spans[i].row
    for c in range(num_calls):
        other = spans[spans[c].call].row
        if (
            columns.start_ns[other] >= columns.end_ns[row]
            and columns.operation[other] == columns.operation[row]
            and columns.has_parent[other] == columns.has_parent[row]
            and (columns.parent_id[other] == columns.parent_id[row] or not columns.has_parent[row])
        ):
            return True
    return False


@jit
def _has_stages(columns: Columns, i: int, spans: Records) -> bool:
    """Whether a child of an engine's span tells its stage."""
    child = spans[i].head
    while child >= 0:
        if 0 <= columns.stage[spans[child].row] < UNKNOWN_STAGE:
            return True
        child = spans[child].next
    return False
