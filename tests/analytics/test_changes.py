"""Changes: what came at which moment, and which stage moved with it; nothing where nothing did."""

import polars as pl
import pytest

from longpole.vocab import Stage
from longpole_analytics.changes import changes
from longpole_analytics.requests import from_flat

from .made_requests import made

NUM = 4000
DEPLOY = NUM // 2


def deployed(seed=0, *, where=None, added_ms=500.0, share=1.0, extra=()):
    """Version v2 takes over a share of the requests half-way, and adds to the prefill."""
    frame = made(NUM, seed, routes=2)
    row = pl.int_range(pl.len())
    is_new = (row >= DEPLOY) & ((row * 7919) % 100 < 100 * share)
    is_new = is_new & (pl.lit(True) if where is None else where)
    frame = frame.with_columns(
        *(pl.when(is_new).then(pl.lit("new")).otherwise(pl.lit("old")).alias(n) for n in extra),
        pl.when(is_new).then(pl.lit("v2")).otherwise(pl.lit("v1")).alias("route_version"),
    )
    slower = pl.when(pl.col("route_version") == "v2").then(added_ms).otherwise(0.0)
    return frame.with_columns(pl.col(n) + slower for n in ("prefill_ms", "e2e_ms"))


@pytest.mark.parametrize("seed", range(4))
def test_a_version_that_moves_a_stage_is_named_with_moment_and_size(seed):
    found = changes(deployed(seed))
    assert [change.route for change in sorted(found, key=lambda c: c.route)] == ["r0", "r1"]
    for change in found:
        assert (change.where, change.previous) == ({"route_version": "v2"}, {"route_version": "v1"})
        assert DEPLOY <= change.at_ns / 1e9 < DEPLOY + 10
        assert (change.share_before, change.share_after) == (0.0, 1.0)
        (moved,) = change.stages
        assert moved.stage == Stage.PREFILL
        assert moved.moved_ms == pytest.approx(500, rel=0.1)
        assert moved.ci95[0] < 500 < moved.ci95[1]


def test_a_canary_of_a_tenth_is_seen():
    found = changes(deployed(share=0.1))
    assert {change.where["route_version"] for change in found} == {"v2"}
    assert all(change.stages[0].stage == Stage.PREFILL for change in found)


def test_a_change_for_the_better_is_negative():
    found = changes(deployed(added_ms=-200.0))
    assert found
    assert all(change.moved_ms < -150 for change in found)


def test_a_change_on_one_route_is_said_of_it_only():
    (change,) = changes(deployed(where=pl.col("route") == "r1"))
    assert change.route == "r1"


def test_what_came_together_is_told_together():
    found = changes(deployed(extra=("prompt_version",)))
    assert {tuple(change.where) for change in found} == {("prompt_version", "route_version")}


@pytest.mark.parametrize("seed", range(10))
def test_a_version_that_moves_nothing_is_not_shown(seed):
    assert changes(deployed(seed, added_ms=0.0)) == ()


def test_nothing_changed():
    assert changes(made(NUM, 1)) == ()


def test_longer_prompts_are_no_regression():
    """The new version sends prompts half as long again: the same speed at like lengths."""
    frame = deployed(added_ms=0.0)
    longer = pl.when(pl.col("route_version") == "v2").then(1.5).otherwise(1.0)
    added = pl.col("prefill_ms") * (longer - 1)
    frame = frame.with_columns(
        (pl.col("input_tokens") * longer).cast(pl.Int64).alias("input_tokens"),
        pl.col("prefill_ms") + added,
        pl.col("e2e_ms") + added,
    )
    assert changes(frame) == ()


def test_what_moves_all_alike_is_not_laid_to_the_canary():
    """From the same moment on the queue is longer for everyone."""
    frame = deployed(share=0.3, added_ms=0.0)
    later = pl.when(pl.int_range(pl.len()) >= DEPLOY).then(400.0).otherwise(0.0)
    frame = frame.with_columns(pl.col(n) + later for n in ("queue_ms", "e2e_ms"))
    assert changes(frame) == ()


@pytest.mark.parametrize("num", [0, 1, 59])
def test_few_requests(num):
    assert changes(deployed().head(num)) == ()


def test_unknown_start_times_and_odd_values():
    assert changes(deployed().with_columns(start_ns=pl.lit(None, pl.Int64))) == ()
    frame = deployed().with_columns(request=pl.int_range(pl.len()).cast(pl.String))
    assert {tuple(change.where) for change in changes(frame)} == {("route_version",)}
    constant = from_flat(pl.DataFrame({"start_ns": [1] * 200, "e2e_ms": [5.0] * 200, "a": "x"}))
    assert changes(constant) == ()
