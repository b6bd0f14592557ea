"""Lines and rank correlations that a few wild values do not move."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_POINTS = 200
"""A line is fitted through at most so many points, spread evenly over the order of x."""
MIN_POINTS = 20
NUM_KNOTS = 5
MIN_PER_KNOT = 20


class Line(NamedTuple):
    """y = intercept + slope x, bent by ``factors`` at ``knots``; ``floor`` keeps it positive."""

    intercept: float
    slope: float
    floor: float
    knots: Floats = np.zeros(1)
    factors: Floats = np.ones(1)

    def at(self, x: Floats) -> Floats:
        """What the line predicts; a flat one needs no x."""
        if not self.slope:
            return np.full(len(x), self.intercept)
        straight = np.maximum(self.intercept + self.slope * x, self.floor)
        return straight * np.interp(x, self.knots, self.factors)


class Correlation(NamedTuple):
    """Spearman's rank correlation with its 95 % interval, and the Theil-Sen slope."""

    rho: float
    low: float
    slope: float
    n: int


def line(x: Floats, y: Floats) -> Line | None:
    """Theil-Sen line (Sen, JASA 63, 1968) through the known points; flat where x tells nothing.

    ``None`` without a known y that is positive in the median.
    """
    known = np.isfinite(y)
    if not known.any() or float(np.median(y[known])) <= 0:
        return None
    middle = float(np.median(y[known]))
    both = known & np.isfinite(x)
    slope = theil_sen(x[both], y[both]) if both.sum() >= MIN_POINTS else 0.0
    if slope <= 0:
        return Line(middle, 0.0, middle)
    intercept = float(np.median(y[both] - slope * x[both]))
    return _bent(Line(intercept, slope, 0.05 * middle), x[both], y[both])


def _bent(straight: Line, x: Floats, y: Floats) -> Line:
    """The line with the median miss of each fifth of the points taken out.

    Prefill of long prompts grows faster than their length.
    """
    if len(x) < MIN_PER_KNOT * NUM_KNOTS:
        return straight
    miss = y / straight.at(x)
    parts = np.array_split(np.argsort(x, kind="stable"), NUM_KNOTS)
    knots = np.array([np.median(x[part]) for part in parts])
    factors = np.array([np.median(miss[part]) for part in parts])
    apart = np.concatenate(([True], np.diff(knots) > 0))
    return straight._replace(knots=knots[apart], factors=factors[apart])


def theil_sen(x: Floats, y: Floats) -> float:
    """The median slope over pairs of points, weighed by their distance; 0 where x does not vary.

    The weights (Sievers, JASA 73, 1978) keep the many pairs that lie close together, as those of
    cache hits do, from drowning the few that tell the slope.
    """
    order = np.argsort(x, kind="stable")
    if len(order) > MAX_POINTS:
        order = order[np.linspace(0, len(order) - 1, MAX_POINTS).round().astype(np.int64)]
    first, second = _pairs(len(order))
    x, y = x[order], y[order]
    run = x[second] - x[first]
    apart = run > 0
    if not apart.any():
        return 0.0
    weights = run[apart]
    slopes = (y[second] - y[first])[apart] / weights
    order = np.argsort(slopes, kind="stable")
    reached = np.cumsum(weights[order])
    return float(slopes[order][np.searchsorted(reached, reached[-1] / 2)])


def correlation(x: Floats, y: Floats) -> Correlation | None:
    """Rank correlation of the points known on both axes; ``None`` of few or constant ones."""
    known = np.isfinite(x) & np.isfinite(y)
    n = int(known.sum())
    if n < MIN_POINTS:
        return None
    x, y = x[known], y[known]
    ranks = _ranked(x), _ranked(y)
    if ranks[0].std() == 0 or ranks[1].std() == 0:
        return None
    rho = float(np.clip(np.corrcoef(*ranks)[0, 1], -1.0, 1.0))
    # Fisher's z with the variance of Bonett & Wright, Psychometrika 65 (2000).
    spread = 1.96 * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low = math.tanh(math.atanh(min(max(rho, -0.999999), 0.999999)) - spread)
    return Correlation(rho, low, theil_sen(x, y), n)


@lru_cache(maxsize=8)
def _pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.triu_indices(n, 1)


def _ranked(values: Floats) -> Floats:
    """Ranks, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Floats = ends - (counts - 1) / 2
    return middle[inverse]
