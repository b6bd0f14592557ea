"""Which traces are kept: by class, each with the probability that its weight states."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_collector.sampling import Sampler
from longpole_collector.sampling_rules import CLASSES, SamplingRules
from longpole_collector.tracestate import ALL

ON = SamplingRules(is_on=True)


def traces(num=1, seed=0, **given):
    """Traces of one route, of 1 to 2 s, whose ids are random."""
    source = np.random.default_rng(seed)
    columns = {
        "trace_lo": source.integers(0, 2**64, num, np.uint64),
        "randomness": pa.nulls(num, pa.int64()),
        "weight": pa.nulls(num, pa.float64()),
        "wall_ns": source.integers(10**9, 2 * 10**9, num),
        "outcome": pa.nulls(num, pa.string()),
        "is_error": np.zeros(num, bool),
        "is_violation": np.zeros(num, bool),
        **dict.fromkeys(("route", "prompt_version", "request_model"), ["a"] * num),
    }
    for name, value in given.items():
        columns[name] = value if isinstance(value, pa.Array) else pa.array([value] * num)
    return pa.table(columns)


def taught(rules=ON, num=2000):
    """A sampler that knows the route."""
    sampler = Sampler(rules)
    sampler.decide(traces(num, seed=99), 0.0)
    return sampler


def reasons(found):
    return [CLASSES[place] for place in found.reason.tolist()]


# --- classes -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ({"is_error": True}, "error"),
        ({"outcome": "rejected"}, "rejected"),
        ({"outcome": "failed"}, "rejected"),
        ({"is_violation": True}, "violation"),
        ({"wall_ns": 3 * 10**9}, "slow"),
        ({"prompt_version": "new"}, "rare"),
        ({"route": "new"}, "rare"),
    ],
)
def test_what_matters_is_kept_whatever_its_id(fact, reason):
    found = taught().decide(traces(20, trace_lo=pa.array([0] * 20, pa.uint64()), **fact), 1.0)
    assert found.is_kept.all()
    assert set(found.weight.tolist()) == {1.0}
    assert set(reasons(found)) == {reason}


def test_of_the_rest_as_many_are_kept_as_is_said_and_each_stands_for_the_others():
    rules = SamplingRules(is_on=True, rest=0.1, slow_share=0.001)
    found = taught(rules).decide(traces(20_000, seed=1, wall_ns=10**9), 1.0)
    assert set(reasons(found)) == {"rest"}
    assert found.weight[found.is_kept] == pytest.approx(10)
    assert found.weight[~found.is_kept].tolist() == [0.0] * int((~found.is_kept).sum())
    spread = (20_000 * 0.1 * 0.9) ** 0.5
    assert abs(found.is_kept.sum() - 2000) < 5 * spread


def test_the_slower_the_surer():
    """Where twice as many are slower, half as often; so weights grow with the share of slower."""
    rules = SamplingRules(is_on=True, rest=0.001, slow_share=0.01, rare_traces=1)
    walls = np.arange(1, 10_001) * 10**6
    sampler = Sampler(rules)
    sampler.decide(traces(10_000, wall_ns=pa.array(walls)), 0.0)
    always = pa.array([ALL - 1] * 10_000, pa.int64())
    weight = sampler.decide(traces(10_000, wall_ns=pa.array(walls), randomness=always), 1.0).weight
    assert (np.diff(weight) <= 0).all()
    assert 1 <= weight[-1] < 2
    assert weight[-1000] == pytest.approx(10, rel=0.05)
    assert weight[-5000] == pytest.approx(50, rel=0.05)


def test_each_route_and_each_slice_is_held_to_its_own():
    sampler = Sampler(ON)
    for route, wall_ms in (("fast", 10), ("slow", 10_000)):
        sampler.decide(traces(1000, route=route, wall_ns=wall_ms * 10**6), 0.0)
    usual = sampler.decide(traces(50, route="slow", wall_ns=10_000 * 10**6), 1.0)
    odd = sampler.decide(traces(50, route="fast", wall_ns=100 * 10**6), 1.0)
    assert "slow" not in reasons(usual)
    assert odd.is_kept.all()
    assert set(reasons(odd)) == {"slow"}


def test_a_column_of_which_each_value_is_new_makes_nothing_rare():
    sampler = taught()
    names = pa.array([f"v{n}" for n in range(8000)])
    found = sampler.decide(traces(8000, seed=5, prompt_version=names, wall_ns=10**9), 1.0)
    assert reasons(found)[-1000:].count("rare") == 0
    assert sampler.num_slices() <= ON.max_slices


def test_a_window_that_is_over_twice_is_forgotten():
    sampler = taught()
    assert set(reasons(sampler.decide(traces(40), ON.window_s * 1.5))) <= {"rest", "slow"}
    assert set(reasons(sampler.decide(traces(40), ON.window_s * 9))) == {"rare"}


def test_after_a_restart_what_was_kept_says_what_is_usual():
    again = Sampler(ON)
    again.learn(traces(100, seed=3, weight=20.0), 0.0)
    found = again.decide(traces(50, wall_ns=9 * 10**9), 1.0)
    assert set(reasons(found)) == {"slow"}
    assert "rare" not in reasons(again.decide(traces(50, wall_ns=10**9), 1.0))


def test_nothing_is_decided_about_nothing():
    found = Sampler(ON).decide(traces(0), 0.0)
    assert [len(column) for column in found] == [0, 0, 0]


# --- consistent with senders -------------------------------------------------------------------
def test_sender_and_collector_draw_by_the_same_number():
    """Half were sent; a tenth of all is to be kept: a fifth of those sent, each for ten."""
    rules = SamplingRules(is_on=True, rest=0.1, slow_share=0.001)
    every = traces(20_000, seed=2, wall_ns=10**9)
    numbers = every["trace_lo"].to_numpy() & np.uint64(ALL - 1)
    sent = every.filter(pa.array(numbers >= ALL // 2))
    sent = sent.set_column(2, "weight", pa.array([2.0] * sent.num_rows))
    found = taught(rules).decide(sent, 1.0)
    assert found.weight[found.is_kept] == pytest.approx(10)
    assert abs(found.weight.sum() / 20_000 - 1) < 5 * (9 / 20_000) ** 0.5
    errors = taught(rules).decide(sent.set_column(5, "is_error", pa.array([True] * len(sent))), 1.0)
    assert errors.is_kept.all()
    assert set(errors.weight.tolist()) == {2.0}
    rarely = sent.set_column(2, "weight", pa.array([50.0] * sent.num_rows))
    found = taught(rules).decide(rarely, 1.0)
    assert found.weight[found.is_kept] == pytest.approx(50)


@pytest.mark.parametrize(("number", "is_kept"), [(0, False), (ALL - 1, True)])
def test_a_random_number_that_the_sender_gives_counts(number, is_kept):
    found = taught().decide(traces(20, wall_ns=10**9, randomness=number), 1.0)
    assert set(found.is_kept.tolist()) == {is_kept}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.02, 0.3, 1.0]))
def test_deciding_again_keeps_no_more_and_no_other_weight(seed, rest):
    """As for a trace that gets another span: its weight then is that of the first decision."""
    rules = SamplingRules(is_on=True, rest=rest)
    every = traces(200, seed=seed)
    first = taught(rules).decide(every, 1.0)
    left = every.filter(pa.array(first.is_kept))
    weight = first.weight[first.is_kept]
    again = taught(rules).decide(left.set_column(2, "weight", pa.array(weight)), 1.0)
    assert (again.weight[again.is_kept] >= weight[again.is_kept] * (1 - 1e-12)).all()
    alike = again.reason == first.reason[first.is_kept]
    rested = alike & (again.reason == CLASSES.index("rest"))
    assert again.is_kept[rested].all()


# --- unbiased ----------------------------------------------------------------------------------
def test_weights_add_up_to_all_that_came_on_average():
    every = traces(3000, seed=7)
    walls = every["wall_ns"].to_numpy() / 1e9
    num, sums = 60, np.zeros(2)
    spread = np.zeros(2)
    for seed in range(num):
        source = np.random.default_rng((8, seed))
        ids = pa.array(source.integers(0, 2**64, 3000, np.uint64))
        weight = taught(num=500).decide(every.set_column(0, "trace_lo", ids), 1.0).weight
        told = np.array([weight.sum(), (weight * walls).sum()])
        sums += told / num
        spread += (told - [3000, walls.sum()]) ** 2 / num
    assert (abs(sums - [3000, walls.sum()]) < 5 * (spread / num) ** 0.5).all()


# --- rules -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [{"rest": 0.0}, {"rest": 1.5}, {"error": -0.1}, {"quiet_s": 0}, {"max_slices": 0}],
)
def test_rules_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match=f"sampling.{next(iter(wrong))}"):
        SamplingRules(**wrong)
