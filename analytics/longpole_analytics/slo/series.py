"""Good and bad requests of an objective, minute by minute, from a table of requests.

A request counts in the minute it began in. It is good, bad, or left out because it says nothing
about the promise; how many are left out is told. A failed request is bad for every latency,
whatever it measured. One that stands for several (column ``weight``: traces were sampled) counts
as many, but as one where evidence is asked for.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole.errors import BadInput
from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.slo.objectives import LATENCIES, SCORES, Floor, Objective

Ints = npt.NDArray[np.int64]
CANCELLED_STATES: Final = ("closed_early", "abandoned")


class Series(NamedTuple):
    """The minutes of one objective; weights are in millionths, so that sums are exact.

    Attributes:
        first_minute: the first, in minutes since the Unix epoch.
        bad_e6: weight of bad requests by minute.
        total_e6: weight of good and bad ones.
        num_bad: bad requests seen.
        num_left_out: requests in all these minutes that are neither good nor bad.
    """

    first_minute: int
    bad_e6: Ints
    total_e6: Ints
    num_bad: Ints
    num_left_out: int


def judged(requests: pl.DataFrame, objective: Objective | Floor) -> pl.Series:
    """Whether each request is good (true), bad (false) or left out (null).

    Args:
        requests: a table of :mod:`longpole_analytics.requests`; columns may be missing.
        objective: the promise, or a floor that goes with it.
    """
    outcome = _column(requests, "outcome", pl.String)
    stream = _column(requests, "stream_state", pl.String)
    error = (
        _column(requests, "is_error", pl.Boolean).fill_null(False)
        | _column(requests, "error_type", pl.String).is_not_null()
        | _column(requests, "failure_class", pl.String).is_not_null()
        | (stream == "error").fill_null(False)
    )
    failed = (outcome == "failed").fill_null(False) | (outcome.is_null() & error)
    cancelled = outcome.is_null() & ~error & stream.is_in(CANCELLED_STATES).fill_null(False)
    kept = objective.cancelled if isinstance(objective, Objective) else "judged"
    if objective.metric == "accepted":
        found = outcome == "accepted"
    elif objective.metric == "availability":
        found = pl.when(failed).then(False).when(~cancelled).then(True)
    else:
        found = _by_threshold(requests, objective, failed, cancelled, outcome)
    if kept != "judged":
        found = pl.when(cancelled).then(None if kept == "excluded" else False).otherwise(found)
    # columns, not a selection: what no column tells is one value for all of them
    return requests.with_columns(found.cast(pl.Boolean).alias("is_good"))["is_good"]


def _by_threshold(
    requests: pl.DataFrame,
    objective: Objective | Floor,
    failed: pl.Expr,
    cancelled: pl.Expr,
    outcome: pl.Expr,
) -> pl.Expr:
    metric, threshold = objective.metric, objective.threshold
    assert threshold is not None  # noqa: S101 - only OUTCOMES have none
    value = _column(requests, metric, pl.Float64).fill_nan(None)
    if metric in SCORES:
        return value >= threshold
    within = value <= threshold
    if metric not in LATENCIES:
        return within
    never = failed
    if metric == "time_to_accepted_ms":
        never = never | (outcome == "rejected").fill_null(False)
    # what was given up took at least as long as it ran: late already, or unknown
    measured = pl.lit(None, pl.Boolean) if metric == "e2e_ms" else within
    late = _column(requests, "e2e_ms", pl.Float64) > threshold
    given_up = measured if metric == "tpot_ms" else pl.coalesce(
        measured, pl.when(late).then(False)
    )  # fmt: skip
    return pl.when(never).then(False).when(cancelled).then(given_up).otherwise(within)


def minute_series(
    requests: pl.DataFrame, objective: Objective | Floor, first_minute: int, num_minutes: int
) -> Series:
    """The minutes of an objective over the requests it is about.

    Args:
        requests: those that meet the objective's condition.
        objective: the promise.
        first_minute: the first minute, in minutes since the Unix epoch.
        num_minutes: how many; requests outside, or of unknown start, do not count.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    weight = _column(requests, "weight", pl.Float64).fill_nan(None).fill_null(1.0)
    rows = requests.select(
        (pl.col("start_ns") // MINUTE_NS - first_minute).alias("minute"),
        (weight * SCALE).round().alias("weight"),
        judged(requests, objective),
    ).filter(pl.col("minute").is_between(0, num_minutes - 1))
    if rows.filter((pl.col("weight") < 0) | pl.col("weight").is_infinite()).height:
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
    known = rows.drop_nulls("is_good")
    bad = ~pl.col("is_good")
    by_minute = known.with_columns(pl.col("weight").cast(pl.Int64)).group_by("minute").agg(
        pl.col("weight").filter(bad).sum().alias("bad"),
        pl.col("weight").sum().alias("total"),
        bad.sum().cast(pl.Int64).alias("num_bad"),
    )  # fmt: skip
    at = by_minute["minute"].to_numpy()

    def placed(name: str) -> Ints:
        column = np.zeros(num_minutes, np.int64)
        column[at] = by_minute[name].to_numpy()
        return column

    left_out = rows.height - known.height
    return Series(first_minute, placed("bad"), placed("total"), placed("num_bad"), left_out)


def _column(requests: pl.DataFrame, name: str, kind: type[pl.DataType]) -> pl.Expr:
    if name not in requests.columns:
        return pl.lit(None, kind)
    return pl.col(name).cast(kind, strict=False)
