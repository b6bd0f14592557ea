"""Poor draft acceptance: fewer of the drafted tokens are accepted, so a step makes fewer tokens."""

import math
from typing import Final

import numpy as np

from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import compare, sample
from longpole_analytics.shapes.base import Evidence, Finding, Floats, Refined, SubCause, TraceCase
from longpole_analytics.stats import rank_interval

TEXT: Final = "poor draft acceptance"
CHECK: Final = (
    "compare the draft model and the kind of prompts before and after; shorten the drafts"
)
METRIC: Final = "draft_acceptance"


def test(m: Measures, finding: Finding) -> Refined | None:
    """The share of accepted tokens fell, in the sums and surely in the median request."""
    sums = []
    for side in (m.base, m.current):
        known = np.isfinite(side["acceptance"])
        drafted = float(side["num_drafted_tokens"][known].sum())
        if drafted <= 0:
            return None
        sums.append(float(side["num_accepted_tokens"][known].sum()) / drafted)
    before, now = sums
    base, current = (sample(side["acceptance"]) for side in (m.base, m.current))
    middle = compare(METRIC, base, current, 0.5, m.rules)
    limit = 0.0 if middle is not None and middle.ratio is None else 1.0
    if before - now < m.rules.acceptance_loss_points or middle is None or middle.high >= limit:
        return None
    n = min(base.n, current.n)
    steps = [_tokens_per_step(side["num_accepted_tokens"], side["num_steps"])
             for side in (m.current, m.base)]  # fmt: skip
    rows = [middle.evidence(), Evidence(METRIC, None, now, before, now / before, None, n)]
    if None not in steps:
        rows.append(Evidence("tokens_per_step", None, steps[0], steps[1], None, None, n))
    return Refined(TEXT, tuple(rows), CHECK)


def _tokens_per_step(accepted: Floats, steps: Floats) -> float | None:
    known = np.isfinite(accepted) & (steps > 0)
    total = float(steps[known].sum())
    return 1 + float(accepted[known].sum()) / total if total else None


def of_trace(case: TraceCase) -> Refined | None:
    """Less is accepted than in nearly all like requests, and by enough."""
    drafted, accepted = (case.number(f"num_{name}_tokens") for name in ("drafted", "accepted"))
    if not drafted or accepted is None or "num_drafted_tokens" not in case.like.columns:
        return None
    like = case.like.drop_nulls(["num_drafted_tokens", "num_accepted_tokens"])
    like = like.filter(like["num_drafted_tokens"] > 0)
    usual = sample((like["num_accepted_tokens"] / like["num_drafted_tokens"]).to_numpy())
    own = accepted / drafted
    if usual.n < case.rules.min_n(0.95) or own >= usual.quantile(0.05):
        return None
    middle = usual.quantile(0.5)
    if middle - own < case.rules.acceptance_loss_points:
        return None
    low, high = (float(usual.values[(r or 1) - 1]) for r in rank_interval(usual.n, 0.5))
    bounds = (own / high, own / low) if low > 0 else None
    ratio = own / middle if middle > 0 else math.nan
    row = Evidence(METRIC, 0.5, own, middle, ratio, bounds, usual.n)
    return Refined(TEXT, (row,), CHECK)


SUB_CAUSE = SubCause(10, ("high_tpot", "bad_tail", "load_saturation"), test, of_trace)
