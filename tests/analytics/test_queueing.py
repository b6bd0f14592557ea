"""Queues: vectors, laws that any queue obeys, real arrivals, and what saturation is."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_analytics.queue_theory import allen_cunneen, kingman, mmk, utilisation, variation2
from longpole_analytics.queueing import (
    QueueRules,
    little,
    load_curve,
    mean_in_flight,
    queueing,
    saturation,
    servers_needed,
    waits,
)
from longpole_analytics.requests import from_flat

DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "censoring_queueing_fdr.json").read_text())


@pytest.mark.parametrize("case", VECTORS["mmk"], ids=lambda case: f"k={case['servers']}")
def test_vectors_of_erlang_c(case):
    found = mmk(case["arrival_per_s"], case["service_s"], case["servers"])
    assert found.p_wait == pytest.approx(case["expect_p_wait"], rel=1e-6)
    assert found.mean == pytest.approx(case["expect_mean_wait_s"], rel=1e-6)


@pytest.mark.parametrize("case", VECTORS["kingman"], ids=lambda case: f"rho={case['rho']}")
def test_vectors_of_kingman(case):
    found = kingman(case["rho"], case["service_s"], case["ca2"], case["cs2"])
    assert found == pytest.approx(case["expect_wait_s"], rel=1e-6)


def test_at_eighty_percent_a_request_waits_four_service_times():
    assert mmk(1.6, 0.5).mean == pytest.approx(2.0)
    assert utilisation(1.6, 0.5) == pytest.approx(0.8)
    assert allen_cunneen(1.6, 0.5, 1, 1.0, 1.0) == pytest.approx(kingman(0.8, 0.5, 1.0, 1.0))


def test_a_load_of_one_has_no_wait_that_lasts():
    assert mmk(2.0, 0.5) is None
    assert mmk(2.0, 0.5, 2) is not None
    assert kingman(1.0, 0.5, 1, 1) is None
    assert allen_cunneen(4.0, 0.5, 2, 1, 1) is None
    assert mmk(0.0, 0.5).mean == 0


@pytest.mark.parametrize("given", [(-1, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_what_is_no_queue_is_told(given):
    with pytest.raises(BadInput):
        mmk(*given)


def test_many_servers_overflow_nothing():
    found = mmk(900.0, 1.0, 1000)
    assert 0 < found.p_wait < 0.01


@pytest.mark.parametrize(("name", "cv2"), [("code", 182.610668), ("conv", 1.169261)])
def test_variation_of_real_arrivals(name, cv2):
    at = pl.read_parquet(DATA / f"azure_llm_2023_{name}.parquet")["t_s"].to_numpy()
    assert variation2(np.diff(at)) == pytest.approx(cv2, rel=1e-3)


# --- simulation --------------------------------------------------------------------------------
def brute_waits(arrivals, services, servers):
    """Each request by hand: to the server that is free first."""
    free, found = [0.0] * servers, []
    for at, service in zip(arrivals, services, strict=True):
        first = min(range(servers), key=free.__getitem__)
        begun = max(at, free[first])
        free[first] = begun + service
        found.append(begun - at)
    return found


requests = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 20)), min_size=1, max_size=60)


@settings(max_examples=80, deadline=None)
@given(requests, st.integers(1, 8))
def test_the_simulation_is_first_come_first_served(pairs, servers):
    arrivals = np.cumsum([gap for gap, _ in pairs])
    services = np.array([service for _, service in pairs])
    found = waits(arrivals, services, servers)
    assert found.tolist() == pytest.approx(brute_waits(arrivals, services, servers))


@settings(max_examples=60, deadline=None)
@given(requests, st.floats(0, 30))
def test_the_capacity_found_is_enough_and_one_less_is_not(pairs, target):
    arrivals = np.cumsum([gap for gap, _ in pairs])
    services = np.array([service for _, service in pairs])
    found = servers_needed(arrivals, services, target)
    assert found.wait <= target
    assert found.advised >= found.needed * 1.2 - 1e-9
    if found.needed > 1:
        tight = QueueRules(max_servers=found.needed - 1)
        assert servers_needed(arrivals, services, target, tight) is None


def test_the_simulation_agrees_with_erlang_c_on_poisson_arrivals():
    source = np.random.default_rng(1)
    arrivals = np.cumsum(source.exponential(1 / 14.4, 200_000))
    found = waits(arrivals, source.exponential(0.5, 200_000), 8).mean()
    assert found == pytest.approx(mmk(14.4, 0.5, 8).mean, rel=0.1)


def test_bursty_arrivals_need_more_than_their_mean_says():
    table = pl.read_parquet(DATA / "azure_llm_2023_code.parquet")
    at = table["t_s"].to_numpy()
    service = table["output_tokens"].to_numpy() * 0.02 + 0.2
    needed = servers_needed(at, service, 0.1).needed
    load = len(at) / (at[-1] - at[0]) * service.mean()
    assert needed > 2 * math.ceil(load)


def test_capacity_of_nothing_and_of_the_unknown():
    assert servers_needed([], [], 1.0) is None
    with pytest.raises(BadInput, match="unknown"):
        servers_needed([0.0, math.nan], [1.0, 1.0], 1.0)
    with pytest.raises(BadInput, match="below zero"):
        servers_needed([0.0], [-1.0], 1.0)
    assert servers_needed([0.0, 0.0, 0.0], [1.0] * 3, 0.0).needed == 3


# --- what the requests say ---------------------------------------------------------------------
@given(requests)
def test_littles_law_holds_of_whole_windows(pairs):
    starts = np.cumsum([gap for gap, _ in pairs])
    ends = starts + np.array([service for _, service in pairs])
    since, until = 0.0, float(ends.max()) + 1
    observed = mean_in_flight(starts, ends, since, until)
    rate, mean = len(pairs) / (until - since), float((ends - starts).mean())
    assert little(observed, rate, mean).gap == pytest.approx(0, abs=1e-9)


def test_lost_spans_break_littles_law():
    assert not little(10.0, 2.0, 4.0).is_consistent
    assert little(10.0, 2.0, 4.6).is_consistent
    assert little(0.0, 0.0, 0.0).is_consistent
    assert mean_in_flight(np.zeros(1), np.ones(1), 5.0, 5.0) is None


def test_a_curve_has_its_knee_where_it_turns_up():
    source = np.random.default_rng(2)
    in_flight = source.integers(1, 33, 4000).astype(float)
    metric = np.where(in_flight < 16, 20.0, 20.0 * (in_flight / 8)) * source.uniform(0.9, 1.1, 4000)
    found = load_curve(in_flight.tolist(), metric.tolist())
    assert len(found.bins) == 10
    assert sum(each.n for each in found.bins) == 4000
    assert 14 <= found.knee <= 20
    flat = load_curve(in_flight.tolist(), source.uniform(18, 22, 4000).tolist())
    assert flat.knee is None


def test_a_curve_of_too_little_has_no_bins():
    assert load_curve([], []).bins == ()
    assert load_curve([1.0] * 10, [2.0] * 10).bins == ()
    assert load_curve([None, math.nan] * 50, [1.0] * 100).bins == ()
    constant = load_curve([3.0] * 500, [2.0] * 500)
    assert [each.n for each in constant.bins] == [500]


def queue_of(rate, servers=4, num=3000, seed=3):
    source = np.random.default_rng(seed)
    arrivals = np.cumsum(source.exponential(1 / rate, num))
    services = source.exponential(1.0, num)
    return arrivals, waits(arrivals, services, servers), services


def test_an_overloaded_queue_is_saturated_and_a_quiet_one_is_not():
    busy = saturation(*queue_of(5.0), servers=4)
    assert busy.is_saturated
    assert busy.rho == pytest.approx(1.25, rel=0.1)
    quiet = saturation(*queue_of(2.0), servers=4)
    assert not quiet.is_saturated
    assert quiet.reasons == ()
    assert saturation(*queue_of(5.0)).is_saturated, "told by the wait alone"


def test_a_queue_that_drains_is_not_saturated():
    arrivals, queue, services = queue_of(5.0)
    assert not saturation(arrivals, queue[::-1], services, servers=4).is_growing


def test_saturation_of_too_little_says_so():
    nothing = ([], [], [])
    at_once = ([1.0] * 100, [1.0] * 100, [1.0] * 100)
    unknown = ([1.0, 2.0], [None] * 2, [1.0] * 2)
    for columns in (nothing, at_once, unknown):
        found = saturation(*columns)
        assert not found.is_saturated
        assert "too few" in found.reasons[0]


def table_of(arrivals, queue, services, in_flight):
    return from_flat(
        pl.DataFrame(
            {
                "start_ns": (arrivals * 1e9).astype(np.int64),
                "queue_ms": queue * 1e3,
                "model_ms": (queue + services) * 1e3,
                "e2e_ms": (queue + services) * 1e3,
                "in_flight": in_flight,
            }
        )
    )


def test_a_table_of_requests_tells_all_of_it():
    arrivals, queue, services = queue_of(3.2, num=20_000)
    ends = arrivals + queue + services
    in_flight = np.arange(1, len(arrivals) + 1) - np.searchsorted(np.sort(ends), arrivals)
    found = queueing(table_of(arrivals, queue, services, in_flight), servers=4, target_wait_s=1.0)
    assert found.rate_per_s == pytest.approx(3.2, rel=0.05)
    assert found.ca2 == pytest.approx(1, rel=0.1)
    assert found.cs2 == pytest.approx(1, rel=0.1)
    assert found.little.is_consistent
    assert found.wait_theory_s == pytest.approx(queue.mean(), rel=0.25)
    assert found.queue_curve.knee is not None
    assert found.capacity.needed in (4, 5)
    assert not found.saturation.is_saturated


def test_a_table_that_knows_nothing_says_nothing():
    for table in (pl.DataFrame({"e2e_ms": []}), pl.DataFrame({"e2e_ms": [1.0, None]})):
        found = queueing(from_flat(table), servers=2, target_wait_s=1.0)
        assert found.rate_per_s is found.little is found.wait_theory_s is found.capacity is None
        assert found.queue_curve.bins == ()
