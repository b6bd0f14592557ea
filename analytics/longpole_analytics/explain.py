"""The account of one trace as a document (``longpole.explain/1``): what the command prints."""

from collections.abc import Sequence
from typing import Any, Final

from longpole.vocab import ENGINE_TTFT_STAGES, Stage
from longpole_analytics.serial import Opportunity
from longpole_analytics.stages import TracePartition
from longpole_analytics.whatif import what_if

SCHEMA: Final = "longpole.explain/1"
WHAT_IF_FASTER_BY: Final = 0.5
NUM_WHAT_IFS: Final = 3
_MS: Final = 1e6
_TTFT_STAGES: Final = (Stage.RETRY, Stage.NETWORK, *ENGINE_TTFT_STAGES, Stage.TTFT_OPAQUE)
"""The stages that time to first content is made of."""


def document(
    split: TracePartition,
    outcome: str | None,
    *,
    shape: dict[str, Any] | None = None,
    serial: Sequence[Opportunity] = (),
) -> dict[str, Any]:
    """The account of one trace, times in milliseconds relative to the root's start.

    ``stages`` come by critical time, most first; ``critical_path`` earliest first. A share of a
    trace without duration is null. ``what_if`` names the stages that would save most at half
    their time; a saving of 0 is not listed.

    Args:
        split: the trace.
        outcome: what the trace's workflow says; ``None`` is unknown.
        shape: name, evidence and next check; ``None`` where there is nothing to compare with.
        serial: work that might run in parallel.
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
                "share": time.critical_ns / wall if wall else None,
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
        "shape": shape,
        "what_if": [
            {"stage": stage.value, "faster_by": WHAT_IF_FASTER_BY, "saved_ms": saved / _MS}
            for stage, saved in best_savings(split)
        ],
        "opportunities": [_opportunity(one) for one in serial],
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


def _opportunity(one: Opportunity) -> dict[str, Any]:
    return {
        "kind": "serial",
        "evidence": one.evidence,
        "span_ids": list(one.span_ids),
        "names": list(one.names),
        "saved_ms": one.saved_ns / _MS,
        "bound_ms": one.bound_ns / _MS,
        "parallelism": one.parallelism,
        "num_traces_apart": one.num_traces_apart,
        "rate_limit_risk": one.rate_limit,
    }


def opaque_share(split: TracePartition) -> float | None:
    """The part of the time to first content on the path that nothing explains; ``None`` of none."""
    waited = sum(split.critical_ns(stage) for stage in _TTFT_STAGES)
    return split.critical_ns(Stage.TTFT_OPAQUE) / waited if waited else None
