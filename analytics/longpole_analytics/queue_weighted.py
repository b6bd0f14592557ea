"""What requests that stand for several say of a queue: rates, means and how sure they are.

Where each stands for itself the figures are the plain ones.
"""

import math

import numpy as np

from longpole_analytics.queue_theory import Floats, utilisation, variation2
from longpole_analytics.weighted import mean_of, num_of
from longpole_analytics.weighted import quantile as weighted_quantile


def quantile_of(values: Floats, weight: Floats, q: float) -> float:
    """The element of nearest rank by weight, of at least one value."""
    order = np.argsort(values, kind="stable")
    found = weighted_quantile(values[order], weight[order], q)
    return 0.0 if found is None else found.value


def rate_of(starts: Floats, weight: Floats) -> float:
    """Arrivals a second, between the first and the last: of n kept ones n - 1 fill that time."""
    rate = (len(starts) - 1) / (starts[-1] - starts[0]) * (num_of(weight) / len(weight))
    return float(rate)


def busy(starts: Floats, service: Floats, weight: Floats, servers: int) -> tuple[float, float]:
    """Utilisation, and the lower end of its interval: of the mean service, and of arrivals.

    Both are as sure as so many requests make them (Kish, Survey Sampling, 1965, 11.7).
    """
    told = num_of(weight) ** 2 / float((weight**2).sum())
    usual = mean_of(service, weight)
    rho = utilisation(rate_of(starts, weight), usual, servers)
    is_plain = np.all(weight == 1)
    apart = float(service.std() if is_plain else mean_of((service - usual) ** 2, weight) ** 0.5)
    spread = apart / math.sqrt(told) / (usual or 1.0)
    return rho, rho * (1 - 1.96 * math.hypot(spread, 1 / math.sqrt(told)))


def known_mean(values: Floats, weight: Floats) -> float | None:
    """The mean of the known values; ``None`` of none."""
    known = np.isfinite(values)
    if not known.any():
        return None
    is_plain = np.all(weight == 1)
    return float(np.nanmean(values)) if is_plain else mean_of(values[known], weight[known])


def spread2(values: Floats, weight: Floats) -> float | None:
    """As :func:`longpole_analytics.queue_theory.variation2`, of values that stand for several."""
    if np.all(weight == 1):
        return variation2(values)
    known = np.isfinite(values)
    usual = known_mean(values, weight)
    if known.sum() < 2 or not usual:
        return None
    return mean_of((values[known] - usual) ** 2, weight[known]) / usual**2
