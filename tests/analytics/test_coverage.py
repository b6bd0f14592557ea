"""Coverage counts what has a stage, a slice and a versioned route, and why the rest has not."""

import polars as pl
import pytest

from longpole_analytics.attribution import causes_of
from longpole_analytics.cohort import cohort
from longpole_analytics.coverage import coverage, together
from longpole_analytics.excess import account

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
