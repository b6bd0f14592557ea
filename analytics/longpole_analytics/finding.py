"""The one answer that matters: which route is slow, where, for whom, why, and what to do.

:func:`find` takes the rows of the three views and returns the finding of the route that loses
most time, or nothing when there is nothing honest to say. Same rows, same finding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.attribution import (
    MIN_TRACES,
    NUM_EXEMPLARS,
    Attribution,
    Cause,
    attribute,
    excess,
    mark_slow,
    with_excess,
    with_strata,
)
from longpole_analytics.population import metric_stages, population, stage_column
from longpole_analytics.reasons import reasons
from longpole_analytics.stats import highest_shown, quantile
from longpole_analytics.wording import milliseconds, percent, quantile_name, where_text

DIMENSIONS: Final = ("prompt_version", "request_model", "route_version", "slo_class")
STATE_DIMENSIONS: Final = ("cache_state",)
"""Attributes that are themselves an effect; blamed only when no other slice explains the time."""
MAX_QUANTILE: Final = 0.95


@dataclass(frozen=True)
class Finding:
    """What is slow, where, for whom, why and what to do. Milliseconds; shares are of 1.

    ``quantile`` is the highest of p95, p90, p50 that ``num_traces`` carry, ``value_ms`` the
    metric there. ``where`` is empty and ``cause`` is ``None`` when no slice explains the time.
    ``what_if_ms`` is how much lower the quantile would be with the stage's time in the slice
    (without one: in the slow traces) down at the median of the others, all else equal.
    """

    route: str | None
    metric: str
    quantile: float
    value_ms: float
    objective_ms: float | None
    num_traces: int
    num_slow: int
    stage: Stage
    share_of_excess: float
    where: dict[str, str]
    cause: Cause | None
    why: tuple[str, ...]
    do: str
    what_if_ms: float
    exemplars: tuple[str, ...]

    def lines(self) -> list[tuple[str, str]]:
        """The finding as (label, text) pairs; names from spans stand in it as they came."""
        name = quantile_name(self.quantile)
        metric = self.metric.removesuffix("_ms").replace("_", " ")
        value = f"{name} {metric} {milliseconds(self.value_ms)}"
        base = f"{self.num_slow} of {self.num_traces} traces"
        if self.objective_ms is None:
            told = f"{value}, {base} above it"
        else:
            told = f"{base} over the objective of {milliseconds(self.objective_ms)} ({value})"
        pairs = [
            ("route", f"{self.route or '(no route)'}   {told}"),
            ("long pole", f"{self.stage.value}: {percent(self.share_of_excess)} of the excess"),
        ]
        if self.cause is not None:
            shares = (
                f"{percent(self.cause.of_slow)} of slow, {percent(self.cause.of_rest)} of others"
            )
            pairs.append(("slice", f"{where_text(self.where)}: {shares}"))
        pairs += [("why", fact) for fact in self.why]
        saved = f"; what-if: {name} -{milliseconds(self.what_if_ms)}" if self.what_if_ms else ""
        return [*pairs, ("do", self.do + saved)]


class _Route(NamedTuple):
    """The traces of one route with ``is_slow``, and the quantile that they carry."""

    traces: pl.DataFrame
    level: float


def find(
    traces: pl.DataFrame,
    stages: pl.DataFrame,
    calls: pl.DataFrame,
    *,
    objective_ms: float | None = None,
    metric: str = "ttft_ms",
    dimensions: Sequence[str] = DIMENSIONS,
) -> Finding | None:
    """The finding of the route that loses most time above the objective.

    Without an objective, slow is what lies above the route's own quantile. ``None`` when no route
    has 20 traces with the metric, or when none is slow.

    Args:
        traces: rows of the view ``traces``.
        stages: rows of the view ``trace_stages``.
        calls: rows of the view ``calls``.
        objective_ms: what the metric should stay under; ``None`` if there is no objective.
        metric: a column of ``calls`` or ``traces`` in milliseconds. A trace counts by its slowest
            call.
        dimensions: columns of ``traces`` or ``calls`` to slice by, the likeliest cause first.

    Raises:
        BadInput: neither view has the metric.
    """
    wanted = tuple(dict.fromkeys((*dimensions, *STATE_DIMENSIONS, "route")))
    frame = population(traces, stages, calls, metric=metric, dimensions=wanted)
    route = _worst_route(frame, metric, objective_ms)
    if route is None:
        return None
    found = _attribute(route, metric, objective_ms, dimensions)
    cause = found.causes[0] if found.causes else None
    where = cause.where if cause else {}
    inside, rest = _split(route.traces, where)
    stage, share, exemplars = _long_pole(route.traces, metric, cause)
    why, do = reasons(inside, rest, calls, stage, where)
    return Finding(
        route=route.traces["route"][0],
        metric=metric,
        quantile=route.level,
        value_ms=quantile(route.traces[metric].to_list(), route.level) or 0.0,
        objective_ms=objective_ms,
        num_traces=route.traces.height,
        num_slow=int(route.traces["is_slow"].sum()),
        stage=stage,
        share_of_excess=share,
        where=where,
        cause=cause,
        why=why if found.reason is None else (*why, found.reason),
        do=do,
        what_if_ms=_what_if_ms(inside, rest, metric, stage, route.level),
        exemplars=exemplars,
    )


def _worst_route(frame: pl.DataFrame, metric: str, objective_ms: float | None) -> _Route | None:
    """The route whose slow traces lost most time; the first by name of equal ones.

    Lost is what is above the objective; without one, above the median of those not slow, since
    routes of different size carry different quantiles.
    """
    worst: _Route | None = None
    most_ms = 0.0
    for _, traces in sorted(frame.group_by("route"), key=lambda group: str(group[0][0])):
        level = highest_shown(traces.height, MAX_QUANTILE)
        if level is None or traces.height < MIN_TRACES:
            continue
        marked = mark_slow(traces.sort("trace_id"), metric, objective_ms, level)
        limit = objective_ms
        if limit is None:
            limit = quantile(marked.filter(~pl.col("is_slow"))[metric].to_list(), 0.5) or 0.0
        lost_ms = float((marked.filter("is_slow")[metric] - limit).sum())
        if lost_ms > most_ms:
            worst, most_ms = _Route(marked, level), lost_ms
    return worst


def _attribute(
    route: _Route, metric: str, objective_ms: float | None, dimensions: Sequence[str]
) -> Attribution:
    """The causes among the dimensions; states are looked at only when there is none."""
    found = Attribution((), 0, 0, None)
    causes = [name for name in dimensions if name not in STATE_DIMENSIONS and name != "route"]
    for slices in (causes, STATE_DIMENSIONS):
        found = attribute(
            route.traces,
            metric,
            dimensions=slices,
            stages=metric_stages(metric),
            objective_ms=objective_ms,
            slow_quantile=route.level,
        )
        if found.causes:
            break
    return found


def _split(traces: pl.DataFrame, where: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The traces of the slice and the others; without a slice, the slow ones and the others."""
    inside = pl.col("is_slow")
    for dimension, value in where.items():
        inside = pl.col(dimension).eq_missing(value)
    return traces.filter(inside), traces.filter(~inside)


def _long_pole(
    traces: pl.DataFrame, metric: str, cause: Cause | None
) -> tuple[Stage, float, tuple[str, ...]]:
    """Stage, its share of the excess, and exemplars: the cause's, else of all slow traces."""
    if cause is not None:
        return cause.stage, cause.share_of_excess, cause.exemplars
    stages = metric_stages(metric)
    slow = with_excess(with_strata(traces), metric, stages).filter("is_slow")
    size = excess(slow, stages)
    worst = slow.sort(["excess_ms", "trace_id"], descending=[True, False])["trace_id"]
    return size.stage, size.share, tuple(worst.head(NUM_EXEMPLARS).to_list())


def _what_if_ms(
    inside: pl.DataFrame, rest: pl.DataFrame, metric: str, stage: Stage, level: float
) -> float:
    """How much lower the quantile would be with the stage in ``inside`` as it is in ``rest``.

    Each trace is played again with the stage's critical time cut to that median; what runs side
    by side with it may save less, so this is the most that can be had.
    """
    column = stage_column(stage)
    usual = quantile(rest[column].to_list(), 0.5)
    if usual is None:
        return 0.0
    old = [*inside[metric].to_list(), *rest[metric].to_list()]
    surplus = [max(value - usual, 0.0) for value in inside[column].to_list()]
    new = [
        max(value - cut, 0.0)
        for value, cut in zip(old, [*surplus, *[0.0] * rest.height], strict=True)
    ]
    return (quantile(old, level) or 0.0) - (quantile(new, level) or 0.0)
