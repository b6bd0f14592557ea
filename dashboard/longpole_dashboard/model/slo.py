"""What the page of objectives shows: where each stands, and how its budget went.

The figures are those of ``longpole slo check``: the same functions over the same minutes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from longpole.config import find_file
from longpole_analytics.alerts.event import route_of
from longpole_analytics.alerts.settings import objectives_of
from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.slo.burn import Panel, burn_rates, panel, window
from longpole_analytics.slo.check import FloorStatus, Standing, floor_status, standings
from longpole_analytics.slo.objectives import LATENCIES, Objective, span
from longpole_analytics.slo.series import Series
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.box import Box, spelled
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.selection import spelled as spelled_match
from longpole_dashboard.model.slo_counting import Counted, count
from longpole_dashboard.model.window import COLUMNS, Filters, Match

MAX_STEPS: Final = 480
"""Points of a line over the period."""
MAX_BARS: Final = 60
MAX_OBJECTIVES: Final = 200
MAX_MARKS: Final = 12
MIN_SHARE: Final = 0.05
"""A version that takes less of its route's requests afterwards is no mark."""
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_VERSIONS: Final = ("prompt_version", "route_version")


@dataclass(frozen=True)
class Slos:
    """Where the objectives stand.

    Attributes:
        at_ns: the moment, the end of a minute; requests that begin before it count.
        standings: least budget first, then those of which nothing is known.
        broken: objectives whose condition cannot be asked, and why.
        num_requests: requests in the minutes that are looked at.
        num_uncounted: those that are not counted yet; above 0 no figure is final.
    """

    at_ns: int
    standings: tuple[Standing, ...]
    broken: tuple[tuple[str, str], ...]
    num_requests: int
    num_uncounted: int


@dataclass(frozen=True)
class Burn:
    """A window's burn rate step by step, the highest of each; ``None`` without requests."""

    window: str
    rates: tuple[float | None, ...]


@dataclass(frozen=True)
class Line:
    """A burn rate that a rule compares with."""

    label: str
    factor: float


@dataclass(frozen=True)
class Mark:
    """A version that appeared on a route."""

    at_ns: int
    text: str


@dataclass(frozen=True)
class Detail:
    """How one objective's budget went over its period.

    Attributes:
        standing: where it stands.
        step_min: minutes between two points of the lines.
        ends_ns: the end of each step.
        left: share of the whole period's budget that is left then; ``None`` before its first
            request. The last is the standing's.
        burns: the windows of its rules, shortest first.
        lines: what the rules compare with.
        bar_min: minutes of a bar.
        bars_ns: the start of each bar.
        good: good requests in each, by weight.
        bad: bad ones.
        marks: versions that appeared in the period on the objective's routes.
        num_bad: bad requests seen in the last minutes: how many minutes, how many requests, for
            the rules' windows and the period.
    """

    standing: Standing
    step_min: int
    ends_ns: tuple[int, ...]
    left: tuple[float | None, ...]
    burns: tuple[Burn, ...]
    lines: tuple[Line, ...]
    bar_min: int
    bars_ns: tuple[int, ...]
    good: tuple[float, ...]
    bad: tuple[float, ...]
    marks: tuple[Mark, ...]
    num_bad: tuple[tuple[int, int], ...]


def configured() -> tuple[Objective, ...]:
    """The objectives of the nearest ``longpole.toml``; none without one.

    Raises:
        UsageError: one of them cannot be read.
    """
    return objectives_of(find_file())


def about(objectives: Sequence[Objective], route: str | None) -> tuple[Objective, ...]:
    """Those that are about a route, or about more than one; all for ``None``."""
    chosen = (o for o in objectives if route is None or route_of(o) in (None, route))
    return tuple(chosen)[:MAX_OBJECTIVES]


def slos(objectives: tuple[Objective, ...], filters: Filters, reader: Reader) -> Slos:
    """Where ``objectives`` (at least one) stand at the end of the minute that the filters end in.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    minute = (filters.end_ns - 1) // MINUTE_NS
    found = count(objectives, minute, reader)
    wrong = {
        objectives[place].id: why for place, why in found.broken.items() if place < len(objectives)
    }
    told = [s for s in _standings(objectives, found, minute) if s.objective.id not in wrong]
    return Slos(
        (minute + 1) * MINUTE_NS,
        tuple(sorted(told, key=_by_budget)),
        tuple(wrong.items()),
        found.num_requests,
        found.num_uncounted,
    )


def count_on(objectives: tuple[Objective, ...], filters: Filters, tick: int, reader: Reader) -> int:
    """Requests that are not counted yet, after another look; ``tick`` makes it a new question."""
    return count(objectives, (filters.end_ns - 1) // MINUTE_NS, reader).num_uncounted


def detail(objectives: tuple[Objective, ...], slo: str, filters: Filters, reader: Reader) -> Detail:
    """How the objective of that id, which is one of ``objectives``, got where it stands.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    minute = (filters.end_ns - 1) // MINUTE_NS
    found = count(objectives, minute, reader)
    row = next(place for place, each in enumerate(objectives) if each.id == slo)
    objective = objectives[row]
    minutes = panel(objectives, found.series[: len(objectives)])
    standing = _standings(objectives, found, minute)[row]
    first = minute - objective.period_min + 1
    step = _step(objective.period_min, MAX_STEPS)
    bar = _step(objective.period_min, MAX_BARS)
    starts = range(first, minute + 1, bar)
    series = found.series[row]
    bad, total = (
        [_sum(part, at - series.first_minute, bar) for at in starts]
        for part in (series.bad_e6, series.total_e6)
    )
    return Detail(
        standing=standing,
        step_min=step,
        ends_ns=tuple((end + 1) * MINUTE_NS for end in _ends(first, minute, step)),
        left=_left(minutes, row, first, minute, step),
        burns=_burns(minutes, row, first, minute, step),
        lines=_lines(standing),
        bar_min=bar,
        bars_ns=tuple(at * MINUTE_NS for at in starts),
        good=tuple((t - b) / SCALE for t, b in zip(total, bad, strict=True)),
        bad=tuple(b / SCALE for b in bad),
        marks=marks(objective, first * MINUTE_NS, (minute + 1) * MINUTE_NS, reader),
        num_bad=tuple(
            (length, window(minutes, row, minute, length).num_bad)
            for length in sorted(
                {rule.long_min for rule in objective.rules} | {objective.period_min}
            )
        ),
    )


def is_enough(standing: Standing) -> bool:
    """Whether a share of good requests says anything about the promise.

    With fewer requests than those in which ``min_bad`` bad ones would just use the budget up,
    and fewer bad ones than that, nothing is known either way.
    """
    least = standing.objective.min_bad
    return standing.total > 0 and (
        standing.num_bad >= least or standing.total * standing.objective.budget >= least
    )


@dataclass(frozen=True)
class Explained:
    """Where Explore shows the requests that burn a budget.

    ``params`` is the address; ``is_whole`` says whether all of the objective's condition is in it.
    """

    params: dict[str, str | list[str]]
    is_whole: bool


MIN_EXPLAINED: Final = 30
"""Explore says what bad requests share where there are so many."""


def explained(shown: Detail, end_ns: int) -> Explained:
    """The window that burns most and as long before it; the bad ones of the former are boxed.

    Where it has too few bad requests to tell what they share, it is the next that has enough.
    """
    objective, rules = shown.standing.objective, shown.standing.rules
    rule = max(rules, key=lambda each: (each.burn_long or 0.0) / each.factor_used)
    longer = [(least, num) for least, num in shown.num_bad if least >= rule.rule.long_min]
    enough = (least for least, num in longer if num >= MIN_EXPLAINED)
    length = next(enough, rule.rule.long_min) * MINUTE_NS
    is_latency = objective.metric in LATENCIES
    box = Box(end_ns - length, end_ns, objective.threshold if is_latency else None)
    matches = _matches(objective.where)
    route = next((m.value for m in matches or () if m.column == "route"), None)
    others = [m for m in matches or () if m.column != "route"]
    return Explained(
        {
            "range": "",
            "from": iso(end_ns - 2 * length),
            "to": iso(end_ns),
            "route": route or "",
            "where": [spelled_match(match) for match in others],
            "metric": objective.metric if is_latency else "e2e_ms",
            "box": spelled(box),
        },
        matches is not None,
    )


_EQUALS: Final = re.compile(r"\s*(\w+)\s*=\s*'([^']*)'\s*")


def _matches(where: str | None) -> tuple[Match, ...] | None:
    """A condition that only says what columns must be; ``None`` for any other."""
    if where is None:
        return ()
    found = [_EQUALS.fullmatch(part) for part in re.split(r"\band\b", where, flags=re.IGNORECASE)]
    told = [Match(each[1], each[2]) for each in found if each is not None and each[1] in COLUMNS]
    return tuple(told) if len(told) == len(found) else None


_FIRST_SEEN: Final = """
SELECT route, {name} AS version, min(start_ns) AS at_ns, count(*) AS num,
       min(min(start_ns)) OVER (PARTITION BY route) AS route_ns
FROM traces WHERE start_ns >= ? AND start_ns < ? AND {name} IS NOT NULL
  AND (CAST(? AS VARCHAR) IS NULL OR route = CAST(? AS VARCHAR))
GROUP BY route, version ORDER BY route, at_ns
"""
"""Each version of a route when it was first seen, and how often."""


def marks(objective: Objective, start_ns: int, end_ns: int, reader: Reader) -> tuple[Mark, ...]:
    """Versions of prompt and route that appeared on an objective's route, the latest 12.

    A version that was there when its route was first seen is none, nor one that stayed rare.
    """
    route = route_of(objective)
    params = [start_ns, end_ns, route, route]
    found: list[Mark] = []
    for name in _VERSIONS:
        rows = reader.sql(_FIRST_SEEN.format(name=name), params).to_pylist()
        for of, same in groupby(rows, key=lambda row: row["route"]):
            seen = list(same)
            for place, row in enumerate(seen):
                since = sum(each["num"] for each in seen[place:])
                if row["at_ns"] > row["route_ns"] and row["num"] >= MIN_SHARE * since:
                    what = f"{name.replace('_', ' ')} {row['version']}"
                    found.append(Mark(row["at_ns"], f"{what} on {of}" if of else what))
    return tuple(sorted(found, key=lambda mark: mark.at_ns)[-MAX_MARKS:])


# --- parts --------------------------------------------------------------------------------------
def _standings(objectives: Sequence[Objective], found: Counted, minute: int) -> list[Standing]:
    num = len(objectives)
    floors: list[tuple[FloorStatus, ...]] = []
    rest = iter(found.series[num:])
    for objective in objectives:
        own = zip(objective.floors, rest, strict=False)
        period = objective.period_min
        floors.append(tuple(floor_status(f, objective, _tail(s, period)) for f, s in own))
    return standings(panel(objectives, found.series[:num]), minute, floors=floors)


def _tail(series: Series, length: int) -> Series:
    """The last minutes of a series."""
    first = series.first_minute + len(series.bad_e6) - length
    bad, total, num_bad = (
        column[-length:] for column in (series.bad_e6, series.total_e6, series.num_bad)
    )
    return Series(first, bad, total, num_bad, series.num_left_out)


def _by_budget(standing: Standing) -> tuple[bool, float, str]:
    remaining = standing.budget.remaining
    is_known = remaining is not None and is_enough(standing)
    return not is_known, remaining if remaining is not None else 0.0, standing.objective.id


def _step(length_min: int, most: int) -> int:
    return next((step for step in _STEPS_MIN if length_min <= step * most), 1440 * 2)


def _ends(first: int, last: int, step: int) -> list[int]:
    """The last minute of each step; the last step ends with the period."""
    return list(range(last, first - 1, -step))[::-1]


def _left(minutes: Panel, row: int, first: int, last: int, step: int) -> tuple[float | None, ...]:
    origin = first - minutes.first_minute
    bad, total = minutes.bad_e6[row], minutes.total_e6[row]
    allowed = float(total[last + 1 - minutes.first_minute] - total[origin])
    allowed *= minutes.objectives[row].budget
    found: list[float | None] = []
    for end in _ends(first, last, step):
        upto = end + 1 - minutes.first_minute
        has_begun = total[upto] > total[origin]
        found.append(1 - float(bad[upto] - bad[origin]) / allowed if has_begun else None)
    return tuple(found)


def _burns(minutes: Panel, row: int, first: int, last: int, step: int) -> tuple[Burn, ...]:
    lengths = sorted({rule.long_min for rule in minutes.objectives[row].rules})
    ends = _ends(first, last, step)
    found = []
    for length in lengths:
        rates = burn_rates(minutes, row, length, first, last)
        parts = (rates[max(end - step + 1 - first, 0) : end + 1 - first] for end in ends)
        found.append(Burn(span(length), tuple(_highest(part) for part in parts)))
    return tuple(found)


def _highest(rates: Any) -> float | None:
    known = rates[~np.isnan(rates)]
    return float(known.max()) if known.size else None


def _lines(standing: Standing) -> tuple[Line, ...]:
    return tuple(
        Line(
            f"{each.rule.severity} {span(each.rule.long_min)} & {span(each.rule.short_min)}: "
            f"{each.factor_used:.3g}x",
            each.factor_used,
        )
        for each in standing.rules
    )


def _sum(column: Any, place: int, length: int) -> int:
    return int(column[place : place + length].sum())
