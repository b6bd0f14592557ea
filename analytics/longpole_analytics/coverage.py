"""Coverage: the share of slow or failed requests whose time has a place, and why the rest has none.

A request is placed when it has a stage (one that lost time, and is not the opaque part of the
time to the first token), a slice (a cause that it is in) and a versioned route.
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


@dataclass(frozen=True)
class Coverage:
    """Of the slow or failed requests, how many have a stage, a slice, a versioned route; and all.

    ``reasons`` say why the others have not, the most frequent first.
    """

    num_traces: int
    num_stage: int
    num_slice: int
    num_route: int
    num_all: int
    reasons: tuple[Reason, ...]

    def share(self, num: int) -> float | None:
        """The part that so many are; ``None`` if there was nothing to place."""
        return num / self.num_traces if self.num_traces else None


def together(parts: Sequence[Coverage]) -> Coverage:
    """The coverage of several populations as one."""
    reasons: dict[str, int] = {}
    for part in parts:
        for reason, num in part.reasons:
            reasons[reason] = reasons.get(reason, 0) + num
    return Coverage(
        sum(part.num_traces for part in parts),
        sum(part.num_stage for part in parts),
        sum(part.num_slice for part in parts),
        sum(part.num_route for part in parts),
        sum(part.num_all for part in parts),
        _ranked(reasons),
    )


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
    num_unknown = int(_failed(requests).sum()) - int(failed.sum())
    reasons[NO_METRIC] = num_unknown
    versioned = has_route & has_version
    return Coverage(
        int(chosen.sum()) + num_unknown,
        int((chosen & stage).sum()),
        int((chosen & in_slice).sum()),
        int((chosen & versioned).sum()),
        int((chosen & stage & in_slice & versioned).sum()),
        _ranked(reasons),
    )


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


def _known(requests: pl.DataFrame, name: str) -> Mask:
    if name not in requests.columns:
        return np.zeros(requests.height, bool)
    return requests[name].is_not_null().to_numpy()


def _ranked(reasons: dict[str, int]) -> tuple[Reason, ...]:
    kept = [Reason(reason, num) for reason, num in reasons.items() if num]
    return tuple(sorted(kept, key=lambda reason: (-reason.num_traces, reason.reason)))
