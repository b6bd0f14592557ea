"""What if a stage were faster, for a population: its quantiles before and after the replay.

Every trace is replayed; the quantiles of the replayed traces are compared with those of the
traces as they were, which is not the mean of the savings. The interval is a bootstrap over
traces (Efron, Annals of Statistics 7, 1979): a trace is drawn together with its replay, so what
is uncertain is the change. All of it holds if everything else stays equal: no load feedback.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole_analytics.stats import is_shown, rank
from longpole_analytics.weighted import is_shown as is_carried

QUANTILES: Final = (0.5, 0.95, 0.99)
SEED: Final = 20_251_130
NUM_RESAMPLES: Final = 2_000
MIN_RESAMPLES: Final = 200
MAX_DRAWS: Final = 100_000_000
"""Traces times resamples: of a large population fewer resamples are drawn, which vary less."""
CONFIDENCE: Final = 0.95
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Change(NamedTuple):
    """A quantile as it was and replayed, in milliseconds; ``change_ms`` is below 0 if it falls.

    Everything but ``quantile`` and ``n`` is ``None`` when so few traces do not carry it.
    """

    quantile: float
    n: int
    current_ms: float | None
    replayed_ms: float | None
    change_ms: float | None
    ci95: tuple[float, float] | None


def changes(
    wall_ms: Sequence[float] | Floats,
    saved_ms: Sequence[float] | Floats,
    quantiles: Sequence[float] = QUANTILES,
    *,
    weight: Floats | None = None,
    seed: int = SEED,
) -> list[Change]:
    """How each quantile of the wall time would change; the same input gives the same answer.

    A quantile is an element of nearest rank. One that so few traces do not carry (fewer than 10
    expected above it) has no value.

    Args:
        wall_ms: wall time of each trace.
        saved_ms: what the replay saved of it.
        quantiles: which to compare.
        weight: how many traces each stands for; ``None`` where each is one.
        seed: of the bootstrap.
    """
    current = np.asarray(wall_ms, np.float64)
    replayed = current - np.asarray(saved_ms, np.float64)
    n = len(current)
    if weight is None or np.all(weight == 1):
        weight, shown = None, [q for q in quantiles if n and is_shown(n, q)]
    else:
        in_order = weight[np.argsort(current, kind="stable")]
        shown = [q for q in quantiles if is_carried(in_order, q)]
    found = dict(zip(shown, _compared(current, replayed, shown, weight, seed), strict=True))
    return [found.get(q) or Change(q, n, None, None, None, None) for q in quantiles]


def _compared(
    current: Floats,
    replayed: Floats,
    quantiles: Sequence[float],
    weight: Floats | None,
    seed: int,
) -> list[Change]:
    if not quantiles:
        return []
    n = len(current)
    order = np.argsort(current, kind="stable")
    current, replayed = current[order], replayed[order]
    by_replayed = np.argsort(replayed, kind="stable")
    sorted_replayed = replayed[by_replayed]
    random = np.random.default_rng(seed)
    if weight is None:
        ranks = np.array([rank(n, q) for q in quantiles])
        before, after = current[ranks - 1], sorted_replayed[ranks - 1]
        drawn = _resampled(current, sorted_replayed, by_replayed, ranks, random)
    else:
        weight, shares = weight[order], np.array(quantiles)
        before = _at(current, weight, shares)
        after = _at(sorted_replayed, weight[by_replayed], shares)
        drawn = _reweighed(current, sorted_replayed, by_replayed, weight, shares, random)
    tail = (1 - CONFIDENCE) / 2
    low, high = (np.sort(drawn, axis=0)[rank(len(drawn), share) - 1] for share in (tail, 1 - tail))
    columns: list[Any] = [array.tolist() for array in (before, after, after - before, low, high)]
    return [
        Change(q, n, was, would, change, (at_least, at_most))
        for q, was, would, change, at_least, at_most in zip(quantiles, *columns, strict=True)
    ]


def _resampled(
    current: Floats,
    sorted_replayed: Floats,
    by_replayed: Ints,
    ranks: Ints,
    random: np.random.Generator,
) -> Floats:
    """The change of each quantile in every resample.

    A resample is how often each trace was drawn; counted up in the order of values, it gives any
    rank, so that nothing is sorted again.
    """
    n = len(current)
    num = min(NUM_RESAMPLES, max(MIN_RESAMPLES, MAX_DRAWS // n))
    drawn = np.empty((num, len(ranks)))
    for row in range(num):
        counts = np.bincount(random.integers(0, n, n, dtype=np.int32), minlength=n)
        was = current[np.searchsorted(np.cumsum(counts), ranks)]
        would = sorted_replayed[np.searchsorted(np.cumsum(counts[by_replayed]), ranks)]
        drawn[row] = would - was
    return drawn


def _reweighed(
    current: Floats,
    sorted_replayed: Floats,
    by_replayed: Ints,
    weight: Floats,
    shares: Floats,
    random: np.random.Generator,
) -> Floats:
    """As :func:`_resampled`, of traces that stand for several."""
    n = len(current)
    num = min(NUM_RESAMPLES, max(MIN_RESAMPLES, MAX_DRAWS // n))
    drawn = np.empty((num, len(shares)))
    for row in range(num):
        told = weight * np.bincount(random.integers(0, n, n, dtype=np.int32), minlength=n)
        would = _at(sorted_replayed, told[by_replayed], shares)
        drawn[row] = would - _at(current, told, shares)
    return drawn


def _at(values: Floats, weight: Floats, shares: Floats) -> Floats:
    """The values, which are in order, at these shares of the weight."""
    upto = np.cumsum(weight)
    found: Floats = values[np.searchsorted(upto, shares * upto[-1] * (1 - 1e-12))]
    return found
