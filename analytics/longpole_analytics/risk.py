"""Risk ratios of many slices at once, each common to all strata (Mantel-Haenszel).

The interval is Greenland & Robins' (Biometrics 41, 1985). The p-value is the larger of the
interval's and of a binomial tail: among thousands of slices some have few slow requests, where
the interval's normal law is far too sure of itself. Given the margins, slow requests inside are a
sum of independent trials, whose upper tail is no heavier than that of a binomial with the same
mean (Hoeffding, Annals of Mathematical Statistics 27, 1956).
"""

import math
from typing import Final, NamedTuple

import numpy as np

from longpole_analytics.cohort import Floats

Z_95: Final = 1.96
_erfc = np.vectorize(math.erfc, otypes=[float])


class Tally(NamedTuple):
    """Counts of slices by stratum, a row for each slice: slow requests inside, all inside.

    ``cases`` and ``num`` add up weights; ``cases_squared`` and ``num_squared`` their squares,
    over all strata.
    """

    cases: Floats
    num: Floats
    cases_squared: Floats
    num_squared: Floats


class Risks(NamedTuple):
    """Of each slice: risk ratio with its 95 % interval, p-value (of a higher risk), crude ratio.

    Not a number where no stratum holds slow requests both inside and outside to compare.
    """

    estimate: Floats
    low: Floats
    high: Floats
    p_value: Floats
    crude: Floats


def risk_ratios(inside: Tally, whole: Tally) -> Risks:
    """How many times likelier a request is slow inside each slice than outside of it.

    Interval after Greenland & Robins, Biometrics 41 (1985); with weights its variance grows by
    what weights cost (Kish, Survey Sampling, 1965). Where no case is left on one side, half a
    case is added to each cell.

    Args:
        inside: the slices.
        whole: all requests, as one row.
    """
    others, num_others = whole.cases - inside.cases, whole.num - inside.num
    is_both = (inside.num > 0) & (num_others > 0)
    a, b = np.where(is_both, inside.cases, 0.0), np.where(is_both, others, 0.0)
    n1, n0 = np.where(is_both, inside.num, 0.0), np.where(is_both, num_others, 0.0)
    in_all, of_others = a.sum(1), b.sum(1)
    half = np.where((in_all > 0) & (of_others > 0), 0.0, 0.5)[:, None] * is_both
    a, b, n1, n0 = a + half, b + half, n1 + 2 * half, n0 + 2 * half
    total = np.where(is_both, n1 + n0, 1.0)
    with_it, without = (a * n0 / total).sum(1), (b * n1 / total).sum(1)
    variance = (((a + b) * n1 * n0 - a * b * total) / total**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(with_it / without)
        spread = np.sqrt(np.maximum(variance, 0) / (with_it * without) * _cost(inside, whole))
        spread = np.sqrt(spread**2 + _noise(inside, whole))
        crude = _crude(inside.cases.sum(1), inside.num.sum(1), others.sum(1), num_others.sum(1))
        wald = np.where(spread > 0, _upper_tail(log_ratio / spread), (log_ratio <= 0) * 1.0)
        expected = ((a + b) * n1 / total).sum(1)
        effective = whole.cases.sum() / whole.cases_squared.sum()
        num_cases = (in_all + of_others) * effective
        share = expected / (a + b).sum(1)
        tail = _binomial_tail(in_all * effective, num_cases, share)
    is_known = is_both.any(1) & (in_all + of_others > 0)
    return Risks(
        *(
            np.where(is_known, found, np.nan)
            for found in (
                np.exp(log_ratio),
                np.exp(log_ratio - Z_95 * spread),
                np.exp(log_ratio + Z_95 * spread),
                np.maximum(wald, tail),
                crude,
            )
        )
    )


def _crude(cases: Floats, num: Floats, others: Floats, num_others: Floats) -> Floats:
    """The ratio of all strata as one, with the same half a case where a side has none."""
    half = np.where((cases > 0) & (others > 0), 0.0, 0.5)
    found: Floats = ((cases + half) / (num + 2 * half)) / (
        (others + half) / (num_others + 2 * half)
    )
    return found


def _cost(inside: Tally, whole: Tally) -> Floats:
    """By how much weights widen the variance that slow requests bring; 1 without weights."""
    a, b = inside.cases.sum(1), whole.cases.sum() - inside.cases.sum(1)
    a2, b2 = inside.cases_squared, whole.cases_squared.sum() - inside.cases_squared
    cost: Floats = (a2 / a**2 + b2 / b**2) / (1 / a + 1 / b)
    return np.where(np.isfinite(cost), cost, 1.0)


def _noise(inside: Tally, whole: Tally) -> Floats:
    """Variance of few requests standing for many that are not slow; 0 if all weigh alike."""
    found = np.zeros(len(inside.num))
    for cases, num, cases_squared, num_squared in (
        (inside.cases.sum(1), inside.num.sum(1), inside.cases_squared, inside.num_squared),
        (
            whole.cases.sum() - inside.cases.sum(1),
            whole.num.sum() - inside.num.sum(1),
            whole.cases_squared.sum() - inside.cases_squared,
            whole.num_squared.sum() - inside.num_squared,
        ),
    ):
        each = np.where(cases > 0, cases_squared / cases, num_squared / num)
        noise = (num_squared - cases_squared - each * (num - cases)) / num**2
        found += np.where(np.isfinite(noise), np.maximum(noise, 0.0), 0.0)
    return found


def _upper_tail(z: Floats) -> Floats:
    tail: Floats = 0.5 * _erfc(z / math.sqrt(2))
    return tail


def _binomial_tail(successes: Floats, num: Floats, share: Floats) -> Floats:
    """P(X >= successes) for X ~ Binomial(num, share), by Paulson's approximation of the F law.

    Paulson, Annals of Mathematical Statistics 13 (1942); 1 where the mean is not exceeded.
    """
    above = num - successes + 1
    ratio = np.cbrt(above * share / (np.maximum(successes, 1e-9) * (1 - share)))
    first, second = 1 / (9 * np.maximum(successes, 1e-9)), 1 / (9 * above)
    z = ((1 - second) * ratio - (1 - first)) / np.sqrt(second * ratio**2 + first)
    return np.where(successes > num * share, _upper_tail(-z), 1.0)
