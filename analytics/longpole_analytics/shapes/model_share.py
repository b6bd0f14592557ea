"""Model fast, workflow slow, where no part of the workflow fires alone: its parts grew together.

The whole is slower at equal lengths and the model makes less than two fifths of it.
"""

from typing import Final

from longpole_analytics.shapes._measures import E2E, Measures
from longpole_analytics.shapes._sub_causes.model_share import shares_of, small_share
from longpole_analytics.shapes.base import Finding, Rule
from longpole_analytics.shapes.workflow_slow import CHECKS, PARTS

LEAST: Final = 0.5
"""Of the change of the whole, that the workflow's parts must hold together."""


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """A slower whole of which the workflow's parts grew, none enough on its own."""
    m = measures
    fired = None if found else m.fires(E2E)
    if fired is None or m.ratio(E2E) < m.rules.min_ratio:
        return None
    row = small_share(shares_of(m.current), shares_of(m.base), m.rules)
    changes = {metric: m.change(metric) for metric in PARTS}
    together = sum(max(change, 0.0) for change in changes.values())
    if row is None or together < LEAST * fired.change:
        return None
    most = max(changes, key=lambda metric: changes[metric])
    name = PARTS[most]
    parts = [t.evidence() for metric in PARTS for t in m.test(metric)]
    cause = "the model is the smaller part, the steps around it grew together"
    return Finding(name, cause, together, (fired.evidence(), row, *parts), CHECKS[name])


RULE = Rule(order=75, needs=("e2e_ms",), test=test)
