"""Not faster if it drops what is hard, says less, does other work, or costs what it saves."""

import numpy as np
import polars as pl
import pytest

from longpole.errors import BadInput
from longpole_analytics.scorecard.rules import Plan

from .scorecard_populations import card, plain, side

BASE = side(4000, 1)


def held(found):
    return {each.name: each.status for each in found.guardrails}


def flags(found):
    return {flag.name for flag in found.flags}


# --- guardrails ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "guardrail"),
    [
        ({"failing": 0.06}, "timeout_rate"),
        ({"accepted": 0.8}, "accepted_rate"),
        ({"cost": 1.3}, "cost"),
    ],
)
def test_a_broken_guardrail_makes_a_faster_candidate_worse(what, guardrail):
    found = card(BASE, side(4000, 2, speed=0.7, **what), Plan(quantile=0.5))
    assert held(found)[guardrail] == "broken"
    assert found.target["verdict"] == "better"
    assert found.verdict == "worse"
    assert any(guardrail in reason for reason in found.reasons)


def test_a_guardrail_that_is_undecided_keeps_it_from_better_and_says_what_would_decide():
    found = card(side(600, 1), side(600, 2, speed=0.6), Plan(quantile=0.5))
    undecided = [each for each in found.guardrails if each.status == "undecided"]
    assert undecided
    assert found.verdict == "inconclusive"
    assert found.n_needed == max(each.n_needed for each in undecided)


def test_what_one_side_alone_records_is_undecided_and_what_neither_does_is_told():
    fast = side(4000, 2, speed=0.7)
    one = card(BASE, fast.with_columns(outcome=pl.lit(None, pl.String)), Plan(quantile=0.5))
    assert held(one)["accepted_rate"] == "undecided"
    assert one.verdict == "inconclusive"
    random = np.random.default_rng(1)
    bare = [plain(random.lognormal(6, 0.3, 3000) * factor) for factor in (1, 0.7)]
    none = card(*bare)
    assert none.verdict == "better"
    assert {status for name, status in held(none).items() if name != "p99"} == {"not_recorded"}
    assert "not_recorded" in flags(none)


@pytest.mark.parametrize(("drop", "status"), [(0.0, "held"), (0.05, "broken")])
@pytest.mark.parametrize("scale", [1, 5, 100])
def test_quality_is_judged_on_its_own_scale(drop, status, scale):
    random = np.random.default_rng(2)
    quality = [(random.normal(0.8, 0.1, 4000) - less) * scale for less in (0.0, drop)]
    base = BASE.with_columns(quality=pl.Series(quality[0]))
    cand = side(4000, 2).with_columns(quality=pl.Series(quality[1]))
    assert held(card(base, cand))["quality"] == status


def test_the_cost_is_that_of_an_accepted_outcome():
    found = card(BASE, side(4000, 2, accepted=0.6), Plan(quantile=0.5))
    mean = {each["name"]: each for each in found.sections["means"]}
    assert mean["cost_per_request_usd"]["value"] == pytest.approx(1, abs=0.05)
    assert mean["cost_per_accepted_usd"]["value"] == pytest.approx(0.9 / 0.6, abs=0.1)
    accepted = (BASE["outcome"] == "accepted").sum()
    assert mean["cost_per_accepted_usd"]["base"] == pytest.approx(BASE["cost_usd"].sum() / accepted)


def test_costs_of_which_many_are_unknown_are_not_judged():
    holes = pl.when(pl.int_range(pl.len()) % 5 > 0).then("cost_usd")
    found = card(BASE, side(4000, 2, cost=0.2).with_columns(cost_usd=holes))
    assert held(found)["cost"] == "undecided"


def test_what_costs_nothing_on_both_sides_costs_no_more():
    free = [each.with_columns(cost_usd=pl.lit(0.0)) for each in (BASE, side(4000, 2))]
    assert held(card(*free))["cost"] == "held"


# --- what did not end ---------------------------------------------------------------------------
def test_dropping_the_hard_requests_is_not_faster():
    cand = side(4000, 2)
    hard = cand["e2e_ms"] > cand["e2e_ms"].quantile(0.7)
    dropped = cand.with_columns(
        outcome=pl.when(hard).then(pl.lit("failed")).otherwise("outcome"),
        error_type=pl.when(hard).then(pl.lit("APIError")).otherwise("error_type"),
        e2e_ms=pl.when(hard).then(20.0).otherwise("e2e_ms"),
    )
    found = card(BASE, dropped, Plan(quantile=0.5))
    # by those that are left alone it would be
    assert found.target["verdict"] == "better"
    assert found.verdict == "worse"
    row = next(r for r in found.metrics if r.name == "e2e_ms" and r.quantile == 0.95)
    assert row.pessimistic is not None
    assert row.pessimistic[1] is None


def test_giving_up_counts_as_a_time_that_did_not_end():
    cand = side(4000, 2, failing=0.0)
    is_given_up = pl.int_range(pl.len()) % 4 == 0
    given_up = cand.with_columns(
        outcome=pl.when(is_given_up).then(None).otherwise("outcome"),
        stream_state=pl.when(is_given_up).then(pl.lit("abandoned")),
        e2e_ms=pl.when(is_given_up).then(1.0).otherwise("e2e_ms"),
    )
    found = card(side(4000, 1, failing=0.0), given_up, Plan(quantile=0.5))
    # left in as they are, a quarter of the times would be 1 ms
    assert found.target["ratio"] == pytest.approx(1, abs=0.05)
    assert "more_cancelled" in flags(found)


def test_a_quantile_that_is_not_reached_lies_beyond_the_last_time():
    cand = side(4000, 2, failing=0.3)
    cand = cand.filter((pl.col("outcome") == "failed") | (pl.col("e2e_ms") < 4900))
    found = card(BASE, cand, Plan(target="time_to_accepted_ms", quantile=0.95))
    row = next(r for r in found.metrics if r.name == "time_to_accepted_ms" and r.quantile == 0.95)
    assert row.reason == "not_reached"
    assert row.cand is None
    assert row.document()["last"][1] is not None
    assert found.verdict == "worse"
    assert "not_reached" in flags(found)


def test_nothing_but_timeouts_is_an_answer():
    stuck = side(500, 2, failing=1.0)
    assert card(BASE, stuck).verdict == "worse"
    both = card(side(500, 3, failing=1.0), stuck)
    assert both.verdict == "inconclusive"
    assert both.n_needed is None
    assert "nothing_ended" in flags(both)
    timeless = stuck.with_columns(e2e_ms=pl.lit(None, pl.Float64))
    assert card(BASE, timeless).verdict == "worse"


# --- length and mix -----------------------------------------------------------------------------
@pytest.mark.parametrize("is_randomised", [True, False])
def test_shorter_answers_are_not_faster(is_randomised):
    plan = Plan(quantile=0.5, is_randomised=is_randomised)
    found = card(BASE, side(4000, 2, longer=0.6), plan)
    assert "shorter_not_faster" in flags(found)
    assert found.target["metric"] == "e2e_at_equal_length_ms"
    assert found.target["verdict"] == "equivalent"
    faster = card(BASE, side(4000, 2, longer=0.6, speed=0.7), plan)
    assert faster.target["verdict"] == "better"


def test_answers_that_are_cut_off_are_told():
    cut = pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.lit("length")).otherwise(pl.lit("stop"))
    base = BASE.with_columns(finish_reason=pl.lit("stop"))
    found = card(base, side(4000, 2).with_columns(finish_reason=cut))
    assert "shorter_not_faster" in flags(found)
    assert found.target["metric"] == "e2e_ms"
    assert found.target["ratio"] is not None


def test_shorter_answers_whose_pace_is_unknown_are_no_better():
    shorter = side(4000, 2, longer=0.6).with_columns(tpot_ms=pl.lit(None, pl.Float64))
    found = card(BASE, shorter, Plan(quantile=0.5, is_randomised=True))
    assert found.target["verdict"] == "better"
    assert found.verdict == "inconclusive"
    assert "shorter_not_faster" in flags(found)


def test_shorter_prompts_are_another_mix_not_a_faster_model():
    cand = side(4000, 2, prompts=0.6)
    plan = Plan(target="ttft_ms", quantile=0.5)
    found = card(BASE, cand, plan)
    assert "mix_shift" in flags(found)
    assert found.target["ratio"] == pytest.approx(1, abs=0.05)
    row = next(r for r in found.metrics if r.name == "ttft_ms" and r.quantile == 0.5)
    assert row.raw is not None
    assert row.raw[1] / row.raw[0] < 0.8
    chance = card(BASE, cand, Plan(target="ttft_ms", quantile=0.5, is_randomised=True))
    assert chance.target["ratio"] == pytest.approx(row.raw[1] / row.raw[0])


def test_equal_mixes_are_left_as_they_are():
    found = card(BASE, side(4000, 2))
    assert not found.sections["mix"]["is_standardised"]
    values = side(4000, 2, failing=0.0)["e2e_ms"].sort()
    free = card(side(4000, 1, failing=0.0), side(4000, 2, failing=0.0))
    row = next(r for r in free.metrics if r.name == "e2e_ms" and r.quantile == 0.95)
    assert row.cand == values[3799]


def test_work_that_has_nothing_in_common_cannot_be_compared():
    other = side(4000, 2, speed=0.5).with_columns(route=pl.lit("sum"))
    found = card(BASE, other)
    assert "mix_disjoint" in flags(found)
    assert found.verdict == "inconclusive"
    assert found.n_needed is None


# --- pairs --------------------------------------------------------------------------------------
def paired(num, seed, **what):
    """Both sides were asked the same, so most of what is random is shared."""
    base = side(num, 1, **what).with_columns(prompt_id=pl.format("p{}", pl.int_range(pl.len())))
    noise = np.random.default_rng(seed).lognormal(0, 0.05, num)
    cand = base.with_columns(
        e2e_ms=base["e2e_ms"] * pl.Series(noise) * 0.93, trace_id=pl.format("other {}", "trace_id")
    )
    return base, cand


def test_pairs_tell_more_than_two_crowds():
    base, cand = paired(800, 3, failing=0.0, accepted=1.0)
    alone = card(base, cand.with_columns(session_id=pl.format("x{}", "session_id")))
    pairs = card(base, cand, Plan(pair_by="prompt_id"))
    assert np.ptp(np.log(pairs.target["ci95"])) < np.ptp(np.log(alone.target["ci95"])) / 2
    shift = pairs.sections["paired"]
    assert shift["num_pairs"] == 800
    assert shift["ratio"] == pytest.approx(0.93, abs=0.01)
    assert shift["ci95"][0] < 0.93 < shift["ci95"][1]


def test_prompts_that_were_never_asked_count_as_failed():
    base, cand = paired(1000, 3)
    easy = cand.filter(base["e2e_ms"] < base["e2e_ms"].quantile(0.8))
    found = card(base, easy, Plan(pair_by="prompt_id", quantile=0.5))
    assert "coverage" in flags(found)
    missing = found.sections["coverage"]["cand_missing"]
    assert missing == 1000 - easy.height
    assert found.sections["n"]["cand"] == 1000
    assert held(found)["error_rate"] == "broken"
    assert found.verdict == "worse"


def test_prompts_of_which_none_is_shared_are_an_answer():
    base, cand = (
        side(200, seed).with_columns(
            prompt_id=pl.format("{}-{}", pl.lit(seed), pl.int_range(pl.len()))
        )
        for seed in (1, 2)
    )
    found = card(base, cand, Plan(pair_by="prompt_id"))
    assert found.verdict == "inconclusive"
    assert "no_pairs" in flags(found)
    assert found.sections["paired"]["num_pairs"] == 0
    assert found.sections["paired"]["ratio"] is None


# --- what is odd --------------------------------------------------------------------------------
def test_no_traffic_on_a_side_is_an_answer():
    for base, cand in ((BASE, BASE.clear()), (BASE.clear(), BASE), (BASE.clear(), BASE.clear())):
        found = card(base, cand)
        assert found.verdict == "inconclusive"
        assert "no_traffic" in flags(found)
        assert "has no requests" in found.reasons[0]
        assert found.document()["n"] == {"base": base.height, "cand": cand.height}


def test_one_request_is_an_answer():
    assert card(side(1, 1), side(1, 2)).verdict == "inconclusive"


def test_a_model_that_changed_its_name_meanwhile_is_told():
    half = pl.when(pl.int_range(pl.len()) < 2000).then(pl.lit("old")).otherwise(pl.lit("new"))
    found = card(BASE, side(4000, 2).with_columns(request_model=half))
    assert "mixed_models" in flags(found)
    environment = {row["name"]: row for row in found.sections["environment"]}
    assert set(environment["request_model"]["cand"]) == {"old", "new"}


@pytest.mark.parametrize("share", [0.5, 0.98, 1.0])
def test_metrics_that_are_mostly_unknown_count_what_is_known(share):
    unknown = pl.int_range(pl.len()) < int(4000 * share)
    names = ["ttft_ms", "tpot_ms"]
    holes = [pl.when(~unknown).then(name).alias(name) for name in names]
    found = card(BASE.with_columns(holes), side(4000, 2).with_columns(holes))
    rows = {(r.name, r.quantile): r for r in found.metrics}
    if share < 1:
        assert rows["tpot_ms", 0.5].n_base <= 4000 - int(4000 * share)
    else:
        assert ("tpot_ms", 0.5) not in rows


def test_times_that_are_no_times_do_not_count():
    odd = [float("nan"), float("inf"), -5.0, None]
    values = [*np.random.default_rng(1).lognormal(6, 0.2, 400).tolist(), *odd]
    found = card(plain(values), plain(values))
    assert {row.n_base for row in found.metrics} == {400}
    zero = card(plain([0.0] * 100), plain([0.0] * 100), Plan(quantile=0.5))
    assert zero.verdict == "inconclusive"
    for weight in (-1.0, float("inf"), 1e300):
        with pytest.raises(BadInput, match="weight"):
            card(plain([1.0, 2.0], weight=[weight, 1.0]), plain([1.0, 2.0]))
    weightless = card(plain([1.0, 2.0], weight=[0.0, 0.0]), plain([1.0, 2.0]))
    assert "no_traffic" in flags(weightless)


def test_a_closed_loop_makes_no_claim_about_tails():
    found = card(BASE, side(4000, 2, speed=0.7), Plan(is_closed_loop=True))
    assert found.target["quantile"] == 0.5
    assert held(found)["p99"] == "not_recorded"
    tail = card(BASE, side(4000, 2, speed=0.7), Plan(is_closed_loop=True, quantile=0.95))
    assert tail.verdict == "inconclusive"


def test_cold_requests_have_a_line_of_their_own():
    cold = BASE.with_columns(is_cold=pl.int_range(pl.len()) < 50)
    found = card(cold, side(1000, 2))
    assert [(row["side"], row["n"]) for row in found.sections["cold"]] == [("base", 50)]


def test_equal_work_has_an_equal_hash_whatever_its_order():
    shuffled = BASE.sample(fraction=1.0, shuffle=True, seed=1)
    assert len(set(card(BASE, shuffled).sections["workload"])) == 1
    assert len(set(card(BASE, side(4000, 2)).sections["workload"])) == 2


def test_a_load_test_that_sent_late_waited_from_the_intended_moment():
    start = pl.int_range(pl.len()) * 10**9
    late = BASE.with_columns(start_ns=start, intended_start_ns=start - 200 * 10**6)
    found = card(BASE, late, Plan(quantile=0.5))
    rows = {r.name: r for r in found.metrics if r.quantile == 0.5}
    assert rows["e2e_ms"].cand == pytest.approx(rows["e2e_ms"].base + 200)
    assert rows["ttft_ms"].cand == pytest.approx(rows["ttft_ms"].base + 200)
    assert rows["tpot_ms"].cand == rows["tpot_ms"].base
