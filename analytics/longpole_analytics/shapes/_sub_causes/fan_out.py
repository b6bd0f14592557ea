"""Fan-out without use: most of the branches that are started do not reach the outcome."""

from typing import Final

import numpy as np

from longpole_analytics.measures import Share, share
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes.base import Evidence, Finding, Floats, Refined, SubCause, TraceCase

TEXT: Final = "fan-out: most branches are not used"
CHECK: Final = "start fewer branches, and cancel the others once one has answered"
METRIC: Final = "used_branches_share"


def test(m: Measures, finding: Finding) -> Refined | None:
    """The share of branches that are used is surely too small."""
    now = _used(m.current["num_branches"], m.current["num_used_branches"])
    if now.high is None or now.high >= m.rules.least_used_branches:
        return None
    before = _used(m.base["num_branches"], m.base["num_used_branches"])
    return Refined(TEXT, (_row(now, before.value),), CHECK)


def of_trace(case: TraceCase) -> Refined | None:
    """The trace used too few of its branches."""
    branches, used = case.number("num_branches"), case.number("num_used_branches")
    if not branches or used is None or used / branches >= case.rules.least_used_branches:
        return None
    usual = None
    if {"num_branches", "num_used_branches"} <= set(case.like.columns):
        known = case.like.drop_nulls(["num_branches", "num_used_branches"])
        usual = _used(known["num_branches"].to_numpy(), known["num_used_branches"].to_numpy()).value
    return Refined(TEXT, (_row(share(int(used), int(branches)), usual),), CHECK)


def _used(branches: Floats, used: Floats) -> Share:
    known = np.isfinite(branches) & np.isfinite(used)
    return share(int(used[known].sum()), int(branches[known].sum()))


def _row(now: Share, before: float | None) -> Evidence:
    ratio, bounds = None, None
    if before and now.value is not None and now.low is not None and now.high is not None:
        ratio, bounds = now.value / before, (now.low / before, now.high / before)
    return Evidence(METRIC, None, now.value, before, ratio, bounds, now.n)


SUB_CAUSE = SubCause(
    40,
    (
        *("workflow_slow_serial_tools", "workflow_slow_wait", "workflow_slow_retries"),
        *("load_saturation", "bad_tail", "high_ttft_queue", "high_ttft_retrieval"),
    ),
    test,
    of_trace,
)
