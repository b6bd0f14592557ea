"""The advisor on planted faults, on clean workloads, on the recorded demo, and its arithmetic."""

import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from longpole.vocab import Stage, keys
from longpole_analytics.advisor import AdvisorRules, advise, population
from longpole_analytics.advisor._advise import members
from longpole_analytics.advisor.base import LOW, slope
from longpole_analytics.prices import shipped

from .advisor_traffic import Traffic
from .advisor_workloads import CLEAN, FAULTS, clean, planted
from .tables import spans_table

SAMPLE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"
DOCUMENT = {
    *("rank", "rule", "where", "title", "change", "verify", "confidence", "num_traces"),
    *("share_of_traces", "evidence", "saving", "relation", "trace_ids"),
}


def report_of(spans, **options):
    return advise(population(spans_table(spans), shipped(), is_compiled=False), **options)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_ranks_first_and_alone(fault):
    seed = 11
    spans = planted(fault, seed, num=60, num_clean=15)
    report = report_of(spans)
    assert [advice.rule for advice in report.advice] == [fault]
    (advice,) = report.advice
    found = advice.found
    routes = {span.route for span in planted(fault, seed, num=60, num_clean=0)}
    assert found.where["route"] in routes
    document = advice.document()
    assert set(document) == DOCUMENT
    assert document["evidence"]
    assert found.change
    assert found.verify.startswith("longpole query ")
    ids = {span.trace_id for span in spans if span.route == found.where["route"]}
    assert set(advice.trace_ids) <= ids
    assert 1 <= len(advice.trace_ids) <= 3


@pytest.mark.parametrize("seed", [12, 13])
def test_of_all_faults_at_once_each_route_is_told_its_own(seed):
    traffic, planted_on = Traffic(seed), {}
    for name, fault in FAULTS.items():
        before = len(traffic.spans)
        fault(traffic, 60)
        planted_on.update({span.route: name for span in traffic.spans[before:]})
    told = {}
    for advice in report_of(traffic.spans).advice:
        told.setdefault(advice.found.where["route"], advice.rule)
    assert told == planted_on


def test_every_rule_has_a_planted_fault():
    assert set(members()) == set(FAULTS)


@pytest.mark.parametrize("seed", [21, 22])
@pytest.mark.parametrize("workload", CLEAN)
def test_a_clean_workload_gets_no_advice(workload, seed):
    assert report_of(clean(workload, seed, num=80)).advice == ()


def test_the_recorded_demo_is_told_of_its_planted_prefix():
    report = advise(population(pq.read_table(SAMPLE), shipped()))
    first = report.advice[0]
    assert first.rule == "unstable_prefix"
    assert dict(first.found.where) == {"route": "shop.question", "prompt_version": "v2"}
    assert first.savings[0].saved_ms > 100
    assert first.found.usd is None  # nobody knows a price of the demo's model


# --- arithmetic ---------------------------------------------------------------------------------
def test_tools_run_together_save_what_the_longest_does_not_take():
    traffic = Traffic(3)
    FAULTS["serial_tools"](traffic, 60)
    report = report_of(traffic.spans)
    tools = {}
    for span in traffic.spans:
        if span.stage == Stage.TOOL:
            tools.setdefault(span.trace_id, []).append((span.end_ns - span.start_ns) / 1e6)
    expected = sum(sum(times) - max(times) for times in tools.values())
    assert report.advice[0].total_ms == pytest.approx(expected, rel=1e-6)
    assert report.advice[0].savings[1].saved_ms is None  # 60 traces carry no p95


def test_quantiles_of_the_replayed_traces_are_compared_not_savings():
    traffic = Traffic(4)
    FAULTS["unused_fanout"](traffic, 250)
    (advice,) = report_of(traffic.spans).advice
    pop = population(spans_table(traffic.spans), shipped(), is_compiled=False)
    (saved,) = pop.replayer.saved_ns([advice.found.replayed])
    walls = pop.traces["wall_ms"].to_numpy()
    after = walls - saved / 1e6
    for saving in advice.savings:
        rank = int(np.ceil(saving.quantile * 250)) - 1
        was, would = np.sort(walls)[rank], np.sort(after)[rank]
        assert saving.saved_ms == pytest.approx(was - would)
        low, high = saving.ci95
        assert low <= saving.saved_ms <= high


def test_what_two_advices_save_alike_is_counted_once():
    """Every answer is asked for again, and is longer than what is used of it."""
    traffic = Traffic(5)
    for number in range(80):
        with traffic.workflow("both") as run:
            run.attributes[f"{keys.OUTCOME_FACT_PREFIX}used_tokens"] = "100"
            run.chat(
                out=600,
                cached=2_000,
                attributes={keys.INPUTS: f"question {number % 8}", keys.OUTPUT_HASH: "a"},
            )
    report = report_of(traffic.spans)
    first, second = report.advice[:2]
    assert {first.rule, second.rule} == {"avoidable_calls", "long_outputs"}
    assert second.relation in ("exclusive", "overlaps")
    assert second.related == (1,)
    assert second.adds_ms < 0.5 * second.total_ms
    assert report.together_ms == pytest.approx(first.total_ms + second.adds_ms)


def test_independent_advices_add_up():
    traffic = Traffic(6)
    FAULTS["serial_tools"](traffic, 40)
    FAULTS["not_streamed"](traffic, 40)
    report = report_of(traffic.spans)
    assert {advice.relation for advice in report.advice} == {"independent"}
    assert report.together_ms == pytest.approx(sum(a.total_ms for a in report.advice))


def test_ranks_follow_the_time_saved():
    traffic = Traffic(7)
    for fault in ("serial_tools", "not_streamed", "speculation", "long_outputs"):
        FAULTS[fault](traffic, 40)
    totals = [advice.total_ms for advice in report_of(traffic.spans).advice]
    assert totals == sorted(totals, reverse=True)
    assert len(totals) == 4


def test_the_order_of_spans_changes_nothing():
    spans = planted("cold_paths", 8, num=60, num_clean=20)
    first = report_of(spans).document()
    random.Random(1).shuffle(spans)
    second = report_of(spans).document()
    for report in (first, second):
        for advice in report["advice"]:
            advice.pop("trace_ids")
    assert first == second


def test_money_is_unknown_without_a_price():
    traffic = Traffic(9)
    FAULTS["avoidable_calls"](traffic, 60)
    unpriced = [
        span._replace(request_model="mine", response_model="mine", provider="me")
        if span.is_model_call
        else span
        for span in traffic.spans
    ]
    assert report_of(traffic.spans).advice[0].found.usd > 0
    assert report_of(unpriced).advice[0].found.usd is None


def test_thresholds_decide():
    spans = planted("speculation", 10, num=60, num_clean=0)
    assert report_of(spans).advice
    assert not report_of(spans, rules=AdvisorRules(least_hits=0.01)).advice
    assert not report_of(spans, only=["hedges"]).advice


# --- what is known decides how strongly it is said ---------------------------------------------
def test_a_conversation_that_goes_on_is_not_serial_work():
    traffic = Traffic(13)
    for _ in range(60):
        with traffic.workflow("turns") as run:
            size = 1_500
            for _ in range(3):
                run.chat(size=size, cached=1_024, out=100)
                size += 140
    assert report_of(traffic.spans).advice == ()


def test_independent_calls_of_one_model_are_told_with_low_confidence():
    traffic = Traffic(14)
    for _ in range(60):
        with traffic.workflow("sections") as run:
            for _ in range(3):
                run.chat(size=1_500, cached=1_024, out=200)
    (advice,) = report_of(traffic.spans).advice
    assert advice.rule == "serial_calls"
    assert advice.found.confidence == LOW


def test_reasoning_that_helps_is_left_alone():
    traffic = Traffic(15)
    for _ in range(90):
        thought = traffic.random.randint(200, 2_000)
        outcome = "accepted" if traffic.random.random() < thought / 2_000 else "rejected"
        with traffic.workflow("think", outcome=outcome) as run:
            run.chat(size=1_500, cached=1_024, out=thought + 60, reasoning_tokens=thought)
    assert report_of(traffic.spans).advice == ()


def test_a_premium_tier_is_right_where_the_model_is_the_long_pole():
    traffic = Traffic(16)
    for _ in range(60):
        with traffic.workflow("talk") as run:
            run.chat(size=1_200, cached=1_024, out=300, service_tier="priority")
    assert report_of(traffic.spans).advice == ()


def test_a_bounded_step_may_hang():
    spans = [
        span._replace(attributes={**span.attributes, keys.DEADLINE: "60"})
        if span.stage == Stage.TOOL
        else span
        for span in planted("missing_deadlines", 17, num=60, num_clean=0)
    ]
    assert report_of(spans).advice == ()


def test_a_hedge_that_wins_is_worth_its_load():
    traffic = Traffic(18)
    for number in range(60):
        with traffic.workflow("hedged") as run:
            at, group = run.now, run.step("hedge model", 400, Stage.OTHER, moves=False)
            ids = [
                run.step(
                    f"branch {name}", 400, Stage.OTHER, at=at + 10 * place, parent=group,
                    attributes={keys.BRANCH_NAME: name},
                )
                for place, name in enumerate("ab")
            ]  # fmt: skip
            place = next(i for i, s in enumerate(traffic.spans) if s.span_id == group)
            traffic.spans[place] = traffic.spans[place]._replace(
                attributes={keys.HEDGE_WINNER: ids[number % 3 == 0]}
            )
    assert not any(advice.rule == "hedges" for advice in report_of(traffic.spans).advice)


def test_slope_needs_growth():
    rng = np.random.default_rng(1)
    x = rng.uniform(100, 1_000, 200)
    assert slope(x, 3 * x + rng.normal(0, 20, 200)) == pytest.approx(3, rel=0.05)
    assert slope(np.ones(100), rng.normal(0, 1, 100)) is None


def test_a_route_of_batch_work_without_a_class_is_not_told_to_stream():
    traffic = Traffic(19)
    for _ in range(40):
        with traffic.workflow("nightly.summaries", slo_class=None, outcome=None) as run:
            run.chat(size=2_000, stream=False, out=300)
    assert report_of(traffic.spans).advice == ()


def test_a_small_model_may_name_labels():
    traffic = Traffic(20)
    for _ in range(40):
        with traffic.workflow("intent") as run:
            run.chat(size=900, out=2, model="gpt-4o-mini")
    assert report_of(traffic.spans).advice == ()


def test_a_saving_that_nothing_measures_is_unknown_not_zero():
    """Outcomes say what they used; nothing says how long passages take to read."""
    traffic = Traffic(21)
    for _ in range(40):
        with traffic.workflow("docs") as run:
            for name, value in (("retrieved", "20"), ("used_passages", "2")):
                run.attributes[f"{keys.OUTCOME_FACT_PREFIX}{name}"] = value
            run.chat(size=4_000)
    (advice,) = report_of(traffic.spans).advice
    assert advice.rule == "over_retrieval"
    assert [saving.saved_ms for saving in advice.savings] == [None, None]
    assert advice.total_ms == 0


def test_an_answer_that_the_next_call_cannot_hold_is_too_long():
    traffic = Traffic(22)
    for number in range(40):
        with traffic.workflow("chain") as run:
            run.chat(size=900, out=900, attributes={keys.OUTPUT_HASH: f"h{number}"})
            run.chat(size=300, out=60, attributes={keys.INPUTS: f'["h{number}"]'})
    (advice,) = report_of(traffic.spans).advice
    assert advice.rule == "long_outputs"
    assert advice.savings[0].saved_ms == pytest.approx(0.66 * 899 * 12, rel=0.1)
