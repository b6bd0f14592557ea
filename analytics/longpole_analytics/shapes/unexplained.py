"""The whole is slower at equal lengths and no rule knows why: said so, instead of normal."""

from typing import Final

from longpole_analytics.shapes._measures import E2E, Measures
from longpole_analytics.shapes.base import Finding, Rule

OWN_CHECK: Final = "add steps to the code between the spans to see which takes the time"
OPAQUE_CHECK: Final = "record the stages of the request: only its whole time is known to be longer"


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """A median end-to-end time that rose, where nothing else was found."""
    m = measures
    fired = None if found else m.fires(E2E)
    if fired is None or m.ratio(E2E) < m.rules.min_ratio:
        return None
    excess, own = fired.change, m.change("other_ms")
    if own >= m.rules.queue_share * excess > 0:
        cause = "own code, or steps without a span"
        return Finding("workflow_slow_wait", cause, own, (fired.evidence(),), OWN_CHECK)
    cause = "no stage explains it"
    return Finding("high_ttft_opaque", cause, excess, (fired.evidence(),), OPAQUE_CHECK)


RULE = Rule(order=80, needs=("e2e_ms",), test=test)
