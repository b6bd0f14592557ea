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
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole_analytics.slice_labels import weights
from longpole_analytics.stats import MIN_ABOVE, Share, rank, rank_interval, share, wilson

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


def mean_of(values: Floats, weights: Floats) -> float:
    """The mean alone; not a number of no values."""
    if not len(values):
        return math.nan
    if np.all(weights == 1):
        return float(values.mean())
    whole = float(weights.sum())
    return float((weights * values).sum()) / whole if whole > 0 else math.nan


def median_of(values: Floats, weights: Floats) -> float:
    """The median alone, not a number of no values: the middle, or the mean of the middle two.

    Of values that stand for several it is the element of nearest rank by weight.
    """
    if not len(values):
        return math.nan
    if np.all(weights == 1):
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    found = quantile(values[order], weights[order], 0.5)
    return math.nan if found is None else found.value


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
    return _weighed(k, n, weights[is_so], weights)


# --- tables ------------------------------------------------------------------------------------
class Sums(NamedTuple):
    """Sums over the rows of a table for all requests that came, as expressions (Horvitz-Thompson).

    Attributes:
        weight: how many each row stands for; ``None`` where all stand for themselves: then the
            expressions are the plain ones.
    """

    weight: pl.Expr | None

    def times(self, values: pl.Expr) -> pl.Expr:
        """Values, or what is true of rows, as often as they stand for; to be summed up."""
        return values if self.weight is None else values * self.weight

    def num(self) -> pl.Expr:
        """How many there are."""
        return pl.len() if self.weight is None else self.weight.sum()

    def num_different(self, column: str, rows: pl.Expr) -> pl.Expr:
        """How many different values some rows have, each as often as its first row stands for."""
        values = pl.col(column).filter(rows)
        if self.weight is None:
            return values.n_unique()
        return self.weight.filter(rows).filter(values.is_first_distinct()).sum()

    def mean(self, values: pl.Expr) -> pl.Expr:
        """The mean of the known values (Hajek); null of none."""
        if self.weight is None:
            return values.mean()
        known = self.weight.filter(values.is_not_null()).sum()
        return pl.when(known > 0).then((values * self.weight).sum() / known)


def sums_of(table: pl.DataFrame) -> Sums:
    """The sums over a table by its column ``weight``.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    return Sums(weights(table) if is_sampled(table) else None)


def is_sampled(table: pl.DataFrame) -> bool:
    """Whether a row stands for more than itself.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    return bool(table.select((weights(table) != 1).any()).item())


def weights_of(table: pl.DataFrame) -> Floats:
    """How many each row stands for; 1 where it does not say.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    if not is_sampled(table):
        return np.ones(table.height)
    return table.select(weights(table)).to_series().to_numpy()


def counts_of(table: pl.DataFrame) -> Sequence[float]:
    """As :func:`weights_of`; whole numbers, so that sums of such stay whole, where all are 1."""
    return weights_of(table).tolist() if is_sampled(table) else [1] * table.height


def num_of(weights: Floats) -> float:
    """How many some requests stand for; a whole number where each stands for itself."""
    return len(weights) if np.all(weights == 1) else float(weights.sum())


def totals(table: pl.DataFrame, *values: pl.Expr) -> tuple[Any, ...]:
    """Sums of some values of a table over all requests that came; 0 of none."""
    sums = sums_of(table)
    named = [sums.times(each).sum().alias(f"{at}") for at, each in enumerate(values)]
    return table.select(named).row(0)


def part(some: pl.DataFrame, every: pl.DataFrame) -> Share:
    """The share that some rows of a table are of all of them, by their weights."""
    own, weight = weights_of(some), weights_of(every)
    if np.all(weight == 1):
        return share(some.height, every.height)
    return _weighed(some.height, every.height, own, weight)


def sampling(table: pl.DataFrame, of_kept: Sequence[str] = ()) -> dict[str, Any] | None:
    """What a document says of how it was sampled; ``None`` where all was kept.

    ``num_kept`` rows stand for ``num_stood_for``; ``of_kept`` names the parts of the document
    that tell of the kept alone: what depends on which request followed which cannot be weighed.
    """
    if not is_sampled(table):
        return None
    stood = float(weights_of(table).sum())
    return {"num_kept": table.height, "num_stood_for": stood, "of_kept": list(of_kept)}


# --- inside ------------------------------------------------------------------------------------
def _weighed(k: int, n: int, own: Floats, weights: Floats) -> Share:
    """The share of those that weigh ``own`` among all."""
    whole = float(weights.sum())
    if not whole > 0:
        return share(0, 0)
    value = float(own.sum()) / whole
    squares, own_squares = float((weights**2).sum()), float((own**2).sum())
    told = whole**2 / squares
    apart = (1 - value) ** 2 * own_squares + value**2 * (squares - own_squares)
    if 0 < value < 1:
        told = value * (1 - value) * whole**2 / apart
    low, high = wilson(value, told)
    return Share(k, n, value, low, high)


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
