"""What if a stage were faster, and how much later could a span end: replay of a trace.

The trace is played again with some own times scaled. A child starts when all siblings that had
ended before it started have ended again ("barrier": every order seen is taken for a dependency,
which is the careful reading), plus the parent's own time in between. After Coz (Curtsinger &
Berger, SOSP 2015) and the re-timer of google/calligator. A saving holds "if everything else stays
equal": a faster stage also shortens queues, which a replay of one trace cannot see.
"""

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from longpole.vocab import Stage
from longpole_analytics.tree import Tree


class Child(NamedTuple):
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
    pace = 1.0 - faster_by
    nodes = (node for node, span in enumerate(tree.spans) if span.stage == stage)
    return float(_saved(tree, dict.fromkeys(nodes, pace)))


def savings(
    tree: Tree, stages: Sequence[Stage], faster_by: Sequence[float]
) -> dict[Stage, list[float]]:
    """For each stage what :func:`what_if` says for each fraction, from one replay.

    Args:
        tree: a prepared trace; without root every answer is 0.
        stages: the stages to speed up, each alone.
        faster_by: fractions between 0 (as it was) and 1 (gone).
    """
    size = len(faster_by)
    pace = 1.0 - np.asarray(faster_by, dtype=float)
    paces_of: dict[Stage, Any] = {}
    for place, stage in enumerate(stages):
        paces_of[stage] = np.ones(size * len(stages))
        paces_of[stage][place * size : (place + 1) * size] = pace
    paces = {
        node: paces_of[span.stage] for node, span in enumerate(tree.spans) if span.stage in paces_of
    }
    saved = np.broadcast_to(_saved(tree, paces, larger=np.maximum), size * len(stages))
    return {
        stage: saved[place * size : (place + 1) * size].tolist()
        for place, stage in enumerate(stages)
    }


def drag(tree: Tree, span_id: str) -> float:
    """Nanoseconds saved if the own time of this one span were gone."""
    return drags(tree, [span_id])[span_id]


def drags(tree: Tree, span_ids: Iterable[str]) -> dict[str, float]:
    """By span id: nanoseconds saved if the own time of this span alone were gone.

    One replay answers for all of them: what differs between them is played as a vector.

    Args:
        tree: a prepared trace; without root every answer is 0.
        span_ids: the spans to ask about; one that the tree does not have saves 0.
    """
    places = {span_id: place for place, span_id in enumerate(dict.fromkeys(span_ids))}
    paces: dict[int, Any] = {}
    for node, span in enumerate(tree.spans):
        if span.span_id in places:
            paces[node] = np.ones(len(places))
            paces[node][places[span.span_id]] = 0.0
    saved = np.broadcast_to(_saved(tree, paces, larger=np.maximum), len(places))
    return dict(zip(places, saved.tolist(), strict=True))


def saved_side_by_side(tree: Tree, groups: Iterable[Collection[int]]) -> list[float]:
    """For each group: nanoseconds saved if all of it started when the first of it does.

    Args:
        tree: a prepared trace with a root.
        groups: some blocking children of one node each.
    """
    below = cut(tree)
    played = _played(tree, below)
    durations: dict[int, Any] = {node: child.end - child.start for node, child in played.items()}
    found = []
    for group in groups:
        changed = ChainMap[int, Any]({}, durations)
        together: Collection[int] = frozenset(group)
        node = tree.parents[next(iter(together))]
        while node >= 0:
            span, children = played[node], below[node]
            changed[node] = _replayed(span, children, changed, 1.0, max, together)
            if changed[node] == durations[node]:
                break
            node, together = tree.parents[node], ()
        root = tree.order[0]
        found.append(float(durations[root] - changed[root]))
    return found


def slack(tree: Tree) -> dict[str, int]:
    """By span id: how many nanoseconds longer it could be without the root ending later.

    Spans that nobody waits for have no entry. Spans on the path have 0; so do equal branches.
    """
    slacks: dict[int, int] = {}
    if tree.root is None:
        return {}
    slacks[tree.root] = 0
    below = cut(tree)
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


def _saved(
    tree: Tree,
    paces: Mapping[int, Any],
    *,
    larger: Callable[[Any, Any], Any] = max,
) -> Any:
    """Old minus new duration of the root with the own times of some nodes at another pace.

    Args:
        tree: a prepared trace.
        paces: by node, what its own time is multiplied by; a number, or one per answer wanted.
        larger: the larger of two values, numbers or arrays as the paces are.
    """
    if tree.root is None:
        return 0.0
    below = cut(tree)
    played = _played(tree, below)
    durations: dict[int, Any] = {}
    for node in reversed(tree.order):
        if node in played:
            pace = paces.get(node, 1.0)
            children = below.get(node, ())
            durations[node] = _replayed(played[node], children, durations, pace, larger)
    return tree.ends[tree.root] - tree.starts[tree.root] - durations[tree.root]


def _played(tree: Tree, below: Mapping[int, Sequence[Child]]) -> dict[int, Child]:
    """All that is waited for, by node, the root among it."""
    root = tree.order[0]
    played = {child.node: child for children in below.values() for child in children}
    played[root] = Child(tree.starts[root], tree.ends[root], tree.starts[root], root)
    return played


def _replayed(
    span: Child,
    children: Sequence[Child],
    durations: Mapping[int, Any],
    pace: Any,
    larger: Callable[[Any, Any], Any],
    together: Collection[int] = (),
) -> Any:
    """New duration of a span whose own time runs at ``pace`` and whose children are known.

    Those in ``together`` all start when the first of them does.
    """
    if not children:
        return (span.end - span.start) * pace
    by_end = sorted(children, key=lambda child: child.end)
    new_ends: dict[int, Any] = {}
    ended = 0
    ready: Any = 0.0
    last: Any = 0.0
    begun: Any = None
    base = span.start
    for child in children:
        while by_end[ended].end <= child.start:
            ready = larger(ready, new_ends[by_end[ended].node])
            ended += 1
        starts = ready + (child.start - child.base) * pace
        if child.node in together:
            begun = starts if begun is None else begun
            starts = begun
        new_ends[child.node] = starts + durations[child.node]
        last = larger(last, new_ends[child.node])
        base = max(base, child.end)
    return last + (span.end - base) * pace


def cut(tree: Tree) -> dict[int, list[Child]]:
    """The blocking children of each node, cut to it, by start; those without length are gone."""
    assert tree.root is not None  # noqa: S101 - callers have asked
    limits = {tree.root: (tree.starts[tree.root], tree.ends[tree.root])}
    below: dict[int, list[Child]] = {}
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


def _with_bases(inside: list[tuple[int, int, int]], parent_start: int) -> list[Child]:
    by_end = sorted(end for _, end, _ in inside)
    children = []
    ended, base = 0, parent_start
    for start, end, node in inside:
        while by_end[ended] <= start:
            base = by_end[ended]
            ended += 1
        children.append(Child(start, end, base, node))
    return children
