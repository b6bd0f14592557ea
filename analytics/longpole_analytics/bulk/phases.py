"""Compiled: the phases of one model call; the rules are those of ``longpole_analytics.phases``.

``lay_client`` is ``client_phases``, ``lay_engine`` is ``engine_phases``, ``_account`` is
``_account`` and so on; each says the same formula in numbers.
"""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Any, Final

import numpy as np

from longpole.vocab import ENGINE_TTFT_STAGES, Stage
from longpole_analytics.bulk.columns import FLAGS, NONE, STAGES, Columns
from longpole_analytics.bulk.compiled import ZERO, Records, jit
from longpole_analytics.bulk.rooms import (
    AT,
    DURATION,
    FIRST_TOKEN,
    MARKS,
    NUM_AFTER,
    NUM_BEFORE,
    NUM_PARTS,
    NUM_PHASES,
    Calls,
)
from longpole_analytics.phases import MAX_FOLDED_NS

_TAIL_UNKNOWN: Final = 1 << FLAGS.index("stream_tail_unknown")
_CALL_OPAQUE: Final = 1 << FLAGS.index("call_opaque")
_NETWORK_NEGATIVE: Final = 1 << FLAGS.index("network_negative")
_ADMISSION: Final[Any] = np.int64(STAGES.index("admission"))
_TOKENIZE: Final[Any] = np.int64(STAGES.index("tokenize"))
_QUEUE: Final[Any] = np.int64(STAGES.index("queue"))
_PREFILL: Final[Any] = np.int64(STAGES.index("prefill"))
_FIRST_DECODE: Final[Any] = np.int64(STAGES.index("first_decode"))
_LATER_DECODE: Final[Any] = np.int64(STAGES.index("later_decode"))
_STREAM: Final[Any] = np.int64(STAGES.index("stream"))
_RETRY: Final[Any] = np.int64(STAGES.index("retry"))
_NETWORK: Final[Any] = np.int64(STAGES.index("network"))
_OPAQUE: Final[Any] = np.int64(STAGES.index("ttft_opaque"))
_IS_PART: Final = np.array(
    [stage in (*ENGINE_TTFT_STAGES, Stage.LATER_DECODE, Stage.STREAM) for stage in Stage] + [False]
)


@jit
def lay_client(columns: Columns, i: int, spans: Records, known: Records, calls: Calls) -> None:
    """Lay the phases of a finished client's span.

    Args:
        columns: the spans.
        i: the client's span.
        spans: the trace, linked, with its engines.
        known: what is known of the calls.
        calls: gets the phases.
    """
    row, pen = spans[i].row, calls.pen
    engine = spans[i].engine
    has_engine = _account(columns, engine if engine >= 0 else i, i, spans, known, calls)
    total = max(columns.end_ns[row] - columns.start_ns[row], 0)
    lead_end, last = total, total
    ttft = known[i].ttft_ns if known[i].ttft_ns != NONE else known[i].ttft_event_ns
    if ttft != NONE:
        lead_end = _within(ttft, ZERO, total)
        if known[i].last_content_ns != NONE:
            last = known[i].last_content_ns
        else:
            pen[MARKS] |= _TAIL_UNKNOWN
        last = _within(last, lead_end, total)
    retry = known[i].retry_ns
    if retry == NONE:
        retry = 0
        if ttft != NONE and known[i].ttft_attempt_ns != NONE:
            retry = ttft - known[i].ttft_attempt_ns
    own_id = columns.span_id[row]
    pen[AT] = 0
    _fill(i, own_id, calls, _RETRY, _within(retry, ZERO, lead_end))
    if ttft == NONE:
        _lay_whole(i, own_id, calls, has_engine, lead_end)
        return
    _lay_lead(i, own_id, calls, has_engine, lead_end)
    if has_engine:
        _put_parts(i, calls, pen[NUM_BEFORE], pen[NUM_BEFORE] + pen[NUM_AFTER], last)
    if not has_engine or not pen[NUM_AFTER]:
        _fill(i, own_id, calls, _LATER_DECODE, last)
    _fill(i, own_id, calls, _STREAM, total)


@jit
def lay_engine(columns: Columns, i: int, spans: Records, known: Records, calls: Calls) -> None:
    """Lay the phases of an engine's span without a client and child spans.

    Args:
        columns: the spans.
        i: the engine's span, finished.
        spans: the trace, linked.
        known: what is known of the calls.
        calls: gets the phases.
    """
    row, pen = spans[i].row, calls.pen
    _account_of_attributes(columns, i, i, spans, known, calls)
    total = max(columns.end_ns[row] - columns.start_ns[row], 0)
    first_token = 0 if pen[FIRST_TOKEN] == NONE else pen[FIRST_TOKEN]
    pen[AT] = max(first_token - _sum(calls, pen[NUM_BEFORE]), 0)
    _put_parts(i, calls, ZERO, pen[NUM_PARTS], total)


@jit
def _lay_lead(i: int, own_id: int, calls: Calls, has_engine: bool, end: int) -> None:
    pen = calls.pen
    if not has_engine:
        _fill(i, own_id, calls, _OPAQUE, end)
        return
    _lay_before_engine(i, own_id, calls, pen[FIRST_TOKEN], _sum(calls, pen[NUM_BEFORE]), end)
    _put_parts(i, calls, ZERO, pen[NUM_BEFORE], end)


@jit
def _lay_whole(i: int, own_id: int, calls: Calls, has_engine: bool, end: int) -> None:
    pen = calls.pen
    if not has_engine:
        pen[MARKS] |= _CALL_OPAQUE
        _fill(i, own_id, calls, _OPAQUE, end)
        return
    explained = _sum(calls, pen[NUM_PARTS])
    if _lay_before_engine(i, own_id, calls, pen[DURATION], explained, end):
        pen[MARKS] |= _CALL_OPAQUE
    _put_parts(i, calls, ZERO, pen[NUM_PARTS], end)


@jit
def _lay_before_engine(
    i: int, own_id: int, calls: Calls, inside: int, explained: int, end: int
) -> bool:
    pen = calls.pen
    waited = end - pen[AT]
    known = explained if inside == NONE else max(inside, explained)
    if known > waited:
        pen[MARKS] |= _NETWORK_NEGATIVE
    if inside == NONE:
        opaque, network = max(waited - explained, 0), 0
    else:
        network = max(waited - known, 0)
        opaque = max(min(known, waited) - explained, 0)
        if opaque <= max(MAX_FOLDED_NS, waited // 100):
            network, opaque = network + opaque, 0
    _fill(i, own_id, calls, _NETWORK, pen[AT] + network)
    _fill(i, own_id, calls, _OPAQUE, pen[AT] + opaque)
    return opaque > 0


@jit
def _account(
    columns: Columns, source: int, shown: int, spans: Records, known: Records, calls: Calls
) -> bool:
    """Write the engine's account into ``part_*`` and ``pen``; whether there is one."""
    if columns.is_engine[spans[source].row] and _account_of_children(
        columns, source, spans, known, calls
    ):
        return True
    return _account_of_attributes(columns, source, shown, spans, known, calls)


@jit
def _account_of_children(
    columns: Columns, engine: int, spans: Records, known: Records, calls: Calls
) -> bool:
    pen = calls.pen
    pen[NUM_PARTS] = pen[NUM_BEFORE] = pen[NUM_AFTER] = 0
    row = spans[engine].row
    first_token = NONE
    for wants_stream in (False, True):
        is_before = True
        child = spans[engine].head
        while child >= 0:
            child_row = spans[child].row
            child = spans[child].next
            stage, start, end = (
                columns.stage[child_row],
                columns.start_ns[child_row],
                columns.end_ns[child_row],
            )
            if stage < 0 or not _IS_PART[stage] or end == NONE:
                continue
            is_before = is_before and stage not in (_LATER_DECODE, _STREAM)
            if (stage == _STREAM) != wants_stream:
                continue
            duration = max(end - start, 0)
            _add_part(calls, stage, duration, columns.span_id[child_row])
            if is_before:
                pen[NUM_BEFORE] += 1
                first_token = max(first_token, start + duration)
            elif not wants_stream:
                pen[NUM_AFTER] += 1
    pen[DURATION] = _duration(columns, row)
    pen[FIRST_TOKEN] = known[engine].engine_ttft_ns
    if pen[NUM_BEFORE]:
        pen[FIRST_TOKEN] = first_token - columns.start_ns[row]
    return pen[NUM_PARTS] > 0


@jit
def _account_of_attributes(
    columns: Columns, source: int, shown: int, spans: Records, known: Records, calls: Calls
) -> bool:
    pen, row = calls.pen, spans[source].row
    shown_id = columns.span_id[spans[shown].row]
    pen[NUM_PARTS] = 0
    _know(calls, _ADMISSION, known[source].engine_admission_ns, shown_id)
    _know(calls, _TOKENIZE, known[source].tokenize_ns, shown_id)
    _know(calls, _QUEUE, known[source].queue_ns, shown_id)
    _know(calls, _PREFILL, known[source].prefill_ns, shown_id)
    _know(calls, _FIRST_DECODE, known[source].first_decode_ns, shown_id)
    pen[NUM_BEFORE] = pen[NUM_PARTS]
    _know(calls, _LATER_DECODE, known[source].engine_decode_ns, shown_id)
    pen[NUM_AFTER] = pen[NUM_PARTS] - pen[NUM_BEFORE]
    first_token = known[source].engine_ttft_ns
    if not (pen[NUM_PARTS] or columns.is_engine[row] or first_token != NONE):
        return False
    _know(calls, _STREAM, known[source].engine_stream_ns, shown_id)
    pen[FIRST_TOKEN] = first_token
    pen[DURATION] = _duration(columns, row) if columns.is_engine[row] else NONE
    return True


@jit
def _duration(columns: Columns, row: int) -> int:
    end = columns.end_ns[row]
    return NONE if end == NONE else max(end - columns.start_ns[row], 0)


@jit
def _know(calls: Calls, stage: int, value: int, shown_id: int) -> None:
    if value != NONE:
        _add_part(calls, stage, max(value, 0), shown_id)


@jit
def _add_part(calls: Calls, stage: int, duration: int, shown_id: int) -> None:
    at = calls.pen[NUM_PARTS]
    calls.parts[at].stage = stage
    calls.parts[at].duration_ns = duration
    calls.parts[at].shown_id = shown_id
    calls.pen[NUM_PARTS] = at + 1


@jit
def _put_parts(i: int, calls: Calls, low: int, high: int, limit: int) -> None:
    for k in range(low, high):
        _put(
            i,
            calls.parts[k].shown_id,
            calls,
            calls.parts[k].stage,
            calls.parts[k].duration_ns,
            limit,
        )


@jit
def _fill(i: int, own_id: int, calls: Calls, stage: int, end: int) -> None:
    _put(i, own_id, calls, stage, end - calls.pen[AT], end)


@jit
def _put(i: int, shown_id: int, calls: Calls, stage: int, duration: int, limit: int) -> None:
    """Lay a part, cut at ``limit``."""
    pen = calls.pen
    end = min(pen[AT] + duration, limit)
    if end > pen[AT]:
        at = pen[NUM_PHASES]
        calls.phases[at].owner = i
        calls.phases[at].stage = stage
        calls.phases[at].start = pen[AT]
        calls.phases[at].end = end
        calls.phases[at].shown_id = shown_id
        pen[NUM_PHASES] = at + 1
        pen[AT] = end


@jit
def _sum(calls: Calls, num: int) -> int:
    total = 0
    for k in range(num):
        total += calls.parts[k].duration_ns
    return total


@jit
def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
