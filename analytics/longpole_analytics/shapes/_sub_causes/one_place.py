"""One bad replica, host or region: slow requests are served there far more often than others."""

from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.attribution import CauseRules, attribute
from longpole_analytics.requests import PLACES
from longpole_analytics.search import SearchRules
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import exceedance_p_value
from longpole_analytics.shapes.base import Evidence, Finding, Refined, SubCause, TraceCase
from longpole_analytics.stats import quantile
from longpole_analytics.wording import printable

METRICS: Final = {
    "high_tpot": ("tpot_ms",),
    "high_ttft": ("ttft_ms", "e2e_ms"),
    "load_saturation": ("ttft_ms", "tpot_ms"),
}
"""How slow a request is, by the beginning of the shape's name; else its whole time."""
BEYOND: Final = 0.95
UNLIKELY: Final = 0.01


def test(m: Measures, finding: Finding) -> Refined | None:
    """A value of a place that holds slow requests, by the search for causes of the tail."""
    places = [p for p in PLACES if p in m.rows.columns and p not in m.where]
    if not places or not any(m.rows[place].count() for place in places):
        return None
    search = SearchRules(
        min_support=m.rules.min_place, min_risk_ratio=m.rules.place_ratio, rate=UNLIKELY
    )
    rules = CauseRules(max_causes=1, max_attributes=1, search=search)
    for metric in _metrics(finding.name):
        limit = m.samples[metric][0].quantile(BEYOND)
        if not np.isfinite(limit):
            continue
        found = attribute(m.rows, metric, dimensions=places, objective_ms=limit, rules=rules)
        if not found.causes:
            continue
        cause = found.causes[0]
        ((place, value),) = cause.where.items()
        row = Evidence(
            f"share_of_slow_{metric}",
            None,
            cause.of_slow,
            cause.of_rest,
            cause.risk_ratio,
            cause.ci95,
            cause.num_slow,
        )
        return _refined(place, value, row)
    return None


def _metrics(name: str) -> tuple[str, ...]:
    tail = ("e2e_ms", "tpot_ms", "ttft_ms")
    return next((m for begin, m in METRICS.items() if name.startswith(begin)), tail)


def of_trace(case: TraceCase) -> Refined | None:
    """Like requests that the trace's place served are slow in the same stage more often."""
    column = f"{case.stage.value}_ms"
    for place in PLACES:
        own = case.facts.get(place)
        if own is None or place not in case.like.columns:
            continue
        known = case.like.filter(pl.col(place).is_not_null() & pl.col(column).is_not_null())
        here = known.filter(pl.col(place) == own)[column].to_numpy()
        elsewhere = known.filter(pl.col(place) != own)[column].to_numpy()
        limit = quantile(elsewhere.tolist(), BEYOND)
        if limit is None or len(here) < case.rules.min_place:
            continue
        above = [int((side > limit).sum()) for side in (elsewhere, here)]
        shares = above[1] / len(here), above[0] / len(elsewhere)
        ratio = shares[0] / shares[1] if shares[1] > 0 else None
        if ratio is not None and ratio < case.rules.place_ratio:
            continue
        if exceedance_p_value(above[0], len(elsewhere), above[1], len(here)) > UNLIKELY:
            continue
        row = Evidence(f"share_of_slow_{column}", None, *shares, ratio, None, len(here))
        return _refined(place, str(own), row)
    return None


def _refined(place: str, value: str, row: Evidence) -> Refined:
    name = printable(value)
    return Refined(
        f"one {place}: {name}",
        (row,),
        f"take {place} {name} out of service and compare: its load, memory, version and disk",
    )


SUB_CAUSE = SubCause(
    5,
    (
        *("bad_tail", "high_tpot", "load_saturation", "client_slow"),
        *("high_ttft_queue", "high_ttft_prefill", "high_ttft_opaque", "high_ttft_retrieval"),
    ),
    test,
    of_trace,
)
