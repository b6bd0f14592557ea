"""Retries, cold starts, branches, guesses, caches: counted by hand."""

import json
import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analytics.traces import call, span

from longpole.vocab import keys
from longpole_analytics.measures import (
    cold_starts,
    drafts,
    expected_tokens_per_step,
    retries,
    share,
)
from longpole_analytics.step_measures import fan_out, guesses

S = 1_000_000_000
SCHEMA = {
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "num_attempts": pl.Int64,
    "retry_ms": pl.Float64,
    "e2e_ms": pl.Float64,
    "ttft_ms": pl.Float64,
    "error_type": pl.String,
    "is_cold_start": pl.Boolean,
    "service": pl.String,
    "provider": pl.String,
    "request_model": pl.String,
}


def calls(*rows):
    return pl.DataFrame([{**dict.fromkeys(SCHEMA), **row} for row in rows], schema=SCHEMA)


# --- shares ------------------------------------------------------------------------------------
def test_a_share_has_wilsons_interval():
    found = share(10, 100)
    assert found[3:] == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert share(0, 0).value is share(0, 0).low is None


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_in_its_interval(of):
    found = share(*of)
    assert 0 <= found.low <= found.value <= found.high <= 1


# --- retries -----------------------------------------------------------------------------------
def test_retries_are_counted():
    found = retries(
        calls(
            {"start_ns": 0, "num_attempts": 1, "e2e_ms": 100.0},
            {"start_ns": 1, "num_attempts": 3, "e2e_ms": 900.0, "retry_ms": 600.0},
            {"start_ns": 2, "num_attempts": None, "e2e_ms": 500.0},
        )
    )
    assert (found.num_calls, found.num_unknown, found.amplification) == (2, 1, 2.0)
    assert found.retried[:3] == (1, 2, 0.5)
    assert found.failed_ms == 600.0
    assert found.failed_share == 0.6
    assert found.storms == ()


def minute_of(at_s, num, num_retried):
    return [
        {"start_ns": (at_s + k) * S, "num_attempts": 4 if k < num_retried else 1}
        for k in range(num)
    ]


def of_windows(windows):
    return calls(*(row for rows in windows for row in rows))


def test_a_storm_is_many_retries_while_more_attempts_fail():
    steady = [minute_of(300 * k, 100, 20) for k in range(3)]
    assert retries(of_windows(steady)).storms == ()
    growing = [minute_of(0, 100, 2), minute_of(300, 100, 30), minute_of(600, 100, 5)]
    (storm,) = retries(of_windows(growing)).storms
    assert (storm.start_ns, storm.num_calls, storm.retried_share) == (300 * S, 100, 0.3)
    assert storm.failed_share > storm.failed_share_before
    few = [minute_of(0, 10, 0), minute_of(300, 10, 9)]
    assert retries(of_windows(few)).storms == ()


# --- cold starts -------------------------------------------------------------------------------
def test_cold_and_warm_are_told_apart():
    rows = [
        {"start_ns": k * S, "is_cold_start": k % 10 == 0, "ttft_ms": 90.0 if k % 10 else 900.0}
        for k in range(100)
    ]
    rows += [{"start_ns": 0, "ttft_ms": 1.0}]
    found = cold_starts(calls(*rows))
    assert found.cold[:2] == (10, 100)
    assert found.num_unknown == 1
    assert found.ttft_cold[:2] == (10, 900.0)
    assert found.ttft_warm[:2] == (90, 90.0)


def test_the_first_call_after_a_quiet_period_of_its_model_is_looked_at():
    a = {"service": "s", "provider": "p", "request_model": "a"}
    found = cold_starts(
        calls(
            {"start_ns": 0, "end_ns": 400 * S, "ttft_ms": 1.0, **a},
            {"start_ns": 350 * S, "end_ns": 360 * S, "ttft_ms": 2.0, **a},
            {"start_ns": 690 * S, "end_ns": 700 * S, "ttft_ms": 3.0, **a},  # 290 s of quiet
            {"start_ns": 1000 * S, "end_ns": 1001 * S, "ttft_ms": 40.0, **a},  # 300 s of quiet
            {"start_ns": 1002 * S, "ttft_ms": 5.0, **a, "request_model": "b"},  # the first
        )
    )
    assert found.ttft_after_quiet[:2] == (1, 40.0)
    assert found.ttft_other[:2] == (2, 2.0)


def test_no_calls_measure_nothing():
    empty = calls()
    found = retries(empty)
    assert found.amplification is found.failed_share is found.retried.value is None
    cold = cold_starts(empty)
    assert cold.cold.value is cold.ttft_cold.p50 is cold.ttft_other.p50 is None
    nan = calls({"start_ns": None, "num_attempts": 1, "retry_ms": math.nan, "ttft_ms": math.nan})
    assert retries(nan).failed_ms == 0
    assert cold_starts(nan).ttft_other.n == 0


# --- drafts ------------------------------------------------------------------------------------
def test_drafts_are_weighed():
    found = drafts(300, 500, 100, cost_ratio=0.1)
    assert found.acceptance == 0.6
    assert found.tokens_per_step == 4.0
    assert found.speedup == pytest.approx(4 / 1.5)
    assert found.is_worth_it
    assert not drafts(50, 500, 100, cost_ratio=0.1).is_worth_it
    assert drafts(0, 0, 10, cost_ratio=0.1) is drafts(0, 10, 0, cost_ratio=0.1) is None


@given(st.floats(0, 1), st.integers(0, 10))
def test_expected_tokens_are_the_sum_of_the_chances(acceptance, depth):
    chances = sum(acceptance**k for k in range(depth + 1))
    assert expected_tokens_per_step(acceptance, depth) == pytest.approx(chances, rel=1e-6)


# --- branches ----------------------------------------------------------------------------------
def branch(span_id, start_ms, end_ms, parent="group", **facts):
    return span(span_id, parent, start_ms, end_ms, attributes={keys.BRANCH_NAME: span_id}, **facts)


def test_used_branches_are_told_by_name_or_id():
    root = span("root", None, 0, 100, attributes={keys.BRANCH_USED: json.dumps(["a", "b"])})
    group = span("group", "root", 0, 90)
    named = branch("x", 0, 50)._replace(attributes={keys.BRANCH_NAME: "b"})
    others = [branch("a", 0, 30), branch("c", 0, 40), branch("d", 0, None)]
    found = fan_out([*others, named, group, root])
    assert found.used[:3] == (2, 4, 0.5)
    assert found.unused_ms == 40.0
    assert found.num_unknown == found.num_hedges == 0


def test_without_a_word_of_use_it_is_unknown():
    found = fan_out([span("root", None, 0, 100), branch("a", 0, 30)])
    assert found.used.value is None
    assert found.num_unknown == 1
    assert fan_out([]).used.n == 0


def test_losers_that_run_on_cost_what_they_take_after_the_winner():
    group = span("group", None, 0, 90, attributes={keys.HEDGE_WINNER: "a"})
    found = fan_out([group, branch("a", 0, 30), branch("b", 0, 80), branch("c", 0, 31)])
    assert (found.num_hedges, found.num_not_cancelled, found.late_ms) == (1, 1, 50.0)


# --- guesses -----------------------------------------------------------------------------------
def guess(number, state, *, age=1.0, ttl=5.0):
    facts = {keys.SPECULATION_TTL: str(ttl), keys.SPECULATION_AGE: str(age)}
    if state:
        facts[keys.SPECULATION_STATE] = state
    return span(f"g{number}", None, 0, 10, attributes=facts)


def test_a_hit_is_used_before_it_expired():
    spans = [guess(0, "used"), guess(1, "used", age=9.0), guess(2, "discarded"), guess(3, None)]
    tokens = [call("m1", "g1", 0, 5, input_tokens=100, output_tokens=10), call("m0", "g0", 0, 5)]
    found = guesses([*spans, *tokens])
    assert found.hits[:2] == (1, 3)
    assert found.num_unknown == 1
    assert found.wasted_ms == 20.0
    assert found.wasted_tokens == 110
    assert found.verdict == "undecided"


@pytest.mark.parametrize(("num_used", "verdict"), [(10, "loses"), (30, "undecided"), (60, "pays")])
def test_the_verdict_waits_for_the_interval(num_used, verdict):
    states = ["used"] * num_used + ["discarded"] * (100 - num_used)
    assert guesses(guess(k, state) for k, state in enumerate(states)).verdict == verdict


def test_tokens_of_a_call_that_tells_none_are_unknown_and_cycles_end():
    loop = [guess(0, "discarded")._replace(parent_id="x"), span("x", "g0", 0, 1)]
    assert guesses(loop).wasted_tokens == 0
    assert guesses([guess(0, "discarded"), call("m", "g0", 0, 1)]).wasted_tokens is None
