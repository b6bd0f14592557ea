"""What changes to single spans would save in each of many traces: the exact replay, many at once.

The replay is that of :mod:`longpole_analytics.whatif`. There a whole stage gets faster; here
single spans, or parts of single calls, lose so much time, and groups of siblings start together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longpole.vocab import Stage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
WHOLE: Final = 0
"""A span and all below it."""
FIRST: Final = 1
"""Of a call: what a shorter prompt, a cached prefix, a warm start would shorten."""
DECODE: Final = 2
"""Of a call: from the first content to the last; of one that is not streamed, all it shows."""
OWN: Final = 3
"""Of a span: the time in which none of its children ran."""
NUM_PARTS: Final = 4
FIRST_STAGES: Final = (
    Stage.NETWORK,
    Stage.COLD_START,
    Stage.TOKENIZE,
    Stage.PREFILL,
    Stage.TTFT_OPAQUE,
)
DECODE_STAGES: Final = (Stage.LATER_DECODE,)
LOOPS_FROM: Final = 20_000
"""From so many spans on the compiled loops are worth waiting for."""


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


def _no_floats() -> Floats:
    return np.empty(0, np.float64)


@dataclass(frozen=True)
class Change:
    """What would be different.

    Attributes:
        rows: rows of spans that lose time.
        parts: which part of each, one of :data:`WHOLE`, :data:`FIRST`, :data:`DECODE`,
            :data:`OWN`.
        less_ns: how much; more than there is takes all of it.
        members: rows of siblings that would start together.
        leaders: for each of them the row that stands for its group.
    """

    rows: Ints = field(default_factory=_no_ints)
    parts: Ints = field(default_factory=_no_ints)
    less_ns: Floats = field(default_factory=_no_floats)
    members: Ints = field(default_factory=_no_ints)
    leaders: Ints = field(default_factory=_no_ints)


class Lengths(NamedTuple):
    """What the prepared trees say of each span and trace.

    ``is_node`` of spans that are in a tree (a call told twice is in it once); ``first_ns`` and
    ``decode_ns`` are the phases of calls, ``own_ns`` time in which no child ran. Of each trace,
    ``wall_ns`` and whether it can be replayed: whole, and nothing odd about it.
    """

    is_node: Bools
    first_ns: Ints
    decode_ns: Ints
    own_ns: Ints
    wall_ns: Ints
    is_sound: Bools


def no_lengths(num_rows: int, num_traces: int) -> Lengths:
    """Room for the lengths of so many spans and traces, all 0."""
    first, decode, own, wall = (
        np.zeros(size, np.int64) for size in (num_rows, num_rows, num_rows, num_traces)
    )
    return Lengths(
        np.zeros(num_rows, np.bool_), first, decode, own, wall, np.zeros(num_traces, np.bool_)
    )


def shorter(rows: Any, part: int, less_ns: Any) -> Change:
    """Spans that lose time in one part."""
    places = np.asarray(rows, np.int64)
    less = np.broadcast_to(np.asarray(less_ns, np.float64), places.shape)
    return Change(places, np.full(len(places), part), np.maximum(np.nan_to_num(less), 0.0))


def together(changes: Iterable[Change]) -> Change:
    """All of some changes at once.

    Of what two of them change in one part of one span the larger counts; a span is in the group
    that comes first.
    """
    listed = list(changes)
    if not listed:
        return Change()
    rows, parts, less, members, leaders = (
        np.concatenate([getattr(change, name) for change in listed])
        for name in ("rows", "parts", "less_ns", "members", "leaders")
    )
    _, kept = np.unique(members, return_index=True)
    return Change(rows, parts, less, members[kept], leaders[kept])


def dense(change: Change, num_rows: int) -> tuple[Floats, Ints]:
    """By row and part, nanoseconds less; by row, the leader of its group, or -1."""
    less = np.zeros((num_rows, NUM_PARTS))
    np.maximum.at(less, (change.rows, change.parts), change.less_ns)
    leader = np.full(num_rows, -1, np.int64)
    leader[change.members] = change.leaders
    return less, leader


class Replayer:
    """Replays the traces of one table of spans; the fastest way there is.

    Args:
        spans: as :func:`longpole_analytics.span_loading.numbered` gives them.
        trace: the number of each row's trace, by first appearance.
        is_compiled: whether to use the compiled loops; default is by the number of spans.
    """

    def __init__(self, spans: pa.Table, trace: Ints, *, is_compiled: bool | None = None) -> None:
        if is_compiled is None:
            is_compiled = spans.num_rows >= LOOPS_FROM
        name = "_replay_compiled" if is_compiled else "_replay_each"
        module: Any = import_module(f"longpole_analytics.advisor.{name}")
        self._trace = trace
        self._num_traces = int(trace.max()) + 1 if len(trace) else 0
        self._engine = module.Engine(spans, trace, self._num_traces)
        self.lengths: Lengths = self._engine.lengths

    def saved_ns(self, changes: Sequence[Change]) -> list[Floats]:
        """Of each change what it would save in each trace, nanoseconds; below 0 never."""
        found = []
        for change in changes:
            less, leader = dense(change, len(self._trace))
            touched = np.zeros(self._num_traces, np.bool_)
            touched[self._trace[change.rows]] = True
            touched[self._trace[change.members]] = True
            touched &= self.lengths.is_sound
            saved = self._engine.saved_ns(less, leader, touched)
            found.append(np.maximum(saved, 0.0))
        return found
