"""The risk ratios of many slices are those of the readable form, one by one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_analytics.risk import Tally, _binomial_tail, risk_ratios

from .risk_reference import Stratum, mantel_haenszel

cell = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))


def tally(cases, num):
    return Tally(
        np.array(cases, float), np.array(num, float), *(np.sum(x, 1) for x in (cases, num))
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(cell, min_size=1, max_size=6))
def test_estimate_and_interval_are_mantel_and_haenszels(cells):
    strata = [Stratum(min(a, n1), n1, min(b, n0), n0) for a, n1, b, n0 in cells]
    inside = tally([[s.cases_exposed for s in strata]], [[s.num_exposed for s in strata]])
    whole = tally(
        [[s.cases_exposed + s.cases_other for s in strata]],
        [[s.num_exposed + s.num_other for s in strata]],
    )
    found = risk_ratios(inside, whole)
    expected = mantel_haenszel(strata)
    if expected is None:
        assert math.isnan(found.estimate[0])
    else:
        assert found.estimate[0] == pytest.approx(expected.estimate)
        assert found.low[0] == pytest.approx(expected.low)
        assert found.high[0] == pytest.approx(expected.high)
        assert 0 <= found.p_value[0] <= 1


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("num", [20, 200, 3000])
def test_the_binomial_tail_is_right_where_it_decides(num, share):
    for successes in range(math.ceil(num * share) + 1, num + 1, max(num // 50, 1)):
        exact = math.fsum(
            math.exp(
                math.lgamma(num + 1)
                - math.lgamma(k + 1)
                - math.lgamma(num - k + 1)
                + k * math.log(share)
                + (num - k) * math.log1p(-share)
            )
            for k in range(successes, num + 1)
        )
        if successes < 10 or exact < 1e-7:
            continue
        found = _binomial_tail(*(np.array([x], float) for x in (successes, num, share)))[0]
        # Never far too small; and twice too large at most, where one in a million is decided.
        assert 0.95 * exact < found < 2 * exact


def test_a_few_slow_requests_in_a_rare_slice_are_no_proof():
    """Ten where two were expected: a chance of 1 in 20,000, not the 1 in 3 million of the log."""
    whole = tally([[1000.0]], [[20_000.0]])
    found = risk_ratios(tally([[10.0]], [[40.0]]), whole)
    assert 1e-5 < found.p_value[0] < 1e-4
