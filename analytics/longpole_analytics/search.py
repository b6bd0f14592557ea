"""The search for slices: which combinations of attributes slow requests are in too often."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from longpole_analytics.cohort import UNKNOWN, Coded, Codes, Cohort, Floats, Mask, coded
from longpole_analytics.risk import Risks, Tally, risk_ratios
from longpole_analytics.stats import benjamini_hochberg

ROUTE: Final = "route"
"""Named with another attribute only: alone it is what the others are compared within."""
Slice = tuple[tuple[int, int], ...]
"""(dimension, code) pairs, dimensions ascending."""


@dataclass(frozen=True)
class SearchRules:
    """Support and strength of a slice that is blamed.

    Attributes:
        min_support: slow requests it holds, at least.
        min_support_share: part of all slow requests, at least. It also bounds the values of a
            dimension that are looked at, to one over it.
        max_values: values of a dimension that are looked at, those with most slow requests; what
            is left is ``__other__`` to them, and never blamed itself.
        min_risk_ratio: adjusted risk ratio, at least.
        min_low: lower bound of its interval, above this.
        rate: false discovery rate over all slices examined.
        combined_gain: a combination's risk ratio is so many times that of its parts, at least.
        vanished: a part below this risk ratio outside of a combination, or not surely above 1
            there, is not blamed itself.
    """

    min_support: int = 10
    min_support_share: float = 0.02
    max_values: int = 1000
    min_risk_ratio: float = 1.5
    min_low: float = 1.1
    rate: float = 0.05
    combined_gain: float = 1.3
    vanished: float = 1.2

    def least(self, num_slow: int) -> int:
        """Slow requests that a slice needs, of so many."""
        return max(self.min_support, math.ceil(round(self.min_support_share * num_slow, 9)))

    def is_strong(self, estimate: float, low: float) -> bool:
        """Whether a risk ratio with this lower bound is enough."""
        return estimate >= self.min_risk_ratio and low > self.min_low


class Risk(NamedTuple):
    """Risk ratio of one slice: adjusted, with its 95 % interval, and crude."""

    estimate: float
    low: float
    high: float
    crude: float


class Search:
    """The slices of a cohort.

    Args:
        found: the requests.
        names: columns to slice by, those that come first named first.
        rules: support and strength.
    """

    def __init__(self, found: Cohort, names: Sequence[str], rules: SearchRules) -> None:
        self._found, self._rules = found, rules
        self._least = rules.least(found.num_slow)
        self._names: list[str] = []
        self._coded: list[Coded] = []
        for name in (*(n for n in names if n != ROUTE), ROUTE):
            if name in found.requests.columns:
                values = _supported(coded(found.requests[name]), found, self._least, rules)
                if values.names:
                    self._names.append(name)
                    self._coded.append(values)
        self._columns = [values.codes for values in self._coded]
        self._slow = [codes[found.is_slow] for codes in self._columns]
        self._slow_rows = np.flatnonzero(found.is_slow)
        self._num_strata = int(found.stratum.max(initial=0)) + 1

    def single(self) -> list[Slice]:
        """Every single attribute's value that enough slow requests have, strong or not."""
        return [
            ((dimension, code),)
            for dimension, values in enumerate(self._coded)
            for code in range(1, len(values.names) + 1)
        ]

    def strong(self, max_attributes: int) -> list[Slice]:
        """The slices to blame, fewest attributes first; none is made by a part or a combination.

        Args:
            max_attributes: attributes of one slice, at most.
        """
        whole = self._counts(None, np.ones(len(self._found.values), bool))
        slices: list[Slice] = []
        risks: list[Risks] = []
        for order in range(1, max_attributes + 1):
            for dimensions in combinations(range(len(self._names)), order):
                if order == 1 and self._names[dimensions[0]] == ROUTE:
                    continue
                more, lookup = self._combined(dimensions)
                if more:
                    slices += more
                    risks.append(risk_ratios(self._tally(dimensions, lookup, len(more)), whole))
        if not slices:
            return []
        every = Risks(*(np.concatenate(parts) for parts in zip(*risks, strict=True)))
        place = {part: number for number, part in enumerate(slices)}
        # A slice that its parts explain must not make room for others among the discoveries.
        p_values = [
            float(every.p_value[index]) if self._stands(index, slices, place, every) else 1.0
            for index in range(len(slices))
            if not math.isnan(every.p_value[index])
        ]
        tested = [part for part in slices if not math.isnan(every.p_value[place[part]])]
        passed = benjamini_hochberg(p_values, self._rules.rate)
        return self._without_emptied([tested[index] for index in passed])

    def risk(self, part: Slice, left: Mask) -> Risk | None:
        """A slice's risk ratio among some requests; ``None`` without enough slow ones in it."""
        inside = self.rows_of(part) & left
        if int((inside & self._found.is_slow).sum()) < self._least:
            return None
        risks = risk_ratios(self._counts(inside, left), self._counts(None, left))
        found = (risks.estimate, risks.low, risks.high, risks.crude)
        risk = Risk(*(float(values[0]) for values in found))
        return None if math.isnan(risk.estimate) else risk

    def where(self, part: Slice) -> dict[str, str]:
        """The slice as column and value."""
        return {self._names[d]: self._coded[d].names[code - 1] for d, code in part}

    def rows_of(self, part: Slice) -> Mask:
        """Which requests are in the slice."""
        inside: Mask = np.logical_and.reduce([self._columns[d] == code for d, code in part])
        return inside

    def may_hold(self, part: Slice) -> Mask:
        """Which requests are in the slice, or may be: of a combination they have a part at least.

        What a request does not tell of a single attribute says nothing.
        """
        may = self.rows_of(part)
        if len(part) == 1:
            return may
        fits = np.ones(len(may), bool)
        some = np.zeros(len(may), bool)
        for dimension, code in part:
            has = self._columns[dimension] == code
            fits &= has | self._found.requests[self._names[dimension]].is_null().to_numpy()
            some |= has
        return fits & some

    def _combined(self, dimensions: tuple[int, ...]) -> tuple[list[Slice], Codes]:
        """The combinations that enough slow requests have, and their numbers by joint code."""
        sizes = tuple(len(self._coded[d].names) + 1 for d in dimensions)
        joint = _joint([self._slow[d] for d in dimensions], sizes)
        counts = np.bincount(joint, minlength=math.prod(sizes))
        codes = np.stack(np.unravel_index(np.arange(len(counts)), sizes))
        kept = np.flatnonzero((counts >= self._least) & (codes != UNKNOWN).all(0))
        lookup = np.zeros(len(counts), np.int64)
        lookup[kept] = np.arange(1, len(kept) + 1)
        slices = [tuple(zip(dimensions, part, strict=True)) for part in codes[:, kept].T.tolist()]
        return slices, lookup

    def _tally(self, dimensions: tuple[int, ...], lookup: Codes, num: int) -> Tally:
        """Slow requests and all requests of each slice, by stratum."""
        sizes = tuple(len(self._coded[d].names) + 1 for d in dimensions)
        numbers = lookup[_joint([self._columns[d] for d in dimensions], sizes)]
        slow = self._cells(numbers[self._slow_rows], self._slow_rows, num + 1)
        every = self._cells(numbers, slice(None), num + 1)
        return Tally(slow[0][1:], every[0][1:], slow[1][1:], every[1][1:])

    def _cells(self, numbers: Codes, rows: Codes | slice, num: int) -> tuple[Floats, Floats]:
        """Weights by slice and stratum, and their squares by slice."""
        place = numbers * self._num_strata + self._found.stratum[rows]
        weight = None if self._found.weight is None else self._found.weight[rows]
        counts = np.bincount(place, weight, num * self._num_strata)
        cells = counts.astype(np.float64).reshape(num, -1)
        if weight is None:
            return cells, cells.sum(1)
        return cells, np.bincount(numbers, weight**2, num).astype(np.float64)

    def _counts(self, inside: Mask | None, left: Mask) -> Tally:
        """The counts of some requests as one slice; of all that are left without any."""
        rows = np.flatnonzero(left if inside is None else inside)
        slow = rows[self._found.is_slow[rows]]
        parts = [self._cells(np.zeros(len(r), np.int64), r, 1) for r in (slow, rows)]
        return Tally(parts[0][0], parts[1][0], parts[0][1], parts[1][1])

    def _stands(
        self, index: int, slices: list[Slice], place: dict[Slice, int], risks: Risks
    ) -> bool:
        """Whether a slice is strong, and clearly stronger than each part of it."""
        estimate, low = float(risks.estimate[index]), float(risks.low[index])
        if not self._rules.is_strong(estimate, low):
            return False
        of_parts = [risks.estimate[place[p]] for p in _parts(slices[index]) if p in place]
        best = max((float(risk) for risk in of_parts if not math.isnan(risk)), default=None)
        return best is None or (estimate >= self._rules.combined_gain * best and low > best)

    def _without_emptied(self, kept: list[Slice]) -> list[Slice]:
        """Without the parts that owe all to a combination."""
        emptied = {
            part
            for combined in kept
            for part in _parts(combined)
            if part in kept and self._vanishes(part, combined)
        }
        return [part for part in kept if part not in emptied]

    def _vanishes(self, part: Slice, combined: Slice) -> bool:
        """Whether a part is no longer to blame outside of a combination.

        Requests that do not tell whether they are in the combination are not looked at.
        """
        outer = ~self.rows_of(combined)
        for dimension, _ in combined:
            outer &= self._found.requests[self._names[dimension]].is_not_null().to_numpy()
        outside = self._counts(self.rows_of(part) & outer, outer)
        risks = risk_ratios(outside, self._counts(None, outer))
        estimate, low = float(risks.estimate[0]), float(risks.low[0])
        return math.isnan(estimate) or estimate < self._rules.vanished or low <= 1


def _joint(columns: Sequence[Codes], sizes: Sequence[int]) -> Codes:
    joint = columns[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        joint = joint * size + column
    return joint


def _parts(whole: Slice) -> list[Slice]:
    """Every smaller combination of the slice's attributes."""
    return [part for order in range(1, len(whole)) for part in combinations(whole, order)]


def _supported(values: Coded, found: Cohort, least: int, rules: SearchRules) -> Coded:
    """Only the values that enough slow requests have; the others are coded as unknown."""
    counts = np.bincount(values.codes[found.is_slow], minlength=len(values.names) + 1)
    # What every request has tells none apart.
    counts[np.bincount(values.codes, minlength=len(counts)) == len(values.codes)] = 0
    counts[UNKNOWN] = 0
    kept = np.sort(np.argsort(-counts, kind="stable")[: rules.max_values])
    kept = kept[counts[kept] >= least]
    codes = np.zeros(len(counts), np.int64)
    codes[kept] = np.arange(1, len(kept) + 1)
    return Coded(codes[values.codes], [values.names[code - 1] for code in kept])
