# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""The steps of ``dialects._steps``, compiled: what is derived from columns already filled.

Each function here gives what the one it names gives; what would need more marks the row odd.
"""

from typing import Final, NamedTuple

import numpy as np

from longpole.vocab import Kind, Span, Status
from longpole_collector.bulk import scan as s
from longpole_collector.bulk.convert import MAX_SECONDS, as_bits
from longpole_collector.bulk.wire import Ints, inline
from longpole_collector.dialects._steps import Step
from longpole_collector.dialects.base import ENGINE_TIMES, MODEL_OPERATIONS, STAGE_OF_OPERATION

COLUMNS: Final = Span._fields[
    Span._fields.index("error_type") : Span._fields.index("time_to_accepted_ns") + 1
]
"""The columns that rules and steps fill, as numbered in the cells; at most 62."""

MODEL: Final = 1
EMBEDDINGS: Final = 2
TOOL: Final = 4
RETRIEVAL: Final = 8
FINISH_ERROR: Final = 16
ANTHROPIC: Final = 32
"""``Values.codes``."""

CODES: Final = {
    **dict.fromkeys(MODEL_OPERATIONS, MODEL),
    **{
        operation: TOOL if stage == "tool" else RETRIEVAL
        for operation, stage in STAGE_OF_OPERATION.items()
    },
    "embeddings": MODEL | EMBEDDINGS,
    "error": FINISH_ERROR,
    "anthropic": ANTHROPIC,
}
"""What the steps must know of a value of operation, finish reason or provider."""

NO_START: Final = 1
NEGATIVE: Final = 2
EXCLUDED_CACHE: Final = 4
FIRST_EVENT: Final = 8
FIRST_CONTENT: Final = 16
INCOMPLETE: Final = 32
TRUNCATED: Final = 64
"""``Rows.flags``, in the order in which they are set."""
IS_BROKEN: Final = 1 << 16
"""The row is odd after all."""
STATED_SHIFT: Final = 20
"""The flags a span states itself are above: one more than their number, or 0."""
FLAG_NAMES: Final = (
    "no_start_time",
    "negative_duration",
    "input_excluded_cache",
    "ttft_first_event",
    "ttft_first_content",
    "incomplete",
    "truncated",
)


class Words(NamedTuple):
    """Texts in the arena that steps fill in."""

    tool: int
    retrieval: int
    other_error: int


_ERROR_TYPE: Final = COLUMNS.index("error_type")
_STAGE: Final = COLUMNS.index("stage")
_IS_MODEL_CALL: Final = COLUMNS.index("is_model_call")
_IS_ENGINE: Final = COLUMNS.index("is_engine")
_IS_STREAMED: Final = COLUMNS.index("is_streamed")
_RESPONSE_ID: Final = COLUMNS.index("response_id")
_FINISH: Final = COLUMNS.index("finish_reason")
_INPUT: Final = COLUMNS.index("input_tokens")
_CACHED: Final = COLUMNS.index("cached_input_tokens")
_CACHE_WRITE: Final = COLUMNS.index("cache_write_tokens")
_OUTPUT: Final = COLUMNS.index("output_tokens")
_FIRST_CHUNK: Final = COLUMNS.index("first_chunk_ns")
_TTFT: Final = COLUMNS.index("ttft_ns")
_TPOT: Final = COLUMNS.index("tpot_ms")
_DECODE: Final = COLUMNS.index("engine_decode_ns")
_ENGINE_TIMES: Final = sum(1 << COLUMNS.index(name) for name in ENGINE_TIMES)

_INFER: Final = int(Step.INFER)
_INPUT_WHOLE: Final = int(Step.INPUT_WHOLE)
_FIRST_EVENT_STEP: Final = int(Step.FIRST_EVENT)
_FIRST_CONTENT_STEP: Final = int(Step.FIRST_CONTENT)
_NOT_STREAMED: Final = int(Step.NOT_STREAMED)
_SETTLE: Final = int(Step.SETTLE)
_ENGINE_TPOT: Final = int(Step.ENGINE_TPOT)

_INTERNAL: Final = list(Kind).index(Kind.INTERNAL)
_SERVER: Final = list(Kind).index(Kind.SERVER)
_CLIENT: Final = list(Kind).index(Kind.CLIENT)
_OK: Final = list(Status).index(Status.OK)
_ERROR: Final = list(Status).index(Status.ERROR)
_LARGE: Final = 1 << 60
"""Counts beyond this may overflow in a sum."""
_EXACT: Final = 1 << 53
"""Whole numbers up to this are floating-point numbers too."""


@inline
def _bit(column: int) -> int:
    return np.int64(1) << np.int64(column)


@inline
def take_steps(
    span: Ints,
    cells: Ints,
    has: int,
    flags: int,
    operation: int,
    finish: int,
    provider: int,
    exception: int,
    steps: int,
    words: Words,
) -> tuple[int, int]:
    """Take a class's steps; returns which columns have a value, and the flags.

    ``exception`` is the type of the only exception among the events, in the arena: 0 if it does
    not say, -1 if there is none.
    """
    if exception > 0 and span[s.STATUS] == _ERROR and not has & _bit(_ERROR_TYPE):
        cells[_ERROR_TYPE] = exception
        has |= _bit(_ERROR_TYPE)
    is_model = is_engine = False
    if steps & _INFER:
        has, is_model, is_engine = _infer(span, cells, has, operation, words)
    if steps & _INPUT_WHOLE:
        has, flags = _input_whole(cells, has, flags)
    has_first_chunk_only = has & (_bit(_FIRST_CHUNK) | _bit(_TTFT)) == _bit(_FIRST_CHUNK)
    if steps & _FIRST_EVENT_STEP and is_model and not is_engine and has_first_chunk_only:
        cells[_IS_STREAMED] = 1
        cells[_TTFT] = cells[_FIRST_CHUNK]
        has |= _bit(_IS_STREAMED) | _bit(_TTFT)
        flags |= FIRST_EVENT
    if steps & _FIRST_CONTENT_STEP and has_first_chunk_only:
        cells[_IS_STREAMED] = 1
        cells[_TTFT] = cells[_FIRST_CHUNK]
        has |= _bit(_IS_STREAMED) | _bit(_TTFT)
        flags |= FIRST_CONTENT
    is_answered_only = has & (_bit(_RESPONSE_ID) | _bit(_IS_STREAMED)) == _bit(_RESPONSE_ID)
    if steps & _NOT_STREAMED and is_model and is_answered_only:
        cells[_IS_STREAMED] = 0
        has |= _bit(_IS_STREAMED)
    if steps & _SETTLE:
        has, flags = _settle(
            span, cells, has, flags, is_model, operation, finish, provider, exception, words
        )
    if steps & _ENGINE_TPOT and is_engine:
        has, flags = _engine_tpot(cells, has, flags)
    return has, flags


@inline
def _infer(
    span: Ints, cells: Ints, has: int, operation: int, words: Words
) -> tuple[int, bool, bool]:
    """See ``dialects.base.infer``."""
    if not has & _bit(_STAGE) and operation & (TOOL | RETRIEVAL):
        cells[_STAGE] = words.tool if operation & TOOL else words.retrieval
        has |= _bit(_STAGE)
    kind = span[s.KIND]
    is_model = operation & MODEL != 0
    is_engine = kind == _SERVER and (is_model or has & _ENGINE_TIMES != 0)
    is_model_call = is_engine or (is_model and (kind in (_CLIENT, _INTERNAL) or kind == 0))
    if is_engine:
        cells[_IS_ENGINE] = 1
        has |= _bit(_IS_ENGINE)
    if is_model_call:
        cells[_IS_MODEL_CALL] = 1
        has |= _bit(_IS_MODEL_CALL)
    return has, is_model_call, is_engine


@inline
def _input_whole(cells: Ints, has: int, flags: int) -> tuple[int, int]:
    """See ``dialects._foreign.count_input_whole``."""
    cached = np.int64(0)
    for column in (_CACHED, _CACHE_WRITE):
        if has & _bit(column):
            if cells[column] > _LARGE:
                return has, flags | IS_BROKEN
            cached += cells[column]
    if has & _bit(_INPUT) and cached > cells[_INPUT]:
        cells[_INPUT] += cached
        flags |= EXCLUDED_CACHE
    return has, flags


@inline
def _settle(
    span: Ints,
    cells: Ints,
    has: int,
    flags: int,
    is_model: bool,
    operation: int,
    finish: int,
    provider: int,
    exception: int,
    words: Words,
) -> tuple[int, int]:
    """See ``dialects._foreign.settle``."""
    has_error = has & _bit(_ERROR_TYPE) != 0
    has_sign = has_error or exception >= 0 or finish & FINISH_ERROR != 0
    if has_sign and (is_model or span[s.STATUS] != _OK):
        span[s.STATUS] = _ERROR
    if span[s.STATUS] == _ERROR and not has_error:
        cells[_ERROR_TYPE] = exception if exception > 0 else words.other_error
        has |= _bit(_ERROR_TYPE)
    if not is_model:
        return has, flags
    if operation & EMBEDDINGS:
        cells[_IS_STREAMED] = 0
        has |= _bit(_IS_STREAMED)
    if has & _bit(_IS_STREAMED):
        if cells[_IS_STREAMED] == 0:
            has &= ~(_bit(_TTFT) | _bit(_FIRST_CHUNK))
            flags &= ~(FIRST_EVENT | FIRST_CONTENT)
        elif not has & _bit(_FINISH):
            if has & _bit(_OUTPUT):
                if span[s.STATUS] == _ERROR or provider & ANTHROPIC:
                    return has, flags | IS_BROKEN
            elif not has & _bit(_INPUT):
                flags |= INCOMPLETE
    if has & _bit(_TTFT) and span[s.END] and span[s.END] - span[s.START] < cells[_TTFT]:
        flags |= TRUNCATED
    return has, flags


@inline
def _engine_tpot(cells: Ints, has: int, flags: int) -> tuple[int, int]:
    """See ``dialects._steps``; the rounding is the caller's."""
    if not has & _bit(_OUTPUT) or not has & _bit(_DECODE) or has & _bit(_TPOT):
        return has, flags
    output, decode_ns = cells[_OUTPUT], cells[_DECODE]
    if output <= 1:
        return has, flags
    if output > _EXACT or decode_ns > _EXACT:
        return has, flags | IS_BROKEN
    seconds = np.float64(decode_ns) / np.float64(output - 1) / 1e9
    if seconds <= MAX_SECONDS:
        cells[_TPOT] = as_bits(seconds * 1e3)
        has |= _bit(_TPOT)
    return has, flags
