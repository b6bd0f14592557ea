"""The account of one trace as a document (``longpole.explain/1``): what the command prints."""

from typing import Any, Final

from longpole.vocab import Stage
from longpole_analytics.stages import TracePartition
from longpole_analytics.whatif import what_if

SCHEMA: Final = "longpole.explain/1"
WHAT_IF_FASTER_BY: Final = 0.5
NUM_WHAT_IFS: Final = 3
_MS: Final = 1e6


def document(split: TracePartition, outcome: str | None) -> dict[str, Any]:
    """The account of one trace, times in milliseconds relative to the root's start.

    ``stages`` come by critical time, most first; ``critical_path`` earliest first. ``shape`` is
    null while a single trace is not classified. ``what_if`` names the stages that would save most
    at half their time; a saving of 0 is not listed.

    Args:
        split: the trace.
        outcome: what the trace's workflow says; ``None`` is unknown.
    """
    wall = split.wall_ns
    by_critical = sorted(split.stages.items(), key=lambda item: -item[1].critical_ns)
    return {
        "schema": SCHEMA,
        "trace_id": split.trace_id,
        "wall_ms": wall / _MS,
        "outcome": outcome,
        "stages": [
            {
                "stage": stage.value,
                "critical_ms": time.critical_ns / _MS,
                "total_ms": time.total_ns / _MS,
                "share": time.critical_ns / wall if wall else 0.0,
            }
            for stage, time in by_critical
        ],
        "critical_path": [
            {
                "span_id": segment.span_id,
                "name": segment.name,
                "stage": segment.stage.value,
                "start_ms": (segment.start_ns - split.start_ns) / _MS,
                "end_ms": (segment.end_ns - split.start_ns) / _MS,
            }
            for segment in reversed(split.segments)
        ],
        "long_pole": split.long_pole.value,
        "shape": None,
        "what_if": [
            {"stage": stage.value, "faster_by": WHAT_IF_FASTER_BY, "saved_ms": saved / _MS}
            for stage, saved in best_savings(split)
        ],
        "opportunities": [],
        "flags": list(split.flags),
    }


def best_savings(split: TracePartition) -> list[tuple[Stage, float]]:
    """The three stages that would save most nanoseconds at half their time, most first."""
    savings = [
        (stage, what_if(split.tree, stage, WHAT_IF_FASTER_BY))
        for stage, time in split.stages.items()
        if time.critical_ns
    ]
    savings.sort(key=lambda item: -item[1])
    return [(stage, saved) for stage, saved in savings[:NUM_WHAT_IFS] if saved > 0]
