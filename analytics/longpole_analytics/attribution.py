"""Tail attribution: which slices the slow traces are in, and in which stage they lose their time.

A search over single attributes in the manner of DIFF and MacroBase (Abuzaid et al., VLDB 2019;
Bailis et al., SIGMOD 2017): support, risk ratio, false discovery control. The risk ratio is
Mantel-Haenszel's over strata of prompt and answer length, so that a slice is not blamed for
merely sending longer prompts. What is found is an association, never a proof.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.population import stage_column
from longpole_analytics.stats import (
    RiskRatio,
    Stratum,
    benjamini_hochberg,
    mantel_haenszel,
    quantile,
    rank,
)

MIN_TRACES: Final = 20
MIN_SUPPORT: Final = 10
MIN_SUPPORT_SHARE: Final = 0.02
MIN_RISK_RATIO: Final = 1.5
MIN_RISK_RATIO_LOW: Final = 1.1
MAX_CAUSES: Final = 5
MAX_VALUES: Final = 1000
OTHER_VALUES: Final = "__other__"
NUM_EXEMPLARS: Final = 10
NUM_INPUT_BINS: Final = 10
NUM_OUTPUT_BINS: Final = 3
TRACES_PER_BIN: Final = 50
MIN_BIN_RATIO: Final = 1.1
"""Lengths closer than this are the same length: finer strata only lose comparable traces."""
MIN_BASELINE: Final = 5
"""A stratum with fewer traces that are not slow takes its medians from all of them."""


@dataclass(frozen=True)
class Cause:
    """One slice that slow traces are in more often than others, and the stage of the excess.

    ``of_slow`` and ``of_rest`` are the slice's shares of slow and of other traces. The excess is
    against the median of comparable traces that are not slow. ``share_of_excess`` is the stage's.
    """

    stage: Stage
    share_of_excess: float
    where: dict[str, str]
    num_slow: int
    of_slow: float
    of_rest: float
    risk_ratio: float
    ci95: tuple[float, float]
    excess_ms_total: float
    excess_ms_p50: float
    exemplars: tuple[str, ...]


@dataclass(frozen=True)
class Attribution:
    """Causes ranked by the excess time they explain; without any, ``reason`` says why."""

    causes: tuple[Cause, ...]
    num_traces: int
    num_slow: int
    reason: str | None


@dataclass(frozen=True)
class Excess:
    """Time of slow traces above the median of comparable ones, by stage, in milliseconds."""

    stage: Stage
    share: float
    total_ms: float
    p50_ms: float


@dataclass(frozen=True)
class _Candidate:
    dimension: str
    value: str
    num_slow: int
    risk: RiskRatio


def attribute(
    frame: pl.DataFrame,
    metric: str,
    *,
    dimensions: Sequence[str],
    stages: Sequence[Stage] = tuple(Stage),
    objective_ms: float | None = None,
    slow_quantile: float = 0.95,
    min_support: int = MIN_SUPPORT,
) -> Attribution:
    """The slices that explain slow traces, most excess time first, at most five.

    Each next cause is looked for among the traces that earlier causes do not explain. An empty
    frame, or too few traces, gives no causes and a reason.

    Args:
        frame: one row per trace, as :func:`longpole_analytics.population.population` makes it.
        metric: the column that says how slow a trace is, in milliseconds.
        dimensions: text columns to slice by; of two equal slices the earlier one is named.
        stages: the stages whose time the metric holds.
        objective_ms: slow is above it; without one, above the route's ``slow_quantile``.
        slow_quantile: see ``objective_ms``.
        min_support: fewest slow traces a slice must hold.
    """
    if frame.height < MIN_TRACES:
        return Attribution((), frame.height, 0, f"too few traces: {frame.height} of {MIN_TRACES}")
    marked = with_strata(mark_slow(frame, metric, objective_ms, slow_quantile))
    num_slow = int(marked["is_slow"].sum())
    if num_slow < min_support:
        few = f"too few slow traces: {num_slow} of {min_support}"
        return Attribution((), frame.height, num_slow, few)
    if num_slow == frame.height:
        none = "every trace is slow, so there is none to compare with"
        return Attribution((), frame.height, num_slow, none)
    above = with_excess(marked, metric, stages)
    causes: list[Cause] = []
    left = above
    while len(causes) < MAX_CAUSES:
        cause = _best(left, above, dimensions, stages, min_support)
        if cause is None:
            break
        causes.append(cause)
        ((dimension, value),) = cause.where.items()
        left = left.filter(pl.col(dimension).ne_missing(value))
    reason = None if causes else "no slice holds slow traces more often than others"
    return Attribution(tuple(causes), frame.height, num_slow, reason)


def mark_slow(
    frame: pl.DataFrame, metric: str, objective_ms: float | None, slow_quantile: float
) -> pl.DataFrame:
    """The frame with ``is_slow``: above the objective, else above its route's quantile."""
    if objective_ms is not None:
        return frame.with_columns(is_slow=pl.col(metric) > objective_ms)
    by_route = frame.group_by("route").agg(metric)
    limits = [quantile(values, slow_quantile) for values in by_route[metric].to_list()]
    limit = by_route.select("route", pl.Series("limit_ms", limits, pl.Float64))
    joined = frame.join(limit, on="route", how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(is_slow=pl.col(metric) > pl.col("limit_ms")).drop("limit_ms")


def with_strata(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with ``stratum``: traces of one route with prompts and answers of like length."""
    num_input = min(NUM_INPUT_BINS, frame.height // TRACES_PER_BIN)
    num_output = min(NUM_OUTPUT_BINS, frame.height // (TRACES_PER_BIN * NUM_INPUT_BINS))
    parts = [
        _bins(frame["input_tokens"], num_input).cast(pl.String),
        _bins(frame["output_tokens"], num_output).cast(pl.String),
        frame["route"].fill_null(""),
    ]
    return frame.with_columns(pl.concat_str(parts, separator="/").alias("stratum"))


def _bins(values: pl.Series, num_bins: int) -> pl.Series:
    """Bin of each value, by quantile; -1 where it is unknown."""
    ordered = values.drop_nulls().sort().to_list()
    edges: list[float] = []
    for step in range(1, num_bins):
        if not ordered:
            break
        edge = ordered[rank(len(ordered), step / num_bins) - 1]
        if edge >= MIN_BIN_RATIO * (edges[-1] if edges else ordered[0]):
            edges.append(edge)
    found = pl.Series("edges", edges, pl.Float64).search_sorted(values.cast(pl.Float64), "left")
    unknown = pl.Series([-1], dtype=pl.Int64)
    return found.cast(pl.Int64).zip_with(values.is_not_null(), unknown)


def with_excess(frame: pl.DataFrame, metric: str, stages: Sequence[Stage]) -> pl.DataFrame:
    """The frame with ``excess_ms`` and one excess per stage, against comparable traces.

    Comparable are the traces of the stratum that are not slow; where there are under five, all
    that are not slow; where there are none at all, everything is excess.
    """
    columns = {metric: "excess_ms", **{stage_column(s): _excess_column(s) for s in stages}}
    medians = [pl.col(name).quantile(0.5, "lower").alias(f"base_{name}") for name in columns]
    normal = frame.filter(~pl.col("is_slow"))
    overall = normal.select(medians).fill_null(0.0)
    by_stratum = (
        normal.group_by("stratum")
        .agg(pl.len().alias("num_base"), *medians)
        .filter(pl.col("num_base") >= MIN_BASELINE)
    )
    joined = frame.join(by_stratum, on="stratum", how="left", maintain_order="left")
    return joined.with_columns(
        (pl.col(name) - pl.col(f"base_{name}").fill_null(overall[f"base_{name}"][0])).alias(excess)
        for name, excess in columns.items()
    ).drop("num_base", *(f"base_{name}" for name in columns))


def excess(slow: pl.DataFrame, stages: Sequence[Stage]) -> Excess:
    """The excess of slow traces (rows of :func:`with_excess`) and the stage that holds most."""
    by_stage = {stage: float(slow[_excess_column(stage)].sum()) for stage in stages}
    most = max(stages, key=lambda stage: by_stage[stage])
    added = math.fsum(value for value in by_stage.values() if value > 0)
    total = slow["excess_ms"]
    return Excess(
        most,
        by_stage[most] / added if added > 0 else 0.0,
        float(total.sum()),
        quantile(total.to_list(), 0.5) or 0.0,
    )


def _excess_column(stage: Stage) -> str:
    return f"excess_{stage.value}_ms"


def _best(
    frame: pl.DataFrame,
    whole: pl.DataFrame,
    dimensions: Sequence[str],
    stages: Sequence[Stage],
    min_support: int,
) -> Cause | None:
    """The slice that explains most excess among the traces of ``frame``, a part of ``whole``."""
    num_slow = int(frame["is_slow"].sum())
    support = max(min_support, math.ceil(MIN_SUPPORT_SHARE * num_slow))
    found = [
        candidate
        for dimension in dimensions
        for candidate in _candidates(frame, dimension, support)
    ]
    kept = benjamini_hochberg([candidate.risk.p_value for candidate in found])
    best: Cause | None = None
    most = 0.0
    for candidate in (found[index] for index in kept):
        risk = candidate.risk
        if risk.estimate < MIN_RISK_RATIO or risk.low <= MIN_RISK_RATIO_LOW:
            continue
        cause = _cause(frame, whole, candidate, stages)
        explained = cause.excess_ms_total * (1 - 1 / risk.estimate)
        if explained > most:
            best, most = cause, explained
    return best


def _candidates(frame: pl.DataFrame, dimension: str, support: int) -> list[_Candidate]:
    """The values of one dimension that enough slow traces have, with their risk ratios."""
    sizes = frame[dimension].value_counts().drop_nulls().sort(["count", dimension], descending=True)
    rare = sizes[dimension][MAX_VALUES:]
    column = pl.col(dimension)
    value = pl.when(column.is_in(rare.implode())).then(pl.lit(OTHER_VALUES)).otherwise(column)
    cells = frame.group_by(value.alias("value"), "stratum").agg(
        pl.col("is_slow").sum().alias("cases"), pl.len().alias("num")
    )
    totals = {
        stratum: (cases, num)
        for stratum, cases, num in cells.group_by("stratum")
        .agg(pl.col("cases").sum(), pl.col("num").sum())
        .sort("stratum")
        .iter_rows()
    }
    by_value: dict[str, dict[str, tuple[int, int]]] = {}
    for name, stratum, cases, num in cells.drop_nulls("value").iter_rows():
        by_value.setdefault(name, {})[stratum] = (cases, num)
    candidates = []
    for name in sorted(by_value):
        inside = by_value[name]
        num_slow = sum(cases for cases, _ in inside.values())
        if num_slow < support or name == OTHER_VALUES:
            continue
        strata = []
        for stratum, (cases, num) in totals.items():
            own_cases, own_num = inside.get(stratum, (0, 0))
            strata.append(Stratum(own_cases, own_num, cases - own_cases, num - own_num))
        risk = mantel_haenszel(strata)
        if risk is not None:
            candidates.append(_Candidate(dimension, name, num_slow, risk))
    return candidates


def _cause(
    frame: pl.DataFrame, whole: pl.DataFrame, candidate: _Candidate, stages: Sequence[Stage]
) -> Cause:
    inside = pl.col(candidate.dimension) == candidate.value
    slow = frame.filter(inside & pl.col("is_slow"))
    size = excess(slow, stages)
    worst = slow.sort(["excess_ms", "trace_id"], descending=[True, False])
    of_slow, of_rest = (
        float(whole.filter(side).select(inside.fill_null(False).mean()).item())
        for side in (pl.col("is_slow"), ~pl.col("is_slow"))
    )
    return Cause(
        stage=size.stage,
        share_of_excess=size.share,
        where={candidate.dimension: candidate.value},
        num_slow=candidate.num_slow,
        of_slow=of_slow,
        of_rest=of_rest,
        risk_ratio=candidate.risk.estimate,
        ci95=(candidate.risk.low, candidate.risk.high),
        excess_ms_total=size.total_ms,
        excess_ms_p50=size.p50_ms,
        exemplars=tuple(worst["trace_id"].head(NUM_EXEMPLARS).to_list()),
    )
