"""How many tokens to draft: as many as are expected to pay."""

from collections.abc import Callable
from typing import Final

_WEIGHT: Final = 0.3
"""Of the newest test in the running share of drafts that count."""
_START: Final = 0.7
_WORTH: Final = 1.02
"""Expected gain below which nothing is drafted."""
_PROBE_STEPS: Final = 16
"""Steps without drafts after which one is tried, where trying costs a model's run."""

_FLAT_ROWS: Final = 4
_FLAT_COST: Final = 0.065
_STEEP_COST: Final = 0.45


def cpu_cost(num_rows: int) -> float:
    """A step of so many rows over one of one row, as measured with packed int4 and int8 weights.

    The kernels take four rows for little more than one; each further row costs nearly half a step.
    """
    flat = min(num_rows, _FLAT_ROWS) - 1
    return 1 + _FLAT_COST * flat + _STEEP_COST * max(0, num_rows - _FLAT_ROWS)


class Controller:
    """The draft length of one request, from how its drafts fare and how many decode beside it.

    Args:
        max_drafts: never more.
        draft_cost: one draft over a step of one row; 0 for look-ups.
        cost: time of a step by its rows, over that of one row.
    """

    def __init__(
        self, max_drafts: int, draft_cost: float = 0.0, cost: Callable[[int], float] = cpu_cost
    ) -> None:
        self.share = _START
        self._max_drafts = max_drafts
        self._draft_cost = draft_cost
        self._cost = cost
        self._num_idle = 0

    def num_drafts(self, num_rows: int) -> int:
        """Tokens to draft when ``num_rows`` sequences decode together, each as many."""
        best, best_gain = 0, _WORTH
        base = self._cost(num_rows)
        expected = 1.0
        for num in range(1, self._max_drafts + 1):
            expected += self.share**num
            seconds = self._cost(num_rows * (1 + num)) + num * self._draft_cost
            gain = expected * base / seconds
            if gain > best_gain:
                best, best_gain = num, gain
        self._num_idle = 0 if best else self._num_idle + 1
        if self._draft_cost and self._num_idle >= _PROBE_STEPS:
            self._num_idle = 0
            return 1
        return best

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Take in a test's outcome: drafts after the first refused one were not tested."""
        for _ in range(num_accepted):
            self.share += _WEIGHT * (1 - self.share)
        if num_accepted < num_drafted:
            self.share -= _WEIGHT * self.share
