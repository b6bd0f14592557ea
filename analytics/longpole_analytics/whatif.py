"""What if a stage were faster, and how much later could a span end: replay of a trace.

The trace is played again with some own times scaled. A child starts when all siblings that had
ended before it started have ended again ("barrier": every order seen is taken for a dependency,
which is the careful reading), plus the parent's own time in between. After Coz (Curtsinger &
Berger, SOSP 2015) and the re-timer of google/calligator. A saving holds "if everything else stays
equal": a faster stage also shortens queues, which a replay of one trace cannot see.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from longpole.vocab import Stage
from longpole_analytics.tree import Tree


class _Child(NamedTuple):
    """A blocking child cut to its parent. ``base``: last end among the siblings it waited for."""

    start: int
    end: int
    base: int
    node: int


def what_if(tree: Tree, stage: Stage, faster_by: float) -> float:
    """Nanoseconds of wall time saved if the own time of ``stage`` shrank by ``faster_by``.

    Args:
        tree: a prepared trace; without root the answer is 0.
        stage: the stage to speed up.
        faster_by: fraction between 0 (as it was) and 1 (gone).
    """
    return _saved(tree, [faster_by if span.stage == stage else 0.0 for span in tree.spans])


def drag(tree: Tree, span_id: str) -> float:
    """Nanoseconds saved if the own time of this one span were gone."""
    return _saved(tree, [float(span.span_id == span_id) for span in tree.spans])


def slack(tree: Tree) -> dict[str, int]:
    """By span id: how many nanoseconds longer it could be without the root ending later.

    Spans that nobody waits for have no entry. Spans on the path have 0; so do equal branches.
    """
    slacks: dict[int, int] = {}
    if tree.root is None:
        return {}
    slacks[tree.root] = 0
    below = _cut(tree)
    for node in tree.order:
        children = below.get(node)
        if not children:
            continue
        last_end = max(child.end for child in children)
        starts = [child.start for child in children]
        # From the last start back: what may still move behind a child is known before it.
        latest = [last_end + slacks[node]] * (len(children) + 1)
        for position in range(len(children) - 1, -1, -1):
            child = children[position]
            after = bisect_left(starts, child.end)
            slacks[child.node] = latest[after] - child.end
            latest[position] = min(latest[position + 1], child.base + slacks[child.node])
    by_id: dict[str, int] = {}
    for node, value in slacks.items():
        span_id = tree.spans[node].span_id
        by_id[span_id] = min(value, by_id.get(span_id, value))
    return by_id


def _saved(tree: Tree, shares: Sequence[float]) -> float:
    """Old minus new duration of the root with each node's own time cut by its share."""
    if tree.root is None:
        return 0.0
    below = _cut(tree)
    durations: dict[int, float] = {}
    old: dict[int, int] = {tree.root: tree.ends[tree.root] - tree.starts[tree.root]}
    begin: dict[int, int] = {tree.root: tree.starts[tree.root]}
    for children in below.values():
        for child in children:
            old[child.node] = child.end - child.start
            begin[child.node] = child.start
    for node in reversed(tree.order):
        if node in old:
            durations[node] = _replayed(
                begin[node], old[node], below.get(node, ()), durations, 1.0 - shares[node]
            )
    return old[tree.root] - durations[tree.root]


def _replayed(
    start: int, old: int, children: Sequence[_Child], durations: dict[int, float], pace: float
) -> float:
    """New duration of a span whose own time runs at ``pace`` and whose children are known."""
    by_end = sorted(children, key=lambda child: child.end)
    new_ends: dict[int, float] = {}
    ended = 0
    ready = last = 0.0
    base = start
    for child in children:
        while by_end[ended].end <= child.start:
            ready = max(ready, new_ends[by_end[ended].node])
            ended += 1
        new_ends[child.node] = ready + (child.start - child.base) * pace + durations[child.node]
        last = max(last, new_ends[child.node])
        base = max(base, child.end)
    return last + (start + old - base) * pace


def _cut(tree: Tree) -> dict[int, list[_Child]]:
    """The blocking children of each node, cut to it, by start; those without length are gone."""
    assert tree.root is not None  # noqa: S101 - callers have asked
    limits = {tree.root: (tree.starts[tree.root], tree.ends[tree.root])}
    below: dict[int, list[_Child]] = {}
    for node in tree.order:
        if node not in limits or not tree.blocking[node]:
            continue
        low, high = limits[node]
        inside = []
        for child in tree.blocking[node]:
            start, end = max(tree.starts[child], low), min(tree.ends[child], high)
            if end > start:
                inside.append((start, end, child))
                limits[child] = (start, end)
        inside.sort()
        below[node] = _with_bases(inside, low)
    return below


def _with_bases(inside: list[tuple[int, int, int]], parent_start: int) -> list[_Child]:
    by_end = sorted(end for _, end, _ in inside)
    children = []
    ended, base = 0, parent_start
    for start, end, node in inside:
        while by_end[ended] <= start:
            base = by_end[ended]
            ended += 1
        children.append(_Child(start, end, base, node))
    return children
