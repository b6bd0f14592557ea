"""Speculative decoding below its break-even: drafting costs what accepted tokens save.

Tokens per step over what a step with its drafts takes, methods as in Leviathan et al., ICML 2023.
"""

from typing import Final

import numpy as np

from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import sample
from longpole_analytics.shapes.base import (
    Evidence,
    Finding,
    Floats,
    Refined,
    ShapeRules,
    SubCause,
    TraceCase,
)
from longpole_analytics.stats import rank_interval

TEXT: Final = "speculation below its break-even"
CHECK: Final = "turn speculative decoding off at this batch size, or draft fewer tokens a step"
METRIC: Final = "draft_speedup"


def test(m: Measures, finding: Finding) -> Refined | None:
    """Even the upper end of the median request's speed-up is too little."""
    return _judged(_speedups(m.current, m.rules), _speedups(m.base, m.rules), m.rules)


def of_trace(case: TraceCase) -> Refined | None:
    """The trace's own drafts sped up too little, and so did those of like requests."""
    own = [case.number(f"num_{name}") for name in ("accepted_tokens", "drafted_tokens", "steps")]
    if None in own:
        return None
    names = ("num_accepted_tokens", "num_drafted_tokens", "num_steps")
    (speedup,) = _speedups(
        {name: np.array([value], np.float64) for name, value in zip(names, own, strict=True)},
        case.rules,
    ).tolist() or [None]
    if speedup is None or speedup >= case.rules.least_speedup:
        return None
    usual = sample(_of_like(case))
    before = usual.quantile(0.5) if usual.n else None
    row = Evidence(METRIC, None, speedup, before, None, None, usual.n)
    return Refined(TEXT, (row,), CHECK)


def _of_like(case: TraceCase) -> Floats:
    names = ("num_accepted_tokens", "num_drafted_tokens", "num_steps")
    if not set(names) <= set(case.like.columns):
        return np.empty(0)
    known = case.like.drop_nulls(list(names))
    return _speedups({name: known[name].to_numpy() for name in names}, case.rules)


def _speedups(side: dict[str, Floats], rules: ShapeRules) -> Floats:
    """How much faster each request was than without drafts; only those that had some."""
    accepted, drafted, steps = (
        side[f"num_{name}"].astype(np.float64)
        for name in ("accepted_tokens", "drafted_tokens", "steps")
    )
    known = np.isfinite(accepted) & (drafted > 0) & (steps > 0)
    a, d, s = accepted[known], drafted[known], steps[known]
    found: Floats = (1 + a / s) / (1 + d / s * rules.draft_cost_ratio)
    return found


def _judged(now: Floats, before: Floats, rules: ShapeRules) -> Refined | None:
    current, base = sample(now), sample(before)
    if current.n < rules.min_n(0.5):
        return None
    low, high = rank_interval(current.n, 0.5)
    ends = float(current.values[(low or 1) - 1]), float(current.values[(high or current.n) - 1])
    if ends[1] >= rules.least_speedup:
        return None
    middle = base.quantile(0.5) if base.n else None
    row = Evidence(METRIC, 0.5, current.quantile(0.5), middle, None, None, current.n)
    limit = Evidence(f"{METRIC}_bounds", 0.5, ends[1], ends[0], None, None, current.n)
    return Refined(TEXT, (row, limit), CHECK)


SUB_CAUSE = SubCause(20, ("high_tpot", "bad_tail", "load_saturation"), test, of_trace)
