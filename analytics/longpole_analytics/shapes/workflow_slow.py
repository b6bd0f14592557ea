"""Model fast, workflow slow: tools, retries, waiting for people or checks grew."""

from typing import Final

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes._samples import Test
from longpole_analytics.shapes.base import Evidence, Finding, Rule, plain

CHECKS: Final = {
    "workflow_slow_serial_tools": "look for tools that run one after another and could run side "
    "by side",
    "workflow_slow_retries": "look at the error class of the failed attempts, then at timeouts "
    "and back-off",
    "workflow_slow_wait": "see who is waited for: a person's time stays out of latency "
    "objectives, checks can run while the answer streams",
}
PARTS: Final = {
    "tool_ms": "workflow_slow_serial_tools",
    "retry_ms": "workflow_slow_retries",
    "wait_ms": "workflow_slow_wait",
}


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """The part of the workflow outside the model that grew most."""
    m = measures
    fired = [
        (m.change(metric), metric, test)
        for metric in PARTS
        if (test := m.fires(metric)) is not None and m.affected(metric) >= m.rules.affected_points
    ]
    if not fired:
        return None
    excess, metric, first = max(fired, key=lambda item: item[0])
    name = PARTS[metric]
    cause, more = _refined(m, metric)
    return Finding(name, cause, excess, _evidence(m, first, more), CHECKS[name])


def _refined(m: Measures, metric: str) -> tuple[str, tuple[Evidence, ...]]:
    if metric == "retry_ms":
        now, before = (
            mean(np.where(np.isfinite(s[metric]), s[metric] > 0, np.nan))
            for s in (m.current, m.base)
        )
        row = plain("retried_share", now, before, m.n)
        errors = m.share_change("is_error")
        is_storm = now > m.rules.retries_of_rest and errors > 0
        return ("retry storm" if is_storm else "retries"), (row,)
    if metric == "wait_ms":
        person = m.change("human_wait_ms") >= m.change("validation_ms")
        return ("a person's answer" if person else "validation"), ()
    counts = [mean(side["num_tools"]) for side in (m.current, m.base)]
    turns = [mean(side["num_turns"]) for side in (m.current, m.base)]
    for cause, column, (now, before) in (
        ("more turns", "num_turns", turns),
        ("more tools one after another", "num_tools", counts),
    ):
        if m.is_known(column) and now >= m.rules.min_ratio * before and now > 0:
            return cause, (plain(column, now, before, m.n),)
    if m.is_known("tool_total_ms"):
        now, before = (mean(side["tool_total_ms"]) for side in (m.current, m.base))
        row = plain("tool_total_ms", now, before, m.n)
        if now < m.rules.min_ratio * before:
            return "the same tools, one after another", (row,)
        return "slower tools", (row,)
    return "slower tools", ()


def _evidence(m: Measures, first: Test, more: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return (first.evidence(), *more, *(t.evidence() for t in m.test("model_ms")))


RULE = Rule(order=30, needs=tuple(PARTS), test=test)
