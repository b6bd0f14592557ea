"""The columns of the span table as arrays that compiled loops can read.

Nulls become :data:`NONE`, ids signed numbers in the order of their hex text, the flags of a span
one number, and texts that are only compared small numbers. Texts that are only handed on stay
where they are: the loops say from which row they come.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Kind, Stage, Status
from longpole_analytics.bulk.compiled import Bools, Ints
from longpole_analytics.calls import FIRST_EVENT, NATIVE
from longpole_analytics.rollup import WORKFLOW_OPERATION
from longpole_analytics.twins import FAILED_ATTEMPT, STREAM_HEAD, STREAM_SUMMARY

NONE: Final = -(1 << 63)
"""An unknown number."""
NO_TEXT: Final = -1
ODD_TEXT: Final = -2
"""An empty text: neither known nor unknown."""
STAGES: Final = tuple(stage.value for stage in Stage)
UNKNOWN_STAGE: Final = len(STAGES)
"""The stage of a span whose stage is none of ours."""
PRODUCER: Final = 1
CONSUMER: Final = 2
STREAM_ERROR: Final = 1
FLAGS: Final = (
    "unfinished_span",
    "negative_duration",
    "incomplete_trace",
    "clock_skew",
    "skew_uncertain",
    "skew_too_large",
    "stream_outlives_parent",
    "overhang_detached",
    "overhang_clipped",
    "stream_tail_unknown",
    "call_opaque",
    "network_negative",
    STREAM_HEAD,
    STREAM_SUMMARY,
    FAILED_ATTEMPT,
    FIRST_EVENT,
)
"""The flags that the loops know, by their bit."""
MAX_FLAGS: Final = 62
ODD_FLAG: Final = 1 << MAX_FLAGS
"""Set for a flag that found no bit."""


class Columns(NamedTuple):
    """What the loops read of every span, by row."""

    span_id: Ints
    parent_id: Ints
    has_parent: Bools
    start_ns: Ints
    end_ns: Ints
    instance: Ints
    stage: Ints
    operation: Ints
    is_workflow: Bools
    kind: Ints
    is_call: Bools
    is_engine: Bools
    is_detached: Bools
    is_streamed: Bools
    is_error: Bools
    is_native: Bools
    stream_state: Ints
    flags: Ints


class Times(NamedTuple):
    """What the loops read of model calls to lay their phases, by row."""

    ttft_ns: Ints
    ttft_attempt_ns: Ints
    last_content_ns: Ints
    retry_ns: Ints
    engine_admission_ns: Ints
    tokenize_ns: Ints
    queue_ns: Ints
    prefill_ns: Ints
    first_decode_ns: Ints
    engine_decode_ns: Ints
    engine_stream_ns: Ints
    engine_ttft_ns: Ints


class Facts(NamedTuple):
    """What the loops read of spans to fill the row of their trace, by row."""

    num_attempts: Ints
    input_tokens: Ints
    cached_input_tokens: Ints
    output_tokens: Ints
    time_to_useful_ns: Ints
    time_to_accepted_ns: Ints
    prompt: Ints
    has_route: Bools
    has_route_version: Bools
    has_slo_class: Bools
    has_outcome: Bools


class Answers(NamedTuple):
    """The ids of answers: row ``i`` has the bytes from ``offsets[i]`` to ``offsets[i + 1]``."""

    is_known: Bools
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]


class Flat(NamedTuple):
    """All that the loops read, and the flags by their bit."""

    columns: Columns
    times: Times
    facts: Facts
    answers: Answers
    flags: list[str]


def flatten(spans: pa.Table) -> Flat:
    """The arrays of a table of spans.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
    """
    flags, names = _flags(one(spans, "flags"))
    operation, operations = _codes(one(spans, "operation"))
    stage, stages = _codes(one(spans, "stage"))
    state, states = _codes(one(spans, "stream_state"), is_empty_odd=False)
    kind, kinds = _codes(one(spans, "kind"))
    columns = Columns(
        span_id=ordered(one(spans, "span_id")),
        parent_id=ordered(one(spans, "parent_id")),
        has_parent=known(spans, "parent_id"),
        start_ns=_numbers(spans, "start_ns"),
        end_ns=_numbers(spans, "end_ns"),
        instance=_codes(one(spans, "instance_id"))[0],
        stage=_renamed(stage, stages, dict(zip(STAGES, range(UNKNOWN_STAGE), strict=True))),
        operation=operation,
        is_workflow=operation == (_place(operations, WORKFLOW_OPERATION)),
        kind=_renamed(kind, kinds, {Kind.PRODUCER: PRODUCER, Kind.CONSUMER: CONSUMER}),
        is_call=_bools(one(spans, "is_model_call")),
        is_engine=_bools(one(spans, "is_engine")),
        is_detached=_bools(one(spans, "is_detached")),
        is_streamed=_bools(one(spans, "is_streamed")),
        is_error=_bools(pc.equal(one(spans, "status"), Status.ERROR.value)),
        is_native=_bools(pc.equal(one(spans, "dialect"), NATIVE)),
        stream_state=_renamed(state, states, {"error": STREAM_ERROR}),
        flags=flags,
    )
    times = Times(*(_numbers(spans, name) for name in Times._fields))
    facts = Facts(
        num_attempts=_numbers(spans, "num_attempts"),
        input_tokens=_numbers(spans, "input_tokens"),
        cached_input_tokens=_numbers(spans, "cached_input_tokens"),
        output_tokens=_numbers(spans, "output_tokens"),
        time_to_useful_ns=_numbers(spans, "time_to_useful_ns"),
        time_to_accepted_ns=_numbers(spans, "time_to_accepted_ns"),
        prompt=_codes(one(spans, "prompt_version"), is_empty_odd=False)[0],
        has_route=known(spans, "route"),
        has_route_version=known(spans, "route_version"),
        has_slo_class=known(spans, "slo_class"),
        has_outcome=known(spans, "outcome"),
    )
    flat = Flat(columns, times, facts, _answers(one(spans, "response_id")), names)
    for arrays in flat[:-1]:
        for array in arrays:
            # what may be written to is another type, which the loops are not compiled for
            array.setflags(write=False)
    return flat


def known(spans: pa.Table, name: str) -> Bools:
    """Whether each span has a value there."""
    return _bools(one(spans, name).is_valid())


def ordered(ids: pa.Array) -> Ints:
    """Ids as signed numbers in the same order; an unknown one is any."""
    numbers = pc.fill_null(ids, pa.scalar(0, pa.uint64())).to_numpy()
    found: Ints = (numbers ^ np.uint64(1 << 63)).view(np.int64)
    return found


def one(spans: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    column = spans.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(spans: pa.Table, name: str) -> Ints:
    column = one(spans, name)
    if column.null_count == len(column):
        return _all(len(column), NONE)
    found: Ints = pc.fill_null(column, NONE).to_numpy() if column.null_count else column.to_numpy()
    return found


def _all(num: int, value: int) -> Ints:
    """So many times the same number, for columns of which nothing is known."""
    return np.full(num, value)


def _bools(column: pa.Array) -> Bools:
    filled = pc.fill_null(column, False) if column.null_count else column
    found: Bools = filled.to_numpy(zero_copy_only=False)
    return found


def _codes(column: pa.Array, *, is_empty_odd: bool = True) -> tuple[Ints, list[str]]:
    """A number for each text, and the texts by their number."""
    if column.null_count == len(column):
        return _all(len(column), NO_TEXT), []
    encoded = column.dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices, NO_TEXT)
    codes: Ints = indices.to_numpy().astype(np.int64)
    if is_empty_odd and "" in texts:
        codes[codes == texts.index("")] = ODD_TEXT
    return codes, texts


def _place(texts: list[str], text: str) -> int:
    return texts.index(text) if text in texts else NONE


def _renamed(codes: Ints, texts: list[str], numbers: dict[Any, int]) -> Ints:
    """Codes as the numbers of known texts; another text has :data:`UNKNOWN_STAGE`."""
    if not texts:
        return codes
    table = [numbers.get(text, UNKNOWN_STAGE) for text in texts]
    # negative codes count from the end
    return np.array([*table, ODD_TEXT, NO_TEXT])[codes]


def _flags(column: pa.Array) -> tuple[Ints, list[str]]:
    """The flags of each span as bits, and the flag of each bit."""
    names = list(FLAGS)
    found = np.zeros(len(column), np.int64)
    encoded = pc.list_flatten(column).dictionary_encode()
    if len(encoded):
        bits = []
        for flag in encoded.dictionary.to_pylist():
            if flag not in names and len(names) < MAX_FLAGS:
                names.append(flag)
            bits.append(1 << names.index(flag) if flag in names else ODD_FLAG)
        rows = pc.list_parent_indices(column).to_numpy()
        np.bitwise_or.at(found, rows, np.array(bits)[encoded.indices.to_numpy()])
    return found, names


def _answers(column: pa.Array) -> Answers:
    column = column.cast(pa.string())  # offsets of 32 bits
    _, offsets, text = column.buffers()
    if offsets is None:
        return Answers(np.zeros(1, np.bool_), np.zeros(1, np.int32), np.zeros(1, np.uint8))
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(text, np.uint8) if text is not None else np.zeros(1, np.uint8)
    return Answers(_bools(column.is_valid()), places, data)
