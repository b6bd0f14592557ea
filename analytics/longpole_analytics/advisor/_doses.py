"""Does more of something help? The lower third of its doses against the upper, by outcome."""

from typing import Final, NamedTuple

import polars as pl

from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import lowest
from longpole_analytics.measures import Share
from longpole_analytics.weighted import part

_Z: Final = 1.96


class Doses(NamedTuple):
    """Medians of the lower and the upper third, and the accepted share of both."""

    low: float
    high: float
    accepted_low: Share
    accepted_high: Share

    @property
    def loss(self) -> float:
        """By how much the accepted share falls from the upper third to the lower, at worst.

        The upper end of the 95 % interval of the difference (Newcombe, Statistics in Medicine
        17, 1998, method 10).
        """
        few, many = self.accepted_low, self.accepted_high
        p1, l1, p2, u2 = many.value or 0.0, many.high or 1.0, few.value or 0.0, few.low or 0.0
        return p1 - p2 + float(((l1 - p1) ** 2 + (p2 - u2) ** 2) ** 0.5)


def doses(rows: pl.DataFrame, column: str, rules: AdvisorRules) -> Doses | None:
    """The thirds of a dose; ``None`` where they do not differ, or outcomes are not known.

    Args:
        rows: with the dose and ``outcome``.
        column: the dose.
        rules: how much the thirds must differ.
    """
    known = rows.drop_nulls([column, "outcome"]).sort(column, "row")
    third = known.height // 3
    if third < rules.min_calls:
        return None
    few, many = known.head(third), known.tail(third)
    low, high = (lowest(side, column, 0.5) for side in (few, many))
    if high <= 0 or high < rules.dose_ratio * low:
        return None
    good = [part(side.filter(pl.col("outcome") == "accepted"), side) for side in (few, many)]
    return Doses(low, high, *good)
