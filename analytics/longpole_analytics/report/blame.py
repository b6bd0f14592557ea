"""The slow requests behind each cause, row by row: what a list of causes alone does not hold."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from longpole_analytics import weighted
from longpole_analytics.attribution import CauseRules
from longpole_analytics.cohort import Cohort, Floats, cohort, quantile_of
from longpole_analytics.excess import Account, account
from longpole_analytics.stats import is_shown, rank
from longpole_analytics.top import Top

P99 = 0.99


@dataclass(frozen=True)
class Own:
    """The slow requests that a cause is to blame for: what no cause before it explains.

    Attributes:
        ids: their trace ids.
        values: their metric, in milliseconds.
        excess_ms: what each is above comparable requests.
        versions: the versions of their routes.
        p99_now_ms: p99 of all requests on the routes of the cause; ``None`` of too few.
        p99_then_ms: the same, had its stage taken these requests no longer than usual.
        num_route: requests on these routes.
        weight: how many each of them stands for; ``None`` where each is one.
    """

    ids: tuple[str, ...]
    values: Floats
    excess_ms: Floats
    versions: tuple[str | None, ...]
    p99_now_ms: float | None
    p99_then_ms: float | None
    num_route: int
    weight: Floats | None = None

    @property
    def extra_p99_ms(self) -> float | None:
        """p99 of the excess; ``None`` where so few requests do not carry it."""
        if not _is_carried(self.excess_ms, self.weight):
            return None
        return quantile_of(self.excess_ms, P99, self.weight)

    @property
    def median_id(self) -> str | None:
        """The request in the middle, by its metric; of equal ones the first by id."""
        if not self.ids:
            return None
        order = sorted(zip(self.values.tolist(), self.ids, strict=True))
        return order[rank(len(order), 0.5) - 1][1]


@dataclass(frozen=True)
class Blame:
    """What slow requests lost in all, and whose it is.

    Attributes:
        is_slow: by request of ``requests``.
        requests: those whose metric is known.
        lost_ms: what all slow requests are above comparable ones; each counts by its weight.
        causes: one for each cause, in order.
    """

    requests: pl.DataFrame
    is_slow: np.ndarray
    lost_ms: float
    causes: tuple[Own, ...]


def blame(requests: pl.DataFrame, top: Top, rules: CauseRules) -> Blame:
    """The rows behind a list of causes.

    Args:
        requests: those that the causes were found in.
        top: the causes.
        rules: by which they were found.
    """
    found = cohort(
        requests,
        top.metric,
        objective_ms=top.slow.objective_ms,
        slow_quantile=top.slow.quantile,
        rules=rules.strata,
    )
    if not found.num_slow:
        return Blame(found.requests, found.is_slow, 0.0, ())
    above = account(found)
    left = found.is_slow.copy()
    owned: list[Own] = []
    for cause in top.causes:
        inside = pl.all_horizontal(pl.col(n).eq_missing(value) for n, value in cause.where.items())
        rows = found.requests.select(inside).to_series().to_numpy()
        owned.append(_own(found, above, rows & left, cause.stage.value))
        left &= ~rows
    lost = float((above.total * above.weight).sum())
    return Blame(found.requests, found.is_slow, lost, tuple(owned))


def _is_carried(values: Floats, weight: Floats | None) -> bool:
    """Whether requests carry a p99."""
    if weight is None:
        return is_shown(len(values), P99)
    return weighted.is_shown(weight[np.argsort(values, kind="stable")], P99)


def _own(found: Cohort, above: Account, chosen: np.ndarray, stage: str) -> Own:
    rows = found.requests.filter(pl.Series(chosen))
    of_slow = chosen[found.is_slow]
    lost = next((v for each, v in above.by_stage.items() if each.value == stage), above.total)
    now, then, num = _p99(found, chosen, np.maximum(lost[of_slow], 0.0))
    versions: list[str | None] = []
    if "route_version" in rows.columns:
        versions = rows["route_version"].unique().sort().to_list()
    return Own(
        tuple(rows["trace_id"].to_list()),
        found.values[chosen],
        above.total[of_slow],
        tuple(versions),
        now,
        then,
        num,
        None if found.weight is None else found.weight[chosen],
    )


def _p99(
    found: Cohort, chosen: np.ndarray, lost_ms: Floats
) -> tuple[float | None, float | None, int]:
    """p99 over the routes of the chosen requests, as it is and without what they lost."""
    then = found.values.copy()
    then[chosen] -= lost_ms
    route = np.ones(len(then), bool)
    if "route" in found.requests.columns:
        routes = found.requests["route"]
        own = routes.filter(pl.Series(chosen)).unique()
        route = routes.is_in(own.implode(), nulls_equal=True).to_numpy()
    num = int(route.sum())
    weight = None if found.weight is None else found.weight[route]
    if not _is_carried(found.values[route], weight):
        return None, None, num
    now = quantile_of(found.values[route], P99, weight)
    return now, quantile_of(then[route], P99, weight), num
