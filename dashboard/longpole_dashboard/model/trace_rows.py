"""The rows of a waterfall: the spans of a trace as a tree in preorder, repeated siblings folded.

A model call is its phases; the engine's own spans of a joined call do not appear, since the phases
account for them. Spans whose parent never arrived stand apart, below all others.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from longpole.vocab import Span, Status
from longpole_analytics.stages import TracePartition
from longpole_analytics.tree import Tree
from longpole_analytics.whatif import slack

FOLD_ABOVE: Final = 2_000
"""Rows of a trace above which repeated siblings are folded."""
MIN_FOLDED: Final = 5
"""Fewer siblings of a kind are not folded."""
MAX_PIECES: Final = 300
"""Pieces that the bar of folded rows is made of; what lies closer together is drawn as one."""
APART: Final = "apart"
"""Key of the row above the spans without parent."""
_DIGITS: Final = re.compile(r"\d+")

Stretch = tuple[int, int, str]
"""Start and end (ns since the trace's start) and the stage."""


class SpanRow(NamedTuple):
    """One row of the waterfall; times are ns since the trace's start.

    Attributes:
        key: unique in the trace, and the same whenever the trace is read.
        span_id: names the stored span, which phases share; empty for a row of no span.
        call_id: of a model call or its phase: the span that stands for the call.
        engine_id: likewise the engine's span of it, if there is one besides.
        name: span name as sent, the stage's name for a phase, the kind for folded siblings.
        depth: 0 for the root.
        num_below: rows below it in the tree.
        stretches: what its bar is made of: itself, or the phases of a model call.
        path: the stretches of its own time that are on the critical path.
        critical_ns: their sum; for a model call of its phases, for folded rows of all of them.
        total_ns: its duration; for folded rows the sum of theirs.
        slack_ns: how much longer it could be unnoticed; ``None`` if nobody waits for it.
        is_on_path: it or a row below it is on the path.
        is_call: a model call that is shown as its phases.
        is_phase: one of these.
        num_folded: of a row that stands for its siblings below it: how many; else 0.
    """

    key: str
    span_id: str
    call_id: str | None
    engine_id: str | None
    name: str
    depth: int
    num_below: int
    stage: str
    start_ns: int
    end_ns: int
    stretches: tuple[Stretch, ...]
    path: tuple[Stretch, ...]
    critical_ns: int
    total_ns: int
    slack_ns: int | None
    is_on_path: bool
    is_call: bool
    is_phase: bool
    is_error: bool
    service: str | None
    num_folded: int = 0


def rows(
    split: TracePartition, spans: Mapping[str, Span], *, fold_above: int = FOLD_ABOVE
) -> tuple[SpanRow, ...]:
    """The tree in preorder, children by start; empty for a trace without a finished span.

    Args:
        split: the trace.
        spans: its spans by id.
        fold_above: rows above which repeated siblings are folded.
    """
    if split.tree.root is None:
        return ()
    made = _Rows(split, spans, is_folding=len(split.tree.order) > fold_above)
    todo: list[tuple[int | _Group, str, int]] = [(split.tree.root, "", 0)]
    found: list[SpanRow] = []
    while todo:
        entry, key, depth = todo.pop()
        if isinstance(entry, _Group):
            found.append(made.group(entry, key, depth))
            below: Sequence[int | _Group] = entry.nodes
        else:
            found.append(made.row(entry, key, depth))
            below = made.below(entry)
        key = found[-1].key
        todo += [(child, f"{key}:{i}", depth + 1) for i, child in enumerate(below)][::-1]
    return _with_counts(found)


def num_apart(split: TracePartition, spans: Mapping[str, Span]) -> int:
    """How many spans name a parent that never arrived, the root not among them."""
    root = split.tree.root
    return 0 if root is None else sum(_is_orphan(split.tree, n, spans) for n in _tops(split.tree))


class _Group(NamedTuple):
    """Siblings under one row: of a kind, or without parent."""

    name: str
    nodes: list[int]
    is_apart: bool = False


class _Rows:
    """Makes the rows of one trace."""

    def __init__(
        self, split: TracePartition, spans: Mapping[str, Span], *, is_folding: bool
    ) -> None:
        self._split, self._spans, self._is_folding = split, spans, is_folding
        self._tree = split.tree
        self._path: dict[int, list[Stretch]] = {}
        for node, segment in zip(reversed(split.path_nodes), reversed(split.segments), strict=True):
            stretch = self._stretch(node, segment.start_ns, segment.end_ns)
            self._path.setdefault(node, []).append(stretch)
        self._on_path = _with_parents(self._tree, self._path)
        self._slacks = slack(self._tree)
        self._engines = {
            call.client.span_id: call.engine.span_id
            for call in split.calls
            if call.client is not None and call.engine is not None
        }

    def below(self, node: int) -> list[int | _Group]:
        """What stands right under a span: its children by start, those of a kind folded."""
        tree = self._tree
        if not tree.children[node]:
            return []
        children = sorted(tree.children[node], key=lambda child: (tree.starts[child], child))
        apart: list[int] = []
        if node == tree.root:
            apart = [child for child in children if _is_orphan(tree, child, self._spans)]
            lost = set(apart)
            children = [child for child in children if child not in lost]
        found = self._folded(children)
        if apart:
            noun = "span" if len(apart) == 1 else "spans"
            name = f"{len(apart):,} {noun} without parent, shown apart"
            found.append(_Group(name, apart, is_apart=True))
        return found

    def _folded(self, children: list[int]) -> list[int | _Group]:
        if not self._is_folding or len(children) < MIN_FOLDED:
            return [*children]
        kinds: dict[tuple[str, str], list[int]] = {}
        for child in children:
            kinds.setdefault(self._kind(child), []).append(child)
        found: list[int | _Group] = []
        for child in children:
            kind = self._kind(child)
            alike = kinds[kind]
            if len(alike) < MIN_FOLDED:
                found.append(child)
            elif alike[0] == child:
                found.append(_Group(kind[0], alike))
        return found

    def _kind(self, node: int) -> tuple[str, str]:
        """Names that differ in their numbers alone are of one kind."""
        span = self._tree.spans[node]
        return _DIGITS.sub("#", span.name), span.stage.value

    def row(self, node: int, key: str, depth: int) -> SpanRow:
        """The row of one span or phase."""
        tree = self._tree
        span, parent = tree.spans[node], tree.parents[node]
        is_phase = parent >= 0 and bool(tree.spans[parent].phases)
        # A model call is its phases: its bar and its path are theirs.
        children = sorted(tree.children[node], key=lambda child: (tree.starts[child], child))
        parts = children if span.phases else [node]
        own = tuple(stretch for part in parts for stretch in self._path.get(part, ()))
        stored = self._spans.get(span.span_id)
        call = tree.spans[parent] if is_phase else span
        return SpanRow(
            key=key if is_phase else span.span_id or "root",
            span_id=span.span_id,
            call_id=call.span_id if call.phases else None,
            engine_id=self._engines.get(call.span_id),
            name=span.stage.value if is_phase else span.name,
            depth=depth,
            num_below=0,
            stage=span.stage.value,
            start_ns=tree.starts[node] - self._split.start_ns,
            end_ns=tree.ends[node] - self._split.start_ns,
            stretches=tuple(self._stretch(p, tree.starts[p], tree.ends[p]) for p in parts),
            path=own,
            critical_ns=_sum(own),
            total_ns=tree.ends[node] - tree.starts[node],
            slack_ns=self._slacks.get(span.span_id),
            is_on_path=node in self._on_path,
            is_call=bool(span.phases),
            is_phase=is_phase,
            is_error=not is_phase and stored is not None and stored.status == Status.ERROR,
            service=stored.service if stored else None,
        )

    def group(self, group: _Group, key: str, depth: int) -> SpanRow:
        """The row that stands for several siblings, which are the rows below it."""
        members = [self.row(node, "", depth) for node in group.nodes]
        services = {member.service for member in members}
        start_ns = min(member.start_ns for member in members)
        end_ns = max(member.end_ns for member in members)
        return SpanRow(
            key=APART if group.is_apart else key,
            span_id="",
            call_id=None,
            engine_id=None,
            name=group.name,
            depth=depth,
            num_below=0,
            stage=members[0].stage,
            start_ns=start_ns,
            end_ns=end_ns,
            stretches=_joined((s for m in members for s in m.stretches), end_ns - start_ns),
            path=_joined((s for m in members for s in m.path), end_ns - start_ns),
            critical_ns=sum(member.critical_ns for member in members),
            total_ns=sum(member.total_ns for member in members),
            slack_ns=min((m.slack_ns for m in members if m.slack_ns is not None), default=None),
            is_on_path=any(member.is_on_path for member in members),
            is_call=False,
            is_phase=False,
            is_error=any(member.is_error for member in members),
            service=services.pop() if len(services) == 1 else None,
            num_folded=len(members),
        )

    def _stretch(self, node: int, start: int, end: int) -> Stretch:
        begin = self._split.start_ns
        return start - begin, end - begin, self._tree.spans[node].stage.value


def _sum(stretches: Iterable[Stretch]) -> int:
    return sum(end - start for start, end, _ in stretches)


def _joined(stretches: Iterable[Stretch], extent_ns: int) -> tuple[Stretch, ...]:
    """The union of stretches by stage; of very many, those that lie close together are one."""
    by_start = sorted(stretches)
    gap_ns = extent_ns // MAX_PIECES if len(by_start) > MAX_PIECES else 0
    ends: dict[str, int] = {}
    starts: dict[str, int] = {}
    found: list[Stretch] = []
    for start, end, stage in by_start:
        if stage in ends and start <= ends[stage] + gap_ns:
            ends[stage] = max(ends[stage], end)
            continue
        if stage in ends:
            found.append((starts[stage], ends[stage], stage))
        starts[stage], ends[stage] = start, end
    found += [(starts[stage], ends[stage], stage) for stage in ends]
    return tuple(sorted(found))


def _tops(tree: Tree) -> list[int]:
    return [] if tree.root is None else tree.children[tree.root]


def _is_orphan(tree: Tree, node: int, spans: Mapping[str, Span]) -> bool:
    parent_id = tree.spans[node].parent_id
    return bool(parent_id) and parent_id not in spans


def _with_parents(tree: Tree, nodes: Iterable[int]) -> set[int]:
    """The nodes and all that are above one of them."""
    found = set(nodes)
    for node in reversed(tree.order):
        if node in found and tree.parents[node] >= 0:
            found.add(tree.parents[node])
    return found


def _with_counts(found: list[SpanRow]) -> tuple[SpanRow, ...]:
    """The rows with how many are below each: those that follow it and are deeper."""
    counts = [0] * len(found)
    above: list[int] = []
    for i, row in enumerate(found):
        while above and found[above[-1]].depth >= row.depth:
            _close(above, counts)
        above.append(i)
    while above:
        _close(above, counts)
    return tuple(
        row._replace(num_below=count) if count else row
        for row, count in zip(found, counts, strict=True)
    )


def _close(above: list[int], counts: list[int]) -> None:
    closed = above.pop()
    if above:
        counts[above[-1]] += counts[closed] + 1
