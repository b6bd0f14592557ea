"""Where the time of one trace went: every nanosecond of its wall time in exactly one stage.

Spans become path spans with a stage, model calls get their phases (``calls.py``), the critical
path (``critical_path.py``) is walked, and its segments are summed by stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from longpole.vocab import MODEL_STAGES, Span, Stage
from longpole_analytics.calls import ModelCall, is_failed, model_calls
from longpole_analytics.critical_path import Segment, segments, walk
from longpole_analytics.phases import client_phases, engine_phases
from longpole_analytics.prepare import Overhang, distinct, prepare
from longpole_analytics.tree import PathSpan, Phase, Tree

_STAGES: Final[dict[str | None, Stage]] = {stage.value: stage for stage in Stage}
STATED: Final = frozenset(Stage) - MODEL_STAGES - {Stage.OTHER}
"""Stages that a model call may state of itself, such as a validation done by a model."""


class StageTime(NamedTuple):
    """Time of one stage: on the critical path, and of all its spans, on the path or off."""

    critical_ns: int
    total_ns: int


@dataclass(frozen=True)
class TracePartition:
    """The wall time of one trace, split.

    ``stages`` holds every stage with time in it; their ``critical_ns`` add up to ``wall_ns``
    exactly. ``segments`` is the critical path, latest first. ``extended_wall_ns`` is longer than
    ``wall_ns`` when a stream outlives the root: what the user waited for. ``root_id`` is ``None``
    when no span has finished, empty when the root never arrived and a stand-in spans the trace.
    ``flags`` names every doubt, sorted.
    """

    trace_id: str
    root_id: str | None
    start_ns: int
    end_ns: int
    extended_wall_ns: int
    stages: dict[Stage, StageTime]
    segments: tuple[Segment, ...]
    flags: tuple[str, ...]
    shifts_ns: dict[str, int]
    calls: tuple[ModelCall, ...] = field(repr=False)
    tree: Tree = field(repr=False)
    path_nodes: tuple[int, ...] = field(default=(), repr=False)
    """The node of the tree that each segment is own time of."""

    @property
    def wall_ns(self) -> int:
        """End of the root minus its start."""
        return self.end_ns - self.start_ns

    @property
    def long_pole(self) -> Stage:
        """The stage with most critical time; ``other`` for a trace without duration."""
        best = max(self.stages, key=self.critical_ns, default=Stage.OTHER)
        return best if self.critical_ns(best) else Stage.OTHER

    def critical_ns(self, stage: Stage) -> int:
        """Time of a stage on the critical path; 0 when it has none."""
        found = self.stages.get(stage)
        return found.critical_ns if found else 0


def partition(spans: Sequence[Span], *, overhang: Overhang = "detach") -> TracePartition:
    """Split the wall time of one trace into stages. Never raises on bad data.

    Args:
        spans: the spans of one trace, in any order.
        overhang: what becomes of a child of the same process that ends after its parent.
    """
    unique = distinct(spans)
    calls = model_calls(unique)
    path_spans, doubts = _path_spans(unique, calls)
    tree = prepare(path_spans, overhang=overhang)
    tree.mark("duplicate_span", len(spans) - len(unique))
    for flag in doubts:
        tree.mark(flag)
    start = end = min((span.start_ns for span in unique), default=0)
    root_id = None
    extended = 0
    if tree.root is not None:
        root_id = tree.spans[tree.root].span_id
        start, end = tree.starts[tree.root], tree.ends[tree.root]
        extended = tree.extended_end_ns - start
    path = walk(tree)
    return TracePartition(
        trace_id=unique[0].trace_id if unique else "",
        root_id=root_id,
        start_ns=start,
        end_ns=end,
        extended_wall_ns=extended,
        stages=_stage_times(tree, path),
        segments=segments(tree, path),
        flags=tuple(sorted(tree.marks)),
        shifts_ns=tree.shifts_ns,
        calls=tuple(calls),
        tree=tree,
        path_nodes=tuple(node for node, _, _ in path),
    )


class _Explained(NamedTuple):
    """What replaces a model call's own time and everything below it."""

    stage: Stage
    phases: tuple[Phase, ...]


def _path_spans(
    spans: Sequence[Span], calls: Sequence[ModelCall]
) -> tuple[list[PathSpan], list[str]]:
    """The spans to walk, calls with their phases and without what these stand for."""
    doubts: list[str] = []
    explained: dict[str, _Explained] = {}
    hidden: set[str] = set()
    ends: dict[str, int | None] = {}
    if calls:
        children = _by_parent(spans)
        explained = _explain(calls, children, _above_calls(spans, calls), doubts)
        shown = [call for call in calls if call.span.span_id in explained]
        ends = {call.span.span_id: call.span.end_ns for call in shown if call.told_by}
        hidden = _below(
            explained, [span_id for call in shown for span_id in call.told_by], children
        )
    path_spans = []
    for span in spans:
        span_id = span.span_id
        if span_id in hidden:
            continue
        stage, phases = explained.get(span_id) or (_STAGES.get(span.stage, Stage.OTHER), ())
        path_spans.append(
            PathSpan(
                span_id,
                span.parent_id,
                span.start_ns,
                ends.get(span_id, span.end_ns),
                stage,
                span.name,
                span.instance_id,
                span.is_detached,
                span.is_streamed is True,
                span.kind,
                phases,
            )
        )
    return path_spans, doubts


def _by_parent(spans: Sequence[Span]) -> dict[str | None, list[Span]]:
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    return children


def _above_calls(spans: Sequence[Span], calls: Sequence[ModelCall]) -> set[str]:
    """Ids of all spans above a call."""
    parents = {span.span_id: span.parent_id for span in spans}
    above: set[str] = set()
    for call in calls:
        parent = call.span.parent_id
        while parent is not None and parent not in above:
            above.add(parent)
            parent = parents.get(parent)
    return above


def _explain(
    calls: Sequence[ModelCall],
    children: dict[str | None, list[Span]],
    above_calls: set[str],
    doubts: list[str],
) -> dict[str, _Explained]:
    """By span id: the calls whose phases are known.

    A call around another one, in a tool it ran, is not explained: the spans in it are. A failed
    call that another call under the same parent follows is ``retry`` from end to end.
    """
    latest: dict[tuple[str | None, str | None], int] = {}
    for call in calls:
        key = (call.span.parent_id, call.span.operation)
        latest[key] = max(call.span.start_ns, latest.get(key, call.span.start_ns))
    explained = {}
    for call in calls:
        span = call.span
        if span.end_ns is None or span.span_id in above_calls:
            continue
        stated = _STAGES.get(span.stage, Stage.OTHER)
        below_engine = children.get(call.engine.span_id, ()) if call.engine else ()
        if stated in STATED:
            explained[span.span_id] = _Explained(stated, ())
        elif is_failed(span) and latest[span.parent_id, span.operation] >= span.end_ns:
            explained[span.span_id] = _Explained(Stage.RETRY, ())
        elif call.client is not None:
            phases, flags = client_phases(call, below_engine)
            explained[span.span_id] = _Explained(stated, phases)
            doubts += flags
        elif not any(child.stage in _STAGES for child in below_engine):
            phases = engine_phases(span)
            if phases:
                explained[span.span_id] = _Explained(stated, phases)
    return explained


def _below(
    explained: dict[str, _Explained],
    told_by: Sequence[str],
    children: dict[str | None, list[Span]],
) -> set[str]:
    """Ids of all spans that tell of an explained call once more, or lie below one that does."""
    below = set(told_by)
    todo = [child for span_id in (*explained, *told_by) for child in children.get(span_id, ())]
    while todo:
        span_id = todo.pop().span_id
        if span_id not in below and span_id not in explained:
            below.add(span_id)
            todo += children.get(span_id, ())
    return below


def _stage_times(tree: Tree, path: Sequence[tuple[int, int, int]]) -> dict[Stage, StageTime]:
    critical: dict[int, int] = {}
    for node, start, end in path:
        critical[node] = critical.get(node, 0) + end - start
    on_path: dict[Stage, int] = {}
    total: dict[Stage, int] = {}
    for node in tree.order:
        own, waited = _own_ns(tree, node), critical.get(node, 0)
        if own or waited:
            stage = tree.spans[node].stage
            on_path[stage] = on_path.get(stage, 0) + waited
            # A sibling off the path hides own time that the path counts.
            total[stage] = total.get(stage, 0) + max(own, waited)
    return {stage: StageTime(on_path[stage], total[stage]) for stage in Stage if stage in total}


def _own_ns(tree: Tree, node: int) -> int:
    """Duration of a span minus the union of its children's times."""
    start, end = tree.starts[node], tree.ends[node]
    children = tree.children[node]
    if not children:
        return end - start
    own, covered = 0, start
    for child_start, child_end in sorted((tree.starts[c], tree.ends[c]) for c in children):
        if child_start > covered:
            own += min(child_start, end) - covered
        covered = max(covered, child_end)
        if covered >= end:
            return own
    return own + end - covered
