"""What the Trace page shows: one workflow's stages, and its spans as rows on a time axis.

The path, the placement of a model call's phases and the savings are the analytics'; this module
reads a trace and says what is known of it.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from longpole.vocab import columns
from longpole_analytics.frames import spans_from_table
from longpole_analytics.prepare import distinct
from longpole_analytics.stages import TracePartition, partition
from longpole_analytics.whatif import savings
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text, trace_rows, trace_words
from longpole_dashboard.model.trace_rows import SpanRow

HEAVY: Final = ("attributes", "events", "links")
"""Columns read for one span at a time, never for a whole trace."""

MAX_SPANS: Final = 50_000
FASTER_BY: Final = tuple(percent / 100 for percent in range(0, 101, 5))
"""The fractions of a stage's time that the page can take away."""
LIGHT: Final = ", ".join(column.name for column in columns() if column.name not in HEAVY)
_SPANS: Final = f"SELECT {LIGHT} FROM spans WHERE trace_id = $trace LIMIT {MAX_SPANS + 1}"  # noqa: S608 - our own columns
_TRACE: Final = (
    "SELECT route, route_version, prompt_version, slo_class, outcome, failure_class, shape, "
    "num_calls FROM traces WHERE trace_id = $trace"
)


class StageShare(NamedTuple):
    """One stage's part of the wall time; the parts sum to it exactly.

    Attributes:
        total_ns: of all its spans, on the path or off.
        saved_ns: what the trace would be shorter by, for each fraction of :data:`FASTER_BY`.
    """

    stage: str
    critical_ns: int
    total_ns: int
    saved_ns: tuple[float, ...]


@dataclass(frozen=True)
class TraceView:
    """One workflow as the page shows it.

    ``doubts`` are phrases about the data's quality; ``facts`` what the workflow says of itself;
    ``opaque`` why time to first content is opaque, empty where it is not; ``num_apart`` spans
    have no parent; ``is_truncated``: it has more spans than were read.
    """

    trace_id: str
    start_ns: int
    wall_ns: int
    extended_ns: int
    long_pole: str
    outcome: str | None
    facts: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    opaque: str
    stages: tuple[StageShare, ...]
    rows: tuple[SpanRow, ...]
    num_spans: int
    num_apart: int
    is_truncated: bool


def trace(trace_id: str, reader: Reader) -> TraceView | None:
    """One trace; ``None`` if the store has no span of it."""
    found = reader.sql(_SPANS, {"trace": trace_id})
    if not found.num_rows:
        return None
    received = spans_from_table(found.slice(0, MAX_SPANS))
    spans = distinct(received)
    stored = reader.sql(_TRACE, {"trace": trace_id}).to_pylist()
    known = stored[0] if stored else {}
    split = partition(received)
    by_id = {span.span_id: span for span in spans}
    return TraceView(
        trace_id=trace_id,
        start_ns=split.start_ns,
        wall_ns=split.wall_ns,
        extended_ns=split.extended_wall_ns,
        long_pole=split.long_pole,
        outcome=known.get("outcome"),
        facts=_facts(known, split),
        doubts=trace_words.doubts(split, spans),
        opaque=trace_words.opaque_reason(split),
        stages=shares(split),
        rows=trace_rows.rows(split, by_id),
        num_spans=len(spans),
        num_apart=trace_rows.num_apart(split, by_id),
        is_truncated=found.num_rows > MAX_SPANS,
    )


def shares(split: TracePartition) -> tuple[StageShare, ...]:
    """The stages on the critical path in the order a request meets them."""
    on_path = {stage: time for stage, time in split.stages.items() if time.critical_ns}
    saved = savings(split.tree, list(on_path), FASTER_BY) if on_path else {}
    return tuple(
        StageShare(stage.value, time.critical_ns, time.total_ns, tuple(saved[stage]))
        for stage, time in on_path.items()
    )


def _facts(known: dict[str, Any], split: TracePartition) -> tuple[tuple[str, str], ...]:
    facts = (
        ("route", known.get("route")),
        ("route version", known.get("route_version")),
        ("prompt version", known.get("prompt_version")),
        ("class", known.get("slo_class")),
        ("failure", known.get("failure_class")),
        ("model calls", text.count(known.get("num_calls", len(split.calls)))),
    )
    return tuple((name, str(value)) for name, value in facts if value is not None)
