"""The critical path of one trace: which span the request was waiting for, at every nanosecond.

The path is a partition: its segments are disjoint, contiguous and cover the root exactly, so sums
per span, stage or service add up to the root's wall time to the nanosecond. It is walked from the
end backwards: the child that ended last is what its parent waited for; before that child started,
the one that had ended last by then; what no child covers is the span's own time.

Order of siblings is inferred from their times, not from declared dependencies. Sources: CRISP
(Zhang et al., USENIX ATC 2022) and Jaeger UI. CRISP lets siblings overlap by a tolerance and
subtracts whole durations, so its exclusive times can be off by the overlap; Jaeger drops the
earlier of two siblings that touch. Neither happens here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from longpole.vocab import Stage
from longpole_analytics.prepare import Overhang, prepare
from longpole_analytics.tree import PathSpan, Tree

MAX_TOLERANCE_NS = 1_000_000
"""Between two processes, siblings may overlap by 1 % of the parent and at most by this."""


class Segment(NamedTuple):
    """A stretch of the path: the own time of one span."""

    span_id: str
    name: str
    stage: Stage
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class CriticalPath:
    """The path of one trace. ``segments`` are latest first; empty for a root without duration.

    ``flags`` names every doubt about the trace, sorted; ``shifts_ns`` is the time added to each
    clock that disagreed with the root's.
    """

    root_id: str | None
    start_ns: int
    end_ns: int
    extended_end_ns: int
    segments: tuple[Segment, ...]
    flags: tuple[str, ...]
    shifts_ns: dict[str, int]

    @property
    def total_ns(self) -> int:
        """Wall time of the root, which the segments add up to."""
        return self.end_ns - self.start_ns


def critical_path(
    spans: Sequence[PathSpan],
    *,
    overhang: Overhang = "detach",
    overlap_tolerance_ns: int | None = None,
) -> CriticalPath:
    """The critical path of the spans of one trace. Never raises.

    Without a finished span there is no path: ``root_id`` is ``None`` and everything is 0.

    Args:
        spans: the spans of one trace, in any order.
        overhang: what becomes of a child of the same process that ends after its parent.
        overlap_tolerance_ns: how far siblings may overlap and still count as one after the
            other; default 0 inside a process and min(1 % of the parent, 1 ms) between two.
    """
    tree = prepare(spans, overhang=overhang)
    flags = tuple(sorted(tree.marks))
    if tree.root is None:
        return CriticalPath(None, 0, 0, 0, (), flags, {})
    return CriticalPath(
        root_id=tree.spans[tree.root].span_id,
        start_ns=tree.starts[tree.root],
        end_ns=tree.ends[tree.root],
        extended_end_ns=tree.extended_end_ns,
        segments=segments(tree, walk(tree, overlap_tolerance_ns)),
        flags=flags,
        shifts_ns=tree.shifts_ns,
    )


def segments(tree: Tree, path: Sequence[tuple[int, int, int]]) -> tuple[Segment, ...]:
    """A walked path with the names of its spans."""
    return tuple(
        Segment(span.span_id, span.name, span.stage, start, end)
        for span, start, end in ((tree.spans[node], start, end) for node, start, end in path)
    )


class _Frame:
    """A span being walked: the part of it still unexplained is [start, cursor]."""

    __slots__ = ("candidates", "cursor", "node", "start")

    def __init__(self, tree: Tree, node: int, start: int, end: int) -> None:
        self.node = node
        self.start = start
        self.cursor = end
        self.candidates = _candidates(tree, node, start, end)


def _candidates(tree: Tree, node: int, start: int, end: int) -> Iterator[tuple[int, int, str, int]]:
    """Blocking children cut to [start, end] as (-end, start, id, node), best first."""
    starts, ends, spans = tree.starts, tree.ends, tree.spans
    inside = []
    for child in tree.blocking[node]:
        child_start = max(start, starts[child])
        child_end = min(end, ends[child])
        if child_end > child_start:
            inside.append((-child_end, child_start, spans[child].span_id, child))
    if len(inside) > 1:
        inside.sort()
    return iter(inside)


def walk(tree: Tree, overlap_tolerance_ns: int | None = None) -> list[tuple[int, int, int]]:
    """The path as (node, start, end), latest first; empty for a tree without root.

    Each span is entered at most once and its children are sorted once, so the whole takes
    O(n log n) steps; there is no recursion, so depth is no limit.
    """
    if tree.root is None:
        return []
    path: list[tuple[int, int, int]] = []
    frames = [_Frame(tree, tree.root, tree.starts[tree.root], tree.ends[tree.root])]
    while frames:
        frame = frames[-1]
        node = frame.node
        for negative_end, start, _, child in frame.candidates:
            end, cursor = -negative_end, frame.cursor
            if end > cursor:
                # The cursor only moves back, so what overlaps now never becomes a candidate.
                if start >= cursor or end > cursor + _tolerance(tree, child, overlap_tolerance_ns):
                    continue
                end = cursor
            if end < cursor:
                path.append((node, end, cursor))
            frame.cursor = start
            if tree.blocking[child]:
                frames.append(_Frame(tree, child, start, end))
                break
            path.append((child, start, end))
        else:
            if frame.cursor > frame.start:
                path.append((node, frame.start, frame.cursor))
            frames.pop()
    return path


def _tolerance(tree: Tree, child: int, overlap_tolerance_ns: int | None) -> int:
    if overlap_tolerance_ns is not None:
        return overlap_tolerance_ns
    parent = tree.parents[child]
    if tree.instances[child] == tree.instances[parent]:
        return 0
    return min((tree.ends[parent] - tree.starts[parent]) // 100, MAX_TOLERANCE_NS)
