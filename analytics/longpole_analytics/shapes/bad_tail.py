"""Good p50, bad p99: the median stayed, few requests became far slower.

The tail of an earlier rule's own stage is told there when it reaches many requests; here it is
few. Where p99 has too few samples, p95 is looked at, and the growth of p99/p50 by how many
requests lie beyond the tail as it was.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._measures import E2E, TAIL, TPOT, TTFT, Measures
from longpole_analytics.shapes._samples import Test
from longpole_analytics.shapes.base import Finding, Rule

Marks = NDArray[np.bool_]
CHECK: Final = "compare the slowest requests with the rest: instance, region, tools, retries, load"
NAMES: Final = {
    "retry_ms": "retry storm",
    "tool_ms": "tool tail",
    "retrieval_ms": "retrieval tail",
    "client_ms": "client tail",
    "wait_ms": "wait tail",
}
MANY: Final = 2.0
UNLIKELY: Final = 0.005
"""Where no quantile of a stage rose surely, those beyond its tail must be so unlikely."""
LONGER: Final = "mixed lengths"
WHOLE: Final = "e2e_ms"


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """A bad tail of decoding, of the first token, of a stage, or of the whole."""
    m = measures
    tails = [
        (max(m.decode_excess(), 0.0), TPOT, tail) for tail in [_tail(m, TPOT)] if tail is not None
    ]
    tail = _tail(m, TTFT)
    if tail is not None and not any(f.name.startswith(("high_ttft", "cache")) for f in found):
        tails.append((max(m.excess("ttft_ms"), 0.0), TTFT, tail))
    for name in NAMES:
        fired = m.fires(name) or _grown(m, name)
        if fired is not None and _is_few(m, name, fired):
            tails.append((max(m.change(name), 0.0), name, fired))
    if not tails and not found:
        tails = _whole(m)
    if not tails:
        return None
    excess = sum(size for size, _, _ in tails)
    _, metric, first = max(tails, key=lambda item: item[0])
    rows = (first, *(t for _, other, t in tails if other != metric), *m.test(metric))
    evidence = tuple(row.evidence() for row in dict.fromkeys(rows))
    return Finding("bad_tail", _cause(m, metric), excess, evidence, CHECK)


def _grown(m: Measures, name: str) -> Test | None:
    """The growth of a stage's p99, where it is enough and many more than by chance lie beyond."""
    grown = m.tests.get((name, TAIL))
    is_sure = grown is not None and grown.p_value < UNLIKELY
    return grown if grown is not None and is_sure and grown.change >= m.floor(name) else None


def _whole(m: Measures) -> list[tuple[float, str, Test]]:
    """The tail of the whole time: at equal lengths, or of a few that are far longer."""
    tail = _tail(m, E2E)
    if tail is None and _cause(m, WHOLE) == LONGER:
        tail = _tail(m, WHOLE)
    if tail is None or (_cause(m, E2E) == LONGER and _is_longer(m)):
        return []
    return [(max(m.change(WHOLE), 0.0), E2E, tail)]


def _is_longer(m: Measures) -> bool:
    """Whether the mix moved, so that a tail of longer requests is the mix's."""
    return m.is_up("input_tokens", 0.5) or m.is_up("output_tokens", 0.5)


def _is_few(m: Measures, name: str, fired: Test) -> bool:
    """Whether a stage grew much, by more than chance, and for few requests only."""
    grown = fired.ratio is None or fired.ratio >= m.rules.tail_growth
    return (
        grown and (name, TAIL) in m.discoveries and 0 < m.affected(name) < m.rules.affected_points
    )


def _tail(m: Measures, metric: str) -> Test | None:
    """What shows the tail of a metric whose median stayed: a fired quantile or p99/p50."""
    middle = m.tests.get((metric, 0.5))
    if middle is None or m.ratio(metric) >= m.rules.normal_ratio:
        return None
    fired = m.fires(metric)
    if fired is not None:
        return fired
    grown = m.tests.get((metric, TAIL))
    if grown is None or (metric, TAIL) not in m.discoveries:
        return None
    floor = m.floor(metric)
    if metric == TTFT:
        grown = grown._replace(change=grown.change * m.samples["ttft_ms"][0].quantile(0.5))
    enough = grown.ratio is not None and grown.ratio >= m.rules.tail_growth
    return grown if enough and grown.change >= floor else None


def _cause(m: Measures, metric: str) -> str:
    """What the slow requests have that the others lack."""
    slow, rest = _slow(m, metric)
    retried = np.where(np.isfinite(m.current["retry_ms"]), m.current["retry_ms"] > 0, np.nan)
    if (
        mean(retried[slow]) >= m.rules.retries_of_slow
        and mean(retried[rest]) <= m.rules.retries_of_rest
    ):
        return "retry storm"
    if metric in NAMES:
        return NAMES[metric]
    cold = m.current["is_cold"]
    if mean(cold[slow]) >= m.rules.retries_of_slow > mean(cold[rest]):
        return "cold path"
    load = m.current["in_flight"]
    if mean(load[slow]) >= MANY * mean(load[rest]) > 0:
        return "contention"
    lengths = [m.current[name] for name in ("input_tokens", "output_tokens")]
    is_longer = any(mean(tokens[slow]) >= MANY * mean(tokens[rest]) > 0 for tokens in lengths)
    if metric in (E2E, WHOLE) and is_longer:
        return LONGER
    names = {TPOT: "few requests decode slowly", TTFT: "few requests wait for the first token"}
    return names.get(metric, "few requests are slow")


def _slow(m: Measures, metric: str) -> tuple[Marks, Marks]:
    """Marks of the current requests beyond the baseline's p99 of a metric, and of the others."""
    name = {TTFT: "ttft_ms", E2E: WHOLE}.get(metric, metric)
    base, _ = m.samples[name]
    slow = m.current[name] > base.quantile(0.99)
    return slow, ~slow


RULE = Rule(order=60, needs=(TPOT, "ttft_ms", "e2e_ms"), test=test)
