"""How fast the error budgets burn: windows of minutes against what may be bad.

Multi-window, multi-burn-rate after the Google SRE Workbook, chapter 5. burn(W) is the share of
bad requests in the window over the budget. Two things differ from the usual tools: a factor that
no share of bad requests could reach is lowered to what half of them bad gives, as targets of 90
and 95 % have wide budgets; and a rule needs a least number of bad requests seen, so that one bad
of one does not page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole_analytics.slo.objectives import Objective, Rule
from longpole_analytics.slo.series import Ints, Series

MOST_BAD: Final = 0.5
"""Share of bad requests that meets every rule, whatever its factor asks for."""
DAY_MIN: Final = 1440
_NOISE: Final = 1e-12
"""Relative rounding of a factor times a budget; no count of requests comes this near."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """The minutes of many objectives, summed up from the first.

    Attributes:
        objectives: one a row.
        first_minute: the first minute, in minutes since the Unix epoch.
        bad_e6: weight of bad requests before each minute, and after the last.
        total_e6: likewise of all.
        num_bad: likewise bad requests seen.
        num_left_out: requests that do not count, by objective.
    """

    objectives: tuple[Objective, ...]
    first_minute: int
    bad_e6: Ints
    total_e6: Ints
    num_bad: Ints
    num_left_out: tuple[int, ...]

    @property
    def last_minute(self) -> int:
        """The last minute there is."""
        return self.first_minute + int(self.bad_e6.shape[1]) - 2


def panel(objectives: Sequence[Objective], series: Sequence[Series]) -> Panel:
    """The panel of series that begin and end together, one an objective.

    Raises:
        ValueError: no objective, or series of different minutes.
    """
    if len({(each.first_minute, each.bad_e6.shape) for each in series}) != 1:
        raise ValueError("a panel needs at least one series, all over the same minutes")
    return Panel(
        tuple(objectives),
        series[0].first_minute,
        _summed([each.bad_e6 for each in series]),
        _summed([each.total_e6 for each in series]),
        _summed([each.num_bad for each in series]),
        tuple(each.num_left_out for each in series),
    )


class Window(NamedTuple):
    """The requests of an objective in the minutes (end - W, end]; weights in millionths."""

    bad_e6: int
    total_e6: int
    num_bad: int

    def burn(self, budget: float) -> float | None:
        """Share of bad requests over the budget; ``None`` without requests."""
        return self.bad_e6 / self.total_e6 / budget if self.total_e6 else None


def window(minutes: Panel, row: int, end: int, length_min: int) -> Window:
    """The requests of objective ``row`` in the last ``length_min`` minutes up to ``end``."""
    upto = max(end + 1 - minutes.first_minute, 0)
    since = max(upto - length_min, 0)
    return Window(
        *(
            int(sums[row, upto] - sums[row, since])
            for sums in (minutes.bad_e6, minutes.total_e6, minutes.num_bad)
        )
    )


def burn_rates(minutes: Panel, row: int, length_min: int, first: int, last: int) -> Floats:
    """:meth:`Window.burn` of the windows that end with each minute of [first, last].

    Not a number where a window has no requests.
    """
    places = first - minutes.first_minute, last - minutes.first_minute
    bad = _within(minutes.bad_e6[row], *places, length_min).astype(np.float64)
    total = _within(minutes.total_e6[row], *places, length_min).astype(np.float64)
    total[total == 0] = np.nan
    found: Floats = bad / total / minutes.objectives[row].budget
    return found


def reachable(factor: float, budget: float) -> float:
    """The factor that is used: as asked, or what :data:`MOST_BAD` bad requests give."""
    return min(factor, MOST_BAD / budget)


class Condition(NamedTuple):
    """Minute by minute: is a rule met, and are there requests in both of its windows."""

    is_met: Bools
    is_known: Bools


def condition(minutes: Panel, row: int, rule: Rule, first: int, last: int) -> Condition:
    """A rule of objective ``row`` at each minute of [first, last].

    It is met where the burn rates of both windows exceed the factor and the long window has the
    objective's ``min_bad`` bad requests. Minutes without requests add nothing to a window.
    """
    objective = minutes.objectives[row]
    places = first - minutes.first_minute, last - minutes.first_minute
    share = reachable(rule.factor, objective.budget) * objective.budget * (1 + _NOISE)
    is_met = _within(minutes.num_bad[row], *places, rule.long_min) >= objective.min_bad
    is_known = np.ones(is_met.size, np.bool_)
    for length in (rule.long_min, rule.short_min):
        total = _within(minutes.total_e6[row], *places, length)
        is_known &= total > 0
        is_met &= _within(minutes.bad_e6[row], *places, length) > share * total
    return Condition(is_met & is_known, is_known)


@dataclass(frozen=True)
class Budget:
    """What is left of an error budget over its period.

    Attributes:
        remaining: share of it that is left; below 0 when more was spent; ``None`` without requests.
        exhausted_at: minute since the Unix epoch at which it was or will be used up; ``None`` if
            that is not in sight.
        reason: why there is no such minute; empty if there is one.
        burn_24h: burn rate of the last 24 hours; ``None`` without requests.
    """

    remaining: float | None
    exhausted_at: int | None
    reason: str
    burn_24h: float | None


def budget(minutes: Panel, row: int, end: int) -> Budget:
    """The budget of objective ``row`` at the end of a minute.

    Forecast: what remains lasts remaining x period / burn(24 h), at the traffic of the last 24
    hours: busier than the period's mean is sooner. It is made only where burn(24 h) is above 1
    and its bad requests are at least ``min_bad``.
    """
    objective = minutes.objectives[row]
    period = window(minutes, row, end, objective.period_min)
    day = window(minutes, row, end, DAY_MIN)
    spent, burn_24h = period.burn(objective.budget), day.burn(objective.budget)
    if spent is None:
        return Budget(None, None, "no events", None)
    remaining = 1 - spent
    if remaining <= 0:
        return Budget(remaining, _used_up(minutes, row, end), "", burn_24h)
    if burn_24h is None or burn_24h <= 1:
        return Budget(remaining, None, "burn (24h) is not above 1", burn_24h)
    if day.num_bad < objective.min_bad:
        return Budget(remaining, None, "not enough events", burn_24h)
    seen = _num_minutes(minutes, row, end, objective.period_min)
    usual_per_min = period.total_e6 / seen
    now_per_min = day.total_e6 / min(DAY_MIN, seen)
    left_min = remaining * objective.period_min * usual_per_min / now_per_min / burn_24h
    return Budget(remaining, end + 1 + int(left_min), "", burn_24h)


def _num_minutes(minutes: Panel, row: int, end: int, length_min: int) -> int:
    """Minutes of a window since its first request: what is younger has no quiet past."""
    upto = end + 1 - minutes.first_minute
    since = max(upto - length_min, 0)
    before = minutes.total_e6[row, since]
    first = int(np.searchsorted(minutes.total_e6[row, since : upto + 1], before, "right")) - 1
    return upto - since - first


def _used_up(minutes: Panel, row: int, end: int) -> int:
    """The minute of the period by whose end its bad requests had used all that may be bad."""
    objective = minutes.objectives[row]
    upto = end + 1 - minutes.first_minute
    since = max(upto - objective.period_min, 0)
    bad = minutes.bad_e6[row, since : upto + 1] - minutes.bad_e6[row, since]
    allowed = float(minutes.total_e6[row, upto] - minutes.total_e6[row, since]) * objective.budget
    found = int(np.searchsorted(bad, allowed * (1 - _NOISE)))
    return minutes.first_minute + since + found


def _within(sums: Ints, first: int, last: int, length: int) -> Ints:
    """What lies in the window of each place of [first, last], from sums before each."""
    upto = sums[first + 1 : last + 2]
    whole = sums[max(first + 1 - length, 0) : max(last + 2 - length, 0)]
    if whole.size == upto.size:
        return upto - whole
    found = upto.copy()  # the first windows begin before there is anything
    found[upto.size - whole.size :] -= whole
    return found


def _summed(rows: Sequence[Ints]) -> Ints:
    sums = np.zeros((len(rows), rows[0].size + 1), np.int64)
    for sum_row, row in zip(sums, rows, strict=True):
        np.cumsum(row, out=sum_row[1:])
    return sums
