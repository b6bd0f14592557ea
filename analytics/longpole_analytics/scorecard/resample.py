"""The bootstrap of a comparison: what belongs together is drawn together.

A resample says how often each cluster (a session, a trace, a pair) was drawn (Efron, Annals of
Statistics 7, 1979; Cameron, Gelbach & Miller, Review of Economics and Statistics 90, 2008). Counted
up in the order of times, these numbers give every quantile, of censored times by Kaplan and Meier,
so that nothing is sorted again. All metrics of a resample come from the same draw. Draws are a
function of the seed and the resample's number: any number of threads gives the same answer.
"""
# numba types the compiled functions itself
# mypy: disable-error-code="no-any-return"

import hashlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole_analytics.bulk.compiled import jit
from longpole_analytics.scorecard.survival import Bools, Floats, Times

Counts = npt.NDArray[np.uint8]
Places = npt.NDArray[np.uint32]
"""Unsigned: an index that cannot be negative is not checked for it."""
Ints = npt.NDArray[np.int64]
_CHUNK: Final = 25
"""Resamples drawn at once: their counts fit the memory of a small machine."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_LOW: Final = np.uint64(0xFFFFFFFF)
_EACH: Final = np.uint64(1 << 34)
"""Numbers that one resample may use."""
_FULL: Final = np.uint8(255)
_NEAR: Final = 1e-9
_STRETCH: Final = 256


class Clusters(NamedTuple):
    """How many clusters are on the first side alone, on both, and on the second alone.

    They are numbered in this order, and as many are drawn of each kind as there are.
    """

    first: int
    both: int
    second: int


class Sample(NamedTuple):
    """One side of one metric: times in order, with cluster and weight.

    ``stretches`` are runs of times that ended, each followed by times that did not; ``rows`` tells
    which rows of the side have a time.
    """

    value: Floats
    cluster: Places
    weight: Floats
    stretches: Ints
    rows: bytes

    @classmethod
    def of(cls, times: Times, cluster: Places) -> "Sample":
        """Those with a value, in order."""
        is_kept = ~np.isnan(times.value) & (times.weight > 0)
        kept = np.flatnonzero(is_kept)
        order = kept[np.lexsort((~times.is_event[kept], times.value[kept]))]
        rows = hashlib.sha256(np.packbits(is_kept).tobytes()).digest()
        return cls(
            times.value[order],
            cluster[order],
            times.weight[order],
            _stretches(times.is_event[order]),
            rows,
        )


def _stretches(is_event: Bools) -> Ints:
    """Begin, end of the ends, end of what was still running: at most ``_STRETCH`` ends each."""
    last = np.flatnonzero(np.diff(is_event.astype(np.int8)) == 1) + 1
    cuts = np.unique(np.concatenate([[0], last, [len(is_event)]]))
    found = []
    for begin, end in itertools.pairwise(cuts.tolist()):
        num = int(is_event[begin:end].sum())
        middles = [*range(begin, begin + num, _STRETCH), begin + num][1:]
        for start, middle in zip([begin, *middles], middles, strict=False):
            found.append((start, middle, end if middle == begin + num else middle))
        if not num:
            found.append((begin, begin, end))
    return np.array(found, np.int64).reshape(-1, 3)


@jit
def _mixed(state: Any) -> Any:
    """Steele, Lea & Flood, Fast splittable pseudorandom number generators (OOPSLA 2014)."""
    z = (state ^ (state >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@jit
def _draw(counts: Counts, first_resample: int, seed: Any, sizes: Ints) -> None:
    for row in range(counts.shape[0]):
        counts[row, :] = 0
        state = seed + np.uint64(first_resample + row) * _EACH * _GOLDEN
        begin = 0
        for kind in range(len(sizes)):
            size = np.uint64(sizes[kind])
            for pair in range((sizes[kind] + 1) // 2):
                state += _GOLDEN
                z = _mixed(state)
                at = begin + np.int64(((z >> _S32) * size) >> _S32)
                counts[row, at] += counts[row, at] < _FULL
                if 2 * pair + 1 < sizes[kind]:
                    at = begin + np.int64(((z & _LOW) * size) >> _S32)
                    counts[row, at] += counts[row, at] < _FULL
            begin += sizes[kind]


@jit
def _mass(counts: Any, cluster: Places, weight: Floats, begin: int, end: int) -> float:
    """How much of a stretch of times was drawn."""
    first = second = third = fourth = 0.0
    i = begin
    while i + 4 <= end:
        first += counts[cluster[i]] * weight[i]
        second += counts[cluster[i + 1]] * weight[i + 1]
        third += counts[cluster[i + 2]] * weight[i + 2]
        fourth += counts[cluster[i + 3]] * weight[i + 3]
        i += 4
    while i < end:
        first += counts[cluster[i]] * weight[i]
        i += 1
    return first + second + third + fourth


@jit
def _weigh(counts: Counts, cluster: Places, weight: Floats, totals: Floats) -> None:
    for row in range(counts.shape[0]):
        totals[row] = _mass(counts[row], cluster, weight, 0, len(cluster))


@jit
def _quantiles(
    counts: Counts,
    value: Floats,
    cluster: Places,
    weight: Floats,
    stretches: Ints,
    totals: Floats,
    shares: Floats,
    found: Floats,
) -> None:
    """The quantiles of each resample; infinite if not reached, not a number of no times."""
    for row in range(counts.shape[0]):
        found[row, :] = np.inf if totals[row] > 0.0 else np.nan
        if totals[row] <= 0.0:
            continue
        drawn = counts[row]
        at_risk, left, place = totals[row], 1.0, 0
        each = 1.0 / at_risk
        for k in range(len(stretches)):
            begin, middle, end = stretches[k, 0], stretches[k, 1], stretches[k, 2]
            ended = _mass(drawn, cluster, weight, begin, middle)
            if left - ended * each <= 1.0 - shares[place] + _NEAR:
                upto, i = left, begin
                while i < middle and place < len(shares):
                    upto -= drawn[cluster[i]] * weight[i] * each
                    while place < len(shares) and upto <= 1.0 - shares[place] + _NEAR:
                        found[row, place] = value[i]
                        place += 1
                    i += 1
                if place == len(shares):
                    break
            left -= ended * each
            at_risk -= ended
            if middle < end:
                # what is still running is spread over those after it (Efron, 1967)
                at_risk -= _mass(drawn, cluster, weight, middle, end)
                each = left / at_risk if at_risk > _NEAR else 0.0


@jit
def _sums(counts: Counts, columns: Floats, first: int, found: Any) -> None:
    """The columns' sums in each resample; ``columns`` begin with the cluster ``first``."""
    num = columns.shape[1]
    for row in range(counts.shape[0]):
        found[row, :] = 0.0
        for i in range(columns.shape[0]):
            times = np.float64(counts[row, first + i])
            for k in range(num):
                found[row, k] += times * columns[i, k]


def resampled(
    sides: tuple[list[Sample], list[Sample]],
    sums: tuple[Floats, Floats],
    clusters: Clusters,
    quantiles: tuple[float, ...],
    num_resamples: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """The quantiles and the sums of each resample.

    Args:
        sides: of each side the metrics' samples.
        sums: of each side a row a cluster that it has, a column a sum.
        clusters: how many there are.
        quantiles: ascending.
        num_resamples: how many.
        seed: equal seeds give equal answers.

    Returns:
        Quantiles by side, metric, resample and quantile; sums by side, resample and column.
    """
    shares = np.array(quantiles)
    quantities = np.empty((2, len(sides[0]), num_resamples, len(shares)))
    totals = np.empty((2, num_resamples, sums[0].shape[1]))
    sizes = np.array(clusters, np.int64)
    firsts = (0, clusters.first)

    def work(begin: int) -> None:
        end = min(begin + _CHUNK, num_resamples)
        counts = np.empty((end - begin, int(sizes.sum())), np.uint8)
        _draw(counts, begin, np.uint64(seed), sizes)
        for place, samples in enumerate(sides):
            known: dict[bytes, Floats] = {}
            for metric, (value, cluster, weight, stretches, rows) in enumerate(samples):
                if rows not in known:
                    known[rows] = np.empty(end - begin)
                    _weigh(counts, cluster, weight, known[rows])
                into = quantities[place, metric, begin:end]
                _quantiles(counts, value, cluster, weight, stretches, known[rows], shares, into)
        for place, columns in enumerate(sums):
            _sums(counts, columns, firsts[place], totals[place, begin:end])

    begins = range(0, num_resamples, _CHUNK)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        list(pool.map(work, begins))
    return quantities, totals
