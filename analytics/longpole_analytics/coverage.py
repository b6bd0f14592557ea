"""Coverage: the share of slow or failed requests whose time has a place, and why the rest has none.

A request is placed when it has a stage (one that lost time, and is not the opaque part of the
time to the first token), a slice (a cause that it is in) and a versioned route. Where traces were
sampled each counts as often as it stands for, and the sums are told as parts of those that are
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.attribution import Attribution
from longpole_analytics.cohort import Cohort, Mask
from longpole_analytics.excess import Account
from longpole_analytics.stats import Share, share, wilson
from longpole_analytics.weighted import num_of, weights_of

FAILED: Final = "failed"
OPAQUE: Final = "stage: the time to the first token is opaque, no engine spans"
UNKNOWN_STAGES: Final = "stage: no stage times"
USUAL: Final = "stage: no stage above its usual time"
NO_ROUTE: Final = "route: no route"
NO_VERSION: Final = "route: no route version"
NOT_SLOW: Final = "slice: failed without being slow"
NO_METRIC: Final = "the metric is unknown"


class Reason(NamedTuple):
    """Why requests are not placed, and how many; a request may have several reasons."""

    reason: str
    num_traces: int


class Placed(NamedTuple):
    """What the slow or failed requests stand for: those with a stage and so on, and in sum.

    ``squares`` is the sum of the squares of their weights.
    """

    stage: float
    slice: float
    route: float
    all: float
    whole: float
    squares: float


@dataclass(frozen=True)
class Coverage:
    """Of the slow or failed requests, how many have a stage, a slice, a versioned route; and all.

    ``num_traces`` and ``reasons`` count those that are there; the latter say why some are not
    placed, the most frequent first. The other numbers are parts of ``num_traces``, as large as
    those of all requests that came.
    """

    num_traces: int
    placed: Placed
    reasons: tuple[Reason, ...]

    @property
    def num_stage(self) -> float:
        """With a stage."""
        return self._part(self.placed.stage)

    @property
    def num_slice(self) -> float:
        """With a slice."""
        return self._part(self.placed.slice)

    @property
    def num_route(self) -> float:
        """With a versioned route."""
        return self._part(self.placed.route)

    @property
    def num_all(self) -> float:
        """With all three."""
        return self._part(self.placed.all)

    def share(self, num: float) -> float | None:
        """The part that so many are; ``None`` if there was nothing to place."""
        return num / self.num_traces if self.num_traces else None

    def told(self, num: float) -> Share:
        """The same with its interval, that of as many equal requests as tell as much (Kish)."""
        value = self.share(num)
        if value is None:
            return share(0, 0)
        ends = wilson(value, self.placed.whole**2 / self.placed.squares)
        return Share(round(num), self.num_traces, value, *ends)

    def _part(self, weight: float) -> float:
        whole = self.placed.whole
        return weight if whole == self.num_traces else weight / whole * self.num_traces


def together(parts: Sequence[Coverage]) -> Coverage:
    """The coverage of several populations as one."""
    reasons: dict[str, int] = {}
    for part in parts:
        for reason, num in part.reasons:
            reasons[reason] = reasons.get(reason, 0) + num
    placed = (sum(part.placed[at] for part in parts) for at in range(len(Placed._fields)))
    return Coverage(sum(part.num_traces for part in parts), Placed(*placed), _ranked(reasons))


def coverage(
    requests: pl.DataFrame, found: Cohort, above: Account, causes: Attribution
) -> Coverage:
    """How many of the slow or failed requests are placed.

    Args:
        requests: all requests, also those whose metric is unknown.
        found: those with the metric, in their order.
        above: the excess of the slow ones.
        causes: what was found among them.
    """
    rows = found.requests
    failed = _failed(rows)
    chosen = found.is_slow | failed
    stage, why_stage = _stages(found, above)
    in_slice = np.zeros(len(chosen), bool)
    for cause in causes.causes:
        inside = pl.all_horizontal(pl.col(n).eq_missing(value) for n, value in cause.where.items())
        in_slice |= rows.select(inside).to_series().to_numpy()
    has_route, has_version = (_known(rows, name) for name in ("route", "route_version"))
    reasons = {
        **{reason: int((mask & chosen).sum()) for reason, mask in why_stage.items()},
        NO_ROUTE: int((chosen & ~has_route).sum()),
        NO_VERSION: int((chosen & has_route & ~has_version).sum()),
        NOT_SLOW: int((chosen & ~in_slice & ~found.is_slow).sum()),
        f"slice: {causes.reason or 'in none of the causes'}": int(
            (chosen & ~in_slice & found.is_slow).sum()
        ),
    }
    is_unknown = _failed(requests) & ~_known_metric(requests, found.metric)
    reasons[NO_METRIC] = int(is_unknown.sum())
    versioned = has_route & has_version
    weight = np.ones(len(chosen)) if found.weight is None else found.weight
    parts = (stage, in_slice, versioned, stage & in_slice & versioned)
    placed = (num_of(weight[chosen & part]) for part in parts)
    unknown = weights_of(requests.filter(pl.Series(is_unknown)))
    every = np.concatenate([weight[chosen], unknown])
    sums = Placed(*(*placed, num_of(every), float((every**2).sum())))
    return Coverage(len(every), sums, _ranked(reasons))


def _stages(found: Cohort, above: Account) -> tuple[Mask, dict[str, Mask]]:
    """Which requests have a stage that lost time, and why the others have none."""
    num = len(found.values)
    is_known = np.zeros(num, bool)
    for stage in Stage:
        is_known |= found.requests[f"{stage.value}_ms"].is_not_null().to_numpy()
    is_known |= found.requests["ttft_ms"].is_not_null().to_numpy()
    has_stage, is_opaque = ~found.is_slow & is_known, np.zeros(num, bool)
    slow = np.flatnonzero(found.is_slow)
    if len(slow):
        lost = np.stack(list(above.by_stage.values()))
        most = lost.argmax(0)
        stages = list(above.by_stage)
        is_above = lost[most, np.arange(len(slow))] > 0
        opaque = np.array([stage is Stage.TTFT_OPAQUE for stage in stages])[most]
        has_stage[slow] = is_above & ~opaque & is_known[slow]
        is_opaque[slow] = is_above & opaque & is_known[slow]
    return has_stage, {
        UNKNOWN_STAGES: ~is_known,
        OPAQUE: is_opaque,
        USUAL: is_known & ~has_stage & ~is_opaque,
    }


def _failed(requests: pl.DataFrame) -> Mask:
    failed = requests["is_error"].fill_null(False)
    if "outcome" in requests.columns:
        failed = failed | requests["outcome"].eq(FAILED).fill_null(False)
    return failed.to_numpy()


def _known_metric(requests: pl.DataFrame, metric: str) -> Mask:
    return requests[metric].is_finite().fill_null(False).to_numpy()


def _known(requests: pl.DataFrame, name: str) -> Mask:
    if name not in requests.columns:
        return np.zeros(requests.height, bool)
    return requests[name].is_not_null().to_numpy()


def _ranked(reasons: dict[str, int]) -> tuple[Reason, ...]:
    kept = [Reason(reason, num) for reason, num in reasons.items() if num]
    return tuple(sorted(kept, key=lambda reason: (-reason.num_traces, reason.reason)))
