"""From the spans of one trace, in any order and state, to a tree that can be walked.

Real traces are messy: spans come twice, point at parents that never arrived, run on clocks that
disagree, end after the span that started them. This file settles that once, in a fixed order,
and counts every change it makes, so that the critical path and the replay stand on the same
ground and a reader can see what was assumed.

Sources: CRISP (Zhang et al., USENIX ATC 2022); Jaeger UI's critical path. Their rule for a child
that outlives its parent is ``clip``; ours is ``detach``, since one fire-and-forget call would
otherwise take the whole trace.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeVar

from longpole.vocab import Kind
from longpole_analytics.skew import TOLERANCE_NS, shift_clocks
from longpole_analytics.tree import PathSpan, Tree

Overhang = Literal["detach", "clip"]
"""What becomes of a child of the same process that ends after its parent: nobody waited for it
(``detach``), or it is cut at the parent's end (``clip``)."""

ROOT_SHARE_PERCENT = 95
"""Of several candidates, one whose subtree covers this much of the trace is the root."""
SYNTHETIC_ROOT_NAME = "(root not received)"


class _Timed(Protocol):
    @property
    def span_id(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int | None: ...


T = TypeVar("T", bound=_Timed)


def distinct(spans: Sequence[T]) -> list[T]:
    """One span per id, in order of first appearance: the one that has an end, then the longer."""
    best: dict[str, T] = {}
    for span in spans:
        known = best.setdefault(span.span_id, span)
        if known is not span and _completeness(span) > _completeness(known):
            best[span.span_id] = span
    return list(best.values())


def _completeness(span: _Timed) -> tuple[bool, int, int]:
    end = span.end_ns
    return end is not None, (end or 0) - span.start_ns, -span.start_ns


def prepare(spans: Sequence[PathSpan], *, overhang: Overhang = "detach") -> Tree:
    """The tree of one trace. Never raises; no spans, or none finished, give a tree without root.

    Flags that may be in its ``marks``: duplicate_span, unfinished_span, negative_duration, cycle,
    incomplete_trace, clock_skew, skew_uncertain, skew_too_large, stream_outlives_parent,
    overhang_detached, overhang_clipped.

    Args:
        spans: the spans of one trace, in any order.
        overhang: what becomes of a child of the same process that ends after its parent.
    """
    unique = distinct(spans)
    tree, is_orphan = _linked(unique)
    tree.mark("duplicate_span", len(spans) - len(unique))
    if not tree.spans:
        return tree
    _choose_root(tree, is_orphan)
    detached = _detached(tree)
    shift_clocks(tree, detached)
    _add_phases(tree)
    _block(tree, detached, overhang)
    return tree


def _linked(spans: Sequence[PathSpan]) -> tuple[Tree, list[bool]]:
    """The finished spans with their parents, free of cycles, and which name a lost parent."""
    finished = [span for span in spans if span.end_ns is not None]
    # One order whatever order they came in, so that no tie is decided by arrival.
    finished.sort(key=lambda span: (span.start_ns, span.span_id))
    starts = [span.start_ns for span in finished]
    ends = [span.end_ns or 0 for span in finished]
    nodes = {span.span_id: node for node, span in enumerate(finished)}
    skip: dict[str, str | None] = {}
    if len(finished) < len(spans):
        skip = _above({s.span_id: s.parent_id for s in spans if s.end_ns is None})
    parents: list[int] = []
    for span in finished:
        parent_id = skip.get(span.parent_id, span.parent_id) if span.parent_id else None
        parents.append(nodes.get(parent_id, -1) if parent_id else -1)
    is_orphan = [
        parent < 0 and bool(span.parent_id) for span, parent in zip(finished, parents, strict=True)
    ]
    tree = Tree([*finished], starts, ends, parents, _children(parents))
    tree.mark("unfinished_span", len(spans) - len(finished))
    for node, start in enumerate(starts):
        if ends[node] < start:
            ends[node] = start
            tree.mark("negative_duration")
    tree.order = _descend(_tops(tree), tree.children)
    if len(tree.order) < len(finished):
        tree.mark("cycle", _cut_cycles(tree))
        tree.children = _children(parents)
        tree.order = _descend(_tops(tree), tree.children)
    return tree, is_orphan


def _above(unfinished: dict[str, str | None]) -> dict[str, str | None]:
    """For each unfinished span, the id of the nearest ancestor that is not one."""
    found: dict[str, str | None] = {}
    for span_id in unfinished:
        trail: dict[str, None] = {}
        above: str | None = span_id
        while above in unfinished and above not in found and above not in trail:
            trail[above] = None
            above = unfinished[above]
        if above is not None:
            above = None if above in trail else found.get(above, above)
        found.update(dict.fromkeys(trail, above))
    return found


def _tops(tree: Tree) -> list[int]:
    return [node for node, parent in enumerate(tree.parents) if parent < 0]


def _children(parents: list[int]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    return children


def _descend(tops: Iterable[int], children: list[list[int]]) -> list[int]:
    """All nodes under ``tops``, parents first."""
    order = list(tops)
    for node in order:
        order.extend(children[node])
    return order


def _cut_cycles(tree: Tree) -> int:
    """Cut each cycle above its earliest span; returns how many there were."""
    num_cycles = 0
    settled = set(tree.order)
    for first in range(len(tree.spans)):
        trail: dict[int, None] = {}
        node = first
        while node not in settled and node not in trail:
            trail[node] = None
            node = tree.parents[node]
        if node in trail:
            steps = list(trail)
            cycle = steps[steps.index(node) :]
            earliest = min(cycle, key=lambda n: (tree.starts[n], tree.spans[n].span_id))
            tree.parents[earliest] = -1
            num_cycles += 1
        settled.update(trail)
    return num_cycles


def _choose_root(tree: Tree, is_orphan: list[bool]) -> None:
    """Put everything under one root and order the tree from it."""
    tops = _tops(tree)
    tree.mark("incomplete_trace", max(len(tops) - 1, int(is_orphan[tops[0]])))
    if len(tops) == 1:
        return
    low, high = tree.starts.copy(), tree.ends.copy()
    for node in reversed(tree.order):
        parent = tree.parents[node]
        if parent >= 0:
            low[parent] = min(low[parent], low[node])
            high[parent] = max(high[parent], high[node])
    start, end = min(low), max(high)
    covers = [
        node
        for node in tops
        if 100 * (high[node] - low[node]) >= ROOT_SHARE_PERCENT * (end - start)
    ]
    if covers:
        root = min(
            covers,
            key=lambda n: (
                is_orphan[n],
                low[n] - high[n],
                tree.starts[n] - tree.ends[n],
                tree.spans[n].span_id,
            ),
        )
    else:
        root = len(tree.spans)
        tree.spans.append(PathSpan("", None, start, end, name=SYNTHETIC_ROOT_NAME))
        tree.starts.append(start)
        tree.ends.append(end)
        tree.parents.append(-1)
        tree.children.append([])
    for node in tops:
        if node != root:
            tree.parents[node] = root
            tree.children[root].append(node)
    tree.order = _descend([root], tree.children)


def _detached(tree: Tree) -> set[int]:
    """Nodes that say themselves, or by their kind, that nobody waits for them."""
    detached: set[int] = set()
    for node, span in enumerate(tree.spans):
        parent = tree.parents[node]
        if span.is_detached or (
            span.kind == Kind.CONSUMER and parent >= 0 and tree.spans[parent].kind == Kind.PRODUCER
        ):
            detached.add(node)
    return detached


def _add_phases(tree: Tree) -> None:
    """Lay the known phases of each span under it, moved as its clock was."""
    for node, span in enumerate(tree.spans.copy()):
        shift = tree.starts[node] - span.start_ns
        for span_id, name, stage, start, end in span.phases:
            leaf = len(tree.spans)
            tree.spans.append(PathSpan(span_id, span.span_id, start, end, stage, name))
            tree.starts.append(start + shift)
            tree.ends.append(end + shift)
            tree.parents.append(node)
            tree.instances.append(tree.instances[node])
            tree.children.append([])
            tree.children[node].append(leaf)
            tree.order.append(leaf)


def _block(tree: Tree, detached: set[int], overhang: Overhang) -> None:
    """Fill ``blocking`` and ``extended_end_ns``."""
    stream_ends = _stream_ends(tree, detached)
    off = set(detached)
    for node in tree.order[1:]:
        parent = tree.parents[node]
        parent_end = tree.ends[parent]
        if tree.ends[node] <= parent_end or node in off:
            continue
        is_same_clock = tree.instances[node] == tree.instances[parent]
        if stream_ends.get(node, parent_end) > parent_end:
            tree.mark("stream_outlives_parent")
        elif overhang == "detach" and is_same_clock:
            off.add(node)
            tree.mark("overhang_detached")
        elif is_same_clock or tree.ends[node] - parent_end >= TOLERANCE_NS:
            tree.mark("overhang_clipped")
    tree.blocking = tree.children
    if off:
        tree.blocking = [[c for c in below if c not in off] for below in tree.children]
    root = tree.order[0]
    tree.extended_end_ns = max(tree.ends[root], stream_ends.get(root, tree.ends[root]))


def _stream_ends(tree: Tree, detached: set[int]) -> dict[int, int]:
    """Latest end of a stream in each node's subtree, for the nodes that hold one."""
    found: dict[int, int] = {}
    if not any(span.is_stream for span in tree.spans):
        return found
    for node in reversed(tree.order):
        if tree.spans[node].is_stream:
            found[node] = max(tree.ends[node], found.get(node, tree.ends[node]))
        parent = tree.parents[node]
        if node in found and node not in detached and parent >= 0:
            found[parent] = max(found[node], found.get(parent, found[node]))
    return found
