"""What a prompt cache is worth: closed forms, replays of real arrivals, hits, writes, keys."""

import json
import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import BadInput, UsageError
from longpole.vocab import keys
from longpole_analytics.cache.economics import break_even, break_even_rate, expected_reads
from longpole_analytics.cache.hits import hit_rates, wasted_writes
from longpole_analytics.cache.hot import hot_keys
from longpole_analytics.cache.lookups import answer_caches, table_of
from longpole_analytics.cache.replay import Request, hit_tokens, replayed
from longpole_analytics.cache.rules import CacheRules, rules_from
from longpole_analytics.cache.worth import break_evens, expected
from longpole_analytics.cost import priced
from longpole_analytics.prices import shipped

DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "cache.json").read_text())
RULES = CacheRules()
S = 10**9


# --- closed forms -------------------------------------------------------------------------------
@pytest.mark.parametrize("case", VECTORS["break_even"])
def test_break_even_vectors(case):
    found = break_even(case["U"], case["W"], case["R"])
    assert found.min_reads == case["expect"]["min_reads"]
    threshold = case["expect"]["threshold"]
    assert found.threshold == (None if threshold is None else pytest.approx(threshold, rel=1e-6))


@given(st.floats(0.1, 10), st.floats(0, 30), st.floats(0, 12))
def test_the_fewest_reads_that_pay_do_and_one_less_does_not(plain, write, read):
    found = break_even(plain, write, read).min_reads
    if found is None:
        assert not write + 1000 * read < 1001 * plain - 1e-6
    elif found < 10**6:
        assert write + found * read < (found + 1) * plain + 1e-6
        before = found - 1
        assert found == 0 or not write + before * read < (before + 1) * plain - 1e-6


@pytest.mark.parametrize("case", VECTORS["expected_reads"])
def test_expected_reads_vectors(case):
    rate = case["requests_per_hour"] / 3600
    found = expected_reads(rate, case["ttl_s"], is_sliding=case["sliding"])
    assert found == pytest.approx(case["expect"], rel=1e-6)


def test_at_the_break_even_rate_as_many_reads_are_expected_as_are_needed():
    for is_sliding in (True, False):
        rate = break_even_rate(0.28, 300, is_sliding=is_sliding)
        assert expected_reads(rate, 300, is_sliding=is_sliding) == pytest.approx(0.28)
    # one request in 20 minutes is enough for a write of five minutes at 1.25
    assert 1 / break_even_rate(0.28, 300, is_sliding=True) == pytest.approx(1215, abs=1)
    assert expected_reads(1e6, 1e6, is_sliding=True) == math.inf


# --- replay -------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", VECTORS["ttl_replay"])
def test_replay_vectors(case):
    requests = [Request(r["t_ms"], r["input_tokens"], r["block_ids"]) for r in case["requests"]]
    found = hit_tokens(
        requests, case["ttl_ms"], is_sliding=case["sliding"], min_blocks=case["min_blocks"]
    )
    assert found == case["expect_hit_tokens"]


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.lists(st.integers(1, 3), min_size=1, max_size=4)),
        max_size=25,
    ),
    st.integers(1, 4000),
)
def test_a_longer_life_never_hits_less_and_sliding_never_less_than_fixed(arrivals, ttl_ms):
    requests = []
    for at, path in sorted(arrivals):
        chained = [hash(tuple(path[: depth + 1])) for depth in range(len(path))]
        requests.append(Request(at, 512 * len(path), chained))
    short = hit_tokens(requests, ttl_ms)
    long = hit_tokens(requests, 2 * ttl_ms)
    fixed = hit_tokens(requests, ttl_ms, is_sliding=False)
    assert all(a <= b for a, b in zip(short, long, strict=True))
    assert all(a <= b for a, b in zip(fixed, short, strict=True))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"t_ms": [0], "input_tokens": [1]}, "block_ids"),
        ({"t_ms": [0], "input_tokens": [1], "block_ids": ["a"]}, "block_ids"),
        ({"t_ms": ["x"], "input_tokens": [1], "block_ids": [[1]]}, "t_ms"),
        ({"t_ms": [0], "input_tokens": [-1], "block_ids": [[1]]}, "negative"),
        ({"t_ms": [None], "input_tokens": [1], "block_ids": [[1]]}, "t_ms"),
        ({"t_ms": [0, None], "input_tokens": [1, 1], "block_ids": [[1], [1]]}, "without"),
    ],
)
def test_a_table_that_cannot_be_replayed_is_refused(columns, words):
    with pytest.raises(BadInput, match=words):
        replayed(pl.DataFrame(columns), (60,))


def test_no_arrivals_have_no_share():
    schema = {"t_ms": pl.Int64, "input_tokens": pl.Int64, "block_ids": pl.List(pl.Int64)}
    (found,) = replayed(pl.DataFrame(schema=schema), (60,))
    assert found.hit_token_share is None


# --- hits, money, writes ------------------------------------------------------------------------
def row(at_s, read=0, write=0, **facts):
    plain = {
        "start_ns": int(at_s * S),
        "provider": "anthropic",
        "request_model": "claude-sonnet-4-6",
        "route": "x",
        "prompt_version": "v1",
        "prefix_hash": "p",
        "input_tokens": 10_000,
        "cached_input_tokens": read,
        "cache_write_tokens": write,
        "cache_write_1h_tokens": None,
        "output_tokens": 10,
    }
    return {**plain, "start_ns": plain["start_ns"] + 1_790_000_000 * S, **facts}


def costs(*rows):
    return priced(pl.DataFrame(list(rows)), shipped())


def test_hits_are_told_by_tokens_and_by_requests_with_the_money():
    table = costs(row(0, write=8000), row(10, read=8000), row(20, read=4000), row(30, route="y"))
    (whole,) = hit_rates(table).to_dicts()
    assert whole["hit_rate_tokens"] == pytest.approx(12_000 / 40_000)
    assert whole["hit_rate_requests"] == pytest.approx(0.5)
    # 12,000 x (3.00 - 0.30) - 8,000 x (3.75 - 3.00)
    assert whole["saved_usd"] == pytest.approx(0.0324 - 0.006)
    by_route = {each["route"]: each for each in hit_rates(table, ["route"]).to_dicts()}
    assert by_route["y"]["hit_rate_tokens"] == 0
    assert by_route["y"]["saved_usd"] == 0


def test_a_high_hit_rate_can_lose_money():
    long = {"write": 9000, "cache_write_1h_tokens": 9000}
    (whole,) = hit_rates(costs(row(0, **long), row(1, read=2000))).to_dicts()
    # 2,000 x 2.70 - 9,000 x (6.00 - 3.00)
    assert whole["saved_usd"] == pytest.approx(0.0054 - 0.027)


def test_storage_is_part_of_what_a_cache_costs():
    google = {"provider": "gcp.gemini", "request_model": "gemini-2.5-pro"}
    (whole,) = hit_rates(
        costs(row(0, read=8000, **google, cache_storage_token_hours=10_000.0))
    ).to_dicts()
    assert whole["saved_usd"] == pytest.approx(8000 * 1.125e-6 - 0.045)


def test_money_of_unknown_prices_is_unknown():
    (whole,) = hit_rates(costs(row(0, read=10, provider="vllm", request_model="q"))).to_dicts()
    assert whole["saved_usd"] is None
    assert whole["num_unpriced"] == 1
    assert hit_rates(costs(row(0)).head(0)).height <= 1


def test_a_write_that_nobody_read_in_time_is_wasted():
    table = costs(
        row(0, write=1000),  # read in time
        row(200, read=1000),
        row(1000, write=2000),  # read too late
        row(1301, read=2000),
        row(2000, write=3000, prefix_hash="q"),  # never read
        row(2100, write=4000, prefix_hash=None),  # nobody knows
        row(6000, write=5000, cache_write_1h_tokens=5000, prefix_hash="r"),
        row(9000, read=5000, prefix_hash="r"),
        row(9900, write=100, prefix_hash="s"),  # its life is not over
        row(10_000),
    )
    (found,) = wasted_writes(table, RULES).to_dicts()
    assert (found["num_writes"], found["num_wasted"], found["num_undecided"]) == (4, 2, 2)
    assert found["wasted_tokens"] == 5000
    assert found["wasted_share"] == pytest.approx(5000 / 11_000)
    assert found["wasted_usd"] == pytest.approx(5000 * 0.75e-6)


def test_break_even_is_told_for_each_kind_of_write():
    table = costs(row(0), row(0, provider="openai", request_model="gpt-4o"))
    evens = {(each["model"], each["write"]): each for each in break_evens(table, RULES)}
    assert evens["anthropic/claude-sonnet-4-6", "short"]["min_reads"] == 1
    assert evens["anthropic/claude-sonnet-4-6", "long"]["min_reads"] == 2
    assert evens["openai/gpt-4o", "short"]["threshold"] == 0
    seldom = costs(row(0), row(3000), row(6000))
    pays = {
        each["write"]: each["pays"] for each in expected(seldom, RULES, break_evens(seldom, RULES))
    }
    assert pays == {"short": False, "long": True}


# --- busy keys ----------------------------------------------------------------------------------
def test_a_key_whose_hits_fall_when_it_is_busy_is_hot():
    calm = [row(60 * minute + second, read=9000) for minute in range(10) for second in (1, 2, 3)]
    busy = [row(6000 + 0.5 * at, read=9000 if at % 3 == 0 else 0) for at in range(100)]
    steady = [row(6000 + 0.5 * at, read=9000, prefix_hash="q") for at in range(100)]
    found = {
        each["cache_key"]: each for each in hot_keys(costs(*calm, *busy, *steady), RULES).to_dicts()
    }
    assert found["p"]["is_hot"]
    assert found["p"]["hit_rate_busy"] < 0.5 < found["p"]["hit_rate_calm"]
    assert found["q"]["is_hot"] is None  # it was never calm
    assert hot_keys(costs(*calm), RULES).height == 0


# --- caches of answers --------------------------------------------------------------------------
def look(at_s, **facts):
    return {"start_ns": int(at_s * S), "name": "faq", "kind": "exact", **facts}


def test_a_hit_on_an_old_version_of_its_source_is_stale():
    (found,) = answer_caches(
        pl.DataFrame(
            [
                look(0, is_hit=False, source_version="1"),
                look(1, is_hit=True, source_version="1", saved_ms=900.0),
                look(2, is_hit=False, source_version="2"),
                look(5, is_hit=True, source_version="1"),
                look(6, is_hit=True, source_version="2"),
                look(7, is_hit=True),
                look(8, is_hit=None),
            ],
            infer_schema_length=None,
        )
    )
    assert (found.num_requests, found.hits.n, found.hits.k) == (7, 6, 4)
    assert (found.stale.k, found.stale.n) == (1, 3)
    assert found.invalidation_delay_ms == 3000
    assert (found.saved_ms, found.num_saved_known) == (900.0, 1)


def test_what_the_sdk_said_of_staleness_wins():
    given = {
        keys.APP_CACHE_KIND: "semantic",
        keys.APP_CACHE_HIT: "true",
        keys.APP_CACHE_STALE: "true",
    }
    steps = pl.DataFrame({"start_ns": [1], "name": ["c"], "route": ["x"]})
    (found,) = answer_caches(table_of(steps, [{**given, keys.APP_CACHE_SAVED: "0.25"}]))
    assert (found.kind, found.stale.value, found.saved_ms) == ("semantic", 1.0, 250.0)
    (broken,) = answer_caches(table_of(steps, [{**given, keys.APP_CACHE_SAVED: "soon"}]))
    assert broken.saved_ms is None
    assert answer_caches(table_of(steps.head(0), [])) == []


# --- thresholds ---------------------------------------------------------------------------------
def test_thresholds_come_from_the_configuration():
    found = rules_from({"ttl_s": 60, "provider_ttl_s": {"openai": 1800.0}})
    assert (found.ttl_of("anthropic"), found.ttl_of("openai")) == (60.0, 1800.0)
    assert found.ttl_of("google") == 3600.0
    for table in ({"tll_s": 1}, {"ttl_s": "soon"}, {"slack_tokens": 1.5}):
        with pytest.raises(UsageError, match=r"analytics\.cache"):
            rules_from(table)
