"""Serial work that might run in parallel: an opportunity, never a proof.

Siblings that follow each other on the critical path with next to nothing between them are one
after the other because they must be, or because nobody ran them side by side. What is known of
the two decides how strongly that is said:

- E3: one answer of a model asked for both tool calls; it does not wait for the first.
- E2: other traces of the same route and version have the two overlapping, or the other way round.
- E1: nothing is known; ask whether the second needs what the first returns.

Where the second is known to need the first, nothing is said. After CRISP (Zhang et al., USENIX
ATC 2022) and The Mystery Machine (Chow et al., OSDI 2014), which learns dependencies from many
traces.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from longpole.vocab import Span, Stage, keys
from longpole_analytics.stages import TracePartition
from longpole_analytics.tree import Tree
from longpole_analytics.whatif import saved_side_by_side

Names = tuple[str, str]
_TRUE: Final = frozenset(("true", "1", "yes"))
_TOOL_CALL: Final = "tool_call"
"""Why an answer ended: it asks for tools."""
_RESULTS: Final = frozenset((Stage.TOOL.value, Stage.RETRIEVAL.value))
"""Stages whose result a model's next turn is given."""


@dataclass(frozen=True)
class SerialRules:
    """When two siblings count as one right after the other, and what other traces must show.

    ``[analytics.serial]`` in ``longpole.toml`` overrides them.

    Attributes:
        max_gap_ms: between the two; of this and the next the larger holds.
        max_gap_share: of the shorter of the two.
        min_traces_apart: other traces that have them overlap or the other way round.
        max_group: a longer row is several groups.
        max_opportunities: so many are replayed, those with the largest bounds.
    """

    max_gap_ms: float = 5.0
    max_gap_share: float = 0.05
    min_traces_apart: int = 3
    max_group: int = 64
    max_opportunities: int = 10


class Opportunity(NamedTuple):
    """A group of siblings that ran one after the other; times in nanoseconds.

    ``saved_ns`` is what the replay saves when all start with the first, at most ``bound_ns``, the
    sum of their times minus the longest. ``parallelism`` is that sum over the time in which any
    of them ran. ``rate_limit`` names the provider that they would meet at once.
    """

    evidence: str
    span_ids: tuple[str, ...]
    names: tuple[str, ...]
    saved_ns: float
    bound_ns: int
    parallelism: float
    num_traces_apart: int
    rate_limit: str | None


class Sibling(NamedTuple):
    """What :func:`seen_apart` needs of a span."""

    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int | None


class _Step(NamedTuple):
    node: int
    span: Span


class _Group(NamedTuple):
    grade: str
    steps: list[_Step]
    lengths_ns: list[int]

    @property
    def bound_ns(self) -> int:
        return sum(self.lengths_ns) - max(self.lengths_ns)


def opportunities(
    split: TracePartition,
    spans: Sequence[Span],
    apart: Mapping[Names, int] | None = None,
    rules: SerialRules = SerialRules(),
) -> list[Opportunity]:
    """The groups of one trace, those that would save most first.

    Args:
        split: the trace.
        spans: its spans.
        apart: see :func:`seen_apart`; without it nothing is known of other traces.
        rules: the thresholds.
    """
    apart = apart or {}
    facts = _Facts(spans)
    tree = split.tree
    groups = [
        _Group(grade, steps, [tree.ends[step.node] - tree.starts[step.node] for step in steps])
        for run in _runs(split, facts, rules)
        for grade, steps in _groups(run, facts, apart, rules)
    ]
    if not groups:
        return []
    groups.sort(key=lambda group: -group.bound_ns)
    groups = groups[: rules.max_opportunities]
    saved = saved_side_by_side(tree, [[step.node for step in group.steps] for group in groups])
    found = [
        _opportunity(tree, group, saved_ns, facts, apart)
        for group, saved_ns in zip(groups, saved, strict=True)
        if saved_ns > 0
    ]
    return sorted(found, key=lambda one: (-one.saved_ns, one.span_ids))


def pairs(
    split: TracePartition,
    spans: Sequence[Span],
    rules: SerialRules = SerialRules(),
) -> set[Names]:
    """The names that follow each other on the path and may not have to.

    They are what to look for in other traces.
    """
    facts = _Facts(spans)
    return {
        (x.span.name, y.span.name)
        for run in _runs(split, facts, rules)
        for x, y in pairwise(run)
        if not facts.needs(x.span, y.span)
    }


def seen_apart(traces: Iterable[Sequence[Sibling]], wanted: Collection[Names]) -> dict[Names, int]:
    """In how many traces siblings of these names overlap or come in the other order.

    Of names that come several times under one parent the first of each give the order.

    Args:
        traces: other traces of the same route and version.
        wanted: the names, in the order seen.
    """
    counts = dict.fromkeys(wanted, 0)
    names = {name for pair in wanted for name in pair}
    for spans in traces:
        families: dict[str | None, dict[str, list[tuple[int, int]]]] = {}
        for span in spans:
            if span.name in names and span.end_ns is not None:
                family = families.setdefault(span.parent_id, {})
                family.setdefault(span.name, []).append((span.start_ns, span.end_ns))
        for pair in counts:
            counts[pair] += any(_are_apart(family, *pair) for family in families.values())
    return counts


def _are_apart(family: Mapping[str, list[tuple[int, int]]], first: str, second: str) -> bool:
    ours, theirs = sorted(family.get(first, ())), sorted(family.get(second, ()))
    if first == second:
        return any(later[0] < earlier[1] for earlier, later in pairwise(ours))
    if not ours or not theirs:
        return False
    if theirs[0] < ours[0]:
        return True
    end, last = 0, ""
    for start, stop, name in sorted(
        [(*times, first) for times in ours] + [(*times, second) for times in theirs]
    ):
        if start < end and name != last:
            return True
        if stop > end:
            end, last = stop, name
    return False


class _Facts:
    """What the spans of a trace say of who needs whom."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.by_id = {span.span_id: span for span in spans}
        self.calls = sorted(
            (span for span in spans if span.is_model_call and not span.is_engine),
            key=_start,
        )
        self._by_end = sorted((call for call in self.calls if call.end_ns is not None), key=_end)
        answers = (call.attributes.get(keys.OUTPUT_MESSAGES) for call in self.calls)
        self._answers = [answer for answer in answers if answer]
        self._providers: dict[str, set[str]] = {}
        for span in spans:
            if span.provider:
                self._tell_above(span.span_id, span.provider)

    def _tell_above(self, span_id: str | None, provider: str) -> None:
        while span_id in self.by_id:
            known = self._providers.setdefault(span_id, set())
            if provider in known:
                return
            known.add(provider)
            span_id = self.by_id[span_id].parent_id

    def providers(self, span: Span) -> set[str]:
        """The providers that a span or one below it calls."""
        return self._providers.get(span.span_id, set())

    def needs(self, x: Span, y: Span) -> bool:
        """Whether y is known to need x, or one of them must not run beside another."""
        if x.span_id in (y.links or "") or _has_side_effects(x) or _has_side_effects(y):
            return True
        if y.is_model_call and not x.is_model_call and x.stage in _RESULTS:
            return True
        if x.is_model_call and y.stage == Stage.VALIDATION:
            return True
        is_asked = x.finish_reason in (None, _TOOL_CALL) or keys.TOOL_CALL_ID in y.attributes
        if x.is_model_call and y.stage == Stage.TOOL and is_asked:
            return True
        given = _inputs(y)
        return any(output in text for output in _outputs(x) for text in given)

    def needs_any(self, group: Sequence[Span], y: Span) -> bool:
        """Whether y needs one of a group that goes before it."""
        says_something = y.links or _inputs(y) or keys.TOOL_CALL_ID in y.attributes
        is_kind = y.is_model_call or y.stage == Stage.VALIDATION
        if says_something or is_kind or any(x.is_model_call for x in group):
            return any(self.needs(x, y) for x in group)
        return False

    def are_asked_together(self, x: Span, y: Span) -> bool:
        """Whether one answer of a model asked for both tool calls.

        Told by the ids in the answer where it was kept; else both calls have ids and the last
        answer before the first of them ended by asking for tools, with no other call since.
        """
        ids = [span.attributes.get(keys.TOOL_CALL_ID) for span in (x, y)]
        if not all(ids) or x.stage != Stage.TOOL or y.stage != Stage.TOOL or ids[0] == ids[1]:
            return False
        if self._answers:
            return any(all(f'"{call_id}"' in text for call_id in ids) for text in self._answers)
        starts = [bisect_left(self.calls, at, key=_start) for at in (x.start_ns, y.start_ns)]
        before = bisect_right(self._by_end, x.start_ns, key=_end)
        return starts[0] == starts[1] and before > 0 and _asks_for_tools(self._by_end[before - 1])


def _start(span: Span) -> int:
    return span.start_ns


def _end(span: Span) -> int:
    return span.end_ns or 0


def _asks_for_tools(call: Span) -> bool:
    return call.finish_reason == _TOOL_CALL


def _has_side_effects(span: Span) -> bool:
    return any(
        span.attributes.get(key, "").lower() in _TRUE
        for key in (keys.SIDE_EFFECTS, keys.TOOL_HAS_IDEMPOTENCY_KEY)
    )


def _outputs(span: Span) -> list[str]:
    """What names the result of a span: its call id, its result's hash, its own id."""
    known = (span.attributes.get(key) for key in (keys.TOOL_CALL_ID, keys.OUTPUT_HASH))
    return [span.span_id, *(value for value in known if value)]


def _inputs(span: Span) -> list[str]:
    known = (span.attributes.get(key) for key in (keys.INPUTS, keys.TOOL_ARGUMENTS))
    return [value for value in known if value]


def _runs(split: TracePartition, facts: _Facts, rules: SerialRules) -> list[list[_Step]]:
    """Siblings on the path, each right after the one before; two or more."""
    tree = split.tree
    found = []
    for siblings in _on_path(split).values():
        steps = [
            _Step(node, facts.by_id[tree.spans[node].span_id])
            for node in sorted(siblings, key=lambda node: tree.starts[node])
            if tree.spans[node].span_id in facts.by_id
        ]
        run = steps[:1]
        for x, y in pairwise(steps):
            if not _follows(tree, x.node, y.node, rules):
                found.append(run)
                run = []
            run.append(y)
        found.append(run)
    return [run for run in found if len(run) > 1]


def _follows(tree: Tree, x: int, y: int, rules: SerialRules) -> bool:
    shorter = min(tree.ends[x] - tree.starts[x], tree.ends[y] - tree.starts[y])
    gap = tree.starts[y] - tree.ends[x]
    return 0 <= gap <= max(rules.max_gap_ms * 1e6, rules.max_gap_share * shorter)


def _on_path(split: TracePartition) -> dict[int, set[int]]:
    """By parent: its children on the path, phases of calls apart."""
    tree = split.tree
    on_path: dict[int, set[int]] = {}
    for last in split.path_nodes:
        node, parent = last, tree.parents[last]
        while parent >= 0 and node not in on_path.setdefault(parent, set()):
            if not tree.spans[parent].phases:
                on_path[parent].add(node)
            node, parent = parent, tree.parents[parent]
    return on_path


def _groups(
    run: Sequence[_Step], facts: _Facts, apart: Mapping[Names, int], rules: SerialRules
) -> list[tuple[str, list[_Step]]]:
    """The steps that may run together, with how well that is known."""
    found: list[tuple[str, list[_Step]]] = []
    group, grade = [run[0]], ""
    for x, y in pairwise(run):
        new_grade = _grade(x.span, y.span, facts, apart, rules)
        may_join = new_grade == grade != "" and len(group) < rules.max_group
        if may_join and not facts.needs_any([step.span for step in group], y.span):
            group.append(y)
            continue
        if len(group) > 1:
            found.append((grade, group))
        group, grade = ([x, y], new_grade) if new_grade else ([y], "")
    if len(group) > 1:
        found.append((grade, group))
    return found


def _grade(x: Span, y: Span, facts: _Facts, apart: Mapping[Names, int], rules: SerialRules) -> str:
    """E1 to E3, or empty when the second is known to need the first."""
    if facts.needs(x, y):
        return ""
    if facts.are_asked_together(x, y):
        return "E3"
    return "E2" if apart.get((x.name, y.name), 0) >= rules.min_traces_apart else "E1"


def _opportunity(
    tree: Tree, group: _Group, saved_ns: float, facts: _Facts, apart: Mapping[Names, int]
) -> Opportunity:
    met = Counter(name for step in group.steps for name in facts.providers(step.span))
    names = tuple(step.span.name for step in group.steps)
    return Opportunity(
        evidence=group.grade,
        span_ids=tuple(step.span.span_id for step in group.steps),
        names=names,
        saved_ns=min(saved_ns, group.bound_ns),
        bound_ns=group.bound_ns,
        parallelism=sum(group.lengths_ns) / _union(tree, [step.node for step in group.steps]),
        num_traces_apart=min(apart.get(pair, 0) for pair in pairwise(names)),
        rate_limit=min((name for name, times in met.items() if times > 1), default=None),
    )


def _union(tree: Tree, nodes: Iterable[int]) -> int:
    """The time in which any of these ran."""
    total, covered = 0, 0
    for start, end in sorted((tree.starts[node], tree.ends[node]) for node in nodes):
        total += max(end - max(start, covered), 0)
        covered = max(covered, end)
    return total
