"""The table of requests: one row per workflow, what shapes, causes and comparisons look at.

It comes from one flat file of requests (Parquet, CSV) or from the views of a store, and has the
same columns either way, null where nothing is known. Every column that is not listed here is a
dimension: text that requests are sliced by.
"""

from typing import Final

import polars as pl

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_analytics.weighted import sums_of

COUNTS: Final = (
    "start_ns",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "num_tools",
    "num_turns",
    "num_attempts",
    "num_chunks",
)
STAGE_TIMES: Final = (
    "admission_ms",
    "queue_ms",
    "network_ms",
    "tokenize_ms",
    "prefill_ms",
    "first_decode_ms",
    "ttft_opaque_ms",
    "later_decode_ms",
    "stream_ms",
    "tool_ms",
    "retrieval_ms",
    "validation_ms",
    "retry_ms",
    "human_wait_ms",
    "cold_start_ms",
    "render_ms",
    "other_ms",
)
"""One per stage, named after it: milliseconds on the critical path."""
TIMES: Final = (
    "ttft_ms",
    "ttfv_ms",
    "tpot_ms",
    "model_ms",
    "client_ms",
    "e2e_ms",
    "stall_ms",
    "chunk_gap_max_ms",
    "tool_total_ms",
)
"""``tool_total_ms`` is what all tools took together, side by side or not."""
OUTCOME_TIMES: Final = ("time_to_useful_ms", "time_to_accepted_ms")
OTHER_NUMBERS: Final = ("in_flight", "mean_in_flight", "tokens_per_chunk", "weight")
"""``in_flight`` is what ran when a request began, which it waits for; ``mean_in_flight`` what ran
while it did, with which it shares the engine."""
FACTS: Final = (
    "num_steps",
    "num_drafted_tokens",
    "num_accepted_tokens",
    "num_preemptions",
    "num_branches",
    "num_used_branches",
    "num_guesses",
    "num_used_guesses",
)
"""Counts that stand in attributes of spans; see :mod:`longpole_analytics.trace_facts`."""
PLACES: Final = ("replica", "host", "region", "zone", "instance", "pod", "node")
"""Dimensions that say where a request was served."""
MARKS: Final = ("is_cold", "is_error")
ALIASES: Final = {
    "cached_tokens": "cached_input_tokens",
    "decode_ms": "later_decode_ms",
    "decode": "later_decode_ms",
    "cold": "is_cold",
    "is_cold_start": "is_cold",
    "tools": "num_tools",
    "wall_ms": "e2e_ms",
    "preemptions": "num_preemptions",
    "drafted_tokens": "num_drafted_tokens",
    "accepted_tokens": "num_accepted_tokens",
}
"""Names under which a flat file may bring a column."""
_NOT_SLICED: Final = frozenset(
    (
        "span_id",
        "parent_id",
        "end_ns",
        "response_id",
        "conversation_id",
        "wall_ns",
        "long_pole_ns",
        "num_spans",
        "num_calls",
        "num_retries",
    )
)
"""Columns of the views that name one request or say nothing of its own; no dimensions."""
MODEL_STAGES: Final = (
    Stage.NETWORK,
    Stage.QUEUE,
    Stage.TOKENIZE,
    Stage.PREFILL,
    Stage.FIRST_DECODE,
    Stage.TTFT_OPAQUE,
    Stage.LATER_DECODE,
)
"""The stages that make a model call's time."""
EFFECTS: Final = (
    "outcome",
    "failure_class",
    "error_type",
    "finish_reason",
    "stream_state",
    "long_pole",
    "shape",
)
"""Dimensions that are results themselves: to slice by, never to blame."""
_TYPES: Final[dict[str, pl.DataType]] = {
    "trace_id": pl.String(),
    **{name: pl.Int64() for name in (*COUNTS, *FACTS)},
    **{name: pl.Float64() for name in (*STAGE_TIMES, *TIMES, *OUTCOME_TIMES, *OTHER_NUMBERS)},
    **{name: pl.Boolean() for name in MARKS},
    "cache_state": pl.String(),
    "flags": pl.List(pl.String()),
}


def dimension_names(frame: pl.DataFrame) -> list[str]:
    """The columns of a table of requests that it can be sliced by, in its order."""
    return [name for name in frame.columns if name not in _TYPES]


def from_flat(frame: pl.DataFrame) -> pl.DataFrame:
    """The requests of a flat table whose columns have the names above, or their aliases.

    TPOT is computed from the later decode where it is missing, what ran meanwhile is taken for what
    ran at the start. Not a number counts as unknown.

    Raises:
        BadInput: a column holds what cannot be read as its kind.
    """
    names = {
        old: new
        for old, new in ALIASES.items()
        if old in frame.columns and new not in frame.columns
    }
    frame = frame.rename(names)
    if "trace_id" not in frame.columns:
        frame = frame.with_row_index("trace_id")
    known = [_typed(frame, name, kind) for name, kind in _TYPES.items()]
    others = [
        pl.col(name).cast(pl.String)
        for name, kind in frame.schema.items()
        if name not in _TYPES
        and name not in _NOT_SLICED
        and not kind.is_nested()
        and not name.endswith(("_ms", "_ns", "_tokens", "_usd"))
    ]
    try:
        typed = frame.select(*known, *others)
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise BadInput(f"a table of requests cannot be read: {first}") from error
    numbers = [name for name, kind in _TYPES.items() if kind == pl.Float64()]
    return typed.with_columns(pl.col(numbers).fill_nan(None)).with_columns(
        _tpot(), _model(), pl.coalesce("mean_in_flight", "in_flight").alias("mean_in_flight")
    )


def from_views(traces: pl.DataFrame, stages: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The requests of a store: one row per workflow that is complete.

    A workflow of several model calls counts by its slowest for a call's times, by the sum for
    tokens, attempts and turns, and has a call's dimension only where all its calls share it and
    the workflow does not state its own. ``weight`` is null where all stand for themselves alone.

    Args:
        traces: rows of the view ``traces``.
        stages: rows of the view ``trace_stages``.
        calls: rows of the view ``calls``.
    """
    whole = traces.filter(~pl.col("flags").list.contains("incomplete_trace").fill_null(False))
    by_trace = _of_calls(_with_in_flight(calls))
    joined = whole.drop(name for name in _COUNTED if name in whole.columns).join(
        by_trace, on="trace_id", how="left", suffix=_OF_CALLS
    )
    doubled = [name for name in joined.columns if name.endswith(_OF_CALLS)]
    said = [pl.coalesce(name.removesuffix(_OF_CALLS), name) for name in doubled]
    joined = joined.with_columns(said).drop(doubled)
    joined = joined.join(_stage_times(stages), on="trace_id", how="left").rename(
        {"wall_ms": "e2e_ms"}
    )
    if "weight" in joined.columns:  # where nothing was sampled, nothing is weighed
        weight = pl.col("weight")
        joined = joined.with_columns(pl.when((weight != 1).any()).then(weight).alias("weight"))
    client = pl.sum_horizontal("stream_ms", "render_ms")
    return from_flat(joined.with_columns(client.alias("client_ms"))).sort("start_ns", "trace_id")


def _typed(frame: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(None, kind).alias(name)
    if name == "flags" and frame.schema[name] == pl.String:
        return pl.col(name).str.split(",")
    return pl.col(name).cast(kind)


def _tpot() -> pl.Expr:
    tokens = pl.col("output_tokens")
    computed = pl.when(tokens > 1).then(pl.col("later_decode_ms") / (tokens - 1))
    return pl.coalesce("tpot_ms", computed).alias("tpot_ms")


def _model() -> pl.Expr:
    """Time in the model call: as told, else first content plus later decode."""
    return pl.coalesce("model_ms", pl.col("ttft_ms") + pl.col("later_decode_ms")).alias("model_ms")


def _with_in_flight(calls: pl.DataFrame) -> pl.DataFrame:
    """Each call with the number of calls to the same provider and model, itself included.

    ``in_flight`` are those that ran at its start, ``mean_in_flight`` the mean over its time. Of
    others each counts by its weight, so that those dropped are in it, too.
    """
    weight = sums_of(calls).weight
    if weight is None:
        return _running(calls, pl.lit(1))
    itself = 1 - weight
    return _running(calls, weight).with_columns(
        pl.col("in_flight") + itself, pl.col("mean_in_flight") + itself
    )


def _running(calls: pl.DataFrame, num: pl.Expr) -> pl.DataFrame:
    """Each call with the sums over those that ran, at its start and over its time."""
    keys = ["provider", "request_model"]
    numbered = calls.with_row_index("row")
    took_ns = pl.col("end_ns") - pl.col("start_ns")
    # At one moment those that ran end before others start, and those without length end last.
    turn = pl.when(took_ns > 0).then(0).otherwise(2)
    starts = numbered.select(*keys, "row", at_ns="start_ns", step=num, turn=1)
    ends = numbered.select(*keys, "row", at_ns="end_ns", step=-num, turn=turn)
    events = (
        pl.concat([ends, starts])
        .drop_nulls("at_ns")
        .sort("at_ns", "turn", "row", maintain_order=True)
        .with_columns(running=pl.col("step").cum_sum().over(keys).cast(pl.Float64))
        .with_columns(  # the sum over time, request-nanoseconds since the first event
            area=(pl.col("running").shift() * pl.col("at_ns").diff())
            .fill_null(0)
            .cum_sum()
            .over(keys)
        )
    )
    is_start = pl.col("turn") == 1
    began = events.filter(is_start).select("row", in_flight="running", began="area")
    ended = events.filter(~is_start).select("row", ended="area")
    mean = pl.when(took_ns > 0).then((pl.col("ended") - pl.col("began")) / took_ns)
    return (
        numbered.join(began, on="row", how="left")
        .join(ended, on="row", how="left")
        .with_columns(mean_in_flight=mean)
        .drop("row", "began", "ended")
    )


_OF_CALLS: Final = " of calls"
_SUMMED: Final = ("input_tokens", "cached_input_tokens", "output_tokens", "num_chunks")
_SLOWEST: Final = (
    "ttft_ms",
    "ttfv_ms",
    "tpot_ms",
    "stall_ms",
    "chunk_gap_max_ms",
    "in_flight",
    "mean_in_flight",
    "num_attempts",
)
_COUNTED: Final = (*_SUMMED, *_SLOWEST, "tokens_per_chunk", "num_turns", "is_error")
"""What a workflow has from its calls alone."""


def _of_calls(calls: pl.DataFrame) -> pl.DataFrame:
    shared = [
        name
        for name, kind in calls.schema.items()
        if kind in (pl.String, pl.Boolean) and name not in (*_NOT_SLICED, "trace_id", "flags")
    ]
    return calls.group_by("trace_id").agg(
        *(_sum_known(pl.col(name)) for name in _SUMMED),
        *(pl.col(name).max() for name in _SLOWEST),
        pl.col("tokens_per_chunk").mean(),
        pl.len().cast(pl.Int64).alias("num_turns"),
        pl.col("error_type").is_not_null().any().alias("is_error"),
        *(
            pl.when(pl.col(name).drop_nulls().n_unique() == 1)
            .then(pl.col(name).drop_nulls().first())
            .alias(name)
            for name in shared
        ),
    )


def _sum_known(column: pl.Expr) -> pl.Expr:
    """The sum of a trace's calls; unknown where one of them is."""
    return pl.when(column.null_count() == 0).then(column.sum())


def _stage_times(stages: pl.DataFrame) -> pl.DataFrame:
    def of(stage: Stage, column: str) -> pl.Expr:
        return pl.col(column).filter(pl.col("stage") == stage.value).sum().cast(pl.Float64)

    whole = []
    if "total_ms" in stages.columns:
        whole = [of(Stage.TOOL, "total_ms").alias("tool_total_ms")]
    critical = [of(stage, "critical_ms").alias(f"{stage.value}_ms") for stage in Stage]
    return stages.group_by("trace_id").agg(*critical, *whole)
