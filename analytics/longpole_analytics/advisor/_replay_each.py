"""The replay of single spans' changes trace by trace: the reference, used for small tables."""

from typing import Any

import numpy as np
import pyarrow as pa

from longpole.vocab import Span
from longpole_analytics.advisor._replay import (
    DECODE,
    DECODE_STAGES,
    FIRST,
    FIRST_STAGES,
    OWN,
    WHOLE,
    Bools,
    Floats,
    Ints,
    no_lengths,
)
from longpole_analytics.bulk.each import records
from longpole_analytics.stages import partition
from longpole_analytics.tree import Tree
from longpole_analytics.whatif import Child, cut

INCOMPLETE = "incomplete_trace"


class _Plan:
    """The tree of one trace, cut, with the row of each node (-1 of a phase, -2 of a stand-in)."""

    def __init__(self, tree: Tree, row_of: dict[str, int]) -> None:
        self.tree = tree
        num_phases = sum(len(span.phases) for span in tree.spans)
        num_spans = len(tree.spans) - num_phases
        self.rows = [
            row_of.get(span.span_id, -2) if node < num_spans else -1
            for node, span in enumerate(tree.spans)
        ]
        self.below = cut(tree)
        root = tree.order[0]
        start, end = tree.starts[root], tree.ends[root]
        self.played = {child.node: child for group in self.below.values() for child in group}
        self.played[root] = Child(start, end, start, root)

    def length(self, node: int) -> int:
        return self.played[node].end - self.played[node].start

    def own(self, node: int) -> int:
        covered, total = self.played[node].start, 0
        for child in self.below.get(node, ()):
            total += max(child.start - covered, 0)
            covered = max(covered, child.end)
        return total + max(self.played[node].end - covered, 0)

    def phases(self, node: int, stages: tuple[Any, ...]) -> int:
        return sum(
            self.length(child.node)
            for child in self.below.get(node, ())
            if self.rows[child.node] == -1 and self.tree.spans[child.node].stage in stages
        )


class Engine:
    """Plans of all traces, and their replays."""

    def __init__(self, spans: pa.Table, trace: Ints, num_traces: int) -> None:
        num = spans.num_rows
        self._plans: list[_Plan | None] = [None] * num_traces
        self.lengths = no_lengths(num, num_traces)
        groups: list[list[tuple[int, Span]]] = [[] for _ in range(num_traces)]
        for row, span in enumerate(records(spans)):
            groups[trace[row]].append((row, span))
        for number, members in enumerate(groups):
            self._plan(number, members)

    def _plan(self, number: int, members: list[tuple[int, Span]]) -> None:
        split = partition([span for _, span in members])
        if split.tree.root is None:
            return
        # of a span that came twice the tree may have either; both rows tell of the same id
        row_of: dict[str, int] = {}
        for row, span in members:
            row_of.setdefault(span.span_id, row)
        plan = _Plan(split.tree, row_of)
        lengths = self.lengths
        lengths.wall_ns[number] = split.wall_ns
        lengths.is_sound[number] = INCOMPLETE not in split.flags
        if lengths.is_sound[number]:
            self._plans[number] = plan
        for node, row in enumerate(plan.rows):
            if row < 0:
                continue
            lengths.is_node[row] = True
            if node in plan.played:
                lengths.own_ns[row] = plan.own(node)
                lengths.first_ns[row] = plan.phases(node, FIRST_STAGES)
                lengths.decode_ns[row] = plan.phases(node, DECODE_STAGES)

    def saved_ns(self, less: Floats, leader: Ints, touched: Bools) -> Floats:
        """By trace, what is saved; 0 where nothing is touched."""
        found = np.zeros(len(self._plans))
        for number in np.flatnonzero(touched):
            plan = self._plans[number]
            if plan is not None:
                wall = plan.length(plan.tree.order[0])
                found[number] = wall - _length(plan, less, leader)
        return found


def _left(whole: float, less: float) -> float:
    return max(1.0 - less / whole, 0.0) if whole > 0 else 1.0


def _paces(plan: _Plan, less: Floats) -> tuple[dict[int, float], dict[int, float]]:
    """By node, how much of its own time is left."""
    tree, rows = plan.tree, plan.rows
    passed: dict[int, float] = {}
    paces: dict[int, float] = {}
    for node in tree.order:
        if node not in plan.played:
            continue
        parent, row = tree.parents[node], rows[node]
        above = passed.get(parent, 1.0)
        if row == -1:
            paces[node] = above * _phase_pace(plan, node, parent, less)
            continue
        passed[node] = above
        if row >= 0:
            passed[node] *= _left(plan.length(node), less[row, WHOLE])
        paces[node] = passed[node]
        if row >= 0 and less[row, OWN]:
            paces[node] *= _left(plan.own(node), less[row, OWN])
    return paces, passed


def _phase_pace(plan: _Plan, node: int, call: int, less: Floats) -> float:
    row, stage = plan.rows[call], plan.tree.spans[node].stage
    if row < 0:
        return 1.0
    first, decode = less[row, FIRST], less[row, DECODE]
    whole = plan.phases(call, DECODE_STAGES)
    if stage in DECODE_STAGES:
        return _left(whole, decode)
    if stage in FIRST_STAGES:
        return _left(plan.phases(call, FIRST_STAGES), first + (0.0 if whole else decode))
    return 1.0


def _length(plan: _Plan, less: Floats, leader: Ints) -> float:
    """The new length of the root; the formula is ``whatif._replayed``'s."""
    paces, _ = _paces(plan, less)
    lengths: dict[int, float] = {}
    for node in reversed(plan.tree.order):
        if node not in plan.played:
            continue
        span, pace, children = plan.played[node], paces[node], plan.below.get(node, ())
        by_end = sorted(children, key=lambda child: child.end)
        ends: dict[int, float] = {}
        begun: dict[int, float] = {}
        ended, ready, last, base = 0, 0.0, 0.0, span.start
        for child in children:
            while by_end[ended].end <= child.start:
                ready = max(ready, ends[by_end[ended].node])
                ended += 1
            starts = ready + (child.start - child.base) * pace
            row = plan.rows[child.node]
            group = int(leader[row]) if row >= 0 else -1
            if group >= 0:
                starts = begun.setdefault(group, starts)
            ends[child.node] = starts + lengths[child.node]
            last = max(last, ends[child.node])
            base = max(base, child.end)
        lengths[node] = last + (span.end - base) * pace
    return lengths[plan.tree.order[0]]
