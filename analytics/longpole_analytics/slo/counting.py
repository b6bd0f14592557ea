"""Good and bad requests of many objectives at once, minute by minute, for a watch that goes on.

What :func:`~longpole_analytics.slo.series.minute_series` counts for one objective is counted here
for hundreds of them over the same few minutes: requests are judged once for each promise, not
once for each objective that makes it of other requests.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole.errors import BadInput
from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.slo.objectives import Objective
from longpole_analytics.slo.series import Ints, judged

COLUMNS: Final = ("bad_e6", "total_e6", "num_bad", "num_left_out")
"""What is counted, in this order; the first two are weights in millionths."""
Bools = npt.NDArray[np.bool_]


def counted(
    requests: pl.DataFrame,
    objectives: Sequence[Objective],
    is_own: Sequence[Bools | None],
    first_minute: int,
    num_minutes: int,
) -> Ints:
    """The counts of every objective in every minute: objectives by minutes by :data:`COLUMNS`.

    Args:
        requests: a table of :mod:`longpole_analytics.requests`.
        objectives: the promises.
        is_own: for each, which of the requests it is about; ``None`` is all.
        first_minute: the first minute, since the Unix epoch.
        num_minutes: how many; requests outside, or of unknown start, do not count.

    Raises:
        BadInput: a weight is below zero or endless.
    """
    found = np.zeros((len(objectives), num_minutes, len(COLUMNS)), np.int64)
    starts = requests["start_ns"].fill_null(-1).to_numpy()
    place = starts // MINUTE_NS - first_minute
    is_inside = (starts >= 0) & (place >= 0) & (place < num_minutes)
    weights = _weights(requests)
    verdicts: dict[tuple[object, ...], tuple[Bools, Bools]] = {}
    for row, objective in enumerate(objectives):
        promise = (objective.metric, objective.threshold, objective.cancelled)
        if promise not in verdicts:
            good = judged(requests, objective)
            verdicts[promise] = (
                good.is_not_null().to_numpy(),
                (good == False).fill_null(False).to_numpy(),  # noqa: E712 - of a column
            )
        is_known, is_bad = verdicts[promise]
        about = is_own[row]
        own = is_inside if about is None else is_inside & about
        counts, bad = own & is_known, own & is_bad
        found[row, :, 0] = _sums(place, bad, weights, num_minutes)
        found[row, :, 1] = _sums(place, counts, weights, num_minutes)
        found[row, :, 2] = np.bincount(place[bad], minlength=num_minutes)
        found[row, :, 3] = np.bincount(place[own & ~is_known], minlength=num_minutes)
    return found


def _weights(requests: pl.DataFrame) -> Ints | None:
    """How many each request stands for, in millionths; ``None`` where each is one."""
    if "weight" not in requests.columns or requests["weight"].null_count() == requests.height:
        return None
    weight = requests["weight"].cast(pl.Float64).fill_nan(None).fill_null(1.0)
    if (weight < 0).any() or weight.is_infinite().any():
        raise BadInput("a weight is below zero or endless: weights count how many a row stands for")
    found: Ints = (weight * SCALE).round().cast(pl.Int64).to_numpy()
    return found


def _sums(place: Ints, chosen: Bools, weights: Ints | None, num: int) -> Ints:
    if weights is None:
        return np.bincount(place[chosen], minlength=num) * SCALE
    sums = np.zeros(num, np.int64)
    np.add.at(sums, place[chosen], weights[chosen])  # whole numbers: exact in any order
    return sums
