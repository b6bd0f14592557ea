"""Whether both sides were asked the same, and what would be if they had been.

Two sides that chance did not fill may differ because their requests do. Where the mix differs both
are weighted to the mix of the two together: of routes and prompt lengths for everything, and of
answer lengths too for times. Requests without a counterpart on the other side are left out, and
how many is told. A failed request keeps its weight whatever it would have answered.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole_analytics.scorecard.rules import CardRules
from longpole_analytics.scorecard.sides import Side
from longpole_analytics.scorecard.survival import Bools, Floats, Times

Ints = npt.NDArray[np.int64]
_PER_BIN: Final = 60
"""Requests on the smaller side for each bin of prompt lengths."""
_PER_CELL: Final = 30
"""And for each bin of answer lengths within one."""
_MAX_BINS: Final = 10
_Z_SURE: Final = 3.09
"""One mix in a thousand differs so much by chance."""
_MAX_ROUTES: Final = 50


@dataclass(frozen=True)
class Mix:
    """What was done about the mix.

    Attributes:
        is_standardised: both sides were weighted to a common mix.
        shifted: which of ``route and input_tokens``, ``output_tokens`` differ.
        moved: share of requests that are elsewhere, the largest of them.
        common: share of each side that has a counterpart.
        reason: why nothing was done, or could be told.
        asked: weight factors of each side by what was asked.
        answered: the same by what was asked and answered.
    """

    is_standardised: bool
    shifted: tuple[str, ...]
    moved: float | None
    common: tuple[float, float]
    reason: str
    asked: tuple[Floats, Floats]
    answered: tuple[Floats, Floats]


def mix(base: Side, cand: Side, rules: CardRules, *, is_randomised: bool) -> Mix:
    """Compare the mixes of two sides, and say how to weigh them alike.

    Args:
        base: the baseline.
        cand: the candidate.
        rules: when a mix differs.
        is_randomised: nothing needs to be done, whatever differs.
    """
    ones = (np.ones(base.n), np.ones(cand.n))

    def as_it_is(reason: str) -> Mix:
        return Mix(False, (), None, (1.0, 1.0), reason, ones, ones)

    if is_randomised:
        return as_it_is("sides were filled by chance or by pairs")
    if not base.n or not cand.n:
        return as_it_is("no requests on one side")
    inputs, num_in = _asked(base, cand)
    outputs, num_out = _binned(base, cand, "output_tokens", _PER_CELL * max(num_in, 1))
    if num_in < 2 and num_out < 2:
        return as_it_is("too few requests tell their route and length")
    by_input = _shares(inputs, (base.weight, cand.weight), num_in)
    by_output = _shares(outputs, (base.weight, cand.weight), num_out)
    moved = [_moved(*by_input, base.n, cand.n), _moved(*by_output, base.n, cand.n)]
    names = ("route and input_tokens", "output_tokens")
    shifted = tuple(
        name
        for name, (distance, z) in zip(names, moved, strict=True)
        if distance > rules.mix_shift and z > _Z_SURE
    )
    largest = max(distance for distance, _ in moved)
    if not shifted:
        return Mix(False, (), largest, (1.0, 1.0), "the mixes are alike", ones, ones)
    asked = _factors(inputs, (base.weight, cand.weight), num_in)
    common = tuple(
        float((side.weight * (factor > 0)).sum() / max(side.weight.sum(), 1e-300))
        for side, factor in zip((base, cand), asked, strict=True)
    )
    answered = _answered(inputs, outputs, (base, cand), asked, (num_in, num_out))
    return Mix(True, shifted, largest, (common[0], common[1]), "", asked, answered)


def equal_length(base: Side, cand: Side) -> tuple[Times, Times, int] | None:
    """End-to-end times as if all answers had one length; ``None`` where paces are not known.

    What an answer is longer or shorter than the median of both sides is taken off or added at its
    own time per output token. Requests without a pace (one token, not streamed) do not count.

    Returns:
        The times of both sides and the length in tokens.
    """
    lengths = [side.number("output_tokens") for side in (base, cand)]
    every = np.concatenate(lengths)
    if np.isnan(every).all() or any("tpot_ms" not in s.times for s in (base, cand)):
        return None
    length = float(np.nanquantile(every, 0.5, method="inverted_cdf"))
    found = []
    for side, own in zip((base, cand), lengths, strict=True):
        e2e, pace = side.times["e2e_ms"], side.times["tpot_ms"].value
        moved = e2e.value + pace * (length - own)
        # what did not end ran as long as it ran, whatever it would have answered
        value = np.where(e2e.is_event, np.maximum(moved, 0.0), e2e.value)
        if np.isnan(value[e2e.is_event]).mean() > 0.5 if e2e.is_event.any() else True:
            return None
        found.append(Times(value, e2e.is_event, side.weight))
    return found[0], found[1], int(length)


# --- bins ---------------------------------------------------------------------------------------
def _asked(base: Side, cand: Side) -> tuple[tuple[Ints, Ints], int]:
    """The stratum of each request: its route and a bin of its prompt's length; -1 is unknown."""
    routes = pl.concat([side.text("route").rename("") for side in (base, cand)])
    names = routes.unique(maintain_order=True)
    if len(names) > _MAX_ROUTES:
        names = names.head(1)
    codes = routes.replace_strict(
        names, pl.Series(range(len(names))), default=0, return_dtype=pl.Int64
    ).to_numpy()
    bins, num = _binned(base, cand, "input_tokens", _PER_BIN * max(len(names), 1))
    own = [
        np.where(each < 0, -1, code * num + each)
        for code, each in zip((codes[: base.n], codes[base.n :]), bins, strict=True)
    ]
    return (own[0], own[1]), num * len(names)


def _binned(base: Side, cand: Side, name: str, per_bin: int) -> tuple[tuple[Ints, Ints], int]:
    """Bins of both sides' quantiles, -1 for what is unknown; one bin if nothing is known."""
    values = [side.number(name) for side in (base, cand)]
    known = [int((~np.isnan(value)).sum()) for value in values]
    num = min(max(min(known) // per_bin, 1), _MAX_BINS)
    every = np.concatenate(values)
    every = every[~np.isnan(every)]
    if not len(every):
        return (np.zeros(base.n, np.int64), np.zeros(cand.n, np.int64)), 1
    edges = np.unique(np.quantile(every, np.arange(1, num) / num, method="inverted_cdf"))
    bins = [np.where(np.isnan(v), -1, np.searchsorted(edges, v, "left")) for v in values]
    return (bins[0].astype(np.int64), bins[1].astype(np.int64)), len(edges) + 1


# --- shares and factors -------------------------------------------------------------------------
def _shares(
    strata: tuple[Ints, Ints], weights: tuple[Floats, Floats], num: int
) -> tuple[Floats, Floats]:
    """Of each side the share of each stratum among what is known."""
    found = []
    for own, weight in zip(strata, weights, strict=True):
        sums = np.bincount(own[own >= 0], weight[own >= 0], num).astype(np.float64)
        total = sums.sum()
        found.append(sums / total if total else sums)
    return found[0], found[1]


def _moved(base: Floats, cand: Floats, num_base: int, num_cand: int) -> tuple[float, float]:
    """Share of requests that are elsewhere, and how sure that is, as a standard score.

    Wilson & Hilferty, PNAS 17 (1931), for the chi-squared law.
    """
    if not base.any() or not cand.any():
        return 0.0, 0.0
    both = (base * num_base + cand * num_cand) / (num_base + num_cand)
    used = both > 0
    freedom = int(used.sum()) - 1
    if freedom < 1:
        return 0.0, 0.0
    harmonic = num_base * num_cand / (num_base + num_cand)
    chi = harmonic * float((((cand - base)[used]) ** 2 / both[used]).sum())
    spread = 2 / (9 * freedom)
    return float(np.abs(cand - base).sum() / 2), ((chi / freedom) ** (1 / 3) - 1 + spread) / (
        math.sqrt(spread)
    )


def _factors(
    strata: tuple[Ints, Ints], weights: tuple[Floats, Floats], num: int
) -> tuple[Floats, Floats]:
    """What makes both sides' shares of each stratum their mean; 0 where a side has none.

    What is unknown keeps its weight.
    """
    base, cand = _shares(strata, weights, num)
    is_both = (base > 0) & (cand > 0)
    middle = np.where(is_both, (base + cand) / 2, 0.0)
    middle = middle / middle.sum() if middle.any() else middle
    found = []
    for own, shares in zip(strata, (base, cand), strict=True):
        factor = np.divide(middle, shares, out=np.zeros(num), where=is_both)
        found.append(np.where(own < 0, 1.0, factor[own]))
    return found[0], found[1]


def _answered(
    inputs: tuple[Ints, Ints],
    outputs: tuple[Ints, Ints],
    both: tuple[Side, Side],
    asked: tuple[Floats, Floats],
    nums: tuple[int, int],
) -> tuple[Floats, Floats]:
    """Factors by answer length within what was asked, among requests that have an answer."""
    num_in, num_out = nums
    if num_out < 2:
        return asked
    known: list[Bools] = [(i >= 0) & (o >= 0) for i, o in zip(inputs, outputs, strict=True)]
    cells = [
        np.where(is_known, i * num_out + o, 0)
        for is_known, i, o in zip(known, inputs, outputs, strict=True)
    ]
    weights = [s.weight * f * k for s, f, k in zip(both, asked, known, strict=True)]
    sums = [np.bincount(c, w, num_in * num_out) for c, w in zip(cells, weights, strict=True)]
    tables = [each.reshape(num_in, num_out) for each in sums]
    totals = [table.sum(1, keepdims=True) for table in tables]
    with np.errstate(divide="ignore", invalid="ignore"):
        base, cand = (np.nan_to_num(t / total) for t, total in zip(tables, totals, strict=True))
    is_both = (base > 0) & (cand > 0)
    middle = np.where(is_both, (base + cand) / 2, 0.0)
    whole = middle.sum(1, keepdims=True)
    middle = np.divide(middle, whole, out=np.zeros_like(middle), where=whole > 0)
    found = []
    for factor, cell, is_known, shares in zip(asked, cells, known, (base, cand), strict=True):
        own = np.divide(middle, shares, out=np.zeros_like(middle), where=is_both).ravel()
        found.append(factor * np.where(is_known, own[cell], 1.0))
    return found[0], found[1]
