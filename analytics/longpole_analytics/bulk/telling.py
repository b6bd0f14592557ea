"""Compiled: what all spans of a model call know; the rules are those of ``calls._known``."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Final

from longpole_analytics.bulk.columns import FLAGS, NO_TEXT, NONE, Columns, Facts, Times
from longpole_analytics.bulk.compiled import Records, jit
from longpole_analytics.calls import FIRST_EVENT

MAX_FACT: Final = 1 << 55
"""More nanoseconds than a year, and more attempts than that, are odd: sums would be no numbers."""
MAX_TOKENS: Final = 1 << 40
"""More tokens of one call are odd."""

_FIRST_EVENT: Final = 1 << FLAGS.index(FIRST_EVENT)


@jit
def tell(
    columns: Columns, times: Times, facts: Facts, num: int, spans: Records, known: Records
) -> bool:
    """Put together what is known of each call, best source first; whether all of it is plain.

    Args:
        columns: the spans.
        times: what they say of the times of a call.
        facts: what they say of the whole.
        num: how many spans the trace has.
        spans: the trace, its calls found.
        known: gets it, by the span that stands for the call.
    """
    num_native = 0
    for i in range(num):
        row = spans[i].row
        if columns.is_call[row]:
            if not _is_sane(times, facts, row):
                return False
            _forget(known, i)
            num_native += columns.is_native[row]
    for is_native in (True, False):
        if is_native and not num_native:
            continue
        for i in range(num):
            row = spans[i].row
            if columns.is_call[row] and columns.is_native[row] == is_native:
                leader = spans[i].leader
                later = columns.start_ns[row] - columns.start_ns[spans[leader].row]
                _add_times(columns, times, row, later, known, leader)
                _add_facts(columns, facts, row, known, leader)
    return True


@jit
def _forget(known: Records, i: int) -> None:
    call = known[i]
    call.ttft_ns = call.ttft_event_ns = call.ttft_attempt_ns = call.last_content_ns = NONE
    call.retry_ns = call.engine_admission_ns = call.tokenize_ns = call.queue_ns = NONE
    call.prefill_ns = call.first_decode_ns = call.engine_decode_ns = call.engine_stream_ns = NONE
    call.engine_ttft_ns = call.num_attempts = NONE
    call.input_tokens = call.cached_input_tokens = call.output_tokens = NONE
    call.prompt_row = call.route_row = call.route_version_row = call.slo_class_row = -1
    call.stream_state = NO_TEXT
    call.is_error = False


@jit
def _add_times(
    columns: Columns, times: Times, row: int, later: int, known: Records, leader: int
) -> None:
    call = known[leader]
    if columns.flags[row] & _FIRST_EVENT:
        call.ttft_event_ns = _first(call.ttft_event_ns, _since(times.ttft_ns[row], later))
    else:
        call.ttft_ns = _first(call.ttft_ns, _since(times.ttft_ns[row], later))
    call.last_content_ns = _first(call.last_content_ns, _since(times.last_content_ns[row], later))
    call.ttft_attempt_ns = _first(call.ttft_attempt_ns, times.ttft_attempt_ns[row])
    call.retry_ns = _first(call.retry_ns, times.retry_ns[row])
    call.engine_admission_ns = _first(call.engine_admission_ns, times.engine_admission_ns[row])
    call.tokenize_ns = _first(call.tokenize_ns, times.tokenize_ns[row])
    call.queue_ns = _first(call.queue_ns, times.queue_ns[row])
    call.prefill_ns = _first(call.prefill_ns, times.prefill_ns[row])
    call.first_decode_ns = _first(call.first_decode_ns, times.first_decode_ns[row])
    call.engine_decode_ns = _first(call.engine_decode_ns, times.engine_decode_ns[row])
    call.engine_stream_ns = _first(call.engine_stream_ns, times.engine_stream_ns[row])
    call.engine_ttft_ns = _first(call.engine_ttft_ns, times.engine_ttft_ns[row])


@jit
def _add_facts(columns: Columns, facts: Facts, row: int, known: Records, leader: int) -> None:
    call = known[leader]
    call.num_attempts = _first(call.num_attempts, facts.num_attempts[row])
    call.input_tokens = _first(call.input_tokens, facts.input_tokens[row])
    call.cached_input_tokens = _first(call.cached_input_tokens, facts.cached_input_tokens[row])
    call.output_tokens = _first(call.output_tokens, facts.output_tokens[row])
    if call.prompt_row < 0 and facts.prompt[row] != NO_TEXT:
        call.prompt_row = row
    if call.route_row < 0 and facts.has_route[row]:
        call.route_row = row
    if call.route_version_row < 0 and facts.has_route_version[row]:
        call.route_version_row = row
    if call.slo_class_row < 0 and facts.has_slo_class[row]:
        call.slo_class_row = row
    if call.stream_state == NO_TEXT:
        call.stream_state = columns.stream_state[row]
    call.is_error = call.is_error or columns.is_error[row]


@jit
def _first(known: int, value: int) -> int:
    return value if known == NONE else known


@jit
def _since(value: int, later: int) -> int:
    return NONE if value == NONE else value + later


@jit
def _is_sane(times: Times, facts: Facts, row: int) -> bool:
    return (
        _is_short(times.ttft_ns[row], MAX_FACT)
        and _is_short(times.ttft_attempt_ns[row], MAX_FACT)
        and _is_short(times.last_content_ns[row], MAX_FACT)
        and _is_short(times.retry_ns[row], MAX_FACT)
        and _is_short(times.engine_admission_ns[row], MAX_FACT)
        and _is_short(times.tokenize_ns[row], MAX_FACT)
        and _is_short(times.queue_ns[row], MAX_FACT)
        and _is_short(times.prefill_ns[row], MAX_FACT)
        and _is_short(times.first_decode_ns[row], MAX_FACT)
        and _is_short(times.engine_decode_ns[row], MAX_FACT)
        and _is_short(times.engine_stream_ns[row], MAX_FACT)
        and _is_short(times.engine_ttft_ns[row], MAX_FACT)
        and _is_short(facts.num_attempts[row], MAX_TOKENS)
        and _is_short(facts.input_tokens[row], MAX_TOKENS)
        and _is_short(facts.cached_input_tokens[row], MAX_TOKENS)
        and _is_short(facts.output_tokens[row], MAX_TOKENS)
    )


@jit
def _is_short(value: int, most: int) -> bool:
    return value == NONE or -most < value < most
