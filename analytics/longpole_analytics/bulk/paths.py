"""Compiled: the critical path of one trace and the time of its stages.

The rules are those of ``critical_path`` (``walk``) and ``stages`` (``_stage_times``, ``_own_ns``).
"""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from longpole_analytics.bulk.compiled import ZERO, Ints, Records, jit, sort
from longpole_analytics.bulk.rooms import Desk
from longpole_analytics.critical_path import MAX_TOLERANCE_NS


@jit
def walk(num_nodes: int, nodes: Records, desk: Desk) -> None:
    """Fill ``critical``: the time of each node on the path (``critical_path.walk``).

    Args:
        num_nodes: how many nodes there are.
        nodes: the tree, prepared.
        desk: room to sort.
    """
    for node in range(num_nodes):
        nodes[node].critical = 0
    root = nodes[0].order
    num_frames = _push(nodes, desk, ZERO, ZERO, root, nodes[root].start, nodes[root].end)
    while num_frames:
        top = num_frames - 1
        node = nodes[top].frame_node
        entered = -1
        while entered < 0 and nodes[top].frame_next < nodes[top].frame_end:
            child = desk.items[nodes[top].frame_next]
            nodes[top].frame_next += 1
            start, end = desk.second[child], -desk.first[child]
            cursor = nodes[top].frame_cursor
            if end > cursor:
                if start >= cursor or end > cursor + _tolerance(nodes, child, node):
                    continue
                end = cursor
            if end < cursor:
                nodes[node].critical += cursor - end
            nodes[top].frame_cursor = start
            if nodes[child].num_blocking:
                entered = child
                num_frames = _push(nodes, desk, num_frames, nodes[top].frame_end, child, start, end)
            else:
                nodes[child].critical += end - start
        if entered < 0:
            left = nodes[top].frame_cursor - nodes[top].frame_start
            nodes[node].critical += max(left, 0)
            num_frames = top


@jit
def _push(
    nodes: Records, desk: Desk, num_frames: int, at: int, node: int, start: int, end: int
) -> int:
    """A span being walked, with its candidates best first from ``items[at]`` on."""
    first = at
    child = nodes[node].head
    while child >= 0:
        if not nodes[child].is_off:
            child_start = max(start, nodes[child].start)
            child_end = min(end, nodes[child].end)
            if child_end > child_start:
                desk.first[child] = -child_end
                desk.second[child] = child_start
                desk.third[child] = nodes[child].own_id
                desk.items[at] = child
                at += 1
        child = nodes[child].next
    if at - first > 1:
        sort(desk.items, first, at, desk.first, desk.second, desk.third, desk.spare)
    nodes[num_frames].frame_node = node
    nodes[num_frames].frame_start = start
    nodes[num_frames].frame_cursor = end
    nodes[num_frames].frame_next = first
    nodes[num_frames].frame_end = at
    return num_frames + 1


@jit
def _tolerance(nodes: Records, child: int, parent: int) -> int:
    if nodes[child].clock == nodes[parent].clock:
        return 0
    return min((nodes[parent].end - nodes[parent].start) // 100, MAX_TOLERANCE_NS)


@jit
def sum_stages(
    num_nodes: int, nodes: Records, desk: Desk, critical: Ints, total: Ints, trace: int
) -> None:
    """Add up the nodes of each stage (``stages._stage_times``).

    Args:
        num_nodes: how many nodes there are.
        nodes: the tree, walked.
        desk: room to sort.
        critical: gets the time of each stage on the path, in the trace's line.
        total: gets the own time of all nodes of each stage, on the path or off.
        trace: the trace's line.
    """
    for node in range(num_nodes):
        waited = nodes[node].critical
        stage = nodes[node].stage
        critical[trace, stage] += waited
        total[trace, stage] += max(_own_ns(nodes, desk, node), waited)


@jit
def _own_ns(nodes: Records, desk: Desk, node: int) -> int:
    """Duration of a node minus the union of its children's times."""
    start, end = nodes[node].start, nodes[node].end
    child, num = nodes[node].head, ZERO
    while child >= 0:
        desk.first[child], desk.second[child] = nodes[child].start, nodes[child].end
        desk.items[num] = child
        num += 1
        child = nodes[child].next
    if num > 1:
        sort(desk.items, ZERO, num, desk.first, desk.second, desk.second, desk.spare)
    own, covered = 0, start
    for k in range(num):
        child = desk.items[k]
        if nodes[child].start > covered:
            own += min(nodes[child].start, end) - covered
        covered = max(covered, nodes[child].end)
        if covered >= end:
            return own
    return own + end - covered
