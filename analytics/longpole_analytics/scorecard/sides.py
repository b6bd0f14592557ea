"""The two sides of a comparison, as the arrays that everything else counts with.

What failed, timed out or was given up stays: its time is one that was not seen to end. In a
comparison by pairs a prompt that a side was never asked counts there as failed.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole_analytics.scorecard.resample import Clusters, Places
from longpole_analytics.scorecard.rules import CLUSTERS, Plan
from longpole_analytics.scorecard.survival import Bools, Floats, Times
from longpole_analytics.slo.series import CANCELLED_STATES

BASE: Final = "baseline"
CAND: Final = "candidate"
WAITS: Final = ("ttft_ms", "ttfv_ms", "time_to_useful_ms", "e2e_ms", "time_to_accepted_ms")
"""Times that somebody waits for: what did not end is not seen to its end."""
PACES: Final = ("tpot_ms", "chunk_gap_p50_ms", "chunk_gap_p99_ms", "chunk_gap_max_ms")
"""Of what was produced; nothing is known of the rest."""
METRICS: Final[tuple[str, ...]] = (
    "ttft_ms",
    "ttfv_ms",
    *PACES,
    "e2e_ms",
    *WAITS[2:3],
    "time_to_accepted_ms",
)
_FAILS: Final = ("error_type", "failure_class", "stream_state")
_TIMEOUT: Final = r"time.?out|timed.?out|deadline|\b(408|504)\b"
_MAX_WEIGHT: Final = 1e12
_CUT: Final = ("length", "max_tokens", "content_filter")


class Rate(NamedTuple):
    """Which requests are so, and of which it is known; ``None`` for both where no column tells."""

    is_so: Bools
    is_known: Bools


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
        frame: its requests.
        weight: how many each stands for.
        cluster: which cluster each belongs to.
        times: of each metric that is recorded; a value that is no number does not count.
        rates: of each rate that is recorded.
        num_missing: rows made for prompts that were never asked here.
    """

    frame: pl.DataFrame
    weight: Floats
    cluster: Places
    times: dict[str, Times]
    rates: dict[str, Rate]
    num_missing: int = 0

    @property
    def n(self) -> int:
        """Requests, those never asked included."""
        return self.frame.height

    def number(self, name: str) -> Floats:
        """A column of numbers; not a number where it is unknown, or no such column is there."""
        return _number(self.frame, name)

    def text(self, name: str) -> pl.Series:
        """A column of text; null where it is unknown, or no such column is there."""
        if name not in self.frame.columns:
            return pl.Series(name, [None] * self.n, dtype=pl.String)
        return self.frame[name].cast(pl.String)


def sides(base: pl.DataFrame, cand: pl.DataFrame, plan: Plan) -> tuple[Side, Side, Clusters]:
    """The two sides of a comparison.

    Args:
        base: requests of the baseline (:mod:`longpole_analytics.requests`), with more columns
            where they are known: ``cost_usd``, ``quality``, ``reasoning_tokens``, gaps, a session.
        cand: of the candidate.
        plan: what pairs and clusters are.

    Raises:
        BadInput: a weight is below zero or endless, or a column is not there.
    """
    missing = (0, 0)
    if plan.pair_by is not None:
        base, cand, missing = _paired(base, cand, plan.pair_by)
    frames = [
        _facts(frame).filter(pl.Series(_weight(frame) > 0)).rechunk() for frame in (base, cand)
    ]
    recorded = {
        name
        for name in METRICS
        if any(frame[name].count() for frame in frames if name in frame.columns)
    }
    if any(frame["outcome"].count() for frame in frames):
        recorded.add("time_to_accepted_ms")
    first, second, clusters = _clusters(frames[0], frames[1], plan)
    found = [
        Side(
            frame,
            _weight(frame),
            cluster,
            {name: _times(frame, name) for name in METRICS if name in recorded},
            _rates(frame),
            num,
        )
        for frame, cluster, num in zip(frames, (first, second), missing, strict=True)
    ]
    return found[0], found[1], clusters


def weighted(side: Side, factor: Floats) -> Side:
    """The side with each request standing for more or for fewer."""
    weight = side.weight * factor
    times = {name: time._replace(weight=weight) for name, time in side.times.items()}
    return replace(side, weight=weight, times=times)


def _number(frame: pl.DataFrame, name: str) -> Floats:
    if name not in frame.columns:
        return np.full(frame.height, np.nan)
    column = frame[name].cast(pl.Float64, strict=False)
    values = column.fill_null(float("nan")).to_numpy().astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _weight(frame: pl.DataFrame) -> Floats:
    found = _number(frame, "weight")
    is_endless = "weight" in frame.columns and frame["weight"].cast(pl.Float64).is_infinite().any()
    if is_endless or (found < 0).any() or (found > _MAX_WEIGHT).any():
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
    return np.where(np.isnan(found), 1.0, found)


# --- facts --------------------------------------------------------------------------------------
def _facts(frame: pl.DataFrame) -> pl.DataFrame:
    """The requests with ``is_failed``, ``is_timeout``, ``is_cancelled``; unknown is not failed."""
    names = (*_FAILS, "outcome", "finish_reason", "is_streamed")
    missing = [pl.lit(None, pl.String).alias(n) for n in names if n not in frame.columns]
    told = [name for name in (*_FAILS, "is_error") if name in frame.columns]
    is_told = any(name != "is_error" or frame[name].count() for name in told)
    table = frame.with_columns(missing).with_columns(pl.col(names).cast(pl.String))
    if "is_error" not in table.columns:
        table = table.with_columns(is_error=pl.lit(None, pl.Boolean))
    stream, outcome = pl.col("stream_state"), pl.col("outcome")
    error = (
        pl.col("is_error").fill_null(False)
        | pl.col("error_type").is_not_null()
        | pl.col("failure_class").is_not_null()
        | (stream == "error").fill_null(False)
    )
    if "is_missing" not in table.columns:
        table = table.with_columns(is_missing=pl.lit(False))
    failed = (
        pl.col("is_missing").fill_null(False)
        | (outcome == "failed").fill_null(False)
        | (outcome.is_null() & error)
    )
    said = pl.concat_str(
        pl.col("error_type").fill_null(""), pl.col("failure_class").fill_null(""), separator=" "
    )
    cancelled = outcome.is_null() & ~error & stream.is_in(CANCELLED_STATES).fill_null(False)
    return table.with_columns(
        is_failed=failed,
        is_timeout=failed & said.str.to_lowercase().str.contains(_TIMEOUT),
        is_cancelled=cancelled,
        is_told=pl.lit(is_told) | outcome.is_not_null(),
    )


def _times(frame: pl.DataFrame, name: str) -> Times:
    """What was measured, and what was not seen to its end, each with its time."""
    value, e2e = _number(frame, name), _number(frame, "e2e_ms")
    value[value < 0], e2e[e2e < 0] = np.nan, np.nan
    if name in WAITS:
        late_ms = _late_ms(frame)
        value, e2e = value + late_ms, e2e + late_ms
    weight = _weight(frame)
    if name in PACES:
        return Times(value, np.ones(len(value), np.bool_), weight)
    is_open = (frame["is_failed"] | frame["is_cancelled"]).to_numpy().astype(np.bool_)
    ran = np.where(np.isnan(e2e), 0.0, e2e)
    if name == "e2e_ms":
        return Times(np.where(is_open, ran, value), ~is_open, weight)
    if name == "time_to_accepted_ms":
        outcome = frame["outcome"]
        is_accepted = (outcome == "accepted").fill_null(False).to_numpy().astype(np.bool_)
        is_never = outcome.is_in(["rejected", "failed"]).fill_null(False).to_numpy()
        value = np.where(np.isnan(value) & is_accepted, e2e, value)
        is_open = is_open | is_never.astype(np.bool_)
    if name in ("ttft_ms", "ttfv_ms"):
        is_whole = frame["is_streamed"].str.to_lowercase() == "false"
        is_open = is_open & ~is_whole.fill_null(False).to_numpy().astype(np.bool_)
    is_event = ~np.isnan(value)
    return Times(np.where(is_event | ~is_open, value, ran), is_event, weight)


def _late_ms(frame: pl.DataFrame) -> Floats:
    """How late a load test sent each request: a user would have waited from the intended moment."""
    late = (_number(frame, "start_ns") - _number(frame, "intended_start_ns")) / 1e6
    return np.where(late > 0, late, 0.0)


def _rates(frame: pl.DataFrame) -> dict[str, Rate]:
    """The rates that some column tells of."""
    told = frame["is_told"].to_numpy().astype(np.bool_)
    timeout = pl.col("is_timeout")
    attempts, outcome = _number(frame, "num_attempts"), frame["outcome"]
    finish = frame["finish_reason"].str.to_lowercase()
    cold = frame["is_cold"] if "is_cold" in frame.columns else pl.Series([None] * frame.height)
    missing = frame["is_missing"].fill_null(False).to_numpy().astype(np.bool_)

    def so(told_by: pl.Series | pl.Expr) -> Bools:
        series = frame.select(told_by).to_series() if isinstance(told_by, pl.Expr) else told_by
        return series.cast(pl.Boolean).fill_null(False).to_numpy().astype(np.bool_)

    is_answered = outcome.is_not_null().to_numpy().astype(np.bool_)
    any_outcome = bool(is_answered.any())
    rates = {
        "error_rate": Rate(so(pl.col("is_failed") & ~timeout), told | missing),
        "timeout_rate": Rate(so(timeout), told | missing),
        "cancel_rate": Rate(so(frame["is_cancelled"]), told),
        "retry_rate": Rate(attempts > 1, ~np.isnan(attempts)),
        "accepted_rate": Rate(so(outcome == "accepted"), is_answered | (missing & any_outcome)),
        "outcome_known": Rate(is_answered, np.full(frame.height, any_outcome)),
        "cut_rate": Rate(so(finish.is_in(_CUT)), finish.is_not_null().to_numpy().astype(np.bool_)),
        "cold_rate": Rate(so(cold), cold.is_not_null().to_numpy().astype(np.bool_)),
    }
    return {name: rate for name, rate in rates.items() if rate.is_known.any()}


# --- clusters and pairs -------------------------------------------------------------------------
def cluster_column(base: pl.DataFrame, cand: pl.DataFrame, plan: Plan) -> str | None:
    """The column whose equal values are drawn together; ``None`` is the trace, else the row.

    Raises:
        BadInput: the one asked for is not there.
    """
    for name in (plan.cluster, plan.pair_by):
        if name is not None and name not in base.columns:
            raise BadInput(f"no column '{name}'; there are: {', '.join(base.columns)}")
    if plan.cluster is not None or plan.pair_by is not None:
        return plan.cluster or plan.pair_by
    sides = (base, cand)
    return next((n for n in CLUSTERS if all(n in f.columns and f[n].count() for f in sides)), None)


def _clusters(
    base: pl.DataFrame, cand: pl.DataFrame, plan: Plan
) -> tuple[Places, Places, Clusters]:
    name = cluster_column(base, cand, plan)
    labels = []
    for place, frame in enumerate((base, cand)):
        if not frame.height:
            labels.append(pl.Series("", [], pl.String))
            continue
        rows = pl.format("{} {}", pl.lit(place), pl.int_range(pl.len()))
        trace = pl.format("{} {}", pl.lit(f"trace {place}"), pl.col("trace_id").cast(pl.String))
        own = [pl.col(name).cast(pl.String) + " "] if name is not None else []
        paired = [pl.format("pair {}", plan.pair_by)] if plan.pair_by else []
        known = [trace] if "trace_id" in frame.columns else []
        labels.append(frame.select(pl.coalesce(*own, *paired, *known, rows)).to_series().rename(""))
    every = pl.concat(labels).unique(maintain_order=True)
    is_in = [every.is_in(side.unique().implode()).to_numpy() for side in labels]
    kind = np.where(is_in[0] & is_in[1], 1, np.where(is_in[0], 0, 2))
    order = np.argsort(kind, kind="stable")
    number = np.empty(len(every), np.uint32)
    number[order] = np.arange(len(every), dtype=np.uint32)
    lookup = pl.DataFrame({"": every, "number": number})
    places = [
        side.to_frame().join(lookup, on="", how="left", maintain_order="left")["number"].to_numpy()
        for side in labels
    ]
    first, both, second = (int((kind == which).sum()) for which in range(3))
    return (
        places[0].astype(np.uint32),
        places[1].astype(np.uint32),
        Clusters(first, both, second),
    )


def _paired(
    base: pl.DataFrame, cand: pl.DataFrame, name: str
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[int, int]]:
    """Both sides with a failed row for each prompt that only the other was asked.

    A request that does not say its prompt stays, and is a pair of its own.
    """
    for frame in (base, cand):
        if name not in frame.columns:
            raise BadInput(f"no column '{name}'; there are: {', '.join(frame.columns)}")
    asked = [
        frame[name].cast(pl.String).drop_nulls().unique(maintain_order=True)
        for frame in (base, cand)
    ]
    lacking = [asked[1 - at].filter(~asked[1 - at].is_in(asked[at].implode())) for at in (0, 1)]
    whole = [
        pl.concat(
            [
                frame.with_columns(pl.col(name).cast(pl.String)),
                pl.DataFrame(
                    {name: lack, "is_missing": [True] * len(lack)},
                    {name: pl.String, "is_missing": pl.Boolean},
                ),
            ],
            how="diagonal",
        )
        for frame, lack in zip((base, cand), lacking, strict=True)
    ]
    return whole[0], whole[1], (len(lacking[0]), len(lacking[1]))
