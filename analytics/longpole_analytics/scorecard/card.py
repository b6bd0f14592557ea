"""The scorecard: two sides compared metric by metric, what must not get worse, and a verdict.

A target decides (a quantile of one metric): ``better`` if the whole interval of the ratio lies
below 1 - margin, ``worse`` if above 1 + margin, ``equivalent`` if inside, else ``inconclusive``
with the number of requests that would decide. A guardrail that is broken makes it ``worse``; one
that cannot be decided makes it ``inconclusive``.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics.scorecard import facts
from longpole_analytics.scorecard.compared import EQUAL_LENGTH, Compared, Ratio, compared
from longpole_analytics.scorecard.guardrails import (
    BROKEN,
    NOT_RECORDED,
    UNDECIDED,
    Guardrail,
    guardrails,
)
from longpole_analytics.scorecard.interval import least
from longpole_analytics.scorecard.mix import Mix, mix
from longpole_analytics.scorecard.rules import (
    BETTER,
    EQUIVALENT,
    INCONCLUSIVE,
    QUANTILES,
    WORSE,
    CardRules,
    Plan,
)
from longpole_analytics.scorecard.shift import Shift, shift
from longpole_analytics.scorecard.sides import METRICS, Side, sides
from longpole_analytics.stats import rank_interval

SCHEMA: Final = "longpole.compare/1"
_MAX_N: Final = 10**9


@dataclass(frozen=True)
class Flag:
    """Something that a reader must know; ``is_blocking`` if it keeps a verdict from ``better``."""

    name: str
    text: str
    is_blocking: bool = False


@dataclass(frozen=True)
class Card:
    """What a comparison found.

    Attributes:
        verdict: better, equivalent, worse or inconclusive; guardrails and flags count.
        target: the metric and quantile that decide, and what they alone say.
        metrics: all quantiles.
        guardrails: what must not get worse.
        flags: what a reader must know.
        n_needed: requests on the smaller side that would decide; ``None`` if decided, or if no
            number would.
        reasons: why the verdict is what it is.
        sections: rates, means, stages, environment and the rest, ready for a document.
    """

    verdict: str
    target: dict[str, Any]
    metrics: tuple[Ratio, ...]
    guardrails: tuple[Guardrail, ...]
    flags: tuple[Flag, ...]
    n_needed: int | None
    reasons: tuple[str, ...]
    sections: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The document ``longpole.compare/1``."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "target": self.target,
            "metrics": [row.document() for row in self.metrics],
            "guardrails": [each.document() for each in self.guardrails],
            "flags": [flag.name for flag in self.flags],
            "notes": [{"flag": flag.name, "text": flag.text} for flag in self.flags],
            "n_needed": self.n_needed,
            **self.sections,
        }


class _Told(NamedTuple):
    verdict: str
    reasons: tuple[str, ...]
    n_needed: int | None


def scorecard(
    base: pl.DataFrame, cand: pl.DataFrame, plan: Plan | None = None, rules: CardRules | None = None
) -> Card:
    """Compare a candidate with a baseline; equal input and seed give an equal card.

    Args:
        base: requests of the baseline, a table of :mod:`longpole_analytics.requests`; more is
            told where it has ``cost_usd``, ``quality`` and the other columns of
            :func:`longpole_analytics.scorecard.sides.sides`.
        cand: requests of the candidate.
        plan: what decides and how the sides came about; ``None`` for the defaults.
        rules: thresholds; ``None`` for the defaults.

    Raises:
        BadInput: the target is no metric, a column is not there, or a weight is below zero.
    """
    plan, rules = plan or Plan(), rules or CardRules()
    facts.checked_target(plan)
    first, second, clusters = sides(base, cand, plan)
    is_alike = plan.is_randomised or plan.pair_by is not None
    found_mix = mix(first, second, rules, is_randomised=is_alike)
    found = compared(first, second, clusters, found_mix, plan, rules)
    quantile = _quantile(found, plan)
    is_shorter = facts.is_shorter(found, rules)
    is_evened = is_shorter and plan.target == "e2e_ms" and found.ratio(EQUAL_LENGTH, quantile)
    name = EQUAL_LENGTH if is_evened else plan.target
    decides = found.ratio(name, quantile)
    own = verdict_of(decides, rules.margin)
    held = guardrails(found, plan, rules, quantile)
    flags = _flags(first, second, found, found_mix, plan, rules, (decides, is_shorter))
    flags += _unguarded(held)
    told = _told(own, decides, held, flags, rules)
    target = {"metric": name, "quantile": quantile, "verdict": own, **_target(decides, plan, rules)}
    sections = facts.sections(first, second, found, found_mix, plan)
    paired: Shift | None = shift(first, second, plan) if plan.pair_by else None
    sections["paired"] = None if paired is None else paired._asdict()
    return Card(
        told.verdict,
        target,
        tuple(found.ratios),
        tuple(held),
        tuple(flags),
        told.n_needed,
        told.reasons,
        sections,
    )


def _target(decides: Ratio | None, plan: Plan, rules: CardRules) -> dict[str, Any]:
    return {
        "ratio": None if decides is None else decides.ratio,
        "ci95": None if decides is None else decides.document()["ci95"],
        "confidence": 1 - plan.alpha,
        "look": plan.look,
        "margin": rules.margin,
    }


def verdict_of(row: Ratio | None, margin: float) -> str:
    """What a ratio and its interval say by themselves."""
    if row is None or row.low is None or row.high is None:
        return INCONCLUSIVE
    if row.high < 1 - margin:
        return BETTER
    if row.low > 1 + margin:
        return WORSE
    if row.low >= 1 - margin and row.high <= 1 + margin:
        return EQUIVALENT
    return INCONCLUSIVE


def n_needed(row: Ratio | None, margin: float) -> int | None:
    """How many requests on the smaller side would decide, if the ratio stays what it is.

    Intervals narrow with the root of the number. ``None`` where no number would: a quantile that
    is not reached, a ratio that lies on the margin.
    """
    if row is None:
        return None
    smaller = min(row.n_base, row.n_cand)
    if row.reason == "too_few":
        return least(row.quantile)
    if row.ratio is None or row.ratio <= 0 or not row.low or row.high in (None, math.inf):
        return None
    assert row.high is not None  # noqa: S101 - said above
    at, below, above = math.log(row.ratio), math.log(1 - margin), math.log(1 + margin)
    down, up = at - math.log(row.low), math.log(row.high) - at
    if at < below:
        times = up / (below - at)
    elif at > above:
        times = down / (at - above)
    elif below < at < above:
        times = max(up / (above - at), down / (at - below))
    else:
        return None
    needed = math.ceil(smaller * max(times, 1.0) ** 2) + 1
    return needed if needed < _MAX_N else None


def _quantile(found: Compared, plan: Plan) -> float:
    """The quantile that decides: the one asked for, else p95, else p50."""
    if plan.quantile is not None:
        return plan.quantile
    if plan.is_closed_loop:
        return QUANTILES[0]
    row = found.ratio(plan.target, 0.95)
    if row is None:
        return QUANTILES[0]
    carried = rank_interval(min(row.n_base, row.n_cand), 0.95) if row.n_base and row.n_cand else ()
    return 0.95 if carried and None not in carried else QUANTILES[0]


def _told(
    own: str, decides: Ratio | None, held: list[Guardrail], flags: list[Flag], rules: CardRules
) -> _Told:
    broken = [each for each in held if each.status == BROKEN]
    open_ones = [each for each in held if each.status == UNDECIDED]
    blocking = [flag for flag in flags if flag.is_blocking]
    if own == WORSE or broken:
        reasons = ["the target is worse"] if own == WORSE else []
        return _Told(WORSE, (*reasons, *(f"{each.name}: {each.text}" for each in broken)), None)
    needed = [each.n_needed for each in open_ones]
    reasons = [f"{each.name}: {each.text}" for each in open_ones]
    if own == INCONCLUSIVE:
        needed.append(n_needed(decides, rules.margin))
        reasons.insert(0, facts.why_open(decides))
    stopped = [flag for flag in blocking if own != INCONCLUSIVE or flag.name != "not_reached"]
    reasons = [flag.text for flag in stopped] + reasons
    if own == INCONCLUSIVE or open_ones or stopped:
        known = [each for each in needed if each is not None]
        is_known = len(known) == len(needed) and known and not stopped
        return _Told(INCONCLUSIVE, tuple(reasons), max(known) if is_known else None)
    return _Told(own, (f"the target is {own} and every guardrail holds",), None)


def _flags(
    base: Side,
    cand: Side,
    found: Compared,
    found_mix: Mix,
    plan: Plan,
    rules: CardRules,
    told: tuple[Ratio | None, bool],
) -> list[Flag]:
    decides, is_shorter = told
    made = facts.notes(base, cand, found, found_mix, plan, rules)
    if is_shorter or facts.is_cut(found):
        is_e2e = plan.target == "e2e_ms" and is_shorter
        is_evened = decides is not None and decides.name == EQUAL_LENGTH
        how = "got shorter" if is_shorter else "are cut off more often"
        what = ": an equal length decides" if is_evened else ""
        what = ", and paces are not known" if is_e2e and not is_evened else what
        made.append(("shorter_not_faster", f"answers {how}{what}", is_e2e and not is_evened))
    raw = decides and decides.pessimistic
    if raw is not None and decides is not None and verdict_of(decides, rules.margin) == BETTER:
        ours, theirs = raw
        if ours is not None and (theirs is None or theirs >= ours):
            text = "faster only as long as what failed or was given up does not count"
            made.append(("faster_only_without_failures", text, True))
    order = {name: at for at, name in enumerate(METRICS)}
    unreached = sorted(
        {(order.get(row.name, 99), row.name) for row in found.ratios if row.reason == "not_reached"}
    )
    if unreached:
        names = ", ".join(name for _, name in unreached)
        is_target = decides is not None and decides.reason == "not_reached"
        text = f"too much did not end to reach a quantile of {names}"
        made.append(("not_reached", text, is_target))
    return [Flag(*each) for each in made]


def _unguarded(held: list[Guardrail]) -> list[Flag]:
    names = [each.name for each in held if each.status == NOT_RECORDED]
    text = f"not guarded, as neither side records it: {', '.join(names)}"
    return [Flag("not_recorded", text)] if names else []
