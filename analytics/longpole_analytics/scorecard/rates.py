"""Differences of rates, with intervals that hold for few requests and for none that is so.

Each side's interval is Wilson's (Journal of the American Statistical Association 22, 1927) over as
many independent requests as the clusters are worth (Rao & Scott, Biometrics 48, 1992); the
difference takes its ends from both (Newcombe, Statistics in Medicine 17, 1998, method 10), with
the correlation of sides that share clusters (Zou & Donner, 2008).
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from longpole_analytics.scorecard.resample import Places
from longpole_analytics.scorecard.sides import Rate
from longpole_analytics.scorecard.survival import Floats


class Share(NamedTuple):
    """A rate on one side: its value, how many independent requests it is worth, its deviations.

    ``deviation`` is what each cluster adds to the error of the value.
    """

    value: float
    n: int
    worth: float
    deviation: Floats

    def like(self, other: "Share") -> "Share":
        """With the other side's worth of a request, if all or none are so here.

        What never varies cannot tell how alike the requests of a cluster are.
        """
        if 0 < self.value < 1 or not 0 < other.value < 1:
            return self
        return self._replace(worth=max(self.worth * other.worth / other.n, 1.0))


class Difference(NamedTuple):
    """Candidate less baseline, with the two ends of its interval."""

    value: float
    low: float
    high: float


def share(rate: Rate, weight: Floats, cluster: Places, num_clusters: int) -> Share | None:
    """The rate of one side; ``None`` where nothing is known of it."""
    known = rate.is_known & (weight > 0)
    total = float(weight[known].sum())
    if not total:
        return None
    w, x, at = weight[known], rate.is_so[known].astype(np.float64), cluster[known]
    value = float((w * x).sum() / total)
    n = int(known.sum())
    deviation = np.bincount(at, w * (x - value), num_clusters) / total
    num = int(np.count_nonzero(np.bincount(at, w, num_clusters)))
    # as many equal ones would tell as much: Kish, Survey Sampling (1965), 11.7
    equal = total**2 / float((w**2).sum())
    variance = float((deviation**2).sum()) * num / max(num - 1, 1)
    worth = value * (1 - value) / variance if variance > 0 and num > 1 else equal
    return Share(value, n, min(max(worth, 1.0), float(n)), deviation)


def wilson(
    value: float, n: float, alpha: float, *, is_careful: bool = False
) -> tuple[float, float]:
    """Wilson's interval of a rate of ``n`` requests.

    With ``is_careful`` it is corrected for continuity (Newcombe's method 11): the plain one is too
    sure of a rate that rests on one or two requests.
    """
    z = NormalDist().inv_cdf(1 - alpha / 2)
    if is_careful:
        edge = 2 * (n + z * z)
        down = z * z - 2 - 1 / n + 4 * value * (n * (1 - value) + 1)
        up = z * z + 2 - 1 / n + 4 * value * (n * (1 - value) - 1)
        low = (2 * n * value + z * z - 1 - z * math.sqrt(max(down, 0.0))) / edge
        high = (2 * n * value + z * z + 1 + z * math.sqrt(max(up, 0.0))) / edge
        return (max(low, 0.0) if value > 0 else 0.0), (min(high, 1.0) if value < 1 else 1.0)
    middle = (value + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(value * (1 - value) / n + z * z / (4 * n * n))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def difference(base: Share, cand: Share, alpha: float, *, is_careful: bool = False) -> Difference:
    """Candidate less baseline, with the interval that is wrong in a share ``alpha`` of cases."""
    (base_low, base_high), (low, high) = (
        wilson(side.value, side.worth, alpha, is_careful=is_careful) for side in (base, cand)
    )
    scale = math.sqrt(float((base.deviation**2).sum()) * float((cand.deviation**2).sum()))
    shared = float((base.deviation * cand.deviation).sum())
    alike = min(max(shared / scale, -1.0), 1.0) if scale else 0.0
    value = cand.value - base.value

    def reach(own: float, other: float) -> float:
        return math.sqrt(max(own**2 + other**2 - 2 * alike * own * other, 0.0))

    return Difference(
        value,
        max(value - reach(cand.value - low, base_high - base.value), -1.0),
        min(value + reach(high - cand.value, base.value - base_low), 1.0),
    )
