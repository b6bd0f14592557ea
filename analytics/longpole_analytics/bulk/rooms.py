"""The arrays in which the loops settle one trace after the other, and where they put the rows."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from longpole_analytics.bulk.columns import UNKNOWN_STAGE
from longpole_analytics.bulk.compiled import Bools, Ints, Records

MAX_CLOCKS: Final = 64
"""A trace with more clocks is odd."""
PHASES_OF_A_CALL: Final = 12
"""Most phases of a call whose engine has no spans: three before it, seven of it, two after."""

AT: Final = 0
NUM_PHASES: Final = 1
MARKS: Final = 2
NUM_PARTS: Final = 3
NUM_BEFORE: Final = 4
NUM_AFTER: Final = 5
FIRST_TOKEN: Final = 6
DURATION: Final = 7
"""Places in ``Calls.pen``."""


def _fields(numbers: str, truths: str = "") -> np.dtype[Any]:
    kinds = [(name, np.int64) for name in numbers.split()]
    return np.dtype([*kinds, *((name, np.bool_) for name in truths.split())], align=True)


SPAN: Final = _fields(
    "row up head tail next order above outer leader num_inner engine call stage node",
    "is_around_many is_lost is_over_call is_told is_hidden",
)
"""A span of one trace, by start and id; a span's number is its place among them.

``up`` is the parent, or -1; ``head``, ``tail`` and ``next`` list children in order. ``above`` is
the nearest ancestor that has ended. Of model calls, ``outer`` is the nearest one above, or -1,
``leader`` the span that stands for the call, ``num_inner`` counts attempts inside, ``is_lost``
says of a leader that it is no call, ``engine`` is the engine's span, or -1. What is explained
``is_told``, what lies below that ``is_hidden``. ``node`` is the span's place in the tree, or -1.
Two lists run beside: all spans in ``order``, parents first, and those that stand for calls in
``call``.
"""
KNOWN: Final = _fields(
    "ttft_ns ttft_event_ns ttft_attempt_ns last_content_ns retry_ns engine_admission_ns "
    "tokenize_ns queue_ns prefill_ns first_decode_ns engine_decode_ns engine_stream_ns "
    "engine_ttft_ns num_attempts input_tokens cached_input_tokens output_tokens "
    "prompt_row route_row route_version_row slo_class_row stream_state",
    "is_error",
)
"""What all spans of a model call know, by the span that stands for it; see ``calls._known``.

``ttft_event_ns`` is the time to an event that may be empty, of a ``*_row`` -1 is unknown.
"""
NODE: Final = _fields(
    "row own_id start end parent head tail next order stage clock low high num_blocking critical "
    "frame_node frame_start frame_cursor frame_next frame_end clock_of clock_shift",
    "is_orphan is_off",
)
"""A node of the tree that is walked, as in ``tree.Tree``; ``row`` is -1 of what is no span.

Beside run the list ``order``, the stack of the walk in ``frame_*``, and in ``clock_*`` the clocks
with what is added to each.
"""
PHASE: Final = _fields("owner stage start end shown_id")
"""A phase of a call: the span it belongs to, and times from the start of that."""
PART: Final = _fields("stage duration_ns shown_id")
"""A part of an engine's account of a call."""


class Calls(NamedTuple):
    """The phases of a trace's calls, and what is being written: see the constants above."""

    phases: Records
    parts: Records
    pen: Ints


class Desk(NamedTuple):
    """Room to sort: what is sorted, the keys of each, and a table of hashes."""

    items: Ints
    spare: Ints
    first: Ints
    second: Ints
    third: Ints
    table: Ints


class Rows(NamedTuple):
    """What was found of each trace; ``*_row`` is the row a text is taken from, or -1."""

    is_plain: Bools
    start_ns: Ints
    end_ns: Ints
    first_row: Ints
    root_row: Ints
    stated_row: Ints
    route_row: Ints
    route_version_row: Ints
    prompt_row: Ints
    slo_class_row: Ints
    time_to_useful_ns: Ints
    time_to_accepted_ns: Ints
    num_spans: Ints
    num_calls: Ints
    num_tools: Ints
    num_retries: Ints
    input_tokens: Ints
    cached_input_tokens: Ints
    output_tokens: Ints
    flags: Ints
    critical_ns: Ints
    total_ns: Ints


class Rooms(NamedTuple):
    """All rooms for one trace, in the order in which the loops take them."""

    spans: Records
    known: Records
    calls: Calls
    nodes: Records
    desk: Desk


def rooms(max_spans: int, max_calls: int) -> Rooms:
    """Rooms for traces of at most so many spans, and calls among them."""
    num_phases = max_spans + PHASES_OF_A_CALL * max_calls
    num_nodes = max_spans + num_phases + 1
    num_places = 1 << (2 * max_spans).bit_length()
    return Rooms(
        np.zeros(max_spans, SPAN),
        np.zeros(max_spans, KNOWN),
        Calls(
            np.zeros(num_phases, PHASE),
            np.zeros(max_spans + PHASES_OF_A_CALL, PART),
            np.zeros(DURATION + 1, np.int64),
        ),
        np.zeros(num_nodes, NODE),
        Desk(*(np.zeros(size, np.int64) for size in (*(num_nodes,) * 5, num_places))),
    )


def rows(num_traces: int) -> Rows:
    """Room for the rows of so many traces."""
    wide = {"critical_ns", "total_ns"}
    arrays: Iterator[Any] = (
        np.zeros(
            (num_traces, UNKNOWN_STAGE) if name in wide else (num_traces,),
            np.bool_ if name.startswith("is_") else np.int64,
        )
        for name in Rows._fields
    )
    return Rows(*arrays)
