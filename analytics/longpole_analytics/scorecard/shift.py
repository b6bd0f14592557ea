"""By how much the same prompt is faster: the Hodges-Lehmann shift of log ratios of pairs.

The estimate is the median of all means of two pairs (Hodges & Lehmann, Annals of Mathematical
Statistics 34, 1963), its interval that of Wilcoxon's signed ranks. The means are counted, not
listed, so that many pairs cost little.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import polars as pl

from longpole_analytics.scorecard.rules import Plan
from longpole_analytics.scorecard.sides import Side
from longpole_analytics.scorecard.survival import Floats

_STEPS = 60
_MIN_PAIRS = 6
"""Fewer have no two-sided 95 % interval of signed ranks."""


class Shift(NamedTuple):
    """The usual ratio candidate / baseline of a pair, with its interval.

    ``num_left_out`` are pairs of which a side did not end or was never asked.
    """

    metric: str
    num_pairs: int
    num_left_out: int
    ratio: float | None
    ci95: tuple[float, float] | None


def shift(base: Side, cand: Side, plan: Plan) -> Shift | None:
    """The shift of the target over the pairs of a comparison; ``None`` if nobody paired it."""
    if plan.pair_by is None or plan.target not in base.times:
        return None
    logs = [_by_pair(side, plan) for side in (base, cand)]
    joined = logs[0].join(logs[1], on="pair", how="full", suffix="_cand", coalesce=True)
    both = joined.drop_nulls()
    found = hodges_lehmann((both["log_cand"] - both["log"]).to_numpy(), plan.alpha)
    value, ends = found
    return Shift(
        plan.target,
        both.height,
        joined.height - both.height,
        None if value is None else math.exp(value),
        None if ends is None else (math.exp(ends[0]), math.exp(ends[1])),
    )


def hodges_lehmann(
    differences: Floats, alpha: float = 0.05
) -> tuple[float | None, tuple[float, float] | None]:
    """The median of the means of all pairs of values, each with itself too, and its interval."""
    values = np.sort(np.asarray(differences, np.float64))
    n = len(values)
    if not n:
        return None, None
    num = n * (n + 1) // 2

    def at_rank(rank: int) -> float:
        return _bisected(lambda mean: _num_means(values, mean) >= rank, values)

    middle = (at_rank((num + 1) // 2) + at_rank(num // 2 + 1)) / 2
    z = NormalDist().inv_cdf(1 - alpha / 2)
    reach = z * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    low = math.floor(num / 2 - reach)
    if n < _MIN_PAIRS or low < 1:
        return middle, None
    return middle, (at_rank(low), at_rank(num - low + 1))


def _by_pair(side: Side, plan: Plan) -> pl.DataFrame:
    times = side.times[plan.target]
    kept = times.is_event & (times.value > 0)
    table = pl.DataFrame({"pair": side.text(str(plan.pair_by)), "value": times.value, "kept": kept})
    value = pl.when("kept").then(pl.col("value").log())
    return table.drop_nulls("pair").group_by("pair").agg(log=value.mean())


def _num_means(values: Floats, mean: float) -> int:
    """How many means of two values, in either order once, are at most so large."""
    upto = np.searchsorted(values, 2 * mean - values, "right")
    return int(np.maximum(upto - np.arange(len(values)), 0).sum())


def _bisected(is_enough: Callable[[float], bool], values: Floats) -> float:
    low, high = float(values[0]), float(values[-1])
    if is_enough(low):
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
