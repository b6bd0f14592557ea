"""The roll-up records of a trace: its row and its stages, and who computes them.

The collector stores these rows and never computes them: the computation is analytics and comes
in through the plug-in family ``longpole.rollup`` (see :class:`Rollup`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from longpole.vocab.span import Col, Span, TraceId


class Trace(NamedTuple):
    """One workflow: the row of the view ``traces``."""

    trace_id: TraceId
    start_ns: Annotated[int, Col("ns", "start of the root, Unix epoch")]
    end_ns: Annotated[int, Col("ns", "end of the root, Unix epoch")]
    wall_ns: Annotated[int, Col("ns", "end - start; the stages sum to it exactly")]
    root_name: Annotated[str, Col("", "name of the root span")]
    service: Annotated[str | None, Col("", "service of the root")]
    route: Annotated[str | None, Col("", "route id")]
    route_version: Annotated[str | None, Col("", "route version")]
    prompt_version: Annotated[str | None, Col("", "prompt version, when all calls share one")]
    slo_class: Annotated[str | None, Col("", "task class")]
    outcome: Annotated[str | None, Col("", "accepted, rejected, failed; null is unknown")]
    failure_class: Annotated[str | None, Col("", "kind of failure")]
    time_to_useful_ns: Annotated[int | None, Col("ns", "root start to first useful output")]
    time_to_accepted_ns: Annotated[int | None, Col("ns", "root start to acceptance")]
    num_spans: Annotated[int, Col("", "spans received")]
    num_calls: Annotated[int, Col("", "model calls, each counted once")]
    num_tools: Annotated[int, Col("", "tool calls")]
    num_retries: Annotated[int, Col("", "attempts beyond the first of each call")]
    input_tokens: Annotated[int | None, Col("tokens", "sum over calls; null if none is known")]
    cached_input_tokens: Annotated[int | None, Col("tokens", "sum over calls; null if unknown")]
    output_tokens: Annotated[int | None, Col("tokens", "sum over calls; null if none is known")]
    cost_usd: Annotated[float | None, Col("usd", "sum over calls; null if one of them has no cost")]
    long_pole: Annotated[str, Col("", "stage with most critical time")]
    long_pole_ns: Annotated[int, Col("ns", "that time")]
    shape: Annotated[str | None, Col("", "latency shape; null while not classified")]
    flags: Annotated[list[str], Col("", "data-quality marks of the trace")]


class TraceStage(NamedTuple):
    """One stage of one workflow: a row of the view ``trace_stages``."""

    trace_id: TraceId
    stage: Annotated[str, Col("", "stage name")]
    critical_ns: Annotated[int, Col("ns", "time on the critical path; sums to the wall time")]
    total_ns: Annotated[int, Col("ns", "own time of all spans of the stage, on the path or off")]


@dataclass(frozen=True)
class Rollup:
    """A member of the family ``longpole.rollup``.

    ``compute`` takes all spans of one trace (any order, at least one) and returns its row and
    its stages (every stage with time in it). It is pure and never raises on bad data: doubts go
    into ``flags``.

    ``compute_table`` does the same for many traces at once: from an Arrow table of spans, mixed
    and in any order, to one of traces and one of stages, in any order. Its columns are those of
    the records, but a trace's id are two unsigned numbers, ``trace_hi`` and ``trace_lo``, and a
    span's is one; ``attributes``, ``events`` and ``links`` may be missing. ``None`` if there is
    only ``compute``.
    """

    version: int
    compute: Callable[[Sequence[Span]], tuple[Trace, tuple[TraceStage, ...]]]
    compute_table: Callable[[Any], tuple[Any, Any]] | None = None
