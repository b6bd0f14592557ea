"""The demo's arrivals keep the recording's bursts at the asked rate."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_dashboard.demo import workload
from longpole_dashboard.demo.workload import MAX_OUTPUT_TOKENS, MIN_OUTPUT_TOKENS, plan


@given(st.integers(2, 3000), st.floats(0.01, 50.0), st.integers(0, 1000))
def test_arrivals_come_in_order_at_the_asked_mean_rate(num: int, rate: float, seed: int) -> None:
    made = plan(num, rate, seed)
    due = [arrival.due_s for arrival in made.arrivals]
    assert len(due) == num
    assert due[0] == 0.0
    assert due == sorted(due)
    assert made.duration_s == pytest.approx(num / rate)
    lengths = {arrival.output_tokens for arrival in made.arrivals}
    assert min(lengths) >= MIN_OUTPUT_TOKENS
    assert max(lengths) <= MAX_OUTPUT_TOKENS


def test_arrivals_of_one_moment_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.DataFrame({"t_s": [5.0] * 4, "output_tokens": [9] * 4})
    monkeypatch.setattr(workload, "_recorded", lambda: table)
    assert [each.due_s for each in plan(3, 0.5).arrivals] == pytest.approx([0.0, 3.0, 6.0])
    assert [each.due_s for each in plan(1, 0.5).arrivals] == [0.0]


def test_gaps_vary_as_recorded() -> None:
    due = [arrival.due_s for arrival in plan(1500, 1.0).arrivals]
    gaps = [after - before for before, after in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    variation = sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2
    assert 0.8 < variation < 2.5
