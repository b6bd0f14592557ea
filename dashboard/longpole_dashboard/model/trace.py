"""What the Trace page shows: one workflow's stages, and its spans as rows on a time axis.

The path and the placement of a model call's phases are the analytics'; this module orders them
into rows. The engine's own spans of a joined call do not appear: the phases they account for do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from longpole.vocab import Span, Stage, Status, columns
from longpole_analytics.critical_path import walk
from longpole_analytics.frames import spans_from_table
from longpole_analytics.stages import TracePartition, partition
from longpole_analytics.tree import Tree
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text

HEAVY: Final = ("attributes", "events", "links")
"""Columns read for one span at a time, never for a whole trace."""

MAX_SPANS: Final = 50_000
_LIGHT: Final = ", ".join(column.name for column in columns() if column.name not in HEAVY)
_SPANS: Final = f"SELECT {_LIGHT} FROM spans WHERE trace_id = $trace LIMIT {MAX_SPANS + 1}"  # noqa: S608 - our own columns
_TRACE: Final = (
    "SELECT route, route_version, prompt_version, slo_class, outcome, failure_class, shape, "
    "num_calls FROM traces WHERE trace_id = $trace"
)

Stretch = tuple[int, int, str]
"""Start and end (ns since the trace's start) and the stage."""


class StageShare(NamedTuple):
    """One stage's part of the wall time; the parts sum to it exactly."""

    stage: str
    critical_ns: int


class SpanRow(NamedTuple):
    """One row of the waterfall; times are ns since the trace's start.

    Attributes:
        key: unique in the trace; ``span_id`` names the stored span, which phases share.
        name: span name as sent, or the stage's name for a phase of a model call.
        depth: 0 for the root.
        num_below: rows below it in the tree.
        stretches: what its bar is made of: itself, or the phases of a model call.
        path: the stretches of its own time that are on the critical path.
        critical_ns: their sum; for a model call, of its phases.
        is_on_path: it or a row below it is on the path.
        is_call: a model call that is shown as its phases.
        is_phase: one of these.
    """

    key: str
    span_id: str
    name: str
    depth: int
    num_below: int
    stage: str
    start_ns: int
    end_ns: int
    stretches: tuple[Stretch, ...]
    path: tuple[Stretch, ...]
    critical_ns: int
    is_on_path: bool
    is_call: bool
    is_phase: bool
    is_error: bool
    service: str | None


@dataclass(frozen=True)
class TraceView:
    """One workflow as the page shows it.

    ``doubts`` are sentences about the data's quality; ``facts`` what the workflow says of itself;
    ``is_truncated``: it has more spans than were read.
    """

    trace_id: str
    start_ns: int
    wall_ns: int
    extended_ns: int
    long_pole: str
    outcome: str | None
    facts: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    stages: tuple[StageShare, ...]
    rows: tuple[SpanRow, ...]
    num_spans: int
    is_truncated: bool


@dataclass(frozen=True)
class Attributes:
    """What is stored about one span: canonical values, then the attributes as sent."""

    pairs: tuple[tuple[str, str], ...]


def trace(trace_id: str, reader: Reader) -> TraceView | None:
    """One trace; ``None`` if the store has no span of it."""
    found = reader.sql(_SPANS, {"trace": trace_id})
    if not found.num_rows:
        return None
    spans = spans_from_table(found.slice(0, MAX_SPANS))
    stored = reader.sql(_TRACE, {"trace": trace_id}).to_pylist()
    known = stored[0] if stored else {}
    split = partition(spans)
    rows = _rows(split, {span.span_id: span for span in spans})
    facts = (
        ("route", known.get("route")),
        ("route version", known.get("route_version")),
        ("prompt version", known.get("prompt_version")),
        ("class", known.get("slo_class")),
        ("failure", known.get("failure_class")),
        ("shape", known.get("shape")),
        ("model calls", text.count(known.get("num_calls", len(split.calls)))),
    )
    return TraceView(
        trace_id=trace_id,
        start_ns=split.start_ns,
        wall_ns=split.wall_ns,
        extended_ns=split.extended_wall_ns,
        long_pole=split.long_pole,
        outcome=known.get("outcome"),
        facts=tuple((name, value) for name, value in facts if value is not None),
        doubts=_doubts(split),
        stages=tuple(
            StageShare(stage, times.critical_ns)
            for stage, times in split.stages.items()
            if times.critical_ns
        ),
        rows=rows,
        num_spans=len(spans),
        is_truncated=found.num_rows > MAX_SPANS,
    )


def attributes(trace_id: str, span_id: str, reader: Reader) -> Attributes:
    """Everything stored about one span, canonical columns first; empty if it is not there.

    Contents that were not captured, or dropped at the collector's door, are not there to show.
    """
    found = reader.sql(
        "SELECT * FROM spans WHERE trace_id = $trace AND span_id = $span LIMIT 1",
        {"trace": trace_id, "span": span_id},
    ).to_pylist()
    if not found:
        return Attributes(())
    row = found[0]
    pairs = [
        (column.name.removesuffix("_ns").removesuffix("_ms"), _value(row[column.name], column.unit))
        for column in columns()
        if column.name not in _SHOWN_ELSEWHERE and row.get(column.name) not in (None, [], "")
    ]
    pairs += sorted(dict(row.get("attributes") or ()).items())
    return Attributes(tuple(pairs))


_SHOWN_ELSEWHERE: Final = frozenset(
    ("trace_id", "name", "start_ns", "end_ns", "received_ns", "stage", "service", "attributes")
)
"""Columns that the page shows by themselves, or below as they were sent."""


def _value(value: object, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "ns" and isinstance(value, int):
        return text.duration(value / 1e6)
    if unit == "ms" and isinstance(value, float):
        return text.duration(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return text.count(value) if isinstance(value, int) and unit == "tokens" else str(value)


def _rows(split: TracePartition, spans: Mapping[str, Span]) -> tuple[SpanRow, ...]:
    """The tree in preorder, children by start."""
    tree = split.tree
    if tree.root is None:
        return ()
    path: dict[int, list[Stretch]] = {}
    for node, start, end in reversed(walk(tree)):
        path.setdefault(node, []).append(_stretch(split, node, start, end))
    num_below, on_path = _from_below(tree, path)
    rows: list[SpanRow] = []
    todo = [(tree.root, 0)]
    while todo:
        node, depth = todo.pop()
        children = sorted(tree.children[node], key=lambda child: (tree.starts[child], child))
        span = tree.spans[node]
        # A model call is its phases: its bar and its path are theirs.
        parts = children if span.phases else [node]
        own = [stretch for part in parts for stretch in path.get(part, ())]
        stored = spans.get(span.span_id)
        is_phase = tree.parents[node] >= 0 and bool(tree.spans[tree.parents[node]].phases)
        rows.append(
            SpanRow(
                key=str(node),
                span_id=span.span_id,
                name=span.stage.value if is_phase else span.name,
                depth=depth,
                num_below=num_below[node],
                stage=span.stage.value,
                start_ns=tree.starts[node] - split.start_ns,
                end_ns=tree.ends[node] - split.start_ns,
                stretches=tuple(
                    _stretch(split, part, tree.starts[part], tree.ends[part]) for part in parts
                ),
                path=tuple(own),
                critical_ns=sum(end - start for start, end, _ in own),
                is_on_path=node in on_path,
                is_call=bool(span.phases),
                is_phase=is_phase,
                is_error=not is_phase and stored is not None and stored.status == Status.ERROR,
                service=stored.service if stored else None,
            )
        )
        todo += [(child, depth + 1) for child in reversed(children)]
    return tuple(rows)


def _stretch(split: TracePartition, node: int, start: int, end: int) -> Stretch:
    return start - split.start_ns, end - split.start_ns, split.tree.spans[node].stage.value


def _from_below(tree: Tree, path: Mapping[int, object]) -> tuple[list[int], set[int]]:
    """Rows below each node, and the nodes that are on the path or above one that is."""
    num_below = [0] * len(tree.spans)
    on_path = set(path)
    for node in reversed(tree.order):
        parent = tree.parents[node]
        if parent >= 0:
            num_below[parent] += num_below[node] + 1
            if node in on_path:
                on_path.add(parent)
    return num_below, on_path


_DOUBTS: Final[dict[str, str]] = {
    "duplicate_span": "{n} span(s) came twice; the more complete one counts",
    "unfinished_span": "{n} span(s) have no end yet and are left out",
    "negative_duration": "{n} span(s) ended before they started; taken as 0 ms",
    "cycle": "{n} parent link(s) run in a circle and were cut",
    "incomplete_trace": "{n} span(s) name a parent that never arrived",
    "clock_skew": "{n} clock(s) disagreed with the root's and were moved",
    "skew_uncertain": "the clocks contradict each other; their shift is a guess",
    "skew_too_large": "{n} clock(s) are too far off to be moved",
    "stream_outlives_parent": "a stream went on after its parent ended",
    "overhang_detached": "{n} span(s) outlived their parent: nobody waited for them",
    "overhang_clipped": "{n} span(s) of another process outlived their parent and were cut",
    "stream_tail_unknown": "when the last token came is unknown; decoding is taken to the end",
    "call_opaque": "no engine spans and no stream: what a model call did is unknown",
    "network_negative": "an engine claims more time than its caller waited",
}
"""Flag -> what it means for the reader; a flag that is not here is shown by its name."""


def _doubts(split: TracePartition) -> tuple[str, ...]:
    said = [
        _DOUBTS.get(flag, flag.replace("_", " ")).format(n=split.tree.marks.get(flag, 1))
        for flag in split.flags
    ]
    said += [
        f"clock of {instance} moved by {shift / 1e6:+,.3f} ms"
        for instance, shift in split.shifts_ns.items()
    ]
    if split.critical_ns(Stage.TTFT_OPAQUE):
        said.append("TTFT is opaque where no engine span explains it")
    return tuple(said)
