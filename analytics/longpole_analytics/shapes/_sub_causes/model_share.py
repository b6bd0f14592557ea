"""Model fast, workflow slow: the model makes the smaller part of the time on the path."""

from typing import Final

import numpy as np

from longpole.vocab import MODEL_STAGES
from longpole_analytics.measures import share
from longpole_analytics.shapes._columns import Columns, Floats
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import sample
from longpole_analytics.shapes.base import (
    Evidence,
    Finding,
    Refined,
    ShapeRules,
    SubCause,
    TraceCase,
)
from longpole_analytics.stats import rank_interval
from longpole_analytics.wording import percent

METRIC: Final = "model_of_time"


def shares_of(side: Columns) -> Floats:
    """The model's share of each request's time, where both are known."""
    stages = np.stack([side[f"{stage.value}_ms"] for stage in sorted(MODEL_STAGES)])
    told = np.isfinite(stages).any(axis=0)
    model = np.where(told, np.nansum(stages, axis=0), np.nan)
    model = np.where(np.isfinite(side["model_ms"]), side["model_ms"], model)
    found: Floats = model / np.where(side["e2e_ms"] > 0, side["e2e_ms"], np.nan)
    return found


def small_share(now: Floats, before: Floats, rules: ShapeRules) -> Evidence | None:
    """The median share, if even the upper end of its interval is small."""
    current, base = sample(now), sample(before)
    if current.n < rules.min_n(0.5):
        return None
    low, high = (float(current.values[(r or 1) - 1]) for r in rank_interval(current.n, 0.5))
    middle = base.quantile(0.5) if base.n else None
    if high >= rules.model_share:
        return None
    own = current.quantile(0.5)
    ratio = own / middle if middle else None
    bounds = (low / middle, high / middle) if middle else None
    return Evidence(METRIC, 0.5, own, middle, ratio, bounds, current.n)


def test(m: Measures, finding: Finding) -> Refined | None:
    """The model makes less than two fifths of a slow workflow."""
    row = small_share(shares_of(m.current), shares_of(m.base), m.rules)
    if row is None or row.current is None:
        return None
    return Refined(f"the model makes {percent(row.current)} of the time", (row,), None)


def of_trace(case: TraceCase) -> Refined | None:
    """The model makes less than two fifths of the trace."""
    wall = case.split.wall_ns
    model = sum(case.split.critical_ns(stage) for stage in MODEL_STAGES)
    own = share(model, wall)
    if own.value is None or own.value >= case.rules.model_share or not case.split.calls:
        return None
    row = Evidence(METRIC, None, own.value, None, None, None, case.like.height)
    return Refined(f"the model makes {percent(own.value)} of the time", (row,), None)


SUB_CAUSE = SubCause(
    60,
    ("workflow_slow_serial_tools", "workflow_slow_retries", "workflow_slow_wait"),
    test,
    of_trace,
)
