"""The stratified risk ratio of one slice, written to be read: the reference of ``risk``."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class RiskRatio(NamedTuple):
    """How many times likelier an outcome is with an exposure than without; 95 % interval."""

    estimate: float
    low: float
    high: float
    p_value: float


class Stratum(NamedTuple):
    """Counts of one stratum: cases and all, with the exposure and without."""

    cases_exposed: int
    num_exposed: int
    cases_other: int
    num_other: int


def mantel_haenszel(strata: Sequence[Stratum]) -> RiskRatio | None:
    """The risk ratio common to all strata (Mantel-Haenszel), so that their mix cannot make it.

    Interval after Greenland & Robins, Biometrics 41 (1985); two-sided p-value from it. Where no
    case is left on one side, half a case is added to each cell. ``None`` when no stratum holds
    both exposed and others, or no cases.
    """
    both = [s for s in strata if s.num_exposed and s.num_other]
    cells: list[tuple[float, float, float, float]] = [*both]
    if not any(s.cases_exposed for s in both) or not any(s.cases_other for s in both):
        if not any(s.cases_exposed or s.cases_other for s in both):
            return None
        cells = [(a + 0.5, n1 + 1.0, b + 0.5, n0 + 1.0) for a, n1, b, n0 in both]
    with_it = without = variance = 0.0
    for a, n1, b, n0 in cells:
        total = n1 + n0
        with_it += a * n0 / total
        without += b * n1 / total
        variance += ((a + b) * n1 * n0 - a * b * total) / total**2
    spread = math.sqrt(max(variance, 0.0) / (with_it * without))
    log_ratio = math.log(with_it / without)
    if spread == 0:
        p_value = 1.0 if log_ratio == 0 else 0.0
    else:
        p_value = math.erfc(abs(log_ratio) / spread / math.sqrt(2))
    return RiskRatio(
        math.exp(log_ratio),
        math.exp(log_ratio - 1.96 * spread),
        math.exp(log_ratio + 1.96 * spread),
        p_value,
    )
