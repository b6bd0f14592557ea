"""The quantiles of a replayed population: of the traces, not of the savings, and reproducible."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_analytics import whatif_population
from longpole_analytics.stats import quantile, rank
from longpole_analytics.whatif_population import Change, changes

MANY = np.random.default_rng(3).lognormal(6, 1, 2_000)


def test_each_quantile_is_that_of_the_replayed_traces():
    saved = np.where(MANY > 300, 0.4 * MANY, 0)
    for change in changes(MANY, saved):
        assert change.current_ms == quantile(MANY.tolist(), change.quantile)
        assert change.replayed_ms == quantile((MANY - saved).tolist(), change.quantile)
        assert change.change_ms == change.replayed_ms - change.current_ms
        low, high = change.ci95
        assert low <= change.change_ms <= high
        assert change.n == 2_000


def test_it_is_not_the_mean_of_the_savings():
    wall = np.arange(1.0, 101.0)
    saved = np.where(wall > 60, 10.0, 0.0)  # the slow ones only
    (median,) = changes(wall, saved, [0.5])
    assert median.change_ms == 0.0
    assert saved.mean() > 0


def test_the_same_saving_everywhere_is_certain():
    for change in changes(MANY + 50, np.full(2_000, 7.0)):
        assert change.change_ms == pytest.approx(-7)
        assert change.ci95 == pytest.approx((-7, -7))


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_traces_have_no_quantile(n):
    assert changes([5.0] * n, [1.0] * n, [0.5]) == [Change(0.5, n, None, None, None, None)]


def test_what_so_few_carry_is_shown_and_the_rest_is_not():
    found = changes(MANY[:250], 0.1 * MANY[:250])
    assert [change.ci95 is None for change in found] == [False, False, True]


def test_the_same_input_gives_the_same_answer():
    assert changes(MANY, 0.3 * MANY) == changes(MANY, 0.3 * MANY)
    assert repr(changes(MANY, 0.3 * MANY)) == repr(changes(MANY.tolist(), (0.3 * MANY).tolist()))
    assert changes(MANY, 0.3 * MANY, seed=1) != changes(MANY, 0.3 * MANY, seed=2)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(30, 300))
def test_counting_draws_gives_what_sorting_them_gives(seed, n):
    random = np.random.default_rng(seed)
    wall = np.sort(random.integers(1, 50, n).astype(float))
    replayed = wall - random.integers(0, 20, n)
    by_replayed = np.argsort(replayed, kind="stable")
    ranks = np.array([rank(n, q) for q in (0.5, 0.95)])
    ours = whatif_population._resampled(
        wall, replayed[by_replayed], by_replayed, ranks, np.random.default_rng(seed)
    )
    draw = np.random.default_rng(seed)
    for row in ours[:20]:
        drawn = draw.integers(0, n, n, dtype=np.int32)
        naive = np.sort(replayed[drawn])[ranks - 1] - np.sort(wall[drawn])[ranks - 1]
        assert row.tolist() == naive.tolist()


def test_the_interval_holds_the_change_of_the_whole_population_most_of_the_time():
    random = np.random.default_rng(5)
    whole = random.lognormal(6, 0.8, 100_000)
    saved = whole * random.uniform(0, 0.5, 100_000)
    truth = quantile((whole - saved).tolist(), 0.5) - quantile(whole.tolist(), 0.5)
    held = 0
    for _ in range(60):
        some = random.integers(0, len(whole), 200)
        (change,) = changes(whole[some], saved[some], [0.5])
        held += change.ci95[0] <= truth <= change.ci95[1]
    assert held >= 50


def test_a_hundred_thousand_traces_draw_fewer_resamples(monkeypatch):
    monkeypatch.setattr(whatif_population, "MAX_DRAWS", 1_000_000)
    wall = np.random.default_rng(6).exponential(100, 100_000)
    drawn = whatif_population._resampled(
        np.sort(wall), np.sort(wall), np.argsort(wall), np.array([50_000]), np.random.default_rng(1)
    )
    assert len(drawn) == whatif_population.MIN_RESAMPLES
