"""Where all objectives stand at a moment: budget, burn rates, alerts, floors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.slo.burn import Budget, Panel, budget, panel, reachable, window
from longpole_analytics.slo.lifecycle import Memory, Shown, advance, alert_key
from longpole_analytics.slo.objectives import Floor, Objective, Rule, span
from longpole_analytics.slo.series import Series, minute_series

SCHEMA: Final = "longpole.slo/1"
_WORST: Final[tuple[Shown, ...]] = ("firing", "pending", "inactive")


@dataclass(frozen=True)
class RuleStatus:
    """A rule at a moment: burn rates are ``None`` for a window without requests."""

    rule: Rule
    factor_used: float
    burn_long: float | None
    burn_short: float | None
    status: Shown


@dataclass(frozen=True)
class FloorStatus:
    """A floor over the period.

    Attributes:
        floor: what must hold.
        bad: weight of bad requests.
        total: weight of good and bad ones.
        status: ``met``, ``missed``, ``thin`` (missed on fewer bad requests than the objective
            asks for) or ``no_data``.
    """

    floor: Floor
    bad: float
    total: float
    status: str


@dataclass(frozen=True)
class Standing:
    """An objective at a moment.

    Attributes:
        objective: the promise.
        status: its worst rule's; ``no_data`` if none of them has requests in both windows.
        bad: weight of bad requests in the period.
        total: weight of good and bad ones.
        num_bad: bad requests seen in the period.
        num_left_out: requests that are neither good nor bad.
        budget: what is left of it.
        rules: its rules.
        floors: what goes with it.
    """

    objective: Objective
    status: Shown
    bad: float
    total: float
    num_bad: int
    num_left_out: int
    budget: Budget
    rules: tuple[RuleStatus, ...]
    floors: tuple[FloorStatus, ...]

    @property
    def is_breached(self) -> bool:
        """A rule fires, the budget is used up on enough bad requests, or a floor is missed."""
        return (
            self.status == "firing"
            or (self._is_used_up and self.num_bad >= self.objective.min_bad)
            or any(floor.status == "missed" for floor in self.floors)
        )

    @property
    def is_thin(self) -> bool:
        """Too little is known to say that the promise is kept or broken."""
        used_up_on_few = self._is_used_up and self.num_bad < self.objective.min_bad
        floors = any(floor.status in ("thin", "no_data") for floor in self.floors)
        return not self.is_breached and (self.status == "no_data" or used_up_on_few or floors)

    @property
    def _is_used_up(self) -> bool:
        return self.budget.remaining is not None and self.budget.remaining <= 0


def num_minutes(objectives: Sequence[Objective]) -> int:
    """Minutes that all periods and windows of objectives need."""
    return max(
        max(objective.period_min, *(rule.long_min for rule in objective.rules))
        for objective in objectives
    )


def check(
    objectives: Sequence[Objective],
    requests: Callable[[Objective], pl.DataFrame],
    at_ns: int,
) -> list[Standing]:
    """Where objectives stand at a moment, from the requests that began before it.

    Args:
        objectives: what is promised; empty gives nothing.
        requests: the table of requests that an objective is about.
        at_ns: the moment, Unix epoch nanoseconds; its minute counts as far as it has come.
    """
    if not objectives:
        return []
    last = (at_ns - 1) // MINUTE_NS
    length = num_minutes(objectives)
    series: list[Series] = []
    floors: list[tuple[FloorStatus, ...]] = []
    for objective in objectives:
        own = requests(objective).filter(pl.col("start_ns") < at_ns)
        series.append(minute_series(own, objective, last - length + 1, length))
        floors.append(_floors(own, objective, last))
    return standings(panel(objectives, series), last, floors=floors)


def floor_status(floor: Floor, objective: Objective, series: Series) -> FloorStatus:
    """Where a floor stands, from the minutes of the objective's period."""
    bad, total = int(series.bad_e6.sum()), int(series.total_e6.sum())
    if not total:
        status = "no_data"
    elif (total - bad) / total >= floor.target:
        status = "met"
    else:
        status = "missed" if series.num_bad.sum() >= objective.min_bad else "thin"
    return FloorStatus(floor, bad / SCALE, total / SCALE, status)


def standings(
    minutes: Panel,
    last: int,
    memory: Memory | None = None,
    floors: Sequence[tuple[FloorStatus, ...]] = (),
) -> list[Standing]:
    """Where the objectives of a panel stand after a minute.

    Args:
        minutes: the panel.
        last: the minute, since the Unix epoch.
        memory: alerts after that minute; ``None`` goes through the whole panel.
        floors: what goes with each objective.
    """
    memory = memory or advance(None, minutes, last)
    found: list[Standing] = []
    for row, objective in enumerate(minutes.objectives):
        rules = tuple(_rule(minutes, row, rule, last, memory) for rule in objective.rules)
        told = {rule.status for rule in rules}
        period = window(minutes, row, last, objective.period_min)
        found.append(
            Standing(
                objective,
                next((status for status in _WORST if status in told), "no_data"),
                period.bad_e6 / SCALE,
                period.total_e6 / SCALE,
                period.num_bad,
                minutes.num_left_out[row],
                budget(minutes, row, last),
                rules,
                floors[row] if floors else (),
            )
        )
    return found


def document(standings: Sequence[Standing], at_ns: int) -> dict[str, Any]:
    """The document ``longpole.slo/1``."""
    return {
        "schema": SCHEMA,
        "at": _time(at_ns // MINUTE_NS, at_ns % MINUTE_NS // 10**9),
        "slos": [_standing(standing) for standing in standings],
    }


def time_text(minute: int | None) -> str | None:
    """A minute since the Unix epoch in ISO 8601, UTC."""
    return None if minute is None else _time(minute)


# --- parts --------------------------------------------------------------------------------------
def _rule(minutes: Panel, row: int, rule: Rule, last: int, memory: Memory) -> RuleStatus:
    objective = minutes.objectives[row]
    long, short = (
        window(minutes, row, last, length).burn(objective.budget)
        for length in (rule.long_min, rule.short_min)
    )
    alert = memory.alerts[alert_key(objective, rule)][-1]
    return RuleStatus(rule, reachable(rule.factor, objective.budget), long, short, alert.shown)


def _floors(requests: pl.DataFrame, objective: Objective, last: int) -> tuple[FloorStatus, ...]:
    first = last - objective.period_min + 1
    return tuple(
        floor_status(floor, objective, minute_series(requests, floor, first, objective.period_min))
        for floor in objective.floors
    )


def _standing(standing: Standing) -> dict[str, Any]:
    objective, left = standing.objective, standing.budget
    return {
        "id": objective.id,
        "objective": objective.text,
        "class": objective.task_class,
        "owner": objective.owner,
        "status": standing.status,
        "is_breached": standing.is_breached,
        "budget": {
            "remaining": left.remaining,
            "exhausted_at": time_text(left.exhausted_at),
            "reason": left.reason or None,
            "burn_24h": left.burn_24h,
        },
        "events": {
            "bad": _count(standing.bad),
            "total": _count(standing.total),
            "left_out": standing.num_left_out,
        },
        "rules": [
            {
                "severity": each.rule.severity,
                "long": span(each.rule.long_min),
                "short": span(each.rule.short_min),
                "factor": each.rule.factor,
                "factor_used": each.factor_used,
                "burn_long": each.burn_long,
                "burn_short": each.burn_short,
                "status": each.status,
            }
            for each in standing.rules
        ],
        "floors": [
            {
                "metric": each.floor.metric,
                "threshold": each.floor.threshold,
                "target": each.floor.target,
                "bad": _count(each.bad),
                "total": _count(each.total),
                "status": each.status,
            }
            for each in standing.floors
        ],
    }


def _count(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _time(minute: int, second: int = 0) -> str:
    return datetime.fromtimestamp(minute * 60 + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
