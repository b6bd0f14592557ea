"""Time to first token that a cache saved: told where it is real, never from the hit rate."""

import numpy as np
import polars as pl
import pytest

from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cache.speed import NO_SPEEDUP, SAVES, speeds

RULES = CacheRules()
HOUR_NS = 3600 * 10**9


def calls(num=800, *, ms_per_1k=50.0, confounded_ms=0.0, share=0.5, seed=1, curve=0.0):
    """Calls of one model; half of them read 80 % of their prompt from a cache."""
    rng = np.random.default_rng(seed)
    size = rng.integers(2000, 12_000, num)
    is_hit = rng.random(num) < share
    cached = np.where(is_hit, (0.8 * size).astype(int), 0)
    fresh = (size - cached) / 1000
    load = rng.poisson(4, num).astype(float)
    noise = rng.lognormal(3, 0.7, num)
    ttft = 80 + ms_per_1k * fresh + curve * fresh**2 + 10 * load + noise
    ttft += np.where(is_hit, -confounded_ms, 0)
    return pl.DataFrame(
        {
            "start_ns": np.sort(rng.integers(0, 3 * HOUR_NS, num)),
            "provider": ["vllm"] * num,
            "request_model": ["m"] * num,
            "input_tokens": size,
            "cached_input_tokens": cached,
            "ttft_ms": ttft,
            "in_flight": load,
        }
    )


def true_median(table, ms_per_1k):
    hits = table.filter(pl.col("cached_input_tokens") > 0)
    return ms_per_1k * hits["cached_input_tokens"].median() / 1000


def test_both_measures_find_the_time_that_was_saved():
    table = calls()
    (found,) = speeds(table, RULES)
    assert found.verdict == SAVES
    assert found.slope_ms_per_1k[0] == pytest.approx(50, rel=0.05)
    for measure in (found.by_model, found.by_matching):
        assert measure.ms == pytest.approx(true_median(table, 50), rel=0.15)
        assert measure.low_ms < measure.ms < measure.high_ms


def test_hits_without_speed_are_not_claimed():
    (found,) = speeds(calls(ms_per_1k=0.0), RULES)
    assert found.num_hits > 300
    assert found.verdict == NO_SPEEDUP


def test_measures_that_disagree_claim_nothing_and_are_both_shown():
    table = calls(ms_per_1k=60.0, confounded_ms=-330.0)  # hits go to a slower place
    (found,) = speeds(table, RULES)
    assert found.verdict == NO_SPEEDUP
    assert found.by_model is not None
    assert found.by_matching is not None


def test_a_prefill_that_bends_is_followed():
    table = calls(3000, ms_per_1k=20.0, curve=8.0)
    hits = table.filter(pl.col("cached_input_tokens") > 0)
    size = hits["input_tokens"] / 1000
    fresh = size - hits["cached_input_tokens"] / 1000
    true = (20 * (size - fresh) + 8 * (size**2 - fresh**2)).median()
    (found,) = speeds(table, RULES)
    assert found.by_model.ms == pytest.approx(true, rel=0.1)


def test_the_engines_own_prefill_is_preferred():
    table = calls().with_columns(prefill_ms=pl.col("ttft_ms") - 50)
    assert speeds(table, RULES)[0].metric == "prefill_ms"


def test_few_calls_have_no_verdict():
    (found,) = speeds(calls(30), RULES)
    assert found.verdict is None
    assert "fewer" in found.reason
    assert speeds(calls(share=0.0), RULES) == []
    assert speeds(calls().head(0), RULES) == []


def test_calls_that_cannot_be_are_left_out_and_groups_kept_apart():
    table = calls()
    broken = table.with_columns(cached_input_tokens=pl.col("input_tokens") + 1)
    other = table.with_columns(service_tier=pl.lit("flex"))
    both = pl.concat([table.with_columns(service_tier=pl.lit(None, pl.String)), other])
    assert speeds(broken, RULES) == []
    assert {each.service_tier for each in speeds(both, RULES)} == {None, "flex"}
    assert speeds(both, RULES) == speeds(both, RULES)


def test_the_same_length_twice_cannot_be_fitted_but_does_not_fail():
    table = calls().with_columns(input_tokens=4000, cached_input_tokens=2000)
    (found,) = speeds(table, RULES)
    assert found.verdict is None
