"""Comparison of a quantile on two sides: ratio, interval, p-value.

A quantile is an element of the sample, of nearest rank. Its bootstrap needs no resampling: the
k-th smallest of n draws with replacement is the value at rank ceil(n U), where U is the k-th
smallest of n uniform numbers, and that is one draw of Beta(k, n - k + 1) (Efron, The Jackknife,
the Bootstrap and Other Resampling Plans, 1982, section 10.2). Each side is resampled at its own
size, so the sides are the strata. With weights, n is Kish's effective size and ranks are
cumulative weights.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longpole_analytics.shapes.base import Evidence, ShapeRules
from longpole_analytics.stats import rank_interval

Floats = NDArray[np.float64]
BASELINE, CURRENT = 0, 1
_Z95 = 1.959963984540054


class Sample(NamedTuple):
    """Known values of one side, ascending, with their cumulative share of the weight.

    ``cumulative`` is ``None`` where all weigh the same; ``size`` is the effective number.
    """

    values: Floats
    cumulative: Floats | None
    size: int

    @property
    def n(self) -> int:
        """How many values there are."""
        return len(self.values)

    def at(self, shares: Floats) -> Floats:
        """The values at these shares of the weight."""
        if self.cumulative is None:
            found = np.ceil(shares * self.n - 1e-9).astype(np.int64) - 1
        else:
            found = np.searchsorted(self.cumulative, shares - 1e-12)
        return self.values[np.minimum(np.maximum(found, 0), self.n - 1)]

    def above(self, limit: float) -> int:
        """How many of the effective sample lie above a limit."""
        below = int(np.searchsorted(self.values, limit, side="right"))
        if self.cumulative is None or not below:
            return self.size if not below else self.n - below
        return round((1.0 - float(self.cumulative[below - 1])) * self.size)

    def quantile(self, q: float) -> float:
        """The element of nearest rank; not a number of no values."""
        return float(self.at(np.array([q]))[0]) if self.n else math.nan


class Test(NamedTuple):
    """A quantile compared. ``change`` is in the metric's unit; low and high bound the ratio.

    Where a side is not positive there is no ratio, and low and high bound the difference.
    """

    metric: str
    quantile: float
    current: float
    baseline: float
    ratio: float | None
    low: float
    high: float
    change: float
    n: int
    p_value: float

    @property
    def is_up(self) -> bool:
        """Whether the whole interval is above no change."""
        return self.low > (0.0 if self.ratio is None else 1.0)

    def evidence(self) -> Evidence:
        """The test as evidence; ``n`` is the smaller side's."""
        has_bounds = self.ratio is not None and math.isfinite(self.high)
        bounds = (self.low, self.high) if has_bounds else None
        return Evidence(
            self.metric,
            None if math.isnan(self.quantile) else self.quantile,
            self.current,
            self.baseline,
            self.ratio,
            bounds,
            self.n,
        )


def sample(values: Floats, weights: Floats | None = None) -> Sample:
    """The finite values with their weights, in order; those of no weight are left out."""
    known = np.isfinite(values)
    if weights is None:
        ordered = np.sort(values[known])
        return Sample(ordered, None, len(ordered))
    known &= np.isfinite(weights) & (weights > 0)
    kept, shares = values[known], weights[known]
    order = np.argsort(kept, kind="stable")
    cumulative = np.cumsum(shares[order])
    if not len(kept):
        return Sample(kept, None, 0)
    size = round(float(cumulative[-1] ** 2 / np.square(shares).sum()))
    return Sample(kept[order], cumulative / cumulative[-1], size)


def compare(metric: str, base: Sample, current: Sample, q: float, rules: ShapeRules) -> Test | None:
    """The comparison of a quantile; ``None`` where a side has too few samples for it."""
    n = min(base.size, current.size)
    if n < rules.min_n(q):
        return None
    values = base.quantile(q), current.quantile(q)
    has_ratio = min(values) > 0
    ends = [_spread(side, q, which, rules) for which, side in enumerate((base, current))]
    if has_ratio and all(end[0].min() > 0 for end in ends):
        ends = [(np.log(ends_of),) for (ends_of,) in ends]
        estimate = math.log(values[1] / values[0])
    else:
        has_ratio = False
        estimate = values[1] - values[0]
    low, high, deviation = _interval(estimate, ends[0][0], ends[1][0], n >= rules.bootstrap_min_n)
    return Test(
        metric,
        q,
        values[1],
        values[0],
        math.exp(estimate) if has_ratio else None,
        math.exp(low) if has_ratio else low,
        math.exp(high) if has_ratio else high,
        values[1] - values[0],
        n,
        max(_p_value(estimate, deviation), 0.5 ** (n - 1)),
    )


def exceedance_p_value(base_above: int, base_n: int, above: int, n: int) -> float:
    """How likely so many of ``n`` lie above a limit as of ``base_n`` did ``base_above``.

    Predictive probability, one-sided, under Jeffreys' prior for the share (beta-binomial): it
    needs no quantile that the samples are too small to carry.
    """
    a, b = base_above + 0.5, base_n - base_above + 0.5
    if above <= 0:
        return 1.0
    below = sum(
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + _log_beta(k + a, n - k + b)
            - _log_beta(a, b)
        )
        for k in range(above)
    )
    return min(max(1.0 - below, 0.0), 1.0)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _spread(side: Sample, q: float, which: int, rules: ShapeRules) -> tuple[Floats]:
    """Replicates of the quantile; of a small sample it and the ends of its interval."""
    if side.size >= rules.bootstrap_min_n:
        return (side.at(_uniforms(side.size, q, which, rules.seed, rules.num_replicates)),)
    ranks = _ranks(side.size, q)
    return (side.at(np.array(ranks) / side.size),)


@lru_cache(maxsize=4096)
def _uniforms(n: int, q: float, which: int, seed: int, replicates: int) -> Floats:
    random = np.random.default_rng((seed, which, n, round(q * 1000)))
    k = min(max(math.ceil(round(q * n, 9)), 1), n)
    return random.beta(k, n - k + 1, replicates)


@lru_cache(maxsize=4096)
def _ranks(n: int, q: float) -> tuple[int, int, int]:
    low, high = rank_interval(n, q)
    return low or 1, min(max(math.ceil(round(q * n, 9)), 1), n), high or n


def _interval(
    estimate: float, base: Floats, current: Floats, is_bootstrap: bool
) -> tuple[float, float, float]:
    """Ends of the 95 % interval and the standard deviation of a difference.

    Small samples: the intervals of the sides are joined by the method of variance estimates
    recovery (Zou & Donner, Statistics in Medicine 27, 2008).
    """
    base_is_small, current_is_small = len(base) == 3, len(current) == 3
    if is_bootstrap and not base_is_small and not current_is_small:
        replicates = current - base
        n = len(replicates)
        ends = round(0.025 * n), min(round(0.975 * n), n - 1)
        deviation = math.sqrt(float(np.square(replicates - replicates.mean()).sum()) / n)
        replicates.partition(ends)
        return float(replicates[ends[0]]), float(replicates[ends[1]]), deviation
    (b_low, b, b_high), (c_low, c, c_high) = _ends(base), _ends(current)
    low = estimate - math.hypot(c - c_low, b_high - b)
    high = estimate + math.hypot(c_high - c, b - b_low)
    towards_zero = estimate - low if estimate >= 0 else high - estimate
    return low, high, towards_zero / _Z95


def _ends(values: Floats) -> tuple[float, float, float]:
    low, middle, high = values if len(values) == 3 else np.quantile(values, (0.025, 0.5, 0.975))
    return float(low), float(middle), float(high)


def _p_value(estimate: float, deviation: float) -> float:
    if estimate == 0:
        return 1.0
    return math.erfc(abs(estimate) / deviation / math.sqrt(2)) if deviation > 0 else 0.0
