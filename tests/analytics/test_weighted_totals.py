"""Totals, shares, means and medians of sampled traces: those of all that came, without bias."""

import math

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from longpole_analytics.cache.hits import hit_rates, saved_usd, wasted_writes
from longpole_analytics.cache.lookups import answer_caches
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cost import cost_by, unpriced, waste_by_kind, wasted
from longpole_analytics.measures import cold_starts, reasoning, retries
from longpole_analytics.queueing import queueing
from longpole_analytics.report.sections.stages import split
from longpole_analytics.requests import _with_in_flight as with_in_flight
from longpole_analytics.requests import from_flat
from longpole_analytics.step_measures import fan_out, guesses
from longpole_analytics.top import Slow
from longpole_analytics.weighted import part, sums_of, totals, weights_of

from .sampled import ALL, S, drawn, requests_of, spans_of

RULES = CacheRules()
NUM_DRAWS = 200
SURE = 4.5
"""Standard errors: by these fixed seeds nothing is left to chance."""


def is_unbiased(estimates, truth):
    """Whether the mean of many estimates is the truth, as far as their own spread can tell."""
    found = np.asarray(estimates, float)
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert error > 0
    return abs(found.mean() - truth) <= SURE * error


@pytest.fixture(scope="module")
def draws():
    """Many samples of the same calls, ``seed`` tells which; ids differ from sample to sample."""
    found = pl.concat(drawn(seed) for seed in range(NUM_DRAWS))
    return found.with_columns(trace_id=pl.format("{}-{}", "seed", "trace_id"))


# --- sums ---------------------------------------------------------------------------------------
def test_totals_are_the_sums_of_weight_times_value():
    kept = drawn(7)
    weight, cost = kept["weight"].to_numpy(), kept["cost_usd"].fill_null(0.0).to_numpy()
    (whole,) = cost_by(kept, ()).to_dicts()
    assert whole["cost_usd"] == pytest.approx(np.sum(weight * cost), rel=1e-12)
    assert whole["num_calls"] == pytest.approx(weight.sum(), rel=1e-12)
    first = kept.unique("trace_id", keep="first", maintain_order=True)
    assert whole["num_workflows"] == pytest.approx(first["weight"].sum(), rel=1e-12)
    good = first.filter(pl.col("outcome") == "accepted")["weight"].sum()
    assert whole["num_accepted"] == pytest.approx(good, rel=1e-12)
    (hits,) = hit_rates(kept).to_dicts()
    read = kept["cached_input_tokens"].to_numpy()
    assert hits["cached_tokens"] == pytest.approx(np.sum(weight * read), rel=1e-12)
    assert hits["hit_rate_requests"] == pytest.approx(np.average(read > 0, weights=weight))
    saved = kept.with_columns(
        cache_write_1h_tokens=pl.lit(None, pl.Int64),
        cache_storage_token_hours=pl.lit(None, pl.Float64),
    ).select(saved_usd())
    worth = np.sum(weight * saved.to_series().to_numpy())
    assert hits["saved_usd"] == pytest.approx(worth, rel=1e-12)
    lost = unpriced(kept)["num_calls"].sum()
    assert lost == pytest.approx(weight[kept["cost_usd"].is_null().to_numpy()].sum(), rel=1e-12)
    assert totals(kept, pl.col("e2e_ms"))[0] == pytest.approx(
        np.sum(weight * kept["e2e_ms"].to_numpy()), rel=1e-12
    )


def test_money_and_tokens_are_unbiased_over_many_samples(draws):
    (truth,) = cost_by(ALL, ()).to_dicts()
    found = cost_by(draws, ["seed"])
    names = ("cost_usd", "num_calls", "num_unpriced", "num_workflows", "num_accepted")
    for name in (*names, "num_unknown_outcome"):
        assert is_unbiased(found[name], truth[name]), name
    (truth,) = hit_rates(ALL).to_dicts()
    found = hit_rates(draws, ["seed"])
    for name in ("num_known", "input_tokens", "cached_tokens", "write_tokens", "saved_usd"):
        assert is_unbiased(found[name], truth[name]), name
    kinds = dict(waste_by_kind(wasted(ALL)).select("waste", "cost_usd").iter_rows())
    marked = wasted(draws)
    for kind, cost in kinds.items():
        own = marked.filter(pl.col("waste") == kind).group_by("seed")
        sums = own.agg((pl.col("cost_usd") * pl.col("weight")).sum())["cost_usd"].to_list()
        assert is_unbiased([*sums, *[0.0] * (NUM_DRAWS - len(sums))], cost), kind
    (sample,) = (each for (seed,), each in marked.group_by("seed") if seed == 5)
    told = dict(waste_by_kind(sample).select("waste", "cost_usd").iter_rows())
    own = sample.filter(pl.col("waste") == "failed")
    assert told["failed"] == pytest.approx((own["cost_usd"] * own["weight"]).sum())


def test_measures_of_calls_are_unbiased_over_many_samples(draws):
    truth = retries(ALL), cold_starts(ALL), reasoning(ALL)
    found = []
    for (_,), sample in draws.filter(pl.col("seed") < 30).group_by("seed"):
        tried, cold, thought = retries(sample), cold_starts(sample), reasoning(sample)
        sums = (tried.num_calls, tried.failed_ms, tried.num_calls * tried.amplification)
        shares = (tried.retried.value, cold.cold.value, thought.of_output)
        found.append((*sums, *shares))
    tried, cold, thought = truth
    attempts = tried.num_calls * tried.amplification
    sums = tried.num_calls, tried.failed_ms, attempts
    shares = tried.retried.value, cold.cold.value, thought.of_output
    for estimates, value in zip(zip(*found, strict=True), (*sums, *shares), strict=True):
        assert is_unbiased(estimates, value)
    # the kept ones alone would tell of far more retries
    plain = retries(drawn(3).drop("weight")).retried.value
    assert plain > 1.5 * tried.retried.value


# --- a weight counts as so many -----------------------------------------------------------------
def repeated(rows):
    return rows[np.repeat(np.arange(rows.height), rows["weight"].cast(pl.Int64).to_numpy())]


def whole_weights(seed=2, num=200):
    rng = np.random.default_rng(seed)
    return ALL.head(num).with_columns(weight=pl.Series(rng.integers(1, 6, num).astype(float)))


def near(found, expected):
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_call_that_stands_for_several_is_measured_as_several():
    weighed, several = whole_weights(), repeated(whole_weights()).drop("weight")
    own, plain = retries(weighed), retries(several)
    names = ("num_calls", "num_unknown", "amplification", "failed_ms", "failed_share")
    near([getattr(own, name) for name in names], [getattr(plain, name) for name in names])
    near(own.retried.value, plain.retried.value)
    own, plain = cold_starts(weighed), cold_starts(several)
    near(own.cold.value, plain.cold.value)
    near(own.ttft_cold.p50, plain.ttft_cold.p50)
    near(own.ttft_warm.p50, plain.ttft_warm.p50)
    own, plain = reasoning(weighed), reasoning(several)
    near((own.of_output, own.of_time), (plain.of_output, plain.of_time))
    near((own.visible.p50, own.before_visible.p50), (plain.visible.p50, plain.before_visible.p50))
    for tables in (
        (hit_rates(each, ["route"]) for each in (weighed, several)),
        (wasted_writes(each, RULES, ["route"]) for each in (weighed, several)),
    ):
        assert_frame_equal(*tables, check_dtypes=False)


def test_a_look_into_a_cache_that_stands_for_several_is_several():
    rng = np.random.default_rng(5)
    looks = pl.DataFrame({
        "start_ns": range(60),
        "name": "c",
        "kind": "exact",
        "is_hit": rng.random(60) < 0.5,
        "is_stale": rng.random(60) < 0.2,
        "saved_ms": rng.random(60),
        "weight": rng.integers(1, 5, 60).astype(float),
    })  # fmt: skip
    (own,), (plain,) = answer_caches(looks), answer_caches(repeated(looks).drop("weight"))
    near(
        (own.num_requests, own.hits.value, own.stale.value, own.saved_ms, own.num_saved_known),
        (
            plain.num_requests,
            plain.hits.value,
            plain.stale.value,
            plain.saved_ms,
            plain.num_saved_known,
        ),
    )


def test_branches_and_guesses_of_weighed_traces_count_as_often():
    plain, own = fan_out(spans_of(12)), fan_out(spans_of(12, 3.0))
    assert own.used.value == plain.used.value
    assert (own.used.k, own.used.n) == (plain.used.k, plain.used.n)
    near(own.unused_ms, 3 * plain.unused_ms)
    plain, own = guesses(spans_of(12)), guesses(spans_of(12, 3.0))
    assert own.hits.value == plain.hits.value
    near(own.wasted_ms, 3 * plain.wasted_ms)


def test_rate_load_and_service_of_a_queue_are_those_of_all_requests():
    plain = queueing(requests_of(lambda _rng, num: np.ones(num)), servers=4)
    own = queueing(requests_of(lambda _rng, num: np.full(num, 5.0)), servers=4)
    near(own.rate_per_s, 5 * plain.rate_per_s)
    near(own.saturation.rho, 5 * plain.saturation.rho)
    near(own.little.expected, 5 * plain.little.expected)
    near(own.cs2, plain.cs2)
    assert own.queue_curve.bins == plain.queue_curve.bins
    assert own.saturation.queue_p50 == plain.saturation.queue_p50
    assert own.n == plain.n
    mixed = requests_of(lambda rng, num: rng.integers(1, 5, num).astype(float))
    weight = mixed["weight"].to_numpy()
    service = np.maximum((mixed["model_ms"] - mixed["queue_ms"]).to_numpy(), 0) / 1e3
    found = queueing(mixed, servers=4)
    span_s = (mixed["start_ns"][-1] - mixed["start_ns"][0]) / S
    rate = weight.mean() * (len(weight) - 1) / span_s
    near(found.saturation.rho, rate * np.average(service, weights=weight) / 4)


def test_what_needs_every_arrival_is_unknown_of_sampled_ones():
    whole = queueing(requests_of(lambda _rng, num: np.ones(num)), servers=4, target_wait_s=0.1)
    some = queueing(requests_of(lambda _rng, num: np.full(num, 9.0)), servers=4, target_wait_s=0.1)
    assert whole.capacity is not None
    assert None not in (whole.ca2, whole.wait_theory_s)
    assert (some.capacity, some.ca2, some.wait_theory_s) == (None, None, None)


def test_the_arrival_rate_is_unbiased_over_many_samples():
    rng = np.random.default_rng(4)
    starts = np.sort(rng.integers(0, 1000 * S, 3000))
    found = []
    for _ in range(60):
        kept = starts[rng.random(3000) < 0.1]
        table = pl.DataFrame({"start_ns": kept, "e2e_ms": 1.0, "weight": 10.0})
        found.append(queueing(from_flat(table)).rate_per_s)
    truth = 2999 / ((starts[-1] - starts[0]) / S)
    assert abs(np.mean(found) / truth - 1) < SURE / math.sqrt(3000 * 0.1 * 60)


def test_a_call_beside_others_that_stand_for_several_sees_them_all_but_is_itself_one():
    calls = pl.DataFrame({
        "provider": "p",
        "request_model": "m",
        "start_ns": [0, 10, 20, 90],
        "end_ns": [50, 60, 30, 99],
        "weight": [4.0, 2.0, 5.0, 3.0],
    })  # fmt: skip
    assert with_in_flight(calls)["in_flight"].to_list() == [1, 1 + 4, 1 + 4 + 2, 1]
    assert with_in_flight(calls.drop("weight"))["in_flight"].to_list() == [1, 2, 3, 1]


def test_means_of_stages_in_a_report_are_weighed():
    rng = np.random.default_rng(6)
    table = pl.DataFrame({
        "trace_id": [f"{each:032x}" for each in range(120)],
        "start_ns": range(120),
        "route": "r",
        "e2e_ms": rng.lognormal(5, 1, 120),
        "queue_ms": rng.random(120) * 100,
        "weight": rng.integers(1, 6, 120).astype(float),
    })  # fmt: skip
    own = split(from_flat(table), "e2e_ms", Slow())
    plain = split(from_flat(repeated(table).drop("weight")), "e2e_ms", Slow())
    assert own.keys() == plain.keys()
    for key, row in own.items():
        near(row["mean_ms"], plain[key]["mean_ms"])
        near([s["mean_ms"] for s in row["stages"]], [s["mean_ms"] for s in plain[key]["stages"]])


def test_a_part_of_a_table_is_weighed_as_its_rows_are():
    kept = drawn(9)
    some = kept.filter(pl.col("num_attempts") > 1)
    found = part(some, kept)
    assert found.value == pytest.approx(weights_of(some).sum() / weights_of(kept).sum())
    assert found.low < found.value < found.high
    assert (found.k, found.n) == (some.height, kept.height)
    known = kept.select(sums_of(kept).mean(pl.col("cost_usd"))).item()
    priced = kept.drop_nulls("cost_usd")
    assert known == pytest.approx(np.average(priced["cost_usd"], weights=priced["weight"]))
