"""High time per output token with normal time to first token.

Longer answers at the same pace are a shift of the mix, never this. A rise of the tail alone is a
bad tail.
"""

from typing import Final

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._fits import correlation
from longpole_analytics.shapes._measures import TPOT, TTFT, Measures
from longpole_analytics.shapes.base import Finding, Rule

CHECKS: Final = {
    "contention": "look at the batch size while requests decode: lower it, or add a replica",
    "stalls": "look at what stops the stream: preemption, a proxy, the client's own loop",
    "slower decoding": "compare engine, model and batch settings before and after: each token "
    "takes longer",
}


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """Slow decoding, with what goes along with it."""
    m = measures
    fired = m.fires(TPOT)
    if fired is None or m.ratio(TPOT) < m.rules.normal_ratio:
        return None
    cause = _cause(m)
    tests = (fired, *m.test(TTFT), *m.test("output_tokens"))
    return Finding(
        "high_tpot", cause, m.decode_excess(), tuple(t.evidence() for t in tests), CHECKS[cause]
    )


def _cause(m: Measures) -> str:
    decode = m.current[TPOT] * m.current["steps"]
    stalled = m.current["stall_ms"] / np.where(decode > 0, decode, np.nan)
    if m.is_known("stall_ms") and mean(stalled) >= m.rules.stall_share:
        return "stalls"
    with_load = correlation(m.current["mean_in_flight"], m.current[TPOT])
    if with_load is not None and with_load.rho >= m.rules.contention_rho and with_load.low > 0:
        return "contention"
    return "slower decoding"


RULE = Rule(order=50, needs=(TPOT,), test=test)
