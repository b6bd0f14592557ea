"""The statistics below the rules: quantile comparisons, lines, correlations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_analytics.shapes._fits import correlation, line, theil_sen
from longpole_analytics.shapes._samples import compare, exceedance_p_value, sample
from longpole_analytics.shapes.base import ShapeRules

RULES = ShapeRules()


def lognormal(n, seed, level=100.0, spread=0.5):
    return level * np.random.default_rng(seed).lognormal(0, spread, n)


def physical_bootstrap(base, current, q, replicates=2000):
    """The interval as the definition says it: resample both sides, take the quantiles."""
    random = np.random.default_rng(9)
    logs = []
    for side in (base, current):
        k = math.ceil(q * len(side)) - 1
        draws = random.choice(side, (replicates, len(side)))
        logs.append(np.log(np.partition(draws, k, axis=1)[:, k]))
    return np.exp(np.quantile(logs[1] - logs[0], (0.025, 0.975)))


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
def test_the_bootstrap_equals_physical_resampling(q: float) -> None:
    base, current = lognormal(600, 1), lognormal(500, 2, 130.0)
    found = compare("m", sample(base), sample(current), q, RULES)
    low, high = physical_bootstrap(base, current, q)
    assert found.low == pytest.approx(low, rel=0.05)
    assert found.high == pytest.approx(high, rel=0.05)
    assert found.low <= found.ratio <= found.high


@pytest.mark.parametrize("n", [80, 300])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(n: int) -> None:
    held = 0
    for seed in range(200):
        sides = sample(lognormal(n, seed)), sample(lognormal(n, 10_000 + seed, 150.0))
        found = compare("m", *sides, 0.5, RULES)
        held += found.low <= 1.5 <= found.high
    assert 0.9 <= held / 200 <= 0.99


def test_equal_populations_are_rarely_told_apart() -> None:
    false = 0
    for seed in range(200):
        sides = sample(lognormal(250, seed)), sample(lognormal(250, 10_000 + seed))
        false += compare("m", *sides, 0.95, RULES).p_value < 0.05
    assert false / 200 <= 0.1


def test_too_few_samples_are_not_compared() -> None:
    for q, n in ((0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)):
        many, few = sample(lognormal(1000, 1)), sample(lognormal(n - 1, 2))
        assert compare("m", many, few, q, RULES) is None
        assert compare("m", many, sample(lognormal(n, 2)), q, RULES) is not None


def test_a_baseline_of_zeros_has_a_difference_and_no_ratio() -> None:
    zeros, slow = sample(np.zeros(300)), sample(np.full(300, 50.0))
    found = compare("m", zeros, slow, 0.5, RULES)
    assert found.ratio is None
    assert found.evidence().ci95 is None
    assert found.change == 50.0
    assert found.is_up


def test_constants_are_equal_or_surely_different() -> None:
    same = compare("m", sample(np.full(300, 5.0)), sample(np.full(300, 5.0)), 0.5, RULES)
    assert (same.ratio, same.p_value, same.is_up) == (1.0, 1.0, False)
    other = compare("m", sample(np.full(9, 5.0)), sample(np.full(9, 10.0)), 0.5, RULES)
    assert other.ratio == pytest.approx(2.0)
    assert other.p_value == 0.5**8


def test_weights_move_the_quantile_and_shrink_the_sample() -> None:
    values = np.arange(1.0, 101.0)
    weighted = sample(values, np.where(values > 50, 9.0, 1.0))
    assert weighted.quantile(0.5) == 73.0
    assert 50 < weighted.size < 70
    assert sample(values, np.ones(100)).quantile(0.95) == sample(values).quantile(0.95) == 95.0
    assert weighted.above(50.0) == pytest.approx(0.9 * weighted.size, abs=1)


def test_what_is_not_finite_is_unknown() -> None:
    assert sample(np.array([np.nan, 2.0, np.inf, 1.0])).values.tolist() == [1.0, 2.0]
    assert math.isnan(sample(np.array([np.nan])).quantile(0.5))


def test_more_beyond_the_old_tail_is_less_likely() -> None:
    p_values = [exceedance_p_value(0, 250, k, 250) for k in range(8)]
    assert p_values[0] == 1.0
    assert p_values == sorted(p_values, reverse=True)
    assert 0.04 < p_values[3] < 0.06
    assert p_values[6] < 0.01
    assert exceedance_p_value(6, 250, 6, 250) > 0.3
    assert exceedance_p_value(0, 2000, 4, 250) < p_values[4]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_line_through_points_on_a_line_is_that_line(xs: list[float]) -> None:
    x = np.unique(np.array(xs).round(3))
    if len(x) > 1:
        assert theil_sen(x, 3.0 * x + 7.0) == pytest.approx(3.0, rel=1e-6, abs=1e-6)


def test_wild_values_do_not_move_a_line() -> None:
    random = np.random.default_rng(1)
    x = random.uniform(100, 5000, 400)
    y = (30 + 0.2 * x) * random.lognormal(0, 0.1, 400)
    y[::20] *= 30
    fitted = line(x, y)
    assert fitted.slope == pytest.approx(0.2, rel=0.1)
    assert np.median(y / fitted.at(x)) == pytest.approx(1.0, abs=0.05)


def test_a_line_bends_with_its_points_and_never_turns_negative() -> None:
    x = np.linspace(100, 8000, 400)
    y = 0.1 * x + 2e-5 * x**2
    fitted = line(x, y)
    straight = fitted._replace(knots=np.zeros(1), factors=np.ones(1))
    inside = (x > 1500) & (x < 7500)
    misses = [np.abs(y / f.at(x) - 1)[inside].max() for f in (fitted, straight)]
    assert misses[0] < 0.15
    assert misses[0] < misses[1]
    assert fitted.at(np.array([-1e9, 0.0])).min() > 0


def test_a_line_without_x_is_the_median() -> None:
    fitted = line(np.full(50, np.nan), np.full(50, 4.0))
    assert fitted.at(np.full(2, np.nan)).tolist() == [4.0, 4.0]
    assert line(np.ones(3), np.full(3, np.nan)) is None


def test_rank_correlation() -> None:
    x = np.arange(40.0)
    assert correlation(x, x**3).rho == pytest.approx(1.0)
    assert correlation(x, -x).rho == pytest.approx(-1.0)
    assert correlation(x, np.ones(40)) is None
    assert correlation(x[:5], x[:5]) is None
    noise = correlation(x, np.random.default_rng(1).normal(size=40))
    assert noise.low < 0 < noise.low + 1
    tied = correlation(np.repeat([1.0, 2.0, 3.0], 10), np.repeat([1.0, 2.0, 3.0], 10))
    assert tied.rho == pytest.approx(1.0)
