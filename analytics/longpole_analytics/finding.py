"""The one answer that matters: which route is slow, where, for whom, why, and what to do.

:func:`find` takes the rows of the three views and returns the finding of the route that loses
most time, or nothing when there is nothing honest to say. Same rows, same finding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_analytics.attribution import (
    MIN_TRACES,
    Cause,
    causes_of,
    worst,
)
from longpole_analytics.cohort import Cohort, cohort
from longpole_analytics.excess import Account, account
from longpole_analytics.reasons import reasons
from longpole_analytics.requests import ALIASES, TIMES, from_views
from longpole_analytics.stats import highest_shown, quantile
from longpole_analytics.wording import milliseconds, percent, quantile_name, where_text

DIMENSIONS: Final = ("prompt_version", "request_model", "route_version", "slo_class")
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
    """The requests of one route, and the quantile that they carry."""

    found: Cohort
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
        metric: a time of ``longpole_analytics.requests``, or ``wall_ms``. A trace counts by its
            slowest call.
        dimensions: columns of ``traces`` or ``calls`` to slice by, the likeliest cause first.

    Raises:
        BadInput: there is no such metric.
    """
    return find_among(
        from_views(traces, stages, calls),
        calls,
        objective_ms=objective_ms,
        metric=metric,
        dimensions=dimensions,
    )


def find_among(
    requests: pl.DataFrame,
    calls: pl.DataFrame,
    *,
    objective_ms: float | None = None,
    metric: str = "ttft_ms",
    dimensions: Sequence[str] = DIMENSIONS,
) -> Finding | None:
    """As :func:`find`, of workflows whose table is made already.

    Args:
        requests: rows of a table of ``longpole_analytics.requests``.
        calls: rows of the view ``calls``, those of the workflows among them.
        objective_ms: see :func:`find`, as what follows.
        metric: likewise.
        dimensions: likewise.

    Raises:
        BadInput: there is no such metric.
    """
    column = ALIASES.get(metric, metric)
    if column not in TIMES:
        raise BadInput(f"no metric '{metric}': use {', '.join(TIMES)}")
    route = _worst_route(requests, column, objective_ms)
    if route is None:
        return None
    known, above = route.found.requests, account(route.found)
    found = causes_of(route.found, above, dimensions=dimensions)
    cause = found.causes[0] if found.causes else None
    where = cause.where if cause else {}
    inside, rest = _split(route.found, where)
    stage, share, exemplars = _long_pole(route.found, above, cause)
    why, do = reasons(inside, rest, calls, stage, where)
    return Finding(
        route=known["route"][0],
        metric=metric,
        quantile=route.level,
        value_ms=quantile(route.found.values.tolist(), route.level) or 0.0,
        objective_ms=objective_ms,
        num_traces=known.height,
        num_slow=route.found.num_slow,
        stage=stage,
        share_of_excess=share,
        where=where,
        cause=cause,
        why=_confounded(cause) + (why if found.reason is None else (*why, found.reason)),
        do=do,
        what_if_ms=_what_if_ms(inside, rest, column, stage, route.level),
        exemplars=exemplars,
    )


def _worst_route(frame: pl.DataFrame, metric: str, objective_ms: float | None) -> _Route | None:
    """The route whose slow traces lost most time; the first by name of equal ones.

    Lost is what is above the objective; without one, above the median of those not slow, since
    routes of different size carry different quantiles.
    """
    worst_route: _Route | None = None
    most_ms = 0.0
    known = frame.filter(pl.col(metric).is_finite())
    for _, traces in sorted(known.group_by("route"), key=lambda group: str(group[0][0])):
        level = highest_shown(traces.height, MAX_QUANTILE)
        if level is None or traces.height < MIN_TRACES:
            continue
        ordered = traces.sort("trace_id")
        found = cohort(ordered, metric, objective_ms=objective_ms, slow_quantile=level)
        limit = objective_ms
        if limit is None:
            limit = quantile(found.values[~found.is_slow].tolist(), 0.5) or 0.0
        lost_ms = float((found.values[found.is_slow] - limit).sum())
        if lost_ms > most_ms:
            worst_route, most_ms = _Route(found, level), lost_ms
    return worst_route


def _confounded(cause: Cause | None) -> tuple[str, ...]:
    """What is to be said where the slice looks much better or worse than it is."""
    if cause is None or not cause.is_confounded:
        return ()
    return (
        f"slow {cause.crude_risk_ratio:.1f} times as often, {cause.risk_ratio:.1f} times at like "
        "lengths: prompt and answer length confound it",
    )


def _split(found: Cohort, where: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The traces of the slice and the others; without a slice, the slow ones and the others."""
    inside = pl.lit(pl.Series(found.is_slow))
    if where:
        inside = pl.all_horizontal(pl.col(n).eq_missing(value) for n, value in where.items())
    return found.requests.filter(inside), found.requests.filter(~inside)


def _long_pole(
    found: Cohort, above: Account, cause: Cause | None
) -> tuple[Stage, float, tuple[str, ...]]:
    """Stage, its share of the excess, and exemplars: the cause's, else of all slow traces."""
    if cause is not None:
        return cause.stage, cause.share_of_excess, cause.exemplars
    every = found.is_slow[found.is_slow]
    size = above.of(every)
    stage = size.stages[0].stage
    return stage, size.part(stage), worst(found, above, every)


def _what_if_ms(
    inside: pl.DataFrame, rest: pl.DataFrame, metric: str, stage: Stage, level: float
) -> float:
    """How much lower the quantile would be with the stage in ``inside`` as it is in ``rest``.

    Each trace is played again with the stage's critical time cut to that median; what runs side
    by side with it may save less, so this is the most that can be had.
    """
    column = f"{stage.value}_ms"
    usual = quantile(rest[column].drop_nulls().to_list(), 0.5)
    if usual is None:
        return 0.0
    old = [*inside[metric].to_list(), *rest[metric].to_list()]
    surplus = [max(value - usual, 0.0) for value in inside[column].fill_null(0.0)]
    new = [
        max(value - cut, 0.0)
        for value, cut in zip(old, [*surplus, *[0.0] * rest.height], strict=True)
    ]
    return (quantile(old, level) or 0.0) - (quantile(new, level) or 0.0)
