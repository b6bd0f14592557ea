"""The interval of a number from its resamples."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from longpole_analytics.scorecard.survival import Floats
from longpole_analytics.stats import rank, rank_interval

MIN_CLUSTERS: Final = 10
"""On each side; an interval of fewer says nothing."""
_MIN_TAIL: Final = 5
"""Resamples beyond an interval's end; with fewer the end is reckoned from that of 95 %."""


class Interval(NamedTuple):
    """Bootstrap of a number: what it is at the least and at the most in each resample, sorted."""

    point: float
    least: Floats
    most: Floats
    num_clusters: int

    def ends(self, alpha: float) -> tuple[float, float]:
        """The ends of the interval that is wrong in a share ``alpha`` of cases.

        Percentiles of the resamples, widened as a small number of clusters asks for (Student's t;
        Cameron, Gelbach & Miller, 2008).
        """
        z, usual = (NormalDist().inv_cdf(1 - a / 2) for a in (alpha, 0.05))
        is_far = alpha / 2 * len(self.least) < _MIN_TAIL
        tail = 0.025 if is_far else alpha / 2
        freedom = max(self.num_clusters - 1, 1)
        wider = _student(z, freedom) / (usual if is_far else z)
        wider *= math.sqrt((freedom + 1) / freedom)
        low = self.least[rank(len(self.least), tail) - 1]
        high = self.most[rank(len(self.most), 1 - tail) - 1]
        return (
            self.point + wider * min(float(low) - self.point, 0.0),
            self.point + wider * max(float(high) - self.point, 0.0),
        )


def least(q: float) -> int:
    """Requests from which a quantile has an interval."""
    n = 1
    while None in rank_interval(n, q):
        n += 1
    return n


def finite(value: float | None) -> float | None:
    """The number, or ``None`` if it is endless or none."""
    return value if value is not None and math.isfinite(value) else None


def _student(z: float, freedom: int) -> float:
    """Student's quantile of a normal one (Cornish & Fisher, 1938)."""
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + first + second + third
