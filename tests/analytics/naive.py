"""The critical path in two other ways: by its definition, word by word, and by linked siblings."""

from bisect import bisect_right


def naive_path(spans, overhang="detach", tolerance=0, root_id=None):
    """Recursive: the path as (span id, start, end), latest first, of finished spans of a process.

    Args:
        spans: a tree under one root.
        overhang: what becomes of a child that ends after its parent.
        tolerance: how far siblings may overlap and still follow each other.
        root_id: the root; default is the span without a parent.
    """
    by_id = {span.span_id: span for span in spans}
    below = {}
    for span in spans:
        below.setdefault(span.parent_id, []).append(span)
    found = []

    def is_blocking(child):
        parent = by_id[child.parent_id]
        overhangs = overhang == "detach" and child.end_ns > parent.end_ns
        return not child.is_detached and not overhangs

    def visit(span, low, high):
        cursor = high
        cut = {
            child.span_id: (max(child.start_ns, low), min(child.end_ns, high))
            for child in below.get(span.span_id, ())
            if is_blocking(child)
        }
        while True:
            candidates = [
                (-end, start, span_id)
                for span_id, (start, end) in cut.items()
                if end > start and start < cursor and end <= cursor + tolerance
            ]
            if not candidates:
                break
            negative_end, start, span_id = min(candidates)
            end = min(-negative_end, cursor)
            if end < cursor:
                found.append((span.span_id, end, cursor))
            visit(by_id[span_id], start, end)
            cursor = start
            del cut[span_id]
        if cursor > low:
            found.append((span.span_id, low, cursor))

    root = by_id[root_id] if root_id else below[None][0]
    visit(root, root.start_ns, root.end_ns)
    return found


def linked_path(tree):
    """Each child is linked to the last that had ended when it began; then the links are followed.

    No cursor, no removal: the children of a span are put in the order of their ends once, and a
    search in it gives the link. Siblings must not overlap at all. Gives (node, start, end), latest
    first.
    """
    if tree.root is None:
        return []
    path = []
    todo = [("span", tree.root, tree.starts[tree.root], tree.ends[tree.root])]
    while todo:
        kind, node, low, high = todo.pop()
        if kind == "own":
            path.append((node, low, high))
            continue
        inside = [
            (min(tree.ends[c], high), -max(tree.starts[c], low), _last_first(tree, c), -c)
            for c in tree.blocking[node]
        ]
        inside = sorted(child for child in inside if child[0] > -child[1])
        ends = [child[0] for child in inside]
        parts, at = [], high
        while (place := bisect_right(ends, at)) > 0:
            end, negative_start, _, negative_child = inside[place - 1]
            parts += [("own", node, end, at)] * (end < at)
            parts.append(("span", -negative_child, -negative_start, end))
            at = -negative_start
        parts += [("own", node, low, at)] * (low < at)
        todo += reversed(parts)
    return path


def _last_first(tree, node):
    """Sorts the smallest id last."""
    return [-ord(character) for character in tree.spans[node].span_id] + [1]
