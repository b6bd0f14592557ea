"""Estimates from weighted requests: equal to the unweighted where all weigh 1, honest elsewhere."""

import math
from statistics import NormalDist

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_analytics import stats
from longpole_analytics.budgets import Budget, check
from longpole_analytics.measures import share
from longpole_analytics.requests import from_flat, from_views
from longpole_analytics.slices import slices
from longpole_analytics.span_loading import weights
from longpole_analytics.weighted import is_shown, mean, quantile, total, weighted_share
from longpole_analytics.whatif_population import changes

QUANTILES = (0.05, 0.5, 0.9, 0.95, 0.99)
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


def ordered(values):
    return np.sort(np.array(values, float))


# --- where all weigh 1 -------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from(QUANTILES))
def test_with_weights_of_one_a_quantile_is_the_unweighted_one(values, q):
    ones = np.ones(len(values))
    found = quantile(ordered(values), ones, q)
    assert found.value == stats.quantile(values, q)
    assert (found.low, found.high) == stats.interval(values, q)
    assert (found.all_low, found.all_high) == (found.value, found.value)
    assert is_shown(ones, q) == stats.is_shown(len(values), q)


@given(st.lists(st.booleans(), max_size=50))
def test_with_weights_of_one_a_share_is_the_unweighted_one(is_so):
    found = weighted_share(np.array(is_so, bool), np.ones(len(is_so)))
    assert found == share(sum(is_so), len(is_so))


# --- weights -----------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 9)), min_size=1, max_size=200),
    st.sampled_from(QUANTILES),
)
def test_a_weight_counts_as_so_many_values(rows, q):
    rows.sort()
    values, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    found = quantile(values, weights, q)
    assert found.value == stats.quantile(repeated.tolist(), q)
    assert mean(values, weights).value == pytest.approx(repeated.mean())
    assert total(values, weights).value == pytest.approx(repeated.sum())
    for low, high in ((found.low, found.high), (found.all_low, found.all_high)):
        assert low is None or low <= found.value
        assert high is None or high >= found.value


def test_nothing_has_no_quantile_and_no_mean():
    none = np.array([])
    assert quantile(none, none, 0.5) is None
    assert mean(none, none) is None
    assert total(none, none).value == 0
    assert weighted_share(np.array([], bool), none).value is None
    assert not is_shown(none, 0.5)


def test_one_drawn_request_tells_no_interval():
    found = quantile(np.array([7.0]), np.array([20.0]), 0.5)
    assert found[1:] == (None, None, None, None)
    assert mean(np.array([7.0]), np.array([20.0]))[1:] == (None, None, None, None)


def test_a_tail_that_was_kept_whole_is_told_by_its_own_values():
    """Two in a hundred were kept of the fast ones, all of the slow: n is small, p99 is known."""
    values = np.concatenate([np.linspace(1, 2, 400), np.linspace(10, 20, 400)])
    weights = np.concatenate([np.full(400, 50.0), np.ones(400)])
    assert is_shown(weights, 0.99)
    assert not is_shown(np.full(800, 50.0), 0.99)
    found = quantile(values, weights, 0.99)
    assert 10 < found.all_low < found.value < found.all_high < 20
    assert found.low < found.all_low
    assert found.high > found.all_high


def test_few_that_stand_for_many_do_not_seem_sure():
    """Above the median lie two drawn requests: their number might well have been none or five."""
    values = np.arange(42.0)
    weights = np.concatenate([np.full(2, 50.0), np.ones(38), np.full(2, 50.0)])
    found = quantile(values, weights, 0.9)
    assert found.value >= 40
    assert found.all_high is None


def test_a_share_of_which_all_were_kept_is_surer_than_a_drawn_one():
    """One in twenty was kept of the good, all of the bad."""
    kept = weighted_share(np.repeat([True, False], [10, 950]), np.repeat([1.0, 20.0], [10, 950]))
    drawn = weighted_share(np.repeat([True, False], [10, 950]), np.full(960, 20.0))
    assert kept.value == pytest.approx(10 / 19_010)
    assert (kept.k, kept.n) == (10, 960)
    whole = share(10, 19_010)
    assert (kept.low, kept.high) == pytest.approx((whole.low, whole.high), rel=0.02)
    assert drawn.high - drawn.low > 15 * (kept.high - kept.low)
    none = weighted_share(np.zeros(100, bool), np.repeat([1.0, 20.0], 50))
    assert (none.value, none.low) == (0, 0)
    assert none.high > share(0, 100).high


# --- honesty -----------------------------------------------------------------------------------
def drawn(source, num=4000):
    """All durations of a route, and the probability with which each is kept."""
    values = np.sort(source.lognormal(6, 0.8, num))
    slower = 1 - (np.arange(num) + 0.5) / num
    return values, np.maximum(np.minimum(0.02 / slower, 1.0), 0.1)


def test_intervals_hold_the_truth_of_all_as_often_as_they_say():
    """Over 200 samples (fixed seeds); five standard errors of so many trials are allowed."""
    source = np.random.default_rng(3)
    values, kept = drawn(source)
    truth = {q: float(values[stats.rank(len(values), q) - 1]) for q in (0.5, 0.95, 0.99)}
    held = dict.fromkeys((*truth, "mean", "total"), 0)
    errors = dict.fromkeys(truth, 0.0)
    num = 200
    for _ in range(num):
        chosen = source.random(len(values)) < kept
        own, weights = values[chosen], 1 / kept[chosen]
        for q, value in truth.items():
            found = quantile(own, weights, q)
            held[q] += found.all_low <= value <= found.all_high
            errors[q] += math.log(found.value / value) / num
        average, whole = mean(own, weights), total(own, weights)
        held["mean"] += average.all_low <= values.mean() <= average.all_high
        held["total"] += whole.all_low <= values.sum() <= whole.all_high
    slack = 5 * math.sqrt(0.05 * 0.95 / num)
    for what, times in held.items():
        assert abs(times / num - 0.95) <= slack, what
    assert max(map(abs, errors.values())) < 0.02


def test_intervals_hold_the_quantile_behind_them_as_often_as_they_say():
    """Each sample is of other traffic of the same kind."""
    source = np.random.default_rng(4)
    num, held = 200, dict.fromkeys((0.5, 0.95, 0.99), 0)
    for _ in range(num):
        values, kept = drawn(source, 3000)
        chosen = source.random(len(values)) < kept
        for q in held:
            truth = math.exp(6 + 0.8 * NormalDist().inv_cdf(q))
            found = quantile(values[chosen], 1 / kept[chosen], q)
            held[q] += found.low <= truth <= found.high
    slack = 5 * math.sqrt(0.05 * 0.95 / num)
    for q, times in held.items():
        assert abs(times / num - 0.95) <= slack, q


# --- in the tables of requests -----------------------------------------------------------------
def test_slices_tell_both_intervals_of_sampled_requests_only():
    values = np.linspace(1, 100, 300)
    plain = slices(from_flat(pl.DataFrame({"e2e_ms": values})), [])
    assert "all_ci95" not in plain.document()["slices"][0]["quantiles"][0]
    sampled = slices(from_flat(pl.DataFrame({"e2e_ms": values, "weight": [1.0, 9.0] * 150})), [])
    told = sampled.document()["slices"][0]["quantiles"][0]
    assert told["ci95"][0] <= told["all_ci95"][0] <= told["value"] <= told["all_ci95"][1]


def test_a_budget_counts_the_share_that_is_over_by_weight():
    columns = {"route": ["r"] * 100, "tool_ms": [9.0] * 50 + [1.0] * 50}
    table = from_flat(pl.DataFrame({**columns, "weight": [1.0] * 50 + [19.0] * 50}))
    (found,) = check(table, [Budget("r", "tool", None, 0.5, 5.0, None)]).checked
    assert found.whole.over.value == pytest.approx(0.05)
    assert found.whole.over.low < 0.05 < found.whole.over.high
    assert (found.whole.over.k, found.whole.over.n) == (50, 100)


def test_requests_carry_the_weights_of_traces_unless_all_are_one():
    views = {"trace_id": ["a", "b"], "start_ns": [1, 2], "wall_ms": [5.0, 6.0], "flags": [[], []]}
    stages = pl.DataFrame({"trace_id": ["a"], "stage": ["tool"], "critical_ms": [5.0]})
    calls = pl.DataFrame(
        schema={
            **dict.fromkeys(("trace_id", "provider", "request_model", "error_type"), pl.String),
            **dict.fromkeys(("start_ns", "end_ns", "num_chunks", "num_attempts"), pl.Int64),
            **dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens"), pl.Int64),
            **dict.fromkeys(("ttft_ms", "ttfv_ms", "tpot_ms", "stall_ms"), pl.Float64),
            **dict.fromkeys(("chunk_gap_max_ms", "tokens_per_chunk", "weight"), pl.Float64),
        }
    )
    sampled = from_views(pl.DataFrame({**views, "weight": [1.0, 20.0]}), stages, calls)
    assert sampled["weight"].to_list() == [1.0, 20.0]
    for whole in ({**views, "weight": [1.0, 1.0]}, views):
        assert from_views(pl.DataFrame(whole), stages, calls)["weight"].to_list() == [None, None]


# --- replays -----------------------------------------------------------------------------------
def test_what_if_weighs_traces():
    source = np.random.default_rng(5)
    walls, counts = source.lognormal(6, 1, 300), source.integers(1, 30, 300)
    saved = walls * source.random(300) / 2
    found = changes(walls, saved, (0.5, 0.9), weight=counts.astype(float))
    repeated = changes(np.repeat(walls, counts), np.repeat(saved, counts), (0.5, 0.9))
    for ours, theirs in zip(found, repeated, strict=True):
        assert (ours.current_ms, ours.replayed_ms) == (theirs.current_ms, theirs.replayed_ms)
        assert ours.ci95[0] <= ours.change_ms <= ours.ci95[1]
        assert ours.ci95[1] - ours.ci95[0] >= theirs.ci95[1] - theirs.ci95[0]
    assert changes(walls, saved, weight=np.ones(300)) == changes(walls, saved)


def test_a_trace_has_the_weight_of_its_root():
    columns = {
        "trace_hi": pa.array([1, 1, 2, 2, 3], pa.uint64()),
        "trace_lo": pa.array([7] * 5, pa.uint64()),
        "parent_id": pa.array([None, 5, 5, 5, None], pa.uint64()),
        "weight": pa.array([4.0, 20.0, 20.0, 8.0, None]),
    }
    ids = np.array([3, 2, 1], np.uint64), np.full(3, 7, np.uint64)
    assert weights(pa.table(columns), *ids).tolist() == [1.0, 8.0, 4.0]
    columns["weight"] = pa.nulls(5, pa.float64())
    assert weights(pa.table(columns), *ids) is None
