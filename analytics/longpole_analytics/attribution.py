"""Tail attribution: which slices the slow requests are in, and in which stage they lose their time.

A search over one, two or three attributes in the manner of DIFF and MacroBase (Abuzaid et al.,
VLDB 2019; Bailis et al., SIGMOD 2017): support, risk ratio, minimality, with false discoveries
controlled over all that was examined. The risk ratio is Mantel-Haenszel's over strata of route,
prompt and answer length, so that a slice is not blamed for merely sending longer prompts. What is
found is an association, never a proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.cohort import Cohort, Floats, Mask, StratumRules, cohort
from longpole_analytics.excess import Account, StageExcess, account
from longpole_analytics.requests import EFFECTS, dimension_names
from longpole_analytics.search import Search, SearchRules, Slice

STATE_DIMENSIONS: Final = ("cache_state", "is_cold")
"""Facts that are themselves an effect; blamed only for what no other slice explains."""
MIN_TRACES: Final = 20
NUM_EXEMPLARS: Final = 10
CONFOUNDED_GAP: Final = 0.3
"""A crude risk ratio farther from the adjusted one owes it to what the slice is sent."""


@dataclass(frozen=True)
class CauseRules:
    """What a slice must show to be blamed.

    Attributes:
        max_causes: causes of one answer, at most.
        max_attributes: attributes of one slice, at most.
        search: support and strength.
        strata: what is comparable.
    """

    max_causes: int = 5
    max_attributes: int = 2
    search: SearchRules = field(default_factory=SearchRules)
    strata: StratumRules = field(default_factory=StratumRules)


@dataclass(frozen=True)
class Cause:
    """One slice that slow requests are in more often than others, and the stage of the excess.

    Counts are of the whole slice, not weighted; ``of_slow`` and ``of_rest`` are its shares of
    slow and of other requests. ``risk_ratio`` is adjusted for length and route;
    ``attributable`` is the share of all slow requests that would not be slow at the others' risk.
    The excess, against the median of comparable requests, is of the slow requests that no cause
    before this one explains, so that it adds up; ``stage`` holds most of what is lost beyond the
    others' risk, and ``share_of_excess`` of the excess.
    """

    stage: Stage
    share_of_excess: float
    stages: tuple[StageExcess, ...]
    where: dict[str, str]
    route: str | None
    num_traces: int
    num_slow: int
    of_slow: float
    of_rest: float
    risk_ratio: float
    ci95: tuple[float, float]
    crude_risk_ratio: float
    attributable: float
    excess_ms_total: float
    excess_ms_p50: float
    exemplars: tuple[str, ...]

    @property
    def is_confounded(self) -> bool:
        """Whether length or route makes the slice look much better or worse than it is."""
        return abs(self.crude_risk_ratio / self.risk_ratio - 1) > CONFOUNDED_GAP


@dataclass(frozen=True)
class Attribution:
    """Causes ranked by the excess time they explain; without any, ``reason`` says why.

    ``is_examined`` is false where there was too little to look at.
    """

    causes: tuple[Cause, ...]
    num_traces: int
    num_slow: int
    reason: str | None
    is_examined: bool = True


def attribute(
    requests: pl.DataFrame,
    metric: str,
    *,
    dimensions: Sequence[str] | None = None,
    objective_ms: float | None = None,
    slow_quantile: float = 0.95,
    rules: CauseRules | None = None,
) -> Attribution:
    """The slices that explain slow requests, most excess time first, at most five.

    Each next cause is looked for among the requests that earlier causes do not explain. An empty
    table, or too few requests, gives no causes and a reason.

    Args:
        requests: a table of ``longpole_analytics.requests``.
        metric: the column that says how slow a request is, in milliseconds.
        dimensions: text columns to slice by, all by default; of two equal slices the earlier one
            is named. What is an effect itself is never blamed.
        objective_ms: slow is above it; without one, above the route's ``slow_quantile``.
        slow_quantile: see ``objective_ms``.
        rules: what a slice must show.
    """
    rules = rules or CauseRules()
    found = cohort(
        requests,
        metric,
        objective_ms=objective_ms,
        slow_quantile=slow_quantile,
        rules=rules.strata,
    )
    return causes_of(found, account(found), dimensions=dimensions, rules=rules)


def causes_of(
    found: Cohort,
    above: Account,
    *,
    dimensions: Sequence[str] | None = None,
    rules: CauseRules | None = None,
) -> Attribution:
    """As :func:`attribute`, of requests that are marked and accounted for already."""
    rules = rules or CauseRules()
    reason = _too_thin(found, rules)
    if reason is not None:
        return Attribution((), len(found.values), found.num_slow, reason, is_examined=False)
    if dimensions is None:
        dimensions = dimension_names(found.requests)
    causes: list[Cause] = []
    left = np.ones(len(found.values), bool)
    blamed = [d for d in dimensions if d not in (*EFFECTS, *STATE_DIMENSIONS)]
    for names in (blamed, STATE_DIMENSIONS):
        search = Search(found, names, rules.search)
        slices = search.strong(rules.max_attributes)
        while len(causes) < rules.max_causes:
            best = _best(search, slices, found, above, left, rules.search)
            if best is None:
                break
            causes.append(_cause(found, above, search, best, left))
            left &= ~search.may_hold(best)
    reason = None if causes else "no slice holds slow traces more often than others"
    return Attribution(tuple(causes), len(found.values), found.num_slow, reason)


def _too_thin(found: Cohort, rules: CauseRules) -> str | None:
    """Why nothing can be said of so few requests."""
    if not len(found.values):
        return f"no trace has {found.metric}"
    num, num_slow, least = len(found.values), found.num_slow, rules.search.min_support
    if num < MIN_TRACES:
        return f"too few traces: {num} of {MIN_TRACES}"
    if num_slow < least:
        return f"too few slow traces: {num_slow} of {least}"
    if num_slow == num:
        return "every trace is slow, so there is none to compare with"
    return None


def _best(
    search: Search,
    slices: Sequence[Slice],
    found: Cohort,
    above: Account,
    left: Mask,
    rules: SearchRules,
) -> Slice | None:
    """The slice that explains most excess of what is left, if it is still to blame for it."""
    best: Slice | None = None
    most = 0.0
    for part in slices:
        risk = search.risk(part, left)
        if risk is None or not rules.is_strong(risk.estimate, risk.low):
            continue
        slow = (search.rows_of(part) & left)[found.is_slow]
        explained = float((above.total * above.weight)[slow].sum()) * (1 - 1 / risk.estimate)
        if explained > most:
            best, most = part, explained
    return best


def _cause(found: Cohort, above: Account, search: Search, part: Slice, left: Mask) -> Cause:
    inside, where = search.rows_of(part), search.where(part)
    risk = search.risk(part, np.ones(len(inside), bool))
    assert risk is not None  # noqa: S101 - it was strong among all
    own = (inside & left)[found.is_slow]
    size = above.of(own)
    stage = above.long_pole(own, (left & ~inside)[found.is_slow], risk.estimate)
    weight = np.ones(len(inside)) if found.weight is None else found.weight
    of_slow = _share(weight, inside, found.is_slow)
    return Cause(
        stage=stage,
        share_of_excess=size.part(stage),
        stages=size.stages,
        where=where,
        route=where.get("route") or _only_route(found, inside & found.is_slow),
        num_traces=int(inside.sum()),
        num_slow=int((inside & found.is_slow).sum()),
        of_slow=of_slow,
        of_rest=_share(weight, inside, ~found.is_slow),
        risk_ratio=risk.estimate,
        ci95=(risk.low, risk.high),
        crude_risk_ratio=risk.crude,
        attributable=of_slow * (1 - 1 / risk.estimate),
        excess_ms_total=size.total_ms,
        excess_ms_p50=size.p50_ms,
        exemplars=worst(found, above, own),
    )


def worst(found: Cohort, above: Account, own: Mask) -> tuple[str, ...]:
    """Trace ids of those of the slow requests that lost most time, at most ten."""
    ids = found.requests["trace_id"].filter(pl.Series(found.is_slow)).filter(pl.Series(own))
    ordered = pl.DataFrame({"id": ids, "excess": above.total[own]}).sort(
        ["excess", "id"], descending=[True, False]
    )
    return tuple(ordered["id"].head(NUM_EXEMPLARS).to_list())


def _share(weight: Floats, part: Mask, whole: Mask) -> float:
    return float(weight[part & whole].sum() / weight[whole].sum())


def _only_route(found: Cohort, rows: Mask) -> str | None:
    """The route of the rows, if they are all of one."""
    if "route" not in found.requests.columns:
        return None
    routes = found.requests["route"].filter(pl.Series(rows)).unique()
    only: str | None = routes[0] if len(routes) == 1 else None
    return only
