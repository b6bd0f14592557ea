"""Change detection: which new version, model or deploy moved which stage, and by how much.

First, without a look at any latency: which values of a dimension appear on a route, or rise in
their share of it at one moment (the largest deviation of the cumulative count, Page's CUSUM,
Biometrika 41, 1954). Then, stage by stage: the requests with the value after that moment against
those without it before, within strata of prompt and answer length, so that a change of what is
sent is not taken for one of how fast it is answered (van Elteren's stratified rank test,
Bulletin of the International Statistical Institute 37, 1960). All tests of a run stand under one
false discovery rate, and what moves as much without the value is not laid to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.attribution import STATE_DIMENSIONS
from longpole_analytics.cohort import (
    UNKNOWN,
    Codes,
    Cohort,
    Floats,
    StratumRules,
    coded,
    cohort,
    groups_of,
    numbers,
)
from longpole_analytics.requests import EFFECTS, dimension_names
from longpole_analytics.stats import benjamini_hochberg, rank, rank_interval

ROUTE: Final = "route"


@dataclass(frozen=True)
class ChangeRules:
    """What is a change, and what it must move.

    Attributes:
        min_requests: on each side, at least.
        max_requests: on each side, those nearest in time.
        num_bins: moments looked at on a route, equal in requests.
        min_rise: how much a value's share of its route rises, at least.
        min_new_share: share that a value which was not there before has afterwards, at least.
        max_changes: changes that are tested, those of most requests.
        min_moved_ms: shift of a stage's median, at least.
        min_moved_share: the same as a part of the metric's median before.
        rate: false discovery rate over all changes and stages.
        min_evidence: how many standard errors a share must rise by.
        strata: what is comparable.
    """

    min_requests: int = 30
    max_requests: int = 10_000
    num_bins: int = 200
    min_rise: float = 0.3
    min_new_share: float = 0.05
    max_changes: int = 20
    min_moved_ms: float = 10.0
    min_moved_share: float = 0.05
    rate: float = 0.05
    min_evidence: float = 6.0
    strata: StratumRules = field(default_factory=StratumRules)


class Moved(NamedTuple):
    """A stage's median before and by how much it moved at like lengths, with a 95 % interval."""

    stage: Stage
    before_ms: float
    moved_ms: float
    ci95: tuple[float | None, float | None]
    p_value: float


@dataclass(frozen=True)
class Change:
    """A value that appeared on a route or rose there, and the stages that moved with it.

    ``where`` has several values if they came at the same moment on the same requests: they can't
    be told apart. ``previous`` is what they took the place of; ``None`` if unknown. Shares are
    of the route's requests.
    """

    route: str | None
    where: dict[str, str]
    previous: dict[str, str | None]
    at_ns: int
    share_before: float
    share_after: float
    num_before: int
    num_after: int
    stages: tuple[Moved, ...]

    @property
    def moved_ms(self) -> float:
        """All shifts together."""
        return math.fsum(moved.moved_ms for moved in self.stages)


class _Rise(NamedTuple):
    """A value whose share rises: from row ``place`` on, of the rows of its route in time."""

    name: str
    value: str
    previous: str | None
    place: int
    share_before: float
    share_after: float


class _Tested(NamedTuple):
    rises: list[_Rise]
    rows: Codes
    sides: tuple[Codes, Codes]
    moved: list[Moved]


def changes(
    requests: pl.DataFrame,
    metric: str = "e2e_ms",
    *,
    dimensions: Sequence[str] | None = None,
    rules: ChangeRules | None = None,
) -> tuple[Change, ...]:
    """The changes that moved a stage, that which moved most first.

    Empty where start times are unknown, where nothing changed, or where nothing moved with it.

    Args:
        requests: a table of ``longpole_analytics.requests``.
        metric: only requests that have it are looked at; a stage must move a part of it.
        dimensions: columns whose values may change; all but effects by default.
        rules: what is a change.
    """
    rules = rules or ChangeRules()
    timed = requests.filter(pl.col("start_ns").is_not_null()).sort("start_ns", "trace_id")
    found = cohort(timed, metric, objective_ms=math.inf, rules=rules.strata)
    if len(found.values) < 2 * rules.min_requests:
        return ()
    if dimensions is None:
        dimensions = dimension_names(requests)
    names = [n for n in dimensions if n not in (*EFFECTS, *STATE_DIMENSIONS, ROUTE)]
    tested = _tested(found, names, rules)
    tests = [(one, moved) for one in tested for moved in one.moved]
    passed = benjamini_hochberg([moved.p_value for _, moved in tests], rules.rate)
    kept = {index: tests[index][1] for index in passed}
    shown: list[Change] = []
    number = 0
    for one in tested:
        stages = [kept[i] for i in range(number, number + len(one.moved)) if i in kept]
        number += len(one.moved)
        least = _least(found, one.sides[0], rules)
        large = [moved for moved in stages if _is_large(moved, least)]
        if large:
            shown.append(_change(found, one, sorted(large, key=lambda m: -abs(m.moved_ms))))
    return tuple(sorted(shown, key=lambda c: (-abs(c.moved_ms), c.at_ns, str(c.where))))


# --- what changed -------------------------------------------------------------------------------
def _tested(found: Cohort, names: Sequence[str], rules: ChangeRules) -> list[_Tested]:
    """The changes of every route, each with the shift of every stage."""
    frame = found.requests
    columns = {name: coded(frame[name]) for name in names if name in frame.columns}
    routes = coded(frame[ROUTE]).codes if ROUTE in frame.columns else np.zeros(frame.height, int)
    candidates: list[tuple[float, Codes, list[_Rise]]] = []
    for rows in groups_of(routes):
        if len(rows) < 2 * rules.min_requests:
            continue
        same: dict[tuple[int, bytes], list[_Rise]] = {}
        for name, values in columns.items():
            codes = values.codes[rows]
            for rise in _rises(name, codes, values.names, rules):
                inside = codes == values.names.index(rise.value) + 1
                same.setdefault((rise.place, np.packbits(inside).tobytes()), []).append(rise)
        candidates += [
            ((part[0].share_after - part[0].share_before) * len(rows), rows, part)
            for part in same.values()
        ]
    candidates.sort(key=lambda found: -found[0])
    times = {
        stage: numbers(frame, f"{stage.value}_ms")
        for stage in Stage
        if frame[f"{stage.value}_ms"].count()
    }
    tested = []
    for _, rows, rises in candidates[: rules.max_changes]:
        first = columns[rises[0].name]
        is_value = first.codes[rows] == first.names.index(rises[0].value) + 1
        later = np.arange(len(rows)) >= rises[0].place
        before = rows[~later & ~is_value][-rules.max_requests :]
        after = rows[later & is_value][: rules.max_requests]
        if min(len(before), len(after)) < rules.min_requests:
            continue
        beside = rows[later & ~is_value][: rules.max_requests]
        control = beside if len(beside) >= rules.min_requests else None
        moved = [
            shift
            for stage, values in times.items()
            if (shift := _shift(found, stage, values, before, after, control)) is not None
        ]
        tested.append(_Tested(rises, rows, (before, after), moved))
    return tested


def _rises(name: str, codes: Codes, names: list[str], rules: ChangeRules) -> list[_Rise]:
    """The values of a dimension that appear on a route or rise there, by the moment they do."""
    sizes = np.bincount(codes, minlength=len(names) + 1)
    values = np.flatnonzero(sizes >= rules.min_requests)
    if len(values) < 2:
        return []
    lookup = np.zeros(len(sizes), np.int64)
    lookup[values] = np.arange(1, len(values) + 1)
    num_bins = min(rules.num_bins, len(codes) // 10)
    bins = np.arange(len(codes)) * num_bins // len(codes)
    table = np.bincount(
        bins * (len(values) + 1) + lookup[codes], minlength=num_bins * (len(values) + 1)
    ).reshape(num_bins, -1)[:, 1:]
    ends = np.searchsorted(bins, np.arange(num_bins), "right")
    reached = table.cumsum(0)
    overall = reached[-1] / len(codes)
    # Rising values lie lowest under their mean line just before they rise.
    split = (reached - ends[:, None] * overall).argmin(0)
    rises = []
    for number, value in enumerate(values):
        # The exact row lies in this bin or the next.
        first = int(ends[split[number] - 1]) if split[number] else 0
        last = int(ends[min(split[number] + 1, num_bins - 1)])
        steps = (codes[first:last] == value) - overall[number]
        place = first + int(np.argmin(np.concatenate([[0.0], steps.cumsum()])))
        if value == UNKNOWN or not 0 < place < len(codes):
            continue
        num_before = int((codes[:place] == value).sum())
        is_new = num_before == 0
        before, after = num_before / place, (sizes[value] - num_before) / (len(codes) - place)
        error = math.sqrt(
            overall[number] * (1 - overall[number]) * (1 / place + 1 / (len(codes) - place))
        )
        enough = rules.min_new_share if is_new else rules.min_rise
        if after - before < max(enough, rules.min_evidence * error):
            continue
        fallen = np.bincount(codes[:place], minlength=len(sizes)) / place
        fallen = fallen - np.bincount(codes[place:], minlength=len(sizes)) / (len(codes) - place)
        most = int(fallen.argmax())
        previous = names[most - 1] if most != UNKNOWN else None
        rises.append(_Rise(name, names[value - 1], previous, place, float(before), float(after)))
    return rises


# --- what moved ---------------------------------------------------------------------------------
def _shift(
    found: Cohort,
    stage: Stage,
    values: Floats,
    before: Codes,
    after: Codes,
    control: Codes | None,
) -> Moved | None:
    """How far a stage moved at like lengths; ``None`` where no stratum has both sides."""
    old, new = _residuals(values, found.stratum, before, after)
    if not len(old) or not len(new):
        return None
    p_value = _van_elteren(values, found.stratum, before, after)
    if control is not None:
        # What stands beside the change must not have moved as far, nor the same way as surely.
        beside = _residuals(values, found.stratum, before, control)[1]
        if len(beside) and abs(_middle(beside)) > 0.5 * abs(_middle(new)):
            p_value = max(p_value, _van_elteren(values, found.stratum, control, after))
    low, high = _interval(old), _interval(new)
    ci95 = (
        None if high[0] is None or low[1] is None else high[0] - low[1],
        None if high[1] is None or low[0] is None else high[1] - low[0],
    )
    usual = _middle(values[before][~np.isnan(values[before])])
    return Moved(stage, usual, _middle(new) - _middle(old), ci95, p_value)


def _residuals(
    values: Floats, stratum: Codes, before: Codes, after: Codes
) -> tuple[Floats, Floats]:
    """Both sides less the median before of their stratum; without strata that lack a side."""
    sides = [rows[~np.isnan(values[rows])] for rows in (before, after)]
    old, new = (values[rows] for rows in sides)
    of_old, of_new = (stratum[rows] for rows in sides)
    usual = np.full(int(stratum.max()) + 1, np.nan)
    for group in groups_of(of_old):
        usual[of_old[group[0]]] = _middle(old[group])
    has_new = np.zeros(len(usual), bool)
    has_new[of_new] = True
    rest = (new - usual[of_new])[~np.isnan(usual[of_new])]
    return (old - usual[of_old])[has_new[of_old]], rest


def _van_elteren(values: Floats, stratum: Codes, before: Codes, after: Codes) -> float:
    """Two-sided p-value of equal distributions within every stratum; ties share their rank."""
    rows = np.concatenate([before, after])
    is_after = np.arange(len(rows)) >= len(before)
    known = ~np.isnan(values[rows])
    rows, is_after = rows[known], is_after[known]
    difference = variance = 0.0
    for group in groups_of(stratum[rows]):
        num, num_after = len(group), int(is_after[group].sum())
        if not 0 < num_after < num:
            continue
        _, place, counts = np.unique(values[rows[group]], return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
        ties = 1 - float((counts.astype(float) ** 3 - counts).sum()) / (num**3 - num)
        weight = 1 / (num + 1)
        difference += weight * (ranks[is_after[group]].sum() - num_after * (num + 1) / 2)
        variance += weight**2 * num_after * (num - num_after) * (num + 1) / 12 * ties
    return math.erfc(abs(difference) / math.sqrt(2 * variance)) if variance > 0 else 1.0


def _middle(values: Floats) -> float:
    """The median; 0 of no values."""
    place = rank(len(values), 0.5) - 1
    return float(np.partition(values, place)[place]) if len(values) else 0.0


def _interval(values: Floats) -> tuple[float | None, float | None]:
    ordered = np.sort(values)
    low, high = rank_interval(len(ordered), 0.5)
    return (
        float(ordered[low - 1]) if low else None,
        float(ordered[high - 1]) if high else None,
    )


def _least(found: Cohort, before: Codes, rules: ChangeRules) -> float:
    """The smallest shift worth telling."""
    return max(rules.min_moved_ms, rules.min_moved_share * _middle(found.values[before]))


def _is_large(moved: Moved, least: float) -> bool:
    """Large enough, and surely not the other way round."""
    low, high = moved.ci95
    is_sure = (low is not None and low > 0) or (high is not None and high < 0)
    return abs(moved.moved_ms) >= least and is_sure


def _change(found: Cohort, one: _Tested, stages: list[Moved]) -> Change:
    first = one.rises[0]
    row = int(one.rows[first.place])
    frame = found.requests
    return Change(
        route=frame[ROUTE][row] if ROUTE in frame.columns else None,
        where={rise.name: rise.value for rise in one.rises},
        previous={rise.name: rise.previous for rise in one.rises},
        at_ns=int(frame["start_ns"][row]),
        share_before=first.share_before,
        share_after=first.share_after,
        num_before=len(one.sides[0]),
        num_after=len(one.sides[1]),
        stages=tuple(stages),
    )
