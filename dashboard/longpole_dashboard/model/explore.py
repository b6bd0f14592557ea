"""What the selection on the map shares, and in which stage it loses its time.

The figures are those of ``longpole top``: the same strata, the same risk ratios, the same excess
over the median of comparable workflows of the same routes.
"""

import re
import shlex
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import polars as pl

from longpole_analytics.attribution import STATE_DIMENSIONS, CauseRules, causes_of
from longpole_analytics.cohort import Cohort, cohort
from longpole_analytics.excess import account
from longpole_analytics.requests import EFFECTS, dimension_names
from longpole_analytics.search import Search
from longpole_analytics.slo.objectives import LATENCIES, MAX_ID, from_tables
from longpole_analytics.slo.writing import to_toml
from longpole_analytics.thresholds import configured
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.clock import stretch_words
from longpole_dashboard.model.heatmap import METRICS, MIN_BOXED, box_condition, points
from longpole_dashboard.model.population import VALUE, Population, inside
from longpole_dashboard.model.scope import condition
from longpole_dashboard.model.window import Filters, Match

MAX_EXEMPLARS: Final = 200
MAX_DIFFERENCES: Final = 8
_NEVER: Final = 1e308
_TARGETS: Final = (0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.5)
"""What an objective may promise."""


@dataclass(frozen=True)
class Exemplar:
    """One workflow of the selection."""

    trace_id: str
    start_ns: int
    value: float
    wall_ms: float | None
    long_pole: str | None
    long_pole_ratio: float | None
    route: str | None
    prompt_version: str | None
    outcome: str | None


@dataclass(frozen=True)
class Picked:
    """How many workflows lie in the box, and the highest of them, at most 200.

    ``stood_for`` is how many the ``num`` that are there stand for, where not all were kept.
    """

    num: int
    exemplars: tuple[Exemplar, ...]
    stood_for: float | None = None

    @property
    def is_thin(self) -> bool:
        """Too few for shares."""
        return self.num < MIN_BOXED


@dataclass(frozen=True)
class Difference:
    """A slice that the selection holds more, or less, often than the rest does.

    Attributes:
        where: column -> value.
        num: workflows of the slice in the selection.
        of_selected: its share of the selection.
        of_rest: its share of the other workflows of the same routes.
        risk_ratio: how many times likelier it is to be selected, at like lengths; ``None`` where
            that cannot be told.
        low: lower end of its 95 % interval.
        high: its upper end.
        is_cause: ``longpole top`` names it.
    """

    where: tuple[tuple[str, str], ...]
    num: int
    of_selected: float
    of_rest: float
    risk_ratio: float | None
    low: float | None
    high: float | None
    is_cause: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether the interval is on one side of 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)

    @property
    def text(self) -> str:
        """The slice in words."""
        return " and ".join(f"{name}={value}" for name, value in self.where)


@dataclass(frozen=True)
class Extra:
    """A stage's mean ms in the selection above the usual of comparable workflows; signed."""

    stage: str
    mean_ms: float


@dataclass(frozen=True)
class Brushed:
    """The selection against the other workflows of the same routes.

    Attributes:
        num_selected: workflows in the box that were read.
        num_rest: workflows that they are compared with.
        num_read: of so many in the window; all stand for more where not all were read or kept.
        differences: what the selection shares, causes first; at most eight.
        extra: by stage, most first.
        extra_ms: in all.
        reason: why there is nothing; ``None`` where there is something.
    """

    num_selected: int = 0
    num_rest: int = 0
    num_read: int = 0
    differences: tuple[Difference, ...] = ()
    extra: tuple[Extra, ...] = ()
    extra_ms: float = 0.0
    reason: str | None = None


_PICKED: Final = """
WITH p AS ({points}),
b AS (SELECT trace_id, value, count(*) OVER () AS num, sum(weight) OVER () AS stood_for
      FROM p WHERE {box} ORDER BY value DESC, trace_id LIMIT {most})
SELECT b.trace_id, t.start_ns, b.value, b.num, b.stood_for, t.wall_ms, t.long_pole,
       t.long_pole_ms / nullif(t.wall_ms, 0) AS long_pole_ratio, t.route, t.prompt_version,
       t.outcome
FROM b JOIN (SELECT * FROM traces WHERE {traces}) AS t USING (trace_id)
ORDER BY b.value DESC, b.trace_id
"""


def picked(filters: Filters, metric: str, box: Box, reader: Reader) -> Picked:
    """The workflows in a box: how many, and the ones with the highest values."""
    condition, params = box_condition(box)
    asked = _PICKED.format(
        points=points(filters, METRICS[metric], is_above=box.low is not None, is_weighed=True),
        box=condition,
        traces=filters.on("traces"),
        most=MAX_EXEMPLARS,
    )
    rows = reader.sql(asked, {**filters.params, **params}).to_pylist()
    if not rows:
        return Picked(0, ())
    num, stood_for = rows[0]["num"], rows[0]["stood_for"]
    named = ({field.name: row[field.name] for field in fields(Exemplar)} for row in rows)
    exemplars = tuple(Exemplar(**row) for row in named)
    return Picked(num, exemplars, None if stood_for == num else stood_for)


def brushed(found: Population, box: Box, split: str | None = None) -> Brushed:
    """What the workflows in a box share that the others of their routes do not.

    Args:
        found: the workflows.
        box: the selection.
        split: a dimension whose values are compared; ``None`` compares all of them.
    """
    rules = configured(CauseRules(), "causes")
    rows, is_inside = found.requests, found.requests.select(inside(box)).to_series()
    num_selected = int(is_inside.sum())
    if "route" in rows.columns:
        routes = rows["route"].filter(is_inside).unique().implode()
        rows = rows.filter(pl.col("route").is_in(routes, nulls_equal=True))
    num_rest = rows.height - num_selected
    told = Brushed(num_selected, num_rest, found.requests.height)
    if min(num_selected, num_rest) < MIN_BOXED:
        which = "selected" if num_selected < MIN_BOXED else "others of the same routes"
        least = min(num_selected, num_rest)
        return replace(told, reason=f"too few {which}: {least} of {MIN_BOXED}")
    name = found.metric if found.metric in rows.columns else VALUE
    marked = cohort(rows, name, objective_ms=_NEVER, rules=rules.strata)
    group = replace(marked, is_slow=marked.requests.select(inside(box)).to_series().to_numpy())
    above = account(group)
    whole = above.weight.sum()
    extra = [
        Extra(stage.value, float((values * above.weight).sum() / whole))
        for stage, values in above.by_stage.items()
    ]
    return replace(
        told,
        differences=_differences(group, rules, split),
        extra=tuple(sorted(extra, key=lambda each: -each.mean_ms)),
        extra_ms=float((above.total * above.weight).sum() / whole),
    )


def _differences(group: Cohort, rules: CauseRules, split: str | None) -> tuple[Difference, ...]:
    causes = [] if split else list(causes_of(group, account(group), rules=rules).causes)
    found = [
        Difference(
            tuple(cause.where.items()),
            cause.num_slow,
            cause.of_slow,
            cause.of_rest,
            cause.risk_ratio,
            *cause.ci95,
            is_cause=True,
        )
        for cause in causes
    ]
    known = {each.where for each in found}
    names = dimension_names(group.requests)
    blamed = [n for n in names if n not in (*EFFECTS, *STATE_DIMENSIONS, VALUE)]
    groups = [[split]] if split else [blamed, list(STATE_DIMENSIONS)]
    others = [
        each
        for dimensions in groups
        for each in _single(group, dimensions, rules)
        if each.where not in known
    ]
    others.sort(key=_order)
    if not split:
        others = [each for each in others if each.is_decided or each.of_selected > each.of_rest]
    return tuple((found + others)[:MAX_DIFFERENCES])


def _order(each: Difference) -> tuple[int, float]:
    """What is more frequent in the selection first, what is undecided next, what is rarer last."""
    is_rarer = each.is_decided and (each.high or 0.0) < 1
    place = 2 if is_rarer else 0 if each.is_decided else 1
    return place, each.of_rest - each.of_selected


def _single(group: Cohort, names: list[str], rules: CauseRules) -> list[Difference]:
    """Every value of these dimensions that enough of the selection has."""
    search = Search(group, names, rules.search)
    every = np.ones(len(group.values), bool)
    weight = np.ones(len(every)) if group.weight is None else group.weight
    slow = group.is_slow
    found = []
    for part in search.single():
        where = search.where(part)
        if not set(where) <= set(names):
            continue
        rows = search.rows_of(part)
        risk = search.risk(part, every)
        found.append(
            Difference(
                tuple(where.items()),
                int((rows & slow).sum()),
                float(weight[rows & slow].sum() / weight[slow].sum()),
                float(weight[rows & ~slow].sum() / weight[~slow].sum()),
                *((None, None, None) if risk is None else (risk.estimate, risk.low, risk.high)),
            )
        )
    return found


def splits(found: Population) -> tuple[str, ...]:
    """The dimensions that tell at least two groups of workflows apart, by name."""
    names = dimension_names(found.requests.drop(VALUE))
    counts = {name: found.requests[name].drop_nulls().n_unique() for name in names}
    return tuple(sorted(name for name, count in counts.items() if 1 < count <= 200))


def where_of(where: tuple[Match, ...], reader: Reader) -> str | None:
    """The matches as commands take them by ``--where``; ``None`` without any."""
    return condition(where, "requests", reader)[0]


def command(
    filters: Filters, metric: str, box: Box, where: str | None, *, is_weighed: bool = False
) -> str:
    """The command that names the same causes; of a part of the window, the one that counts it.

    Args:
        filters: which workflows.
        metric: of the map.
        box: the selection.
        where: the filters' matches as a condition of commands.
        is_weighed: not all workflows were kept.
    """
    if box.is_whole_time and box.high is None and box.low is not None and metric != "cost_usd":
        words = ["longpole", "top", *stretch_words(filters.start_ns, filters.end_ns)]
        words += ["--metric", metric, "--slow", f"{box.low:.17g}"]
        words += ["--where", where] if where else []
        return shlex.join([*words, "--json"])
    condition, given = box_condition(box)
    params: dict[str, Any] = {**filters.params, **given}
    num = "sum(weight)" if is_weighed else "count(*)"
    rows = points(filters, METRICS[metric], is_weighed=is_weighed)
    asked = f"SELECT {num} FROM ({rows}) WHERE {condition}"  # noqa: S608
    for name, value in sorted(params.items(), key=lambda item: -len(item[0])):
        said = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"{value!r}"
        asked = asked.replace(f"${name}", said)
    return shlex.join(["longpole", "query", " ".join(asked.split()), "--json"])


def share_text(each: Difference) -> str:
    """Both shares and the risk ratio of a slice, as one line."""
    shares = f"{text.percent(each.of_selected, 0)} of selected, {text.percent(each.of_rest, 0)}"
    if each.risk_ratio is None or each.low is None or each.high is None:
        return f"{shares} of others"
    interval = f"{text.significant(each.low)} to {text.significant(each.high)}"
    return f"{shares} of others; {text.significant(each.risk_ratio)}x ({interval})"


def objective_toml(
    metric: str, threshold: float, route: str | None, where: str | None, good: float
) -> str | None:
    """An objective to paste into ``longpole.toml``; ``None`` for a metric that cannot be promised.

    Args:
        metric: of the map.
        threshold: what it should stay under.
        route: that it is about.
        where: its condition.
        good: share of workflows that stay under it now; the target is just below.
    """
    if metric not in LATENCIES:
        return None
    target = next((t for t in _TARGETS if t <= good), _TARGETS[-1])
    kind = metric.removesuffix("_ms").replace("_", "-")
    name = re.sub(r"[^a-z0-9]+", "-", f"{route or 'all'}-{kind}".lower()).strip("-")[:MAX_ID]
    table: dict[str, Any] = {
        "metric": metric,
        "threshold": float(f"{threshold:.3g}"),
        "target": target,
        "period": "30d",
        **({"where": where} if where else {}),
    }
    return to_toml(from_tables({name.strip("-"): table}))
