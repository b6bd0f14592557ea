"""Where slow requests lose their time: what is above the median of comparable ones, by stage."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from longpole.vocab import ENGINE_TTFT_STAGES, Stage
from longpole_analytics.cohort import Codes, Cohort, Floats, Mask, groups_of, numbers, quantile_of

TTFT_STAGES: Final = (Stage.RETRY, Stage.NETWORK, *ENGINE_TTFT_STAGES, Stage.TTFT_OPAQUE)
"""The stages that time to first content is made of."""
_METRIC_STAGES: Final[dict[str, tuple[Stage, ...]]] = {
    "ttft_ms": TTFT_STAGES,
    "ttfv_ms": (*TTFT_STAGES, Stage.LATER_DECODE),
    "tpot_ms": (Stage.LATER_DECODE, Stage.STREAM),
    "model_ms": (*TTFT_STAGES, Stage.LATER_DECODE, Stage.STREAM),
    "client_ms": (Stage.STREAM, Stage.RENDER),
    **{f"{stage.value}_ms": (stage,) for stage in Stage},
}
_REST: Final = {"ttft_ms": Stage.TTFT_OPAQUE, "e2e_ms": Stage.OTHER}
"""The stage that has what no other stage of the metric explains."""
MIN_BASELINE: Final = 5
"""A stratum with fewer requests that are not slow takes its medians from all of them."""


class StageExcess(NamedTuple):
    """Milliseconds of one stage above the usual, summed over slow requests."""

    stage: Stage
    excess_ms: float


@dataclass(frozen=True)
class Excess:
    """Time of some slow requests above that of comparable ones that are not slow.

    ``stages`` begins with the stage that holds most.
    """

    stages: tuple[StageExcess, ...]
    total_ms: float
    p50_ms: float

    def part(self, stage: Stage) -> float:
        """A stage's share of all that was added; 0 if nothing was, or it took none."""
        added = math.fsum(found.excess_ms for found in self.stages if found.excess_ms > 0)
        own = math.fsum(found.excess_ms for found in self.stages if found.stage is stage)
        return max(own, 0.0) / added if added > 0 else 0.0


@dataclass(frozen=True)
class Account:
    """The excess of every slow request of a cohort, in its order: in all, and by stage."""

    total: Floats
    by_stage: dict[Stage, Floats]
    weight: Floats

    def of(self, chosen: Mask) -> Excess:
        """The excess of some of the slow requests, at least one."""
        weight = self.weight[chosen]
        sums = [
            StageExcess(stage, math.fsum(values[chosen] * weight))
            for stage, values in self.by_stage.items()
        ]
        sums.sort(key=lambda found: -found.excess_ms)
        return Excess(
            tuple(sums),
            math.fsum(self.total[chosen] * weight),
            quantile_of(self.total[chosen], 0.5, weight),
        )

    def long_pole(self, chosen: Mask, others: Mask, risk_ratio: float) -> Stage:
        """The stage that holds most of what some slow requests lose beyond the others' risk.

        So many as there would be at that risk anyway are taken to lose their time as the others do.
        """
        usual = self.weight[others].sum()
        anyway = self.weight[chosen].sum() / risk_ratio / usual if usual else 0.0
        net = {
            stage: float(
                (values * self.weight)[chosen].sum() - anyway * (values * self.weight)[others].sum()
            )
            for stage, values in self.by_stage.items()
        }
        return max(net, key=net.__getitem__)


def metric_stages(metric: str) -> tuple[Stage, ...]:
    """The stages that can hold the time of a metric; any, for one of the whole request."""
    return _METRIC_STAGES.get(metric, tuple(Stage))


def account(found: Cohort) -> Account:
    """Each slow request's time above the median of its stratum's requests that are not slow.

    Where there are under five such requests, above the median of all that are not slow; where
    there are none at all, everything is excess. A stage that is unknown adds nothing.
    """
    normal = np.flatnonzero(~found.is_slow)
    groups = [
        (found.stratum[rows[0]], rows)
        for rows in (normal[group] for group in groups_of(found.stratum[normal]))
        if len(rows) >= MIN_BASELINE
    ]

    def above(values: Floats) -> Floats:
        usual = np.full(int(found.stratum.max(initial=0)) + 1, _median(values, normal, found))
        for stratum, rows in groups:
            usual[stratum] = _median(values, rows, found)
        excess: Floats = np.nan_to_num((values - usual[found.stratum])[found.is_slow])
        return excess

    weight = np.ones(found.num_slow) if found.weight is None else found.weight[found.is_slow]
    by_stage = {stage: above(values) for stage, values in _stage_times(found).items()}
    return Account(above(found.values), by_stage, weight)


def _median(values: Floats, rows: Codes, found: Cohort) -> float:
    """The median of known values; 0 without any."""
    chosen = values[rows]
    is_known = ~np.isnan(chosen)
    if not is_known.any():
        return 0.0
    weight = None if found.weight is None else found.weight[rows][is_known]
    return quantile_of(chosen[is_known], 0.5, weight)


def _stage_times(found: Cohort) -> dict[Stage, Floats]:
    """The times of the metric's stages that are known, and what they leave of it."""
    frame = found.requests
    known = {
        stage: numbers(frame, f"{stage.value}_ms")
        for stage in metric_stages(found.metric)
        if frame[f"{stage.value}_ms"].count()
    }
    if (
        found.metric == "e2e_ms"
        and not known.keys() & set(TTFT_STAGES)
        and frame["ttft_ms"].count()
    ):
        known[Stage.TTFT_OPAQUE] = numbers(frame, "ttft_ms")
    rest = _REST.get(found.metric, metric_stages(found.metric)[-1] if not known else None)
    if rest is not None and rest not in known:
        explained = sum((np.nan_to_num(values) for values in known.values()), np.zeros(1))
        known[rest] = np.maximum(found.values - explained, 0.0)
    return known
