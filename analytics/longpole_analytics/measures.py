"""Time measures of calls: retries and their storms, cold starts, drafts of an engine.

What is unknown stays unknown: a share is ``None`` where no call tells. Where traces were sampled
(column ``weight``) numbers, sums, shares and medians are those of all calls that came.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from longpole_analytics.stats import Share as Share
from longpole_analytics.stats import share as share
from longpole_analytics.weighted import num_of, part, quantile, sums_of, totals, weights_of

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class MeasureRules:
    """What counts as a storm, a quiet period, a loss.

    Attributes:
        window_s: stretches in which a storm is looked for.
        storm_ratio: share of calls that were tried again, above which it may be one.
        min_calls: fewest calls of a stretch to tell.
        quiet_s: a call after so long without another one finds things cold.
        least_hits: share of guesses, below which working on them is a loss.
        cancel_ms: a branch that runs so long after another won was not cancelled.
        least_speedup: drafts that speed up less are not worth it.
    """

    window_s: float = 300.0
    storm_ratio: float = 0.1
    min_calls: int = 20
    quiet_s: float = 300.0
    least_hits: float = 0.3
    cancel_ms: float = 10.0
    least_speedup: float = 1.05


# --- retries -----------------------------------------------------------------------------------
class Storm(NamedTuple):
    """A stretch in which many calls were tried again while ever more attempts failed."""

    start_ns: int
    end_ns: int
    num_calls: float
    retried_share: float
    failed_share: float
    failed_share_before: float


@dataclass(frozen=True)
class Retries:
    """Attempts of calls.

    Attributes:
        num_calls: calls that tell their attempts.
        num_unknown: calls that do not.
        amplification: attempts for each call; ``None`` of none.
        retried: share of calls that were tried again.
        failed_ms: time in failed attempts and the waits after them.
        failed_share: of the time of all these calls.
        storms: earliest first.
    """

    num_calls: float
    num_unknown: float
    amplification: float | None
    retried: Share
    failed_ms: float
    failed_share: float | None
    storms: tuple[Storm, ...]


def retries(calls: pl.DataFrame, rules: MeasureRules | None = None) -> Retries:
    """How often calls were tried again, what that took, and when it came in storms.

    Args:
        calls: rows with ``start_ns``, ``num_attempts``, ``retry_ms``, ``e2e_ms`` and
            ``error_type``, as of the view ``calls``.
        rules: what counts as a storm.
    """
    rules = rules or MeasureRules()
    known = calls.filter(pl.col("num_attempts") >= 1)
    times = (pl.col(name).fill_nan(None) for name in ("retry_ms", "e2e_ms"))
    attempts, failed_ms, all_ms = totals(known, pl.col("num_attempts"), *times)
    num = num_of(weights_of(known))
    return Retries(
        num,
        num_of(weights_of(calls)) - num,
        attempts / num if num else None,
        part(known.filter(pl.col("num_attempts") > 1), known),
        float(failed_ms),
        failed_ms / all_ms if all_ms > 0 else None,
        _storms(known, rules),
    )


def _storms(calls: pl.DataFrame, rules: MeasureRules) -> tuple[Storm, ...]:
    """Stretches with many retries and a larger share of failed attempts than the one before."""
    width = int(rules.window_s * _NS_PER_S)
    failed = pl.col("num_attempts") - 1 + pl.col("error_type").is_not_null().cast(pl.Int64)
    sums = sums_of(calls)
    failed, attempts = sums.times(failed).sum(), sums.times(pl.col("num_attempts")).sum()
    windows = (
        calls.drop_nulls("start_ns")
        .group_by((pl.col("start_ns") // width * width).alias("at"))
        .agg(
            pl.len().alias("n"),
            sums.num().alias("num"),
            sums.mean(pl.col("num_attempts") > 1).alias("retried"),
            (failed / attempts).alias("failed"),
        )
        .sort("at")
    )
    found: list[Storm] = []
    before: tuple[int, float] | None = None
    for at, n, num, retried, failed_share in windows.iter_rows():
        if n < rules.min_calls:
            continue
        earlier = before[1] if before and before[0] == at - width else None
        before = (at, failed_share)
        if earlier is not None and retried > rules.storm_ratio and failed_share > earlier:
            found.append(Storm(at, at + width, num, retried, failed_share, earlier))
    return tuple(found)


# --- cold starts -------------------------------------------------------------------------------
class Typical(NamedTuple):
    """The median of so many values and its 95 % interval; ``None`` where there are too few."""

    n: int
    p50: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ColdStarts:
    """Time to first content cold, warm, and after a quiet period. Milliseconds.

    Attributes:
        cold: share of the calls that tell.
        num_unknown: calls that do not tell.
        ttft_cold: of calls known to be cold.
        ttft_warm: of calls known to be warm.
        ttft_after_quiet: of the first call after a quiet period. Where traces were sampled it is
            quiet when no call was kept: a call that was dropped ends no quiet.
        ttft_other: of all others.
    """

    cold: Share
    num_unknown: float
    ttft_cold: Typical
    ttft_warm: Typical
    ttft_after_quiet: Typical
    ttft_other: Typical


def cold_starts(calls: pl.DataFrame, rules: MeasureRules | None = None) -> ColdStarts:
    """What cold engines and connections cost.

    Args:
        calls: rows with ``start_ns``, ``end_ns``, ``ttft_ms``, ``is_cold_start``, ``service``,
            ``provider`` and ``request_model``, as of the view ``calls``.
        rules: what counts as quiet.
    """
    rules = rules or MeasureRules()
    told = calls.drop_nulls("is_cold_start")
    cold = told.filter("is_cold_start")
    marked = _after_quiet(calls, rules)
    return ColdStarts(
        part(cold, told),
        num_of(weights_of(calls)) - num_of(weights_of(told)),
        typical(cold),
        typical(told.filter(~pl.col("is_cold_start"))),
        typical(marked.filter("is_after_quiet")),
        typical(marked.filter(~pl.col("is_after_quiet"))),
    )


def typical(rows: pl.DataFrame, column: str = "ttft_ms") -> Typical:
    """The median of the known values of a column."""
    known = rows.filter(pl.col(column).is_finite()).sort(column)
    found = quantile(known[column].cast(pl.Float64).to_numpy(), weights_of(known), 0.5)
    return Typical(known.height, *(found[:3] if found is not None else (None, None, None)))


def _after_quiet(calls: pl.DataFrame, rules: MeasureRules) -> pl.DataFrame:
    """Whether no call to the same model ran for a while; the very first of all is unknown."""
    keys = ["service", "provider", "request_model"]
    end = pl.coalesce("end_ns", "start_ns").cum_max().shift(1).over(keys)
    quiet = pl.col("start_ns") - end >= int(rules.quiet_s * _NS_PER_S)
    ordered = calls.drop_nulls("start_ns").sort("start_ns", maintain_order=True)
    return ordered.with_columns(quiet.alias("is_after_quiet")).drop_nulls("is_after_quiet")


# --- drafts ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Drafts:
    """Speculative decoding of an engine.

    Attributes:
        acceptance: share of drafted tokens that were accepted.
        tokens_per_step: tokens of one step of the large model.
        speedup: about how much faster than without drafts.
        is_worth_it: whether that is enough.
    """

    acceptance: float
    tokens_per_step: float
    speedup: float
    is_worth_it: bool


def drafts(
    accepted: float,
    drafted: float,
    steps: float,
    *,
    cost_ratio: float,
    overhead: float = 0.0,
    rules: MeasureRules | None = None,
) -> Drafts | None:
    """What drafts bring at the batch size these counts are of; ``None`` without any.

    Args:
        accepted: drafted tokens that were accepted.
        drafted: drafted tokens.
        steps: steps of the large model.
        cost_ratio: time of one drafted token over that of one step.
        overhead: of a step, besides, over the time of one step.
        rules: what is worth it.
    """
    rules = rules or MeasureRules()
    if drafted <= 0 or steps <= 0:
        return None
    per_step = 1 + accepted / steps
    speedup = per_step / (1 + drafted / steps * cost_ratio + overhead)
    return Drafts(accepted / drafted, per_step, speedup, speedup >= rules.least_speedup)


def expected_tokens_per_step(acceptance: float, depth: int) -> float:
    """Tokens of one step when each drafted token is accepted alike (Leviathan et al., 2023)."""
    if acceptance >= 1:
        return depth + 1.0
    return float((1 - acceptance ** (depth + 1)) / (1 - acceptance))


# --- reasoning ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reasoning:
    """What models thought before they answered.

    Attributes:
        num_calls: calls that tell their reasoning tokens.
        num_unknown: calls that do not.
        of_output: reasoning tokens as a share of the output tokens of these calls; ``None`` of
            none.
        before_visible: time from the first content to the first visible text, ms.
        of_time: that time as a share of all time of the calls that tell it; ``None`` of none.
        visible: time to the first visible text, ms.
    """

    num_calls: float
    num_unknown: float
    of_output: float | None
    before_visible: Typical
    of_time: float | None
    visible: Typical


def reasoning(calls: pl.DataFrame) -> Reasoning:
    """How much of the output, and of the time, is thinking that nobody sees.

    Args:
        calls: rows with ``reasoning_tokens``, ``output_tokens``, ``ttft_ms``, ``ttfv_ms`` and
            ``e2e_ms``, as of the view ``calls``.
    """
    told = calls.drop_nulls(["reasoning_tokens", "output_tokens"])
    thinking, output = totals(told, pl.col("reasoning_tokens"), pl.col("output_tokens"))
    thought = told.filter(pl.col("reasoning_tokens") > 0)
    timed = thought.filter(pl.all_horizontal(pl.col("ttft_ms", "ttfv_ms", "e2e_ms").is_finite()))
    timed = timed.with_columns(before=(pl.col("ttfv_ms") - pl.col("ttft_ms")).clip(0))
    before, whole = totals(timed, pl.col("before"), pl.col("e2e_ms"))
    num = num_of(weights_of(told))
    return Reasoning(
        num,
        num_of(weights_of(calls)) - num,
        thinking / output if output else None,
        typical(timed, "before"),
        before / whole if whole > 0 else None,
        typical(calls, "ttfv_ms"),
    )
