"""Where the time of each slice goes, stage by stage: of all its requests, and of its slowest ones.

The mean of a slice hides its tail: what makes the slowest tenth slow may take no time in the
others. So the same bars are told for all requests and for those above the slice's p90 and p99.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.cohort import numbers, quantile_of
from longpole_analytics.requests import STAGE_TIMES
from longpole_analytics.slice_labels import ORDER, checked_metric, labelled, largest, weights
from longpole_analytics.slices import SliceRules
from longpole_analytics.stats import is_shown

TAILS: Final = (0.9, 0.99)
"""Quantiles of the slice above which its requests are looked at apart."""

Floats = npt.NDArray[np.float64]


class StageMean(NamedTuple):
    """A stage's mean on the critical path, and its share of the means of all stages."""

    stage: Stage
    mean_ms: float
    share: float


class Part(NamedTuple):
    """Some requests of a slice: all (``above`` is ``None``), or those above a quantile of it.

    ``limit`` is that quantile's value, ``mean`` the mean of the metric; both, and all stages, are
    left out where too few requests carry the quantile.
    """

    above: float | None
    n: int
    limit: float | None
    mean: float | None
    stages: tuple[StageMean, ...]

    def document(self) -> dict[str, Any]:
        """As ``longpole.slices/1`` has it."""
        return {
            **self._asdict(),
            "stages": [{**each._asdict(), "stage": each.stage.value} for each in self.stages],
        }


@dataclass(frozen=True)
class StageSlice:
    """One slice; ``num_unknown`` of its requests lack the metric, or their stages."""

    where: dict[str, str | None]
    num_unknown: int
    parts: tuple[Part, ...]

    def document(self) -> dict[str, Any]:
        """As ``longpole.slices/1`` has it."""
        return {
            "where": self.where,
            "num_unknown": self.num_unknown,
            "parts": [part.document() for part in self.parts],
        }


@dataclass(frozen=True)
class StageSlices:
    """The stages by slice, in the order of :func:`longpole_analytics.slices.slices`."""

    metric: str
    by: tuple[str, ...]
    slices: tuple[StageSlice, ...]
    num_left_out: int

    def document(self) -> dict[str, Any]:
        """What ``longpole slices --stages`` adds to its document."""
        return {"stages": [each.document() for each in self.slices]}


def stage_slices(
    requests: pl.DataFrame,
    by: Sequence[str],
    metric: str = "e2e_ms",
    *,
    tz: str = "UTC",
    rules: SliceRules | None = None,
) -> StageSlices:
    """The mean of each stage by slice, for all requests and for those above p90 and p99.

    A mean is over the requests that know the stage. A tail that fewer than ten requests make is
    not told.

    Args:
        requests: a table of requests.
        by: dimensions, numbers or stretches of time, as of
            :func:`longpole_analytics.slices.slices`.
        metric: a column of numbers: the slowest are those with the highest.
        tz: the time zone whose days and hours are meant.
        rules: how many slices; ``None`` for the defaults.

    Raises:
        BadInput: a column or the zone is not there, or a weight is below zero.
    """
    rules = rules or SliceRules()
    checked_metric(requests, metric)
    value = pl.col(metric).cast(pl.Float64)
    # kept apart from their labels: what is measured may be a dimension too
    known = requests.with_columns(
        pl.when(value.is_finite()).then(value).alias("__value"),
        weights(requests),
        *(pl.col(name).cast(pl.Float64).alias(f"__{name}") for name in STAGE_TIMES),
    )
    frame, _ = labelled(known.filter(pl.col("__weight") > 0), by, tz, rules.max_values)
    if frame.is_empty():
        return StageSlices(metric, tuple(by), (), 0)
    orders = [pl.col(name).min() for name in frame.columns if name.startswith(ORDER)]
    rows = pl.int_range(pl.len()).alias("__rows")
    size = pl.len().alias("__n")
    grouped = (
        frame.with_columns(rows).group_by(by, maintain_order=True).agg("__rows", size, *orders)
        if by
        else frame.select(rows.implode(), size)
    )
    kept, num_left_out = largest(grouped, by, rules.max_slices)
    times = np.stack([numbers(frame, f"__{name}") for name in STAGE_TIMES], axis=1)
    values, weight = numbers(frame, "__value"), numbers(frame, "__weight")
    found = []
    for row in kept.iter_rows(named=True):
        own = np.asarray(row["__rows"], np.int64)
        is_known = ~np.isnan(values[own]) & ~np.isnan(times[own]).all(axis=1)
        chosen = own[is_known]
        parts = _parts(values[chosen], times[chosen], weight[chosen])
        where = {name: row[name] for name in by}
        found.append(StageSlice(where, len(own) - len(chosen), parts))
    return StageSlices(metric, tuple(by), tuple(found), num_left_out)


def _parts(values: Floats, times: Floats, weight: Floats) -> tuple[Part, ...]:
    found = [_part(None, None, values, times, weight)]
    for q in TAILS:
        if not is_shown(len(values), q):
            found.append(Part(q, 0, None, None, ()))
            continue
        limit = quantile_of(values, q, None if np.all(weight == 1) else weight)
        is_above = values > limit
        found.append(_part(q, limit, values[is_above], times[is_above], weight[is_above]))
    return tuple(found)


def _part(
    above: float | None, limit: float | None, values: Floats, times: Floats, weight: Floats
) -> Part:
    if not len(values):
        return Part(above, 0, limit, None, ())
    means: dict[Stage, float] = {}
    for name, column in zip(STAGE_TIMES, times.T, strict=True):
        is_known = ~np.isnan(column)
        if is_known.any():
            mean = float(np.average(column[is_known], weights=weight[is_known]))
            means[Stage(name.removesuffix("_ms"))] = mean
    total = math.fsum(means.values())
    stages = tuple(
        StageMean(stage, mean, mean / total) for stage, mean in means.items() if mean > 0
    )
    return Part(above, len(values), limit, float(np.average(values, weights=weight)), stages)
