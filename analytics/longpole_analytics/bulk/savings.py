"""What a faster stage would have saved in each of many traces, from a table of spans.

Plain traces go through the compiled replay, the odd ones through the reference; both give equal
numbers.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from longpole_analytics.bulk.columns import FLAGS, STAGES, flatten
from longpole_analytics.bulk.each import TRACE
from longpole_analytics.bulk.each_replay import INCOMPLETE, Question, Savings, savings_each
from longpole_analytics.bulk.replaying import Questions, Replays, replay_all, room_for
from longpole_analytics.bulk.table import SEED, sort_rows


def savings_many(spans: pa.Table, questions: Sequence[Question]) -> Savings:
    """As :func:`longpole_analytics.bulk.savings_table`, by the compiled loops where they can."""
    spans = spans.combine_chunks()
    if not spans.num_rows:
        return savings_each(spans, questions)
    flat = flatten(spans)
    trace, first, by_trace_rows, ends, room = sort_rows(spans, flat)
    num = len(first)
    found = Replays(
        np.zeros(num, np.bool_),
        np.zeros(num, np.int64),
        np.zeros(num, np.int64),
        np.zeros((num, len(questions))),
    )
    asked = Questions(
        np.array([STAGES.index(stage) for stage, _ in questions], np.int64),
        np.array([faster_by for _, faster_by in questions], np.float64),
    )
    loops = (flat.columns, flat.times, flat.facts, flat.answers)
    replay_all(*loops, by_trace_rows, ends, SEED, *room, room_for(len(room.nodes)), asked, found)
    hi, lo = (spans.column(name).to_numpy()[first] for name in TRACE)
    is_incomplete = (found.flags >> FLAGS.index(INCOMPLETE) & 1).astype(np.bool_)
    all_of_them = Savings(hi, lo, found.wall_ns, found.saved_ns, is_incomplete)
    odd = np.flatnonzero(~found.is_plain)
    if len(odd):
        others = savings_each(spans.filter(pa.array(~found.is_plain[trace])), questions)
        for ours, theirs in zip(all_of_them[2:], others[2:], strict=True):
            ours[odd] = theirs
    return all_of_them.in_order()
