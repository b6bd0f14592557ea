"""Estimates from requests of which not all were kept, each with how sure it is.

A request that was kept with probability p stands for 1/p (column ``weight``). Sums of weights are
then unbiased (Horvitz & Thompson, JASA 47, 1952) and shares, means and quantiles are ratios of
such sums (Hajek, 1971). There are two things not to know, and an interval for each:

- what *all requests that came* would have shown. Every request is kept or not by itself, so the
  variance of a sum is that of independent trials: the sum of w (w - 1) z^2. It is 0 where all
  was kept.
- what *the traffic behind them* shows in the long run, which is what unsampled requests are
  asked, too: the sum of w^2 z^2. Without sampling it is the binomial's.

A quantile's ends come from turning a test around (Francisco & Fuller, Annals of Statistics 19,
1991): all values x of which "a share q lies up to x" is not refused. Its variance is taken at
each x, so that it holds where weights come in large steps. Where all weigh 1, everything is as
in :mod:`longpole_analytics.stats`.
"""

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole_analytics.measures import Share, share
from longpole_analytics.stats import MIN_ABOVE, rank, rank_interval, wilson

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Z_95: Final = 1.959963984540054
_NOISE: Final = 1e-12
"""Relative rounding of sums of weights: it must not move a rank."""


_LEAST: Final = 0.25
"""Of the sample's variance so much is taken off at most where a side has too much."""


class Estimate(NamedTuple):
    """A figure with two 95 % intervals; an end is ``None`` where the sample is too small for it.

    Attributes:
        value: the figure.
        low: lower end for the traffic behind the requests.
        high: its upper end.
        all_low: lower end for all requests that came, those included that were not kept.
        all_high: its upper end.
    """

    value: float
    low: float | None
    high: float | None
    all_low: float | None
    all_high: float | None


def is_shown(weights: Floats, q: float) -> bool:
    """Whether requests in the order of their values carry a quantile.

    As :func:`longpole_analytics.stats.is_shown`: what lies above counts as so many values as tell
    as much (Kish, Survey Sampling, 1965, 11.7). No requests carry none.

    Args:
        weights: of the requests, by ascending value.
        q: which quantile.
    """
    total = float(weights.sum())
    if not total > 0:
        return False
    above = (1 - q) * total
    down = weights[::-1]
    num = int(np.searchsorted(np.cumsum(down), above * (1 - _NOISE))) + 1
    tail = down[:num]
    return round(above * float(tail.sum()) / float((tail**2).sum()), 9) >= MIN_ABOVE


def quantile(values: Floats, weights: Floats, q: float) -> Estimate | None:
    """The element of nearest rank by weight, and its intervals; ``None`` of no values.

    Args:
        values: ascending, all known.
        weights: above zero.
        q: which quantile.
    """
    n = len(values)
    if not n:
        return None
    if np.all(weights == 1):
        value = float(values[rank(n, q) - 1])
        ends_at = [
            None if place is None else float(values[place - 1]) for place in rank_interval(n, q)
        ]
        return Estimate(value, ends_at[0], ends_at[1], value, value)
    upto = np.cumsum(weights)
    place = int(np.searchsorted(upto, q * upto[-1] * (1 - _NOISE), "left"))
    last = np.searchsorted(values, values, "right") - 1
    surplus = upto[last] - q * upto[-1] * (1 - _NOISE)
    ends: list[float | None] = []
    for each in (weights, np.maximum(weights - 1, 0)):
        variance = _variance(weights, each, last, surplus, q)
        ends += _not_refused(values, surplus, variance)
    return Estimate(float(values[min(place, n - 1)]), *ends)


def mean(values: Floats, weights: Floats) -> Estimate | None:
    """The mean and its intervals by the normal law; ``None`` of no values.

    Args:
        values: known ones, in any order.
        weights: above zero.
    """
    if not len(values):
        return None
    total = float(weights.sum())
    value = float((weights * values).sum()) / total
    apart = (values - value) ** 2
    ends: list[float | None] = []
    for squares in (weights**2, weights * np.maximum(weights - 1, 0)):
        variance = float((squares * apart).sum())
        if len(values) < 2 and squares.any():
            ends += [None, None]
        else:
            reach = Z_95 * math.sqrt(variance) / total
            ends += [value - reach, value + reach]
    return Estimate(value, *ends)


def total(values: Floats, weights: Floats) -> Estimate:
    """The sum over all requests that came, as of counts, tokens or money; 0 of none.

    The ends for the traffic behind them are those of a sum over as long a time, at that rate
    (Poisson arrivals).
    """
    value = float((weights * values).sum())
    ends: list[float] = []
    for squares in (weights**2, weights * np.maximum(weights - 1, 0)):
        reach = Z_95 * math.sqrt(float((squares * values**2).sum()))
        ends += [value - reach, value + reach]
    return Estimate(value, *ends)


def weighted_share(is_so: Bools, weights: Floats) -> Share:
    """The share of requests that are so, for the traffic behind them; ``None`` of none.

    Wilson's interval (JASA 22, 1927) of as many requests as tell as much: those whose share has
    the same variance; where all or none are so, Kish's. ``k`` and ``n`` count the requests kept.
    """
    n, k = len(is_so), int(is_so.sum())
    if not n or np.all(weights == 1):
        return share(k, n)
    whole = float(weights.sum())
    if not whole > 0:
        return share(0, 0)
    value = float(weights[is_so].sum()) / whole
    apart = float((weights**2 * (is_so - value) ** 2).sum())
    told = whole**2 / float((weights**2).sum())
    if 0 < value < 1:
        told = value * (1 - value) * whole**2 / apart
    low, high = wilson(value, told)
    return Share(k, n, value, low, high)


# --- inside ------------------------------------------------------------------------------------
def _variance(
    weights: Floats, each: Floats, last: npt.NDArray[np.int64], surplus: Floats, q: float
) -> Floats:
    """Variance of the surplus of weight up to each value, if a share ``q`` lies up to it.

    That of the sample, or of as many more requests on the side that has too little as make the
    surplus vanish, each side by how unsure it is, if that is larger. And one more at either end
    that was not kept, like the outermost of which not all were: few that stand for many do not
    seem surer than they are.
    """
    squares = weights * each
    below, cubes_below = np.cumsum(squares), np.cumsum(squares * each)
    above, cubes_above = below[-1] - below[last], cubes_below[-1] - cubes_below[last]
    drawn = squares[weights > 1]
    ends = drawn[[0, -1]] if len(drawn) else np.zeros(2)
    found = (1 - q) ** 2 * (below[last] + ends[0]) + q**2 * (above + ends[1])
    more = q**3 * cubes_above - (1 - q) ** 3 * cubes_below[last]
    more = np.maximum(surplus / np.maximum(found, 1e-300) * more, -_LEAST * found)
    variance: Floats = found + more
    return variance


def _not_refused(
    values: Floats, surplus: Floats, variance: Floats
) -> tuple[float | None, float | None]:
    """The ends of the values that the quantile may be: too little up to the one, enough at it."""
    reach = Z_95 * np.sqrt(variance)
    too_little = np.flatnonzero(surplus < -reach)
    enough = np.flatnonzero(surplus >= reach)
    low = float(values[too_little[-1] + 1]) if len(too_little) else None
    if not len(too_little) and not reach[0]:
        low = float(values[0])
    return low, float(values[enough[0]]) if len(enough) else None
