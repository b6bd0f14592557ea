"""The row of a trace and its stages: member ``critical_path`` of the family ``longpole.rollup``.

The collector loads :data:`ROLLUP` by its entry point and stores what it returns. Nothing here
needs more than the standard library, so loading is cheap.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from longpole.vocab import Rollup, Span, Stage, Trace, TraceStage
from longpole_analytics.calls import ModelCall
from longpole_analytics.prepare import SYNTHETIC_ROOT_NAME, distinct
from longpole_analytics.stages import TracePartition, partition

WORKFLOW_OPERATION = "invoke_workflow"


def roll_up(spans: Sequence[Span]) -> tuple[Trace, tuple[TraceStage, ...]]:
    """The row of one trace and one row per stage with time in it. Never raises on bad data.

    Tokens are sums over the calls that know theirs, ``None`` when none does. Outcome and its
    times come from the root, or from the outermost workflow when a server's span lies above it;
    nothing else speaks for the whole.

    Args:
        spans: the spans of one trace, in any order, at least one.
    """
    split = partition(spans)
    pole = split.long_pole
    unique = sorted(distinct(spans), key=lambda span: (span.start_ns, span.span_id))
    root = next((span for span in unique if span.span_id == split.root_id), None)
    first = root or unique[0]
    calls = [call.span for call in split.calls]
    stated = workflow_span(unique, split.root_id)
    sources = [span for span in (root, stated, *calls, *unique) if span is not None]
    trace = Trace(
        trace_id=first.trace_id,
        start_ns=split.start_ns,
        end_ns=split.end_ns,
        wall_ns=split.wall_ns,
        root_name=root.name if root else SYNTHETIC_ROOT_NAME,
        service=first.service,
        route=_first(span.route for span in sources),
        route_version=_first(span.route_version for span in sources),
        prompt_version=_prompt_version(sources, calls),
        slo_class=_first(span.slo_class for span in sources),
        outcome=stated.outcome if stated else None,
        failure_class=stated.failure_class if stated else None,
        time_to_useful_ns=_since_root(stated, root, "time_to_useful_ns"),
        time_to_accepted_ns=_since_root(stated, root, "time_to_accepted_ns"),
        num_spans=len(unique),
        num_calls=len(calls),
        num_tools=sum(span.stage == Stage.TOOL for span in unique),
        num_retries=sum(max((span.num_attempts or 1) - 1, 0) for span in calls),
        input_tokens=_tokens(split.calls, "input_tokens"),
        cached_input_tokens=_tokens(split.calls, "cached_input_tokens"),
        output_tokens=_tokens(split.calls, "output_tokens"),
        cost_usd=None,
        long_pole=pole.value,
        long_pole_ns=split.critical_ns(pole),
        shape=None,
        flags=sorted({*split.flags, *(flag for span in unique for flag in span.flags)}),
    )
    return trace, _stage_rows(trace.trace_id, split)


def roll_up_table(spans: Any) -> tuple[Any, Any]:
    """The rows of many traces and of their stages, as :func:`roll_up` has them; in any order.

    Large tables make it compile faster loops, in a thread of its own (``bulk``).

    Args:
        spans: an Arrow table with the columns of :class:`Span`, in any order. A trace's id are
            two unsigned numbers, ``trace_hi`` and ``trace_lo``, a span's is one. Attributes,
            events and links are not read and may be missing.

    Returns:
        Arrow tables with the columns of :class:`Trace` and :class:`TraceStage`, ids likewise.
    """
    bulk: Any = import_module("longpole_analytics.bulk")  # needs Arrow, as no other part here
    rolled: tuple[Any, Any] = bulk.roll_up_table(spans)
    return rolled


ROLLUP = Rollup(version=3, compute=roll_up, compute_table=roll_up_table)


def _stage_rows(trace_id: str, split: TracePartition) -> tuple[TraceStage, ...]:
    return tuple(
        TraceStage(trace_id, stage.value, time.critical_ns, time.total_ns)
        for stage, time in split.stages.items()
    )


def workflow_span(spans: Sequence[Span], root_id: str | None) -> Span | None:
    """The span whose facts hold for the whole trace.

    It is the root, or the outermost workflow below a root that states no outcome (a web server's
    span, say); ``None`` when neither was received.
    """
    root = next((span for span in spans if span.span_id == root_id), None)
    if root is not None and root.outcome is not None:
        return root
    workflows = [span for span in spans if span.operation == WORKFLOW_OPERATION]
    return min(workflows, key=lambda span: (span.start_ns, span.span_id), default=root)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)


def _prompt_version(sources: Sequence[Span], calls: Sequence[Span]) -> str | None:
    """The version all calls share; calls without one do not object."""
    versions = {span.prompt_version for span in calls} - {None}
    if len(versions) > 1:
        return None
    return versions.pop() if versions else _first(span.prompt_version for span in sources)


def _since_root(stated: Span | None, root: Span | None, field: str) -> int | None:
    """A time that a workflow measured from its own start, counted from the root's."""
    value: int | None = getattr(stated, field, None)
    if value is None or stated is None or root is None:
        return value
    return value + max(stated.start_ns - root.start_ns, 0)


def _tokens(calls: Sequence[ModelCall], field: str) -> int | None:
    """Sum over calls; where the client does not know, its engine may."""
    known: list[int] = []
    for call in calls:
        values = [getattr(span, field) for span in (call.client, call.engine) if span is not None]
        known += [value for value in values if value is not None][:1]
    return sum(known) if known else None
