"""High time to first token with normal time per token: queue, prefill, cold start, retrieval.

Retrieval runs before the call, so its time is waited for before the first token though it is not
in the call's TTFT. A prompt cache that is lost counts as slow prefill, not as a longer prompt:
the requests are the same.
"""

from typing import Final

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._measures import COLD, PREFILL, TAIL, TPOT, TTFT, Measures
from longpole_analytics.shapes._samples import Test
from longpole_analytics.shapes.base import Evidence, Finding, Rule, plain

CHECKS: Final = {
    "high_ttft_queue": "compare arrivals with capacity: add replicas or shed load before it queues",
    "high_ttft_prefill": "compare engine, model and batch settings before and after: prefill of "
    "the same number of uncached tokens takes longer",
    "high_ttft_cold_start": "keep one instance warm, or load weights from a local cache",
    "high_ttft_retrieval": "time the search and the rerank apart; ask for fewer passages",
    "high_ttft_opaque": "trace the engine, or ask the provider for its queue and prefill times: "
    "nothing explains this wait yet",
}
CACHE_LOST: Final = "prompt cache lost"
CACHE_CHECK: Final = (
    "see which part of the prompt changed at the front: a stable prefix is read from the cache"
)


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """The largest of the wait before the call and the wait within it."""
    both = [finding for finding in (_retrieval(measures), _call(measures)) if finding is not None]
    return max(both, key=lambda finding: finding.excess_ms, default=None)


def _retrieval(m: Measures) -> Finding | None:
    fired = m.fires("retrieval_ms")
    if fired is None or m.affected("retrieval_ms") < m.rules.affected_points:
        return None
    return _finding("high_ttft_retrieval", "retrieval before the call", m, [fired], "retrieval_ms")


def _call(m: Measures) -> Finding | None:
    cold = _cold(m)
    if cold is not None:
        return cold
    fired = m.fires(TTFT)
    if fired is None:
        return _lost_cache(m)
    if m.ratio(TTFT) < m.rules.normal_ratio:
        return None
    tests = [fired, *m.test(TPOT)]
    part = _largest_part(m)
    if part == "elsewhere":
        return None
    if part == "queue":
        is_queue = m.change("queue_ms") >= m.change("admission_ms")
        where = "queue" if is_queue else "admission on the client's side"
        more = m.test("queue_ms" if is_queue else "admission_ms")
        return _finding("high_ttft_queue", where, m, [*more, *tests], "ttft_ms")
    if part == "prefill":
        return _finding(
            "high_ttft_prefill", "slow prefill", m, [*m.test(PREFILL), *tests], "ttft_ms"
        )
    return _finding("high_ttft_opaque", "no stage explains it", m, tests, "ttft_ms")


def _largest_part(m: Measures) -> str:
    """What grew most, where what is known to have grown makes enough of the excess together.

    A way or retries that grew most have shapes of their own: ``elsewhere``.
    """
    parts = {
        "queue": m.change("queue_ms") + m.change("admission_ms"),
        "prefill": m.excess("prefill_ms"),
        "elsewhere": max(m.change("network_ms"), m.change("retry_ms")),
    }
    known = sum(max(part, 0.0) for part in parts.values())
    if known >= m.rules.queue_share * m.excess("ttft_ms") > 0:
        return max(parts, key=lambda name: parts[name])
    return "opaque" if m.fires(PREFILL) is None else "prefill"


def _cold(m: Measures) -> Finding | None:
    """More cold requests; where that is not told, many that are far slower than the median."""
    told = m.tests.get((COLD, TAIL))
    share = _far_share(m) if told is None else told.evidence()
    excess = m.excess("ttft_ms")
    if share is None or excess < m.floor("ttft_ms"):
        return None
    if told is not None and (
        (COLD, TAIL) not in m.discoveries or told.change < m.rules.cold_points
    ):
        return None
    tests = (*m.test("ttft_ms"), *m.test(TTFT))
    return Finding(
        "high_ttft_cold_start",
        "more cold requests",
        excess,
        (share, *(test.evidence() for test in tests)),
        CHECKS["high_ttft_cold_start"],
    )


def _far_share(m: Measures) -> Evidence | None:
    """Two groups of requests: those as usual, and enough that take many times the usual median."""
    base, current = m.samples[TTFT]
    if not base.n or not current.n or m.fires(TTFT) is None:
        return None
    far = m.rules.cold_multiple * base.quantile(0.5)
    now, before = (float((side.values > far).mean()) for side in (current, base))
    usual = float((current.values <= base.quantile(0.95)).mean())
    if now - before < m.rules.cold_tail_share or usual < m.rules.cold_usual_share:
        return None
    if (TPOT, TAIL) in m.discoveries:
        return None
    return plain("share_beyond_5_medians", now, before, m.n)


def _lost_cache(m: Measures) -> Finding | None:
    """Raw TTFT up at the same prompt length, and less of the prompt read from the cache."""
    fired = m.fires("ttft_ms")
    if fired is None or m.is_up("input_tokens", 0.5) or not m.is_known("cached_input_tokens"):
        return None
    now, before = (
        mean(
            side["cached_input_tokens"]
            / np.where(side["input_tokens"] > 0, side["input_tokens"], np.nan)
        )
        for side in (m.current, m.base)
    )
    if before - now < m.rules.cache_loss_points:
        return None
    cached = plain("cached_share", now, before, m.n)
    uncached = [test.evidence() for test in m.test("uncached_tokens")]
    return Finding(
        "high_ttft_prefill",
        CACHE_LOST,
        m.change("ttft_ms"),
        (fired.evidence(), cached, *uncached),
        CACHE_CHECK,
    )


def _finding(name: str, cause: str, m: Measures, tests: list[Test], column: str) -> Finding:
    excess = m.excess(column) if column == "ttft_ms" else m.change(column)
    return Finding(name, cause, excess, tuple(test.evidence() for test in tests), CHECKS[name])


RULE = Rule(order=40, needs=("ttft_ms", "retrieval_ms"), test=test)
