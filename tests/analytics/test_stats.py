"""Quantiles and tests against vectors, and what they must never do."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_analytics.stats import (
    BUCKET_ERROR,
    benjamini_hochberg,
    bucket,
    bucket_value,
    highest_shown,
    interval,
    is_shown,
    quantile,
    rank_interval,
)

from .risk_reference import Stratum, mantel_haenszel

VECTORS = json.loads((Path(__file__).parent / "data" / "quantiles.json").read_text())


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"n={len(case['values'])}")
def test_vectors_are_exact(case):
    values, expected = case["values"], case["expect"]
    for q, value in expected["disc"].items():
        assert quantile(values, float(q)) == value
    for q, ci in expected["ci95"].items():
        assert rank_interval(len(values), float(q)) == (ci["low_rank"], ci["high_rank"])
        assert interval(values, float(q)) == (ci["low"], ci["high"])
    for q, of_bucket in expected["logbucket_alpha_0_01"].items():
        index = bucket(quantile(values, float(q)))
        assert index == of_bucket["bucket"]
        assert bucket_value(index) == pytest.approx(of_bucket["value"], rel=1e-6)


@pytest.mark.parametrize(("q", "n"), VECTORS["min_n_for_two_sided_ci95"].items())
def test_smallest_sample_with_a_closed_interval(q, n):
    assert None not in rank_interval(n, float(q))
    assert None in rank_interval(n - 1, float(q))


def test_no_values_have_no_quantile():
    assert quantile([], 0.5) is None
    assert interval([], 0.5) == (None, None)


def test_a_rank_does_not_depend_on_rounding_of_floats():
    assert quantile(range(1, 101), 0.07) == 7
    assert quantile(range(1, 1001), 0.999) == 999


@pytest.mark.parametrize(
    ("n", "highest"), [(19, None), (20, 0.5), (99, 0.5), (100, 0.9), (200, 0.95), (1000, 0.99)]
)
def test_a_quantile_needs_ten_values_above_it(n, highest):
    assert highest_shown(n) == highest
    assert highest is None or is_shown(n, highest)


@given(st.floats(1e-9, 1e12))
def test_a_bucket_stands_for_its_values_within_its_error(value):
    index = bucket(value)
    assert abs(bucket_value(index) / value - 1) <= BUCKET_ERROR + 1e-9
    assert bucket(bucket_value(index)) == index


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_zero_and_below_have_no_bucket(value):
    assert bucket(value) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_quantile_lies_in_its_interval(values, q):
    low, high = interval(values, q)
    assert (low or 0.0) <= quantile(values, q) <= (high or 1e6)


@pytest.mark.parametrize(
    ("p_values", "found"),
    [
        ([0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216], [0, 1]),
        ([0.2, 0.9], []),
        ([0.01, 0.02, 0.03], [0, 1, 2]),
        ([], []),
    ],
)
def test_benjamini_hochberg(p_values, found):
    assert benjamini_hochberg(p_values) == found


class TestMantelHaenszel:
    def test_one_stratum_is_the_plain_risk_ratio(self):
        risk = mantel_haenszel([Stratum(30, 100, 10, 100)])
        assert risk.estimate == pytest.approx(3.0)
        spread = 1.96 * math.sqrt(1 / 30 - 1 / 100 + 1 / 10 - 1 / 100)
        assert risk.low == pytest.approx(3 * math.exp(-spread))
        assert risk.high == pytest.approx(3 * math.exp(spread))
        assert 0 < risk.p_value < 0.01

    def test_a_confounder_is_taken_out(self):
        long_prompts, short_prompts = Stratum(60, 100, 6, 10), Stratum(1, 10, 10, 100)
        assert mantel_haenszel([long_prompts, short_prompts]).estimate == pytest.approx(1.0)
        pooled = Stratum(*(a + b for a, b in zip(long_prompts, short_prompts, strict=True)))
        assert mantel_haenszel([pooled]).estimate > 3

    def test_no_case_on_one_side_is_still_finite(self):
        risk = mantel_haenszel([Stratum(20, 50, 0, 50)])
        assert 1 < risk.low < risk.estimate < risk.high < 1e6

    @pytest.mark.parametrize("strata", [[], [Stratum(5, 10, 0, 0)], [Stratum(0, 9, 0, 9)]])
    def test_nothing_to_compare_gives_nothing(self, strata):
        assert mantel_haenszel(strata) is None
