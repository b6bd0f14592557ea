"""Coverage counts what has a stage, a slice and a versioned route, and why the rest has not."""

import numpy as np
import polars as pl
import pytest

from longpole_analytics.attribution import causes_of
from longpole_analytics.cohort import cohort
from longpole_analytics.coverage import coverage, together
from longpole_analytics.excess import account
from longpole_analytics.requests import from_flat
from longpole_analytics.stats import share, wilson

from .made_requests import made

WHERE = {"replica": "r7"}


def cover(frame, metric="e2e_ms", **options):
    found = cohort(frame, metric, **options)
    above = account(found)
    return coverage(frame, found, above, causes_of(found, above))


@pytest.fixture(scope="module")
def frame():
    return made(6_000, 1, planted=[WHERE], share=0.9, routes=1).with_columns(
        route_version=pl.lit("7")
    )


def test_all_have_a_place_but_those_outside_of_the_cause(frame):
    found = cover(frame)
    inside = cohort(frame, "e2e_ms")
    num_inside = int((inside.is_slow & (frame["replica"] == "r7").to_numpy()).sum())
    assert found.num_traces == inside.num_slow
    assert found.num_stage == found.num_route == inside.num_slow
    assert found.num_slice == found.num_all == num_inside
    assert found.reasons == (("slice: in none of the causes", inside.num_slow - num_inside),)


def test_a_missing_route_or_version_is_said(frame):
    half = pl.int_range(pl.len()) % 2 == 0
    found = cover(frame.with_columns(route_version=pl.when(half).then(pl.lit("7"))))
    reasons = dict(found.reasons)
    assert reasons["route: no route version"] == found.num_traces - found.num_route > 0
    assert dict(cover(frame.drop("route")).reasons)["route: no route"] == found.num_traces


def test_opaque_time_is_no_stage(frame):
    times = ("queue_ms", "prefill_ms", "later_decode_ms")
    blind = frame.with_columns(
        *(pl.lit(None, pl.Float64).alias(name) for name in times), ttft_ms=pl.col("e2e_ms")
    )
    found = cover(blind)
    assert found.num_stage == 0
    assert ("stage: the time to the first token is opaque, no engine spans", found.num_traces) in (
        found.reasons
    )
    unknown = cover(blind.with_columns(ttft_ms=pl.lit(None, pl.Float64)))
    assert ("stage: no stage times", found.num_traces) in unknown.reasons


def test_failed_requests_count_slow_or_not(frame):
    first = pl.int_range(pl.len()) < 100
    failed = frame.with_columns(
        is_error=first, e2e_ms=pl.when(pl.int_range(pl.len()) < 5).then(None).otherwise("e2e_ms")
    )
    found = cover(failed, objective_ms=1e9)
    assert found.num_traces == 100
    reasons = dict(found.reasons)
    assert reasons["the metric is unknown"] == 5
    assert reasons["slice: failed without being slow"] == 95
    by_outcome = frame.with_columns(outcome=pl.when(first).then(pl.lit("failed")))
    assert cover(by_outcome, objective_ms=1e9).num_traces == 100


def test_nothing_to_place(frame):
    found = cover(frame.head(0))
    assert (found.num_traces, found.share(0), found.reasons) == (0, None, ())
    assert together([]).share(0) is None


def test_parts_add_up(frame):
    parts = [cover(frame), cover(frame.head(500))]
    both = together(parts)
    assert both.num_traces == sum(part.num_traces for part in parts)
    assert sum(dict(both.reasons).values()) == sum(r.num_traces for p in parts for r in p.reasons)


# --- sampled ------------------------------------------------------------------------------------
def stage_of(num, route_version, weight):
    """Failed requests that are not slow, whose stages are unknown."""
    return pl.DataFrame({
        "start_ns": list(range(num)), "route": ["r"] * num, "route_version": [route_version] * num,
        "e2e_ms": [1.0] * num, "is_error": [True] * num, "weight": [weight] * num,
    })  # fmt: skip


def test_shares_are_those_of_all_that_came_and_numbers_of_those_there():
    # 30 with a version that stand for one each, 20 without that stand for six
    frame = from_flat(pl.concat([stage_of(30, "7", 1.0), stage_of(20, None, 6.0)]))
    found = cover(frame, objective_ms=10.0)
    assert found.num_traces == 50
    assert found.share(found.num_route) == pytest.approx(30 / 150)
    assert found.num_route == pytest.approx(50 * 30 / 150)
    assert dict(found.reasons)["route: no route version"] == 20
    told = found.told(found.num_route)
    # as sure as of so many equal ones: 150 squared over 30 + 20 * 36
    assert (told.low, told.high) == pytest.approx(wilson(0.2, 150**2 / 750))
    assert (told.k, told.n, told.value) == (10, 50, pytest.approx(0.2))
    # two groups are summed up by what they stand for, not by how many are there
    parts = [
        cover(from_flat(each), objective_ms=10.0)
        for each in (stage_of(30, "7", 1.0), stage_of(20, None, 6.0))
    ]
    both = together(parts)
    assert (both.num_traces, both.placed) == (found.num_traces, found.placed)


def test_failed_ones_without_the_metric_count_by_weight():
    known, unknown = (from_flat(stage_of(n, "7", w)) for n, w in ((30, 1.0), (10, 3.0)))
    without = unknown.with_columns(e2e_ms=pl.lit(None, pl.Float64))
    found = cover(pl.concat([known, without]), objective_ms=10.0)
    assert found.num_traces == 40
    assert found.share(found.num_route) == pytest.approx(30 / 60)


def test_weights_of_one_change_nothing(frame):
    found = cover(frame)
    assert cover(frame.with_columns(weight=pl.lit(1.0))) == found
    assert type(found.num_stage) is int
    assert found.told(found.num_all) == share(found.num_all, found.num_traces)
    assert together([]).told(0) == share(0, 0)


def test_a_sample_is_covered_as_the_whole(frame):
    luck = pl.Series(np.random.default_rng(3).random(frame.height))
    slow = cohort(frame, "e2e_ms").is_slow & (frame["replica"] != "r7").to_numpy()
    keep = pl.Series(np.where(slow, 0.3, 0.8))
    sample = frame.with_columns(weight=1 / keep).filter(luck < keep)
    limit = float(frame["e2e_ms"].quantile(0.95, "higher"))
    whole, found, plain = (
        cover(each, objective_ms=limit) for each in (frame, sample, sample.drop("weight"))
    )
    right = whole.share(whole.num_slice)
    told = found.told(found.num_slice)
    assert told.low < right < told.high
    assert told.value == pytest.approx(right, abs=0.05)
    assert abs(plain.share(plain.num_slice) - right) > 2 * abs(told.value - right)
