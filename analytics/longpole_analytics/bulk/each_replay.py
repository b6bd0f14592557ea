"""What a faster stage would have saved in each of many traces, trace by trace: the reference."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longpole.vocab import Stage
from longpole_analytics.bulk.each import records
from longpole_analytics.frames import by_trace
from longpole_analytics.stages import partition
from longpole_analytics.whatif import what_if

INCOMPLETE: Final = "incomplete_trace"
Question = tuple[Stage, float]
"""A stage, and the fraction, 0 to 1, that it is faster by."""


class Savings(NamedTuple):
    """By trace, in the order of ids: wall time, and what each question would save of it."""

    trace_hi: npt.NDArray[np.uint64]
    trace_lo: npt.NDArray[np.uint64]
    wall_ns: npt.NDArray[np.int64]
    saved_ns: npt.NDArray[np.float64]
    is_incomplete: npt.NDArray[np.bool_]

    def in_order(self) -> "Savings":
        """The same by id."""
        order = np.lexsort((self.trace_lo, self.trace_hi))
        columns: list[Any] = [column[order] for column in self]
        return Savings(*columns)


def savings_each(spans: pa.Table, questions: Sequence[Question]) -> Savings:
    """As :func:`longpole_analytics.bulk.savings_table`, in the order of first rows."""
    ids, walls, saved, incomplete = [], [], [], []
    for trace_id, trace in by_trace(records(spans)).items():
        split = partition(trace)
        ids.append((int(trace_id[:16], 16), int(trace_id[16:], 16)))
        walls.append(split.wall_ns)
        saved.append([what_if(split.tree, *question) for question in questions])
        incomplete.append(INCOMPLETE in split.flags)
    numbers = np.array(ids, np.uint64).reshape(-1, 2)
    return Savings(
        numbers[:, 0],
        numbers[:, 1],
        np.array(walls, np.int64),
        np.array(saved, np.float64).reshape(-1, len(questions)),
        np.array(incomplete, np.bool_),
    )
