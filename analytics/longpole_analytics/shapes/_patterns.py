"""Bottleneck patterns that stand beside a shape and refine it: what to suspect within it."""

import math

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._fits import correlation, theil_sen
from longpole_analytics.shapes._measures import TPOT, Measures
from longpole_analytics.shapes.base import Evidence, Finding

Pattern = tuple[str, Evidence]


def patterns(m: Measures, finding: Finding) -> list[Pattern]:
    """The patterns of the current side that bear on what was found."""
    found = []
    if finding.name.startswith("high_ttft"):
        found = [_prefill_growth(m), _queue_share(m)]
    elif finding.name in ("high_tpot", "bad_tail", "load_saturation"):
        found = [_batch(m), _tpot_tail(m)]
    return [pattern for pattern in found if pattern is not None]


def _prefill_growth(m: Measures) -> Pattern | None:
    """Prefill grows faster than the prompt: exponent above 1 in its interval."""
    warm = (m.current["is_cold"] != 1) & (m.current["uncached_tokens"] > 0)
    warm &= m.current["prefill_ms"] > 0
    if warm.sum() < m.rules.min_n(0.95):
        return None
    x, y = np.log(m.current["uncached_tokens"][warm]), np.log(m.current["prefill_ms"][warm])
    slope, n = theil_sen(x, y), len(x)
    residual = y - slope * x
    spread = float(np.var(x))
    if spread <= 0:
        return None
    wide = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    error = 1.96 * wide / math.sqrt(n * spread)
    if slope <= m.rules.prefill_exponent or slope - error <= 1:
        return None
    bounds = (slope - error, slope + error)
    row = Evidence("prefill_exponent", None, slope, 1.0, slope, bounds, n)
    return "prefill grows faster than the prompt", row


def _queue_share(m: Measures) -> Pattern | None:
    queue, ttft = mean(m.current["queue_ms"]), mean(m.current["ttft_ms"])
    if ttft <= 0 or queue < m.rules.queue_share * ttft:
        return None
    return "the queue makes most of the wait", Evidence(
        "queue_of_ttft", None, queue / ttft, None, None, None, m.n
    )


def _batch(m: Measures) -> Pattern | None:
    found = correlation(m.current["mean_in_flight"], m.current[TPOT])
    if found is None or found.rho < m.rules.contention_rho or found.low <= 0:
        return None
    row = Evidence(
        "rank_correlation_mean_in_flight_tpot_ms", None, found.rho, None, None, None, found.n
    )
    return "time per token rises with the batch", row


def _tpot_tail(m: Measures) -> Pattern | None:
    _, current = m.samples[TPOT]
    if current.size < m.rules.min_n(0.99) or current.quantile(0.5) <= 0:
        return None
    ratio = current.quantile(0.99) / current.quantile(0.5)
    if ratio < m.rules.tpot_tail_ratio:
        return None
    row = Evidence("tpot_p99_over_p50", 0.99, ratio, None, None, None, current.n)
    return "few requests decode far slower: eviction or preemption", row
