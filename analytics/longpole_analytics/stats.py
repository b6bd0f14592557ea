"""Quantiles with their uncertainty, and the few tests that the other files need.

A quantile is always an element of the sample, of nearest rank ``ceil(q n)``; nothing is
interpolated or averaged across quantiles. Its interval is a pair of order statistics (Conover,
Practical Nonparametric Statistics, 3rd ed., section 3.2), exact from the binomial distribution,
and open where the sample is too small to close it.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import NamedTuple

MIN_ABOVE = 10
"""A quantile is shown only when at least so many values are expected above it."""
SHOWN_QUANTILES = (0.99, 0.95, 0.9, 0.5)
BUCKET_ERROR = 0.01
"""Relative error of a value that is read back from its bucket."""
BUCKET_GAMMA = (1 + BUCKET_ERROR) / (1 - BUCKET_ERROR)
"""Ratio of a bucket's edges."""
_Z_95 = 1.959963984540054
_EXACT_VARIANCE = 10_000
"""Of a rank: beyond it the interval comes from the normal distribution, a rank off at most."""


class Interval(NamedTuple):
    """95 % interval of a quantile by ranks from 1; ``None`` where the sample is too small."""

    low_rank: int | None
    high_rank: int | None


def rank(n: int, q: float) -> int:
    """Nearest rank of quantile ``q`` among ``n`` values, from 1."""
    # 0.07 * 100 is 7.000000000000001: a rank must not depend on that.
    return min(max(math.ceil(round(q * n, 9)), 1), n)


def quantile(values: Sequence[float], q: float) -> float | None:
    """The element of nearest rank; ``None`` of no values."""
    return sorted(values)[rank(len(values), q) - 1] if values else None


def is_shown(n: int, q: float) -> bool:
    """Whether ``n`` values carry quantile ``q``: n (1 - q) >= 10."""
    return round(n * (1 - q), 9) >= MIN_ABOVE


def highest_shown(n: int, at_most: float = 0.99) -> float | None:
    """The highest of p99, p95, p90, p50 that ``n`` values carry; ``None`` below 20 values."""
    return next((q for q in SHOWN_QUANTILES if q <= at_most and is_shown(n, q)), None)


@lru_cache(maxsize=4096)
def rank_interval(n: int, q: float, confidence: float = 0.95) -> Interval:
    """Ranks of the order statistics that hold the true quantile with this confidence."""
    tail = (1 - confidence) / 2
    if n * q * (1 - q) > _EXACT_VARIANCE:
        reach = NormalDist().inv_cdf(1 - tail) * math.sqrt(n * q * (1 - q))
        return Interval(math.floor(n * q - reach), math.ceil(n * q + reach) + 1)
    low = high = None
    for successes, cumulative in _binomial_cdf(n, q):
        if cumulative <= tail:
            low = successes + 1
        if cumulative >= 1 - tail:
            high = successes + 1
            break
    return Interval(low if low and low <= n else None, high if high and high <= n else None)


def interval(values: Sequence[float], q: float) -> tuple[float | None, float | None]:
    """95 % interval of a quantile as values; ``None`` where it reaches past the sample."""
    ordered = sorted(values)
    low, high = rank_interval(len(ordered), q) if ordered else (None, None)
    return ordered[low - 1] if low else None, ordered[high - 1] if high else None


def wilson(share: float, n: float) -> tuple[float, float]:
    """95 % interval of a share of ``n`` (Wilson, JASA 22, 1927), which holds for small n too."""
    z2 = _Z_95 * _Z_95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = _Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if share == 0 else max(middle - reach, 0.0)
    return low, 1.0 if share == 1 else min(middle + reach, 1.0)


class Share(NamedTuple):
    """A share of ``n`` and its 95 % interval (Wilson); ``None`` of none."""

    k: int
    n: int
    value: float | None
    low: float | None
    high: float | None


def share(k: int, n: int) -> Share:
    """``k`` of ``n`` with the interval of Wilson (JASA 22, 1927), which holds for small n too."""
    if n <= 0:
        return Share(k, n, None, None, None)
    return Share(k, n, k / n, *wilson(k / n, n))


def _binomial_cdf(n: int, q: float) -> Iterator[tuple[int, float]]:
    """(k, P(B <= k)) for B ~ Binomial(n, q), for the k whose own probability matters."""
    spread = math.ceil(10 * math.sqrt(n * q * (1 - q))) + 10
    first, last = max(math.floor(n * q) - spread, 0), min(math.ceil(n * q) + spread, n)
    at_n = math.lgamma(n + 1)
    terms = [
        math.exp(
            at_n
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(q)
            + (n - k) * math.log1p(-q)
        )
        for k in range(first, last + 1)
    ]
    yield from enumerate(accumulate(terms), start=first)


def bucket(value: float) -> int | None:
    """Logarithmic bucket of a positive value; ``None`` for zero and below.

    Counts per bucket add up across machines and give every quantile within 1 % (DDSketch,
    Masson, Rim & Lee, VLDB 2019).
    """
    if value <= 0:
        return None
    index = math.ceil(math.log(value) / math.log(BUCKET_GAMMA))
    # The logarithm may be off by one step at a bucket's edge.
    if value <= BUCKET_GAMMA ** (index - 1):
        return index - 1
    return index + 1 if value > BUCKET_GAMMA**index else index


def bucket_value(index: int) -> float:
    """The value that stands for a bucket, at most 1 % from any value in it."""
    return 2 * BUCKET_GAMMA**index / (BUCKET_GAMMA + 1)


def benjamini_hochberg(p_values: Sequence[float], rate: float = 0.05) -> list[int]:
    """Indexes of the discoveries at a false discovery rate, ascending.

    Benjamini & Hochberg, Journal of the Royal Statistical Society B 57 (1995).
    """
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    passed = 0
    for position, index in enumerate(by_size, start=1):
        if p_values[index] <= rate * position / len(p_values):
            passed = position
    return sorted(by_size[:passed])
