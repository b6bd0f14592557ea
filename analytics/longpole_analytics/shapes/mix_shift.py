"""Longer requests, not slower ones: raw times rose, times at equal lengths did not."""

from typing import Final

import numpy as np

from longpole_analytics.shapes._columns import mean
from longpole_analytics.shapes._measures import QUANTILES, TPOT, Measures
from longpole_analytics.shapes._samples import sample
from longpole_analytics.shapes.base import Finding, Rule

CHECKS: Final = {
    "mix_longer_inputs": "see who sends longer prompts; the same request takes as long as before",
    "mix_longer_outputs": "see who asks for longer answers; each token takes as long as before",
}


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """The length that grew and costs most; nothing if a rule has found a slowness."""
    m = measures
    if found:
        return None
    moved = []
    for name, column, time in (
        ("mix_longer_inputs", "input_tokens", "ttft_ms"),
        ("mix_longer_outputs", "output_tokens", "e2e_ms"),
    ):
        if m.fires(column) is None or not m.is_up(column, 0.5):
            continue
        if (time, 0.5) in m.tests and not any(m.is_up(time, q) for q in QUANTILES):
            continue
        excess = m.change("ttft_ms")
        if column == "output_tokens":
            usual = sample(m.base[TPOT]).quantile(0.5)
            excess = m.change("steps") * usual if np.isfinite(usual) else m.change("e2e_ms")
        moved.append((excess, name, (*m.test(column), *m.test(time), *m.test("e2e_ms"))))
    if not moved:
        return None
    excess, name, tests = max(moved, key=lambda item: item[0])
    both = "inputs and outputs grew" if len(moved) > 1 else f"{name.split('_')[-1]} grew"
    evidence = tuple(t.evidence() for t in dict.fromkeys(tests))
    return Finding(name, both, mean(np.array([excess])), evidence, CHECKS[name])


RULE = Rule(order=90, needs=("input_tokens", "output_tokens"), test=test)
