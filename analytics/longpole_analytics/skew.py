"""One clock for a trace whose spans come from several processes.

A server's span lies inside the client's span that caused it. Where the times say otherwise, the
clocks disagree, and one offset per clock is looked for that puts every such pair right. One
overhanging pair leaves no such offset; then the rule of Jaeger's clock skew adjustment applies to
the largest pair and the result says that it is uncertain (see jaegertracing/jaeger issues 961,
1459 and 2053 for why the offset is capped and always shown). What is off by less than a tolerance
is left as it is.
"""

from collections.abc import Iterable

from longpole_analytics.tree import Tree

MAX_SHIFT_NS = 1_000_000_000
"""A larger offset is not believed and not applied."""
TOLERANCE_NS = 1_000_000
"""Times that disagree by less are no sign of two clocks: a server ends its span after the last
byte has left, and two processes of one host are woken when it suits the host."""


def shift_clocks(tree: Tree, detached: set[int]) -> None:
    """Put all spans of the tree on the root's clock, in place.

    Fills ``instances`` and ``shifts_ns`` and moves ``starts`` and ``ends``. Marks, each counting
    clocks: clock_skew, skew_uncertain, skew_too_large. Pairs whose child is in ``detached`` say
    nothing about clocks.
    """
    if len({span.instance for span in tree.spans} - {None}) < 2:
        tree.instances = [None] * len(tree.spans)
        return
    tree.instances = _inherited(tree)
    pairs = _pairs(tree, detached)
    offsets: dict[str | None, int] = {None: 0}
    for node in tree.order:
        clock = tree.instances[node]
        if clock in offsets or clock is None:
            continue
        parents_clock = tree.instances[tree.parents[node]] if tree.parents[node] >= 0 else None
        known = pairs.get((parents_clock, clock), [])
        offsets[clock] = _offset(tree, known, offsets[parents_clock])
    for node, clock in enumerate(tree.instances):
        tree.starts[node] += offsets[clock]
        tree.ends[node] += offsets[clock]
    tree.shifts_ns = {clock: shift for clock, shift in offsets.items() if clock and shift}
    tree.mark("clock_skew", len(tree.shifts_ns))


def _inherited(tree: Tree) -> list[str | None]:
    """The clock of each node: its own, else its parent's."""
    clocks: list[str | None] = [None] * len(tree.spans)
    for node in tree.order:
        parent = tree.parents[node]
        clocks[node] = tree.spans[node].instance or (clocks[parent] if parent >= 0 else None)
    return clocks


def _pairs(tree: Tree, detached: set[int]) -> dict[tuple[str | None, str], list[tuple[int, int]]]:
    """(parent, child) nodes on different clocks, by the two clocks."""
    pairs: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    for node in tree.order[1:]:
        parent, clock = tree.parents[node], tree.instances[node]
        above = tree.instances[parent]
        if clock is not None and above is not None and clock != above and node not in detached:
            pairs.setdefault((above, clock), []).append((parent, node))
    return pairs


def _offset(tree: Tree, pairs: Iterable[tuple[int, int]], parents_offset: int) -> int:
    """Nanoseconds to add to the child's clock, given what was added to the parent's."""
    spans = [
        (
            tree.starts[parent] + parents_offset,
            tree.ends[parent] + parents_offset,
            tree.starts[child],
            tree.ends[child],
        )
        for parent, child in pairs
    ]
    if not spans:
        return 0
    low = max(p_start - c_start for p_start, _, c_start, _ in spans)
    high = min(p_end - c_end for _, p_end, _, c_end in spans)
    if low < TOLERANCE_NS and high > -TOLERANCE_NS:
        return 0
    if low <= high:
        shift = low if low > 0 else high
    else:
        tree.mark("skew_uncertain")
        p_start, p_end, c_start, c_end = max(spans, key=lambda s: (s[1] - s[0], s[3] - s[2]))
        shift = (p_start + p_end - c_start - c_end) // 2
    if abs(shift) > MAX_SHIFT_NS:
        tree.mark("skew_too_large")
        return 0
    return shift
