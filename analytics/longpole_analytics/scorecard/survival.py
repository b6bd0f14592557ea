"""Quantiles of times of which some were never seen to end.

Kaplan & Meier, Journal of the American Statistical Association 53 (1958): a request that failed
or was given up took at least as long as it ran. The estimate holds if giving up says nothing of
how long it would have taken, which is not so for timeouts; so the other extreme, that what did not
end would never have, is told beside it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_NEAR = 1e-9
"""Sums of shares are off by less."""


class Times(NamedTuple):
    """Times in milliseconds, whether each was seen to end, and how many each stands for."""

    value: Floats
    is_event: Bools
    weight: Floats

    def known(self) -> "Times":
        """Those that have a value and a weight, in order; ends before what is still running."""
        kept = np.flatnonzero(~np.isnan(self.value) & (self.weight > 0))
        order = kept[np.lexsort((~self.is_event[kept], self.value[kept]))]
        return Times(self.value[order], self.is_event[order], self.weight[order])


def quantile(times: Times, q: float) -> float | None:
    """The first time at which a share ``q`` has ended; ``None`` if that is never reached."""
    return quantiles(times.known(), (q,))[0]


def pessimistic_quantile(times: Times, q: float) -> float | None:
    """The quantile if what was not seen to end never does; ``None`` if it is one of these."""
    return pessimistic_quantiles(times.known(), (q,))[0]


def quantiles(ordered: Times, shares: Sequence[float]) -> list[float | None]:
    """As :func:`quantile`, several of times in order."""
    at_risk = np.cumsum(ordered.weight[::-1])[::-1]
    ended = np.where(ordered.is_event, ordered.weight, 0.0)
    with np.errstate(divide="ignore"):
        left = np.exp(np.cumsum(np.log1p(-np.minimum(ended / at_risk, 1.0))))
    places = np.searchsorted(-left, [share - 1 - _NEAR for share in shares], "left")
    return [float(ordered.value[at]) if at < len(left) else None for at in places]


def pessimistic_quantiles(ordered: Times, shares: Sequence[float]) -> list[float | None]:
    """As :func:`pessimistic_quantile`, several of times in order."""
    ended = ordered.value[ordered.is_event]
    upto = np.cumsum(ordered.weight[ordered.is_event])
    total = ordered.weight.sum()
    places = np.searchsorted(upto, [share * total * (1 - _NEAR) for share in shares], "left")
    return [float(ended[at]) if at < len(ended) else None for at in places]
