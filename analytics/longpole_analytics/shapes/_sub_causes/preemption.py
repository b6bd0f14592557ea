"""Memory pressure: requests lose their place in the cache of keys and values and begin again."""

from typing import Final

import numpy as np

from longpole_analytics.measures import share
from longpole_analytics.shapes._columns import Columns, Floats
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import exceedance_p_value
from longpole_analytics.shapes.base import Evidence, Finding, Refined, SubCause, TraceCase

TEXT: Final = "memory pressure: requests are preempted"
CHECK: Final = (
    "admit fewer sequences at once, or give the cache of keys and values more memory: "
    "preempted requests begin again"
)
METRIC: Final = "preempted_share"
LIKELY: Final = 0.05
"""A rise of the share counts if it is less likely by chance."""


def test(m: Measures, finding: Finding) -> Refined | None:
    """More requests are preempted than before, by enough and by more than chance."""
    sides = [_preemptions(side) for side in (m.base, m.current)]
    if not all(len(side) for side in sides):
        return None
    (before_k, before_n), (now_k, now_n) = ((int((s > 0).sum()), len(s)) for s in sides)
    before, now = before_k / before_n, share(now_k, now_n)
    assert now.value is not None  # noqa: S101 - there are some
    chance = exceedance_p_value(before_k, before_n, now_k, now_n)
    if now.value - before < m.rules.preempted_points or chance > LIKELY:
        return None
    ratio = now.value / before if before > 0 else None
    bounds = None
    if ratio is not None and now.low is not None and now.high is not None:
        bounds = (now.low / before, now.high / before)
    row = Evidence(METRIC, None, now.value, before, ratio, bounds, min(before_n, now_n))
    return Refined(TEXT, (row,), CHECK)


def _preemptions(side: Columns) -> Floats:
    """What is known of a side; an engine that tells its steps and no preemption had none."""
    found = side["num_preemptions"]
    found = np.where(np.isfinite(side["num_steps"]), np.nan_to_num(found), found)
    known: Floats = found[np.isfinite(found)]
    return known


def of_trace(case: TraceCase) -> Refined | None:
    """The trace was preempted, which like requests are not in the median."""
    own, usual = case.number("num_preemptions"), case.others("num_preemptions")
    if not own or (len(usual) and float(np.median(usual)) >= own):
        return None
    before = float(np.median(usual)) if len(usual) else None
    row = Evidence("num_preemptions", None, own, before, None, None, len(usual))
    return Refined(TEXT, (row,), CHECK)


SUB_CAUSE = SubCause(
    30, ("bad_tail", "high_tpot", "load_saturation", "high_ttft_queue"), test, of_trace
)
