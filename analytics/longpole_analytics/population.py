"""One row per trace: what attribution looks at, joined from the three views.

A trace with several model calls counts by its slowest call where a metric belongs to calls, and
has a call's attribute (its model, its cache state) only when all its calls share it.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.errors import BadInput
from longpole.vocab import ENGINE_TTFT_STAGES, Stage

TTFT_STAGES: Final = (Stage.RETRY, Stage.NETWORK, *ENGINE_TTFT_STAGES, Stage.TTFT_OPAQUE)
"""The stages that time to first content is made of."""
METRIC_STAGES: Final[dict[str, tuple[Stage, ...]]] = {
    "ttft_ms": TTFT_STAGES,
    "ttfv_ms": (*TTFT_STAGES, Stage.LATER_DECODE),
    "tpot_ms": (Stage.LATER_DECODE, Stage.STREAM),
    "e2e_ms": (*TTFT_STAGES, Stage.LATER_DECODE, Stage.STREAM),
}
"""Where the time of a metric can be; any stage for a metric of the whole trace."""


def stage_column(stage: Stage) -> str:
    """The column that holds the critical milliseconds of a stage."""
    return f"critical_{stage.value}_ms"


def metric_stages(metric: str) -> tuple[Stage, ...]:
    """The stages that can hold the time of a metric."""
    return METRIC_STAGES.get(metric, tuple(Stage))


def population(
    traces: pl.DataFrame,
    stages: pl.DataFrame,
    calls: pl.DataFrame,
    *,
    metric: str,
    dimensions: Sequence[str],
) -> pl.DataFrame:
    """One row per trace that has the metric: id, metric, dimensions, tokens, stage times.

    Incomplete traces (flag ``incomplete_trace``) are left out: their wall time is not that of the
    request. A dimension that neither view has is null. Stage columns are named by
    :func:`stage_column`, 0 where a trace spent no time in a stage.

    Args:
        traces: rows of the view ``traces``.
        stages: rows of the view ``trace_stages``.
        calls: rows of the view ``calls``.
        metric: a numeric column of ``calls`` or ``traces``, in milliseconds.
        dimensions: columns of ``traces`` or ``calls`` to slice by.

    Raises:
        BadInput: neither view has the metric.
    """
    if metric not in (*traces.columns, *calls.columns):
        raise BadInput(f"no metric '{metric}': use wall_ms, {', '.join(METRIC_STAGES)}")
    frame = traces
    if "flags" in frame.columns:
        frame = frame.filter(~pl.col("flags").list.contains("incomplete_trace").fill_null(False))
    from_calls = [name for name in dimensions if name not in traces.columns]
    slowest = [pl.col(metric).max()] if metric not in traces.columns else []
    frame = frame.join(_call_facts(calls, slowest, from_calls), on="trace_id", how="left")
    tokens = [
        pl.col(name) if name in frame.columns else pl.lit(None, pl.Int64).alias(name)
        for name in ("input_tokens", "output_tokens")
    ]
    frame = frame.select(
        "trace_id",
        pl.col(metric).cast(pl.Float64),
        *(pl.col(name).cast(pl.String) for name in dimensions),
        *tokens,
    ).filter(pl.col(metric).is_not_null())
    return frame.join(_stage_times(stages), on="trace_id", how="left").with_columns(
        pl.col(stage_column(stage)).fill_null(0.0) for stage in Stage
    )


def _call_facts(
    calls: pl.DataFrame, facts: list[pl.Expr], dimensions: Sequence[str]
) -> pl.DataFrame:
    """By trace: these facts, and the attributes that all calls share."""
    for name in dimensions:
        value = pl.col(name) if name in calls.columns else pl.lit(None, pl.String).alias(name)
        known = value.drop_nulls()
        facts = [*facts, pl.when(known.n_unique() == 1).then(known.first()).alias(name)]
    return calls.group_by("trace_id").agg(facts)


def _stage_times(stages: pl.DataFrame) -> pl.DataFrame:
    return stages.group_by("trace_id").agg(
        pl.col("critical_ms")
        .filter(pl.col("stage") == stage.value)
        .sum()
        .cast(pl.Float64)
        .alias(stage_column(stage))
        for stage in Stage
    )
