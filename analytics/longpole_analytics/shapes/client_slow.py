"""Provider fast, browser slow: rendering, the stream's tail or the network grew, the model did not.

A proxy that buffers shows as an answer in one burst: the first token comes with the last.
"""

from typing import Final

import numpy as np

from longpole_analytics.shapes._columns import Columns, Floats, mean
from longpole_analytics.shapes._measures import TTFT, Measures
from longpole_analytics.shapes._samples import sample
from longpole_analytics.shapes.base import Evidence, Finding, Rule

CHECKS: Final = {
    "proxy buffering": "turn off buffering and compression of event streams in the proxy",
    "network": "reuse connections, look for a proxy or a longer way to the model",
    "rendering": "look at the page: paint while the answer streams",
    "reading the stream": "look at what the client does between chunks, and for a proxy that "
    "buffers",
}

SHORT_ANSWER_TOKENS: Final = 20


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """What is slow between the model and the eye."""
    m = measures
    buffered = _buffering(m)
    if buffered is not None:
        return buffered
    fired = m.fires("client_ms")
    if fired is not None and m.affected("client_ms") >= m.rules.affected_points:
        is_render = m.change("render_ms") > m.change("stream_ms")
        cause = "rendering" if is_render else "reading the stream"
        excess = m.change("client_ms")
    else:
        fired = m.fires("network_ms")
        cause, excess = "network", _network(m)
        is_wide = m.affected("network_ms") >= m.rules.affected_points
        if fired is None or not is_wide or excess < m.floor("network_ms"):
            return None
    evidence = tuple(t.evidence() for t in (fired, *m.test("model_ms")))
    return Finding("client_slow", cause, excess, evidence, CHECKS[cause])


def _network(m: Measures) -> float:
    """Change of the mean network time of warm requests: cold ones waited for a start."""
    sides = [np.where(s["is_cold"] != 1, s["network_ms"], np.nan) for s in (m.current, m.base)]
    now, before = (mean(side) for side in sides)
    return now - before


def _buffering(m: Measures) -> Finding | None:
    """One burst where there was a stream, in about the same time as before."""
    shares = [sample(_first_share(side)) for side in (m.current, m.base)]
    chunks = [sample(side["tokens_per_chunk"]) for side in (m.current, m.base)]
    limits = (m.rules.buffered_ttft_share, m.rules.buffered_tokens_per_chunk)
    evidence = []
    for name, sides, limit in zip(
        ("ttft_of_model_time", "tokens_per_chunk"), (shares, chunks), limits, strict=True
    ):
        n = min(side.n for side in sides)
        if n < m.rules.min_n(0.5):
            continue
        now, before = (side.quantile(0.5) for side in sides)
        if now > limit >= before and now >= m.rules.min_ratio * before:
            evidence.append(Evidence(name, 0.5, now, before, now / before, None, n))
    is_later = m.is_up(TTFT, 0.5) or m.is_up("ttft_ms", 0.5)
    if not evidence or not is_later or m.ratio("e2e_ms") >= m.rules.min_ratio:
        return None
    later = tuple(t.evidence() for t in (*m.test("ttft_ms"), *m.test("e2e_ms")))
    cause = "proxy buffering"
    return Finding("client_slow", cause, m.excess("ttft_ms"), (*evidence, *later), CHECKS[cause])


def _first_share(side: Columns) -> Floats:
    """TTFT of the time until the last token; a short answer is one burst anyway."""
    many = side["output_tokens"] > SHORT_ANSWER_TOKENS
    whole = side["ttft_ms"] + side["tpot_ms"] * side["steps"]
    return side["ttft_ms"] / np.where(many & (whole > 0), whole, np.nan)


RULE = Rule(order=20, needs=("client_ms", "network_ms", "ttft_ms"), test=test)
