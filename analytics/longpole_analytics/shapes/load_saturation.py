"""Latency worsens with load: within the window, the busier the slower, and more so than before.

Time per token counts where there is more load than before; alone it would be contention at the
usual load, a sub-cause of slow decoding. Where load grew by itself it is seen over both windows.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._fits import Correlation, correlation
from longpole_analytics.shapes._measures import QUANTILES, TPOT, Measures
from longpole_analytics.shapes.base import Evidence, Finding, Rule

CHECK: Final = "compare arrivals with capacity: add replicas, or admit fewer requests at once"


WAITS: Final = "queue saturation"
DECODES: Final = "batch policy: decoding slows, the queue does not"


class _Link(NamedTuple):
    """How a time goes with the load: now, and the slope's growth over the baseline's."""

    metric: str
    now: Correlation
    growth: float


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """Saturation, by the times that rose and go with the load more steeply than before."""
    m = measures
    links = [link for name in ("queue_ms", "ttft_ms", TPOT) if (link := _link(m, name))]
    if not links:
        return None
    wait, decode = _parts(m, {link.metric for link in links})
    if wait + decode < m.floor("ttft_ms"):
        return None
    best = max(links, key=lambda link: link.now.rho)
    tests = [t for metric in (best.metric, "in_flight", TPOT) for t in m.test(metric)]
    return Finding(
        "load_saturation",
        WAITS if wait > decode else DECODES,
        wait + decode,
        (*_evidence(best), *(t.evidence() for t in dict.fromkeys(tests))),
        CHECK,
    )


def _link(m: Measures, metric: str) -> _Link | None:
    load_is_up = m.is_up("in_flight", 0.5)
    if not _rose(m, metric) or (metric == TPOT and not load_is_up):
        return None
    if metric == "ttft_ms" and not m.is_told("queue_ms") and not _is_driven(m):
        return None  # an unknown wait makes more of them wait, whoever it is that they wait for
    load = _load(metric)
    sides = (m.base, m.current) if metric == TPOT and _is_driven(m) else (m.current,)
    now = correlation(*(np.concatenate([side[name] for side in sides]) for name in (load, metric)))
    if now is None or now.rho < m.rules.load_rho or now.low <= 0:
        return None
    before = correlation(m.base[load], m.base[metric])
    growth = now.slope / before.slope if before is not None and before.slope > 0 else math.inf
    # With more load than before, decoding that was steep already is saturation all the same.
    if growth <= m.rules.load_slope_growth and metric != TPOT:
        return None
    return _Link(metric, now, growth)


def _load(metric: str) -> str:
    """The load a time goes with: what ran at the start for waits, meanwhile for steps."""
    return "mean_in_flight" if metric == TPOT else "in_flight"


def _is_driven(m: Measures) -> bool:
    """More runs at once than slower answers alone would make.

    By Little's law those that a request meets grow in number with the time that each takes. Where
    there are more of them than that, others come or they come together. The load may then be as
    even now as it was before: that time per token goes with it is seen over both windows.
    """
    time = "model_ms" if m.is_known("model_ms") else "e2e_ms"
    before, now = (mean(side["mean_in_flight"]) for side in (m.base, m.current))
    slower = mean(m.current[time]) / (mean(m.base[time]) or math.inf)
    return now >= m.rules.min_ratio * (1 + max(before - 1, 0.0) * slower)


def _parts(m: Measures, linked: set[str]) -> tuple[float, float]:
    """What waits and what decodes longer; decoding too where it follows a load that is up.

    With more load than before all of the longer wait is the load's, and so it is where the queue
    makes the most of it. Else only the queue's part is, where that is known: a slower prompt phase
    makes those wait who come together, too.
    """
    is_busier = m.is_up("in_flight", 0.5)
    queue = m.change("queue_ms") + m.change("admission_ms")
    wait = m.excess("ttft_ms") if linked & {"ttft_ms", "queue_ms"} else 0.0
    if not is_busier and m.is_told("queue_ms") and queue < m.rules.queue_share * wait:
        wait = queue
    if "queue_ms" in linked:
        wait = max(wait, queue)
    decode = 0.0
    slower = m.tests.get((TPOT, 0.5))
    if TPOT in linked or (is_busier and slower is not None and slower.is_up):
        decode = max(m.decode_excess(), 0.0)
    return max(wait, 0.0), decode


def _evidence(link: _Link) -> tuple[Evidence, Evidence]:
    growth = link.growth if math.isfinite(link.growth) else None
    before = link.now.slope / growth if growth else None
    name, now = f"{_load(link.metric)}_{link.metric}", link.now
    return (
        Evidence(f"rank_correlation_{name}", None, now.rho, None, None, None, now.n),
        Evidence(f"slope_{name}", None, now.slope, before, growth, None, now.n),
    )


def _rose(m: Measures, metric: str) -> bool:
    return any(m.is_up(metric, q) for q in QUANTILES)


RULE = Rule(order=10, needs=("queue_ms", "ttft_ms", TPOT), test=test)
