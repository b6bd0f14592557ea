"""Stretches of time that begin when a page's clock shows a round time.

A day begins at the clock's midnight, also where clocks go forward or back: it then has 23 or 25
hours. What is counted is counted by a stretch's number, which SQL can tell of a moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from longpole_dashboard.model.clock import LAST_NS, SECOND_NS, Clock

_LOOK_S: Final = 7 * 86_400
"""Clocks are not changed twice within a week."""


@dataclass(frozen=True)
class Grid:
    """Stretches of one width by a clock; number k begins when it shows k times the width.

    Attributes:
        width_ns: of a stretch without a change of the clock in it.
        changes: from when on (ns; 0 first) the clock shows how many ns more than UTC.
    """

    width_ns: int
    changes: tuple[tuple[int, int], ...]

    @property
    def ahead(self) -> str:
        """SQL: how many ns the clock is ahead of UTC at ``start_ns``."""
        cases = "".join(
            f" WHEN start_ns < {until} THEN {ahead}"
            for (_, ahead), (until, _) in pairwise(self.changes)
        )
        last = self.changes[-1][1]
        return f"CASE{cases} ELSE {last} END" if cases else str(last)

    @property
    def number(self) -> str:
        """SQL: the number of the stretch that ``start_ns`` lies in."""
        return f"(start_ns + {self.ahead}) // {self.width_ns}"

    def number_of(self, at_ns: int) -> int:
        """The number of the stretch that a moment lies in."""
        ahead = next(ahead for from_ns, ahead in reversed(self.changes) if from_ns <= at_ns)
        return (at_ns + ahead) // self.width_ns

    def start_ns(self, number: int) -> int:
        """When a stretch begins: when the clock first shows its time, or a later one."""
        shown = number * self.width_ns
        for (from_ns, ahead), (until, _) in pairwise(self.changes):
            if shown - ahead < until:
                return max(shown - ahead, from_ns)
        from_ns, ahead = self.changes[-1]
        return max(shown - ahead, from_ns)

    def has_grain(self, grain_ns: int) -> bool:
        """Whether every stretch begins and ends at a multiple of ``grain_ns`` in UTC."""
        return not any(n % grain_ns for n in (self.width_ns, *(a for _, a in self.changes)))


def grid(clock: Clock, width_s: int, start_ns: int, end_ns: int) -> Grid:
    """The stretches of ``width_s`` seconds by a clock, good from ``start_ns`` to ``end_ns``."""
    width_ns = width_s * SECOND_NS
    first = max(0, start_ns - 2 * width_ns) // SECOND_NS
    last = min(LAST_NS, end_ns + 2 * width_ns) // SECOND_NS
    changes = [(0, clock.ahead_s(first)), *_changes(clock, first, last)]
    shifts = {ahead % width_s for _, ahead in changes}
    if len(shifts) == 1:  # the change is no change to the stretches
        return Grid(width_ns, ((0, shifts.pop() * SECOND_NS),))
    return Grid(width_ns, tuple((at * SECOND_NS, ahead * SECOND_NS) for at, ahead in changes))


def _changes(clock: Clock, first: int, last: int) -> Iterator[tuple[int, int]]:
    """When the clock is changed (epoch seconds), and how far ahead it is from then on."""
    known = clock.ahead_s(first)
    for seen in range(first, last, _LOOK_S):
        upto = min(seen + _LOOK_S, last)
        ahead = clock.ahead_s(upto)
        if ahead == known:
            continue
        low, high = seen, upto
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if clock.ahead_s(middle) == known else (low, middle)
        yield high, ahead
        known = ahead
