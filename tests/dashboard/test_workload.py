"""The demo's arrivals keep the recording's bursts at the asked rate."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_dashboard.demo.workload import MAX_OUTPUT_TOKENS, MIN_OUTPUT_TOKENS, plan


@given(st.integers(2, 3000), st.floats(0.01, 50.0), st.integers(0, 1000))
def test_arrivals_come_in_order_at_the_asked_mean_rate(num: int, rate: float, seed: int) -> None:
    workload = plan(num, rate, seed)
    due = [arrival.due_s for arrival in workload.arrivals]
    assert len(due) == num
    assert due[0] == 0.0
    assert due == sorted(due)
    assert workload.duration_s == pytest.approx(num / rate)
    lengths = {arrival.output_tokens for arrival in workload.arrivals}
    assert min(lengths) >= MIN_OUTPUT_TOKENS
    assert max(lengths) <= MAX_OUTPUT_TOKENS


def test_gaps_vary_as_recorded() -> None:
    due = [arrival.due_s for arrival in plan(1500, 1.0).arrivals]
    gaps = [after - before for before, after in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    variation = sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2
    assert 0.8 < variation < 2.5
