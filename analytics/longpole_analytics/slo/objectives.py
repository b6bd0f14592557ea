"""Objectives as code: what is promised to whom, from tables ``[slo.NAME]`` of ``longpole.toml``.

An objective is a share of good requests: "TTFT <= 2000 ms for 99 % over 30 d". It never is an
average, nor a percentile of percentiles. The rules that watch its budget are those of the Google
SRE Workbook, chapter 5 (multi-window, multi-burn-rate), unless it brings its own.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Final, Literal, TypeVar, cast

from longpole.errors import UsageError

LATENCIES: Final = (
    "ttft_ms",
    "ttfv_ms",
    "tpot_ms",
    "e2e_ms",
    "time_to_useful_ms",
    "time_to_accepted_ms",
)
"""Metrics that are good up to the threshold, in milliseconds."""
AGES: Final = ("freshness",)
"""Likewise, in the unit of the column."""
SCORES: Final = ("quality",)
"""Metrics that are good from the threshold on."""
OUTCOMES: Final = ("availability", "accepted")
"""Metrics that are good or bad by themselves, without a threshold."""
METRICS: Final = (*LATENCIES, *OUTCOMES, *SCORES, *AGES)
CLASSES: Final = ("interactive", "standard", "quality-first", "offline", "consequential")
SEVERITIES: Final = ("page", "ticket")
CANCELLED: Final = ("judged", "excluded", "bad")
MAX_PERIOD_MIN: Final = 92 * 1440
MAX_ID: Final = 48
MIN_BAD: Final = 3
"""Bad requests seen, fewer of which prove nothing."""
_ID: Final = re.compile(rf"[A-Za-z0-9]([A-Za-z0-9._-]{{0,{MAX_ID - 2}}}[A-Za-z0-9])?")
_DURATION: Final = re.compile(r"(\d{1,6})([mhdw])")
_MINUTES: Final = {"m": 1, "h": 60, "d": 1440, "w": 10_080}
_KEYS: Final = (
    *("metric", "threshold", "target", "period", "where", "class", "owner", "runbook"),
    *("description", "cancelled", "floors", "min_bad", "for", "keep", "rules"),
)
_RULE_KEYS: Final = ("severity", "long", "short", "factor", "for", "keep")
_FLOOR_KEYS: Final = ("metric", "threshold", "target")
_DEFAULT_RULES: Final = (
    ("page", 60, 5, 2),
    ("page", 360, 30, 5),
    ("ticket", 1440, 120, 10),
    ("ticket", 4320, 360, 10),
)
"""Severity, both windows in minutes, and how many percent of the budget the long one may burn."""
T = TypeVar("T")
Severity = Literal["page", "ticket"]
Cancelled = Literal["judged", "excluded", "bad"]


@dataclass(frozen=True)
class Rule:
    """Two windows that must both burn faster than a factor.

    Attributes:
        severity: ``page`` or ``ticket``.
        long_min: the long window, in minutes.
        short_min: the short one.
        factor: burn rate above which it is met; 1 spends the budget in just the period.
        for_min: further minutes it must be met before it fires; 0 fires at once.
        keep_min: minutes that it keeps firing after it was met last.
    """

    severity: Severity
    long_min: int
    short_min: int
    factor: float
    for_min: int = 0
    keep_min: int = 0


@dataclass(frozen=True)
class Floor:
    """What must hold besides, so that a latency is not bought with worse answers."""

    metric: str
    target: float
    threshold: float | None = None


@dataclass(frozen=True)
class Objective:
    """One promise.

    Attributes:
        id: its name.
        metric: one of :data:`METRICS`.
        target: share of requests that must be good, above 0 and below 1.
        threshold: in the metric's unit; ``None`` for :data:`OUTCOMES`.
        period_min: the rolling period, in minutes.
        where: which requests, an SQL condition; ``None`` is all.
        task_class: one of :data:`CLASSES`.
        owner: who answers for it.
        runbook: where it is written what to do.
        description: for people.
        cancelled: requests that the caller gave up: ``judged`` by what is known (late already is
            bad, early is left out), ``excluded``, or ``bad``.
        floors: what must hold besides.
        min_bad: bad requests seen in the long window before a rule can be met.
        rules: how its budget is watched.
    """

    id: str
    metric: str
    target: float
    threshold: float | None
    period_min: int
    where: str | None = None
    task_class: str | None = None
    owner: str | None = None
    runbook: str | None = None
    description: str | None = None
    cancelled: Cancelled = "judged"
    floors: tuple[Floor, ...] = ()
    min_bad: int = MIN_BAD
    rules: tuple[Rule, ...] = ()

    @property
    def budget(self) -> float:
        """Share of requests that may be bad: 1 - target as written, so 0.05 for 0.95."""
        return float(1 - Decimal(repr(self.target)))

    @property
    def text(self) -> str:
        """The promise as one line, as ``ttft_ms <= 2000 for 99 % over 30d``."""
        percent = float(100 * Decimal(repr(self.target)))
        sign = ">=" if self.metric in SCORES else "<="
        what = self.metric if self.threshold is None else f"{self.metric} {sign} {self.threshold:g}"
        return f"{what} for {percent:.10g} % over {span(self.period_min)}"


def default_rules(period_min: int, for_min: int = 0, keep_min: int = 0) -> tuple[Rule, ...]:
    """The usual rules for a period: 14.4, 6, 3 and 1 for 30 days.

    A factor is the part of the budget that a long window may burn, times period by window. Rules
    whose long window exceeds the period are left out.
    """
    return tuple(
        Rule(cast("Severity", severity), long, short, percent * period_min / (100 * long),
             for_min, keep_min)
        for severity, long, short, percent in _DEFAULT_RULES
        if long <= period_min
    )  # fmt: skip


def from_tables(tables: Mapping[str, object], origin: str = "longpole.toml") -> list[Objective]:
    """The objectives that tables ``[slo.NAME]`` say, in their order.

    Args:
        tables: the tables by name.
        origin: where they stand, for messages.

    Raises:
        UsageError: a table, a key or a value that is not understood; two ids that could be taken
            for each other.
    """
    found = [_objective(name, table, f"{origin}: [slo.{name}]") for name, table in tables.items()]
    apart([(objective, origin) for objective in found])
    return found


def apart(objectives: Sequence[tuple[Objective, str]]) -> None:
    """Refuse ids that are the same but for case, points and underscores.

    Raises:
        UsageError: two such; it names both places.
    """
    seen: dict[str, tuple[Objective, str]] = {}
    for objective, origin in objectives:
        plain = re.sub(r"[._]", "-", objective.id).lower()
        if plain in seen:
            other, there = seen[plain]
            raise UsageError(
                f"two objectives have one name: '{other.id}' in {there} and '{objective.id}' in "
                f"{origin}: rename one"
            )
        seen[plain] = objective, origin


def minutes(text: object, where: str) -> int:
    """A duration such as ``5m``, ``1h``, ``30d`` or ``4w`` in minutes.

    Raises:
        UsageError: what is none.
    """
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise UsageError(f"{where}: '{text}' is no duration: write 5m, 6h, 30d or 4w")
    return int(found[1]) * _MINUTES[found[2]]


def span(num_minutes: int) -> str:
    """Minutes as a duration: 5m, 6h, 24h, 3d."""
    if num_minutes % 1440 == 0 and num_minutes > 1440:
        return f"{num_minutes // 1440}d"
    return f"{num_minutes // 60}h" if num_minutes and num_minutes % 60 == 0 else f"{num_minutes}m"


def warnings(objective: Objective) -> list[str]:
    """What is allowed in an objective and yet likely not meant."""
    told = [
        f"rule {rule.severity} {span(rule.long_min)}: its factor {rule.factor:.3g} is below 1, so "
        "it fires while the promise is kept: write rules"
        for rule in objective.rules
        if rule.factor < 1
    ]
    told += [
        f"rule {rule.severity} {span(rule.long_min)}: a factor of {rule.factor:g} needs "
        f"{100 * rule.factor * objective.budget:.0f} % bad, so "
        f"{0.5 / objective.budget:g} (50 % bad) is used"
        for rule in objective.rules
        if rule.factor * objective.budget > 0.5
    ]
    return told


# --- one table ----------------------------------------------------------------------------------
def _objective(name: str, table: object, where: str) -> Objective:
    if not _ID.fullmatch(name):
        raise UsageError(
            f"{where}: an id has letters, digits, '-', '_' and '.', at most {MAX_ID} of them"
        )
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected a table, got {type(table).__name__}")
    _known(table, _KEYS, where)
    metric = _metric(table, where)
    period = _ranged(minutes(table.get("period"), f"{where} period"), 60, MAX_PERIOD_MIN,
                     f"{where} period", "1h to 92d")  # fmt: skip
    damping = [_wait(table, key, where) for key in ("for", "keep")]
    floors = _list(table, "floors", where)
    return Objective(
        id=name,
        metric=metric,
        target=_target(table, where),
        threshold=_threshold(table, metric, where),
        period_min=period,
        where=_text(table, "where", where),
        task_class=_choice(table, "class", CLASSES, where),
        owner=_text(table, "owner", where),
        runbook=_text(table, "runbook", where),
        description=_text(table, "description", where),
        cancelled=cast("Cancelled", _choice(table, "cancelled", CANCELLED, where) or "judged"),
        floors=tuple(_floor(floor, f"{where} floors") for floor in floors),
        min_bad=_min_bad(table.get("min_bad", MIN_BAD), where),
        rules=tuple(_rule(rule, period, damping, f"{where} rules") for rule in table["rules"])
        if _list(table, "rules", where)
        else default_rules(period, *damping),
    )


def _metric(table: Mapping[str, object], where: str) -> str:
    found = _choice(table, "metric", METRICS, where)
    if found is None:
        raise UsageError(f"{where}: no metric: one of {', '.join(METRICS)}")
    return found


def _target(table: Mapping[str, object], where: str) -> float:
    target = _number(table, "target", where)
    if target is None:
        raise UsageError(f"{where}: no target: write the share of good requests, as 0.99")
    if not 0 < target < 1:
        hint = f": write {target / 100:g} for {target:g} %" if 1 < target < 100 else ""
        raise UsageError(
            f"{where} target {target:g}: must be above 0 and below 1, as a target of 100 % has no "
            f"budget and one of 0 % promises nothing{hint}"
        )
    return target


def _threshold(table: Mapping[str, object], metric: str, where: str) -> float | None:
    threshold = _number(table, "threshold", where)
    if metric in OUTCOMES:
        if threshold is not None:
            raise UsageError(f"{where}: '{metric}' takes no threshold: leave it out")
        return None
    if threshold is None:
        raise UsageError(f"{where}: '{metric}' needs a threshold, in the metric's unit")
    if threshold < 0 or (threshold == 0 and metric in LATENCIES):
        raise UsageError(f"{where} threshold {threshold:g}: must be above 0")
    return threshold


def _floor(table: object, where: str) -> Floor:
    if not isinstance(table, dict):
        raise UsageError(f'{where}: expected tables, as {{metric = "accepted", target = 0.9}}')
    _known(table, _FLOOR_KEYS, where)
    metric = _metric(table, where)
    return Floor(metric, _target(table, where), _threshold(table, metric, where))


def _rule(table: object, period: int, damping: Sequence[int], where: str) -> Rule:
    if not isinstance(table, dict):
        raise UsageError(
            f'{where}: expected tables, as {{severity = "page", long = "1h", short = "5m", '
            "factor = 14.4}"
        )
    _known(table, _RULE_KEYS, where)
    severity = _choice(table, "severity", SEVERITIES, where)
    factor = _number(table, "factor", where)
    if severity is None or factor is None or factor <= 0:
        raise UsageError(f"{where}: a rule needs severity (page, ticket) and a factor above 0")
    long = _ranged(minutes(table.get("long"), f"{where} long"), 2, period, f"{where} long",
                   "2m to the period")  # fmt: skip
    short = _ranged(minutes(table.get("short"), f"{where} short"), 1, long - 1, f"{where} short",
                    "1m to less than the long window")  # fmt: skip
    waits = [
        _wait(table, key, where) if key in table else usual
        for key, usual in zip(("for", "keep"), damping, strict=True)
    ]
    return Rule(cast("Severity", severity), long, short, factor, *waits)


def _min_bad(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise UsageError(f"{where} min_bad '{value}': expected a whole number of requests, 0 or more")


# --- values -------------------------------------------------------------------------------------
def _known(table: Mapping[str, object], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            close = get_close_matches(key, keys, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(keys)}"
            raise UsageError(f"{where} unknown key '{key}'; {hint}")


def _number(table: Mapping[str, object], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{where} {key} '{value}': expected a number")
    return float(value)


def _text(table: Mapping[str, object], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise UsageError(f"{where} {key}: expected text")
    return value


def _choice(table: Mapping[str, object], key: str, known: Sequence[str], where: str) -> str | None:
    value = _text(table, key, where)
    if value is None or value in known:
        return value
    close = get_close_matches(value, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    raise UsageError(f"{where} {key} '{value}' is not known; {hint}")


def _list(table: Mapping[str, object], key: str, where: str) -> list[object]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise UsageError(f"{where} {key}: expected a list")
    return value


def _wait(table: Mapping[str, object], key: str, where: str) -> int:
    return _ranged(minutes(table.get(key, "0m"), f"{where} {key}"), 0, 1440, f"{where} {key}",
                   "0m to 1d")  # fmt: skip


def _ranged(value: int, least: int, most: int, where: str, said: str) -> int:
    if least <= value <= most:
        return value
    raise UsageError(f"{where} '{span(value)}': must be {said}")
