"""What must not get worse for the sake of speed.

A guardrail holds if the whole interval lies within its bound. It is broken if an interval lies
wholly beyond it that is wide enough for all guardrails together; in between it is undecided, and
says how many requests would decide. What neither side records cannot be guarded, and is told.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from longpole_analytics.scorecard import rates
from longpole_analytics.scorecard.compared import Compared, Mean, Ratio
from longpole_analytics.scorecard.interval import MIN_CLUSTERS, Interval, finite, least
from longpole_analytics.scorecard.rules import CardRules, Plan

HELD: Final = "held"
BROKEN: Final = "broken"
UNDECIDED: Final = "undecided"
NOT_RECORDED: Final = "not_recorded"
NAMES: Final = ("accepted_rate", "quality", "error_rate", "timeout_rate", "cost", "p99")
_MAX_N: Final = 10**9
Ends = Callable[[float], tuple[float, float]]


@dataclass(frozen=True)
class Guardrail:
    """One guardrail: its status, what was measured, and where its bound lies.

    ``value``, ``low`` and ``high`` are the difference of rates (a share) or the ratio of costs and
    times, as ``kind`` says; ``bound`` is what they must not pass.
    """

    name: str
    status: str
    kind: str
    text: str
    base: float | None = None
    cand: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    n_needed: int | None = None

    def document(self) -> dict[str, Any]:
        """One row of the document."""
        ends = None if self.low is None else [finite(self.low), finite(self.high)]
        return {
            "name": self.name,
            "status": self.status,
            "kind": self.kind,
            "base": self.base,
            "cand": self.cand,
            "value": self.value,
            "ci95": ends,
            "bound": self.bound,
            "n_needed": self.n_needed,
            "text": self.text,
        }


def guardrails(found: Compared, plan: Plan, rules: CardRules, target: float) -> list[Guardrail]:
    """All guardrails, in the order of :data:`NAMES`.

    Args:
        found: the numbers.
        plan: the metric whose tail is guarded, the confidence.
        rules: the bounds.
        target: the quantile that decides.
    """
    limits = {
        "accepted_rate": -rules.accepted_drop,
        "error_rate": rules.error_rise,
        "timeout_rate": rules.timeout_rise,
    }
    rated = {name: _of_rate(name, found, limit, plan) for name, limit in limits.items()}
    return [
        rated["accepted_rate"],
        _quality(found.means.get("quality"), rules, plan),
        rated["error_rate"],
        rated["timeout_rate"],
        _cost(found, rules, plan),
        _tail(found, plan, rules, target),
    ]


def _of_rate(name: str, found: Compared, bound: float, plan: Plan) -> Guardrail:
    rated = found.rates.get(name)
    if name in found.one_sided:
        return Guardrail(name, UNDECIDED, "difference", "recorded on one side only")
    if rated is None:
        return Guardrail(name, NOT_RECORDED, "difference", "recorded on neither side")

    def ends(alpha: float) -> tuple[float, float]:
        # what breaks a guardrail must not rest on one request
        is_careful = alpha < plan.alpha
        return rates.difference(rated.base, rated.cand, alpha, is_careful=is_careful)[1:]

    value = rated.difference.value
    n = min(rated.base.n, rated.cand.n)
    unit = "points"
    return _judged(
        (name, "difference", unit, 100.0), (rated.base.value, rated.cand.value, value), ends,
        bound, plan.alpha, n,
    )  # fmt: skip


def _quality(mean: Mean | None, rules: CardRules, plan: Plan) -> Guardrail:
    if mean is None:
        return Guardrail("quality", NOT_RECORDED, "difference", "recorded on neither side")
    thin = _thin(mean, rules)
    if thin or mean.interval is None:
        text, needed = thin or "one side has none", rules.min_mean if thin else None
        values = (mean.base, mean.cand)
        return Guardrail("quality", UNDECIDED, "difference", text, *values, n_needed=needed)
    greatest = max(abs(mean.base or 0.0), abs(mean.cand or 0.0))
    scale = next((s for s in (1, 5, 10, 100) if greatest <= s), greatest)
    numbers = (mean.base, mean.cand, mean.value)
    return _judged(
        ("quality", "difference", f"on a scale to {scale:g}", 1.0), numbers, mean.interval.ends,
        -rules.quality_drop * scale, plan.alpha, min(mean.n),
    )  # fmt: skip


def _cost(found: Compared, rules: CardRules, plan: Plan) -> Guardrail:
    name = "cost_per_accepted_usd"
    mean = found.means.get(name)
    if mean is None or mean.interval is None:
        other = found.means.get("cost_per_request_usd")
        if mean is None or "accepted_rate" not in found.rates:
            mean, name = other, "cost_per_request_usd"
    if mean is None:
        return Guardrail("cost", NOT_RECORDED, "ratio", "no price is known on either side")
    priced = found.means["cost_per_request_usd"].known
    if min(priced) < rules.min_priced:
        text = f"prices are known of {100 * min(priced):.1f} % of the requests on one side only"
        return Guardrail("cost", UNDECIDED, "ratio", text, mean.base, mean.cand)
    if mean.base == mean.cand == 0:
        return Guardrail("cost", HELD, "ratio", "nothing costs anything", 0.0, 0.0)
    thin = _thin(mean, rules)
    if thin or mean.interval is None:
        text = thin or "nothing was accepted, or nothing cost anything, on one side"
        needed = rules.min_mean if thin else None
        return Guardrail("cost", UNDECIDED, "ratio", text, mean.base, mean.cand, n_needed=needed)
    numbers = (mean.base, mean.cand, mean.value)
    return _judged(
        ("cost", "ratio", name, 1.0), numbers, _of_logs(mean.interval), 1 + rules.margin,
        plan.alpha, min(mean.n),
    )  # fmt: skip


def _tail(found: Compared, plan: Plan, rules: CardRules, target: float) -> Guardrail:
    """The tail of the target's metric: p99, or p95 where that says nothing.

    So it is where too few requests carry it, or where neither side is sure to reach it.
    """
    if plan.is_closed_loop:
        text = "the load waited for answers: its tail is not what users see"
        return Guardrail("p99", NOT_RECORDED, "ratio", text)
    rows = [found.ratio(plan.target, q) for q in (0.99, 0.95)]
    told = [row for row in rows if row is not None and row.reason != "too_few"]
    row = next((row for row in told if not _is_open(row)), told[-1] if told else None)
    if row is None or row.interval is None:
        text = f"too few samples for p95 of {plan.target}"
        return Guardrail("p99", UNDECIDED, "ratio", text, n_needed=least(max(target, 0.95)))
    label = f"p{100 * row.quantile:g} of {plan.target}"
    if row.ratio is None:
        return _unreached(row, label, rules, plan)
    numbers = (row.base, row.cand, row.ratio)
    return _judged(
        ("p99", "ratio", label, 1.0), numbers, _of_logs(row.interval), 1 + rules.margin,
        plan.alpha, min(row.n_base, row.n_cand),
    )  # fmt: skip


def _is_open(row: Ratio) -> bool:
    return not row.low and not math.isfinite(row.high or math.inf)


def _unreached(row: Ratio, label: str, rules: CardRules, plan: Plan) -> Guardrail:
    assert row.interval is not None  # noqa: S101 - the caller looked
    low, high = _of_logs(row.interval)(plan.alpha / len(NAMES))
    status = BROKEN if low > 1 + rules.margin else UNDECIDED
    text = f"{label} is not reached: too much did not end"
    return Guardrail("p99", status, "ratio", text, row.base, row.cand, None, low, high,
                     1 + rules.margin)  # fmt: skip


def _of_logs(interval: Interval) -> Ends:
    def ends(alpha: float) -> tuple[float, float]:
        low, high = interval.ends(alpha)
        return math.exp(low), math.exp(high) if high < 700 else math.inf

    return ends


def _judged(
    what: tuple[str, str, str, float],
    numbers: tuple[float | None, float | None, float | None],
    ends: Ends,
    bound: float,
    alpha: float,
    n: int,
) -> Guardrail:
    """Held, broken or undecided; a bound below zero is a floor, any other a ceiling."""
    name, kind, label, scale = what
    low, high = ends(alpha)
    sure_low, sure_high = ends(alpha / len(NAMES))
    is_floor = bound < 0
    if low > bound if is_floor else high < bound:
        status = HELD
    elif sure_high < bound if is_floor else sure_low > bound:
        status = BROKEN
    else:
        status = UNDECIDED
    value = numbers[2]
    form = "+.3g" if kind == "difference" else ".3g"
    needed = None
    if status == UNDECIDED and value is not None:
        reach = value - low if is_floor else high - value
        room = value - bound if is_floor else bound - value
        if room < 0:
            reach, room = (sure_high - value if is_floor else value - sure_low), -room
        if room > 0 and np.isfinite(reach):
            wanted = math.ceil(n * max(reach / room, 1.0) ** 2) + 1
            needed = wanted if wanted < _MAX_N else None
    shown = [format(scale * number, form) for number in (value or 0.0, low, high, bound)]
    text = f"{shown[0]} ({shown[1]} to {shown[2]}) {label}, bound {shown[3]}"
    return Guardrail(name, status, kind, text, *numbers, low, high, bound, needed)


def _thin(mean: Mean, rules: CardRules) -> str:
    fewest = min(mean.num_clusters)
    least = max(rules.min_mean, MIN_CLUSTERS)
    return "" if fewest >= least else f"too few samples: {fewest} on one side, {least} are needed"
