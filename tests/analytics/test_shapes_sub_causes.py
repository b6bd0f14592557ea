"""What stands behind a shape: drafts, preemption, branches, guesses, a place, the model's share."""

import numpy as np
import polars as pl
import pytest

from longpole_analytics.requests import from_flat
from longpole_analytics.shapes import Baseline, shape_of_trace, shapes_of
from longpole_analytics.shapes._refine import all_sub_causes
from longpole_analytics.shapes.base import NAMES

from .population_generator import populations
from .test_shapes_single import requests, trace

DRAFTS = ("num_steps", "num_drafted_tokens", "num_accepted_tokens")


@pytest.fixture(scope="module")
def made():
    return populations(31, per_label=1, n=(300, 300))


def slice_of(made, label, facts=None, seed=1):
    """Requests with one cause, with more columns by period: ``facts(period, n, random)``."""
    frame, labels = made
    (slice_id,) = (key for key, value in labels.items() if value == label)
    random = np.random.default_rng(seed)
    sides = []
    for period in (0, 1):
        side = frame.filter(pl.col("slice_id") == int(slice_id), pl.col("period") == period)
        side = side.drop("slice_id", "period")
        for name, values in (facts(period, side.height, random) if facts else {}).items():
            side = side.with_columns(pl.Series(name, values))
        sides.append(from_flat(side))
    (found,) = shapes_of(*sides)
    return found


def drafted(acceptance, per_step=3, steps=40):
    def facts(period, n, random):
        num = np.full(n, per_step * steps)
        return {
            "num_steps": np.full(n, steps),
            "num_drafted_tokens": num,
            "num_accepted_tokens": random.binomial(num, acceptance[period]),
        }

    return facts


def metrics(shape):
    return {row.metric: row for row in shape.evidence}


def test_every_sub_cause_refines_shapes_of_the_closed_set() -> None:
    for each in all_sub_causes():
        assert set(each.shapes) <= set(NAMES)


def test_fewer_accepted_drafts_are_named_with_interval_and_check(made) -> None:
    found = slice_of(made, "high_tpot", drafted((0.7, 0.4)))
    assert found.name == "high_tpot"
    assert "poor draft acceptance" in found.sub_cause
    assert "draft" in found.next_check
    row = metrics(found)["draft_acceptance"]
    assert row.n == 300
    assert row.current == pytest.approx(0.4, abs=0.02)
    assert metrics(found)["tokens_per_step"].current == pytest.approx(2.2, abs=0.1)
    first = next(r for r in found.evidence if r.metric == "draft_acceptance")
    assert first.ci95[1] < 1


def test_the_same_acceptance_or_an_unknown_one_is_not_blamed(made) -> None:
    for facts in (drafted((0.7, 0.7)), drafted((0.7, 0.65)), None):
        assert "draft" not in slice_of(made, "high_tpot", facts).sub_cause


def test_drafts_that_cost_more_than_they_save_are_below_break_even(made) -> None:
    found = slice_of(made, "high_tpot", drafted((0.05, 0.05), per_step=4))
    assert "speculation below its break-even" in found.sub_cause
    assert metrics(found)["draft_speedup"].current == pytest.approx(1.2 / 1.4, abs=0.02)
    assert "break-even" not in slice_of(made, "high_tpot", drafted((0.6, 0.6))).sub_cause


@pytest.mark.parametrize("label", ["bad_tail", "load_saturation", "high_tpot"])
def test_preemptions_that_rise_are_memory_pressure(made, label) -> None:
    def facts(period, n, random):
        return {"num_preemptions": random.binomial(1, (0.01, 0.15)[period], n)}

    found = slice_of(made, label, facts)
    assert found.name == label
    assert "memory pressure" in found.sub_cause
    row = metrics(found)["preempted_share"]
    assert row.current > 0.1 > row.baseline
    assert row.n == 300


def test_preemptions_as_before_are_not_blamed(made) -> None:
    found = slice_of(made, "bad_tail", lambda _, n, r: {"preemptions": r.binomial(1, 0.1, n)})
    assert "preempted" not in found.sub_cause


def test_branches_that_nobody_uses(made) -> None:
    def facts(period, n, random):
        return {"num_branches": np.full(n, 6), "num_used_branches": np.full(n, 1)}

    found = slice_of(made, "workflow_slow_serial_tools", facts)
    assert "fan-out" in found.sub_cause
    row = metrics(found)["used_branches_share"]
    assert (row.current, row.n) == (pytest.approx(1 / 6), 1800)
    used = slice_of(
        made,
        "workflow_slow_serial_tools",
        lambda _, n, r: {"num_branches": np.full(n, 6), "num_used_branches": np.full(n, 4)},
    )
    assert "fan-out" not in used.sub_cause


@pytest.mark.parametrize(("rate", "is_named"), [(0.1, True), (0.3, False), (0.8, False)])
def test_guesses_below_what_pays(made, rate, is_named) -> None:
    def facts(period, n, random):
        return {"num_guesses": np.ones(n, int), "num_used_guesses": random.binomial(1, rate, n)}

    found = slice_of(made, "load_saturation", facts)
    assert ("rarely used" in found.sub_cause) is is_named


def test_one_bad_replica_is_found_among_many(made) -> None:
    frame, labels = made
    (key,) = (k for k, v in labels.items() if v == "normal")
    random = np.random.default_rng(5)
    sides = []
    for period in (0, 1):
        side = frame.filter(pl.col("slice_id") == int(key), pl.col("period") == period)
        replica = pl.Series("replica", random.integers(0, 8, side.height).astype(str))
        side = side.drop("slice_id", "period").with_columns(replica)
        slow = (pl.col("replica") == "3") & pl.lit(period == 1)
        more = pl.when(slow).then(pl.col("decode_ms") * 2).otherwise(0.0)
        side = side.with_columns(pl.col(n) + more for n in ("decode_ms", "model_ms", "e2e_ms"))
        sides.append(from_flat(side))
    (found,) = shapes_of(*sides)
    assert found.name == "bad_tail"
    assert "one replica: 3" in found.sub_cause
    assert "replica 3" in found.next_check
    (row,) = (r for r in found.evidence if r.metric.startswith("share_of_slow"))
    assert row.ci95[0] > 1.1
    assert row.current > 0.5 > row.baseline
    assert row.n >= 10


def test_replicas_that_are_all_alike_are_not_blamed(made) -> None:
    found = slice_of(made, "bad_tail", lambda _, n, r: {"replica": r.integers(0, 5, n).astype(str)})
    assert "one replica" not in found.sub_cause


def test_parts_that_grew_together_make_a_slow_workflow() -> None:
    """No part is above the floor of its own, but the model is a fifth of the time."""
    random = np.random.default_rng(2)

    def side(more, n=200):
        times = {
            "ttft_ms": random.normal(100, 5, n),
            "decode_ms": random.normal(200, 10, n),
            "tool_ms": random.normal(500, 20, n) * more,
            "validation_ms": random.normal(480, 20, n) * more,
            "retry_ms": random.normal(400, 20, n) * more,
        }
        whole = sum(times.values())
        tokens = {"input_tokens": np.full(n, 500), "output_tokens": np.full(n, 50)}
        return from_flat(pl.DataFrame(times | tokens | {"e2e_ms": whole}))

    (found,) = shapes_of(side(1.0), side(1.24 / 0.84))
    assert found.name.startswith("workflow_slow")
    assert "the model makes" in found.sub_cause
    assert metrics(found)["model_of_time"].current < 0.4


# --- one trace ------------------------------------------------------------------------------------
def of_trace(split, facts, **columns):
    return shape_of_trace(split, Baseline.of_route(requests(**columns), "r"), facts=facts)


def test_a_trace_whose_drafts_failed() -> None:
    usual = {
        "num_steps": np.full(200, 40),
        "num_drafted_tokens": np.full(200, 120),
        "num_accepted_tokens": np.random.default_rng(3).integers(70, 90, 200),
    }
    own = dict(zip(DRAFTS, (80, 240, 5), strict=True))
    found = of_trace(trace(decode=5000), own, **usual)
    assert found.sub_cause == (
        "later_decode; poor draft acceptance; speculation below its break-even"
    )
    row = next(r for r in found.evidence if r.metric == "draft_acceptance")
    assert row.n >= 72
    assert row.ci95[0] <= row.ratio <= row.ci95[1]
    fine = dict(zip(DRAFTS, (40, 120, 80), strict=True))
    assert of_trace(trace(decode=5000), fine, **usual).sub_cause == "later_decode"


def test_a_trace_that_was_preempted_or_used_few_branches() -> None:
    zero = {"num_preemptions": np.zeros(200, int)}
    found = of_trace(trace(decode=5000), {"num_preemptions": 2}, **zero)
    assert "memory pressure" in found.sub_cause
    assert of_trace(trace(decode=5000), {"num_preemptions": 0}, **zero).sub_cause == "later_decode"
    few = of_trace(trace(tool=3000), {"num_branches": 5, "num_used_branches": 1})
    assert "fan-out" in few.sub_cause
    assert "the model makes 29 % of the time" in few.sub_cause


def test_a_trace_on_a_replica_that_is_slow_for_others_too() -> None:
    random = np.random.default_rng(4)
    replica = random.integers(0, 4, 200).astype(str)
    slow = np.where(replica == "2", 3.0, 1.0)
    frame = requests(replica=replica).with_columns(
        later_decode_ms=pl.col("later_decode_ms") * pl.Series(slow)
    )
    base = Baseline.of_route(frame, "r")
    here = shape_of_trace(trace(decode=9000), base, facts={"replica": "2"})
    assert "one replica: 2" in here.sub_cause
    there = shape_of_trace(trace(decode=9000), base, facts={"replica": "1"})
    assert "one replica" not in there.sub_cause
