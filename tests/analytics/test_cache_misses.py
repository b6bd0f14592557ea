"""Why prompts missed: each cause planted many times, mixed in time, told by keyed hashes alone."""

import random
from collections import Counter

import polars as pl
import pytest

from longpole.context import call_facts
from longpole.prefix import Keyed, chain, joined, texts_of
from longpole.prompts import prompt
from longpole.vocab import keys
from longpole_analytics.cache.achievable import achievable
from longpole_analytics.cache.hits import hit_rates
from longpole_analytics.cache.misses import CAUSES, by_cause, miss_causes
from longpole_analytics.cache.prompts import columns_of, prompts
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cost import priced
from longpole_analytics.prices import shipped

S = 10**9
NUM = 50
KEY = Keyed(b"a tenant's key")
RULES = CacheRules()


def words(seed, num_bytes):
    rng = random.Random(seed)
    text = ""
    while len(text) < num_bytes:
        text += f"{rng.choice('abcdefgh') * 3}{rng.randint(0, 10**6)} "
    return text[:num_bytes]


def tools(*names):
    return [f"{name}: {words(name, 300)}" for name in names]


def prompt_facts(segments, key=KEY):
    """The attributes that the SDK puts on a call for such segments."""
    facts, all_texts = {keys.PROMPT_KEY_ID: key.key_id}, []
    for name, segment in segments.items():
        texts = texts_of(segment)
        all_texts.extend(texts)
        start = keys.PROMPT_SEGMENT_PREFIX + name
        facts[f"{start}.hash"] = key.hex(joined(texts))
        facts[f"{start}.length"] = str(sum(map(len, texts)))
        if name == "tools":
            facts[f"{start}.set_hash"] = key.hex(joined(sorted(texts)))
    found = chain(key, joined(all_texts))
    facts[keys.PROMPT_CHAIN] = found.hashes
    facts[keys.PROMPT_NUM_BLOCKS] = str(found.num_blocks)
    facts[keys.PROMPT_BLOCK] = found.unit
    return facts


BASE = tuple(f"tool{number}" for number in range(8))


def call(start_s, route, *, system=None, names=BASE, message="hi", cached=0, cause=None, **facts):
    """A call of about 2,000 tokens whose stable part is all but its message."""
    system = words(f"system of {route}", 5000) if system is None else system
    attributes = prompt_facts(
        {"tools": tools(*names), "system": system, "messages": words(message, 400)}
    )
    row = {
        "start_ns": int(start_s * S),
        "ttft_ms": 300.0,
        "provider": "openai",
        "request_model": "gpt-4o",
        "route": route,
        "prompt_version": "v1",
        "input_tokens": 2000,
        "cached_input_tokens": cached,
        "output_tokens": 10,
        "replica": "r1",
    }
    return {**row, **facts, "attributes": attributes, "planted": cause}


def table(calls):
    rows = sorted(calls, key=lambda each: each["start_ns"])
    plain = pl.DataFrame([{k: v for k, v in row.items() if k != "attributes"} for row in rows])
    columns = columns_of([row["attributes"] for row in rows])
    return priced(plain.hstack(columns), shipped())


def planted():
    """Each cause in its own routes, all at the same time; hits in between."""
    rng = random.Random(7)
    calls = []

    def warm(at, route, **facts):
        calls.append(call(at, route, message=f"warm {at}", **facts))

    for number in range(NUM):
        at = 200.0 * number
        plant = {"message": f"m{number}"}
        calls.append(call(at, "short", cause="ineligible", input_tokens=300, **plant))
        calls.append(call(at + 1, f"new{number}", cause="first_seen", **plant))
        system = words(f"edit {number}", 5000)
        version = {"prompt_version": f"v{number}", "system": system}
        kind = "template_edit" if number else "first_seen"
        calls.append(call(at + 2, "edit", cause=kind, **version, **plant))
        calls.append(call(at + 20, "edit", cached=1800, **version, message=f"hit {number}"))
        if number == 0:
            for route in ("order", "set", "volatile", "expired", "scatter", "evicted"):
                warm(at - 10, route, cause="first_seen")
        shuffled = list(BASE)
        while shuffled == list(BASE):
            rng.shuffle(shuffled)
        calls.append(call(at + 3, "order", names=shuffled, cause="tool_order", **plant))
        calls.append(call(at + 30, "order", cached=1800, message=f"hit {number}"))
        extra = (f"extra{number}", *BASE)
        calls.append(call(at + 4, "set", names=extra, cause="tool_set", **plant))
        moment = f"now it is {number}. " + words("system of volatile", 5000)
        calls.append(call(at + 5, "volatile", system=moment, cause="volatile_prefix", **plant))
        burst = f"burst{number}"
        slow = {"ttft_ms": 2000.0, **plant}
        calls.append(call(at + 6, burst, cause="first_seen", **slow))
        calls.append(call(at + 7, burst, cause="concurrent_write", message="other"))
        calls.append(call(at * 2, "expired", cause="ttl_expired" if number else None, **plant))
        where = {"replica": f"r{number + 2}"}
        calls.append(call(at + 8, "scatter", cause="routing_scatter", **where, **plant))
        calls.append(call(at + 9, "evicted", cause="evicted_or_unknown", **plant))
    return calls


@pytest.fixture(scope="module")
def found():
    costs = table(planted())
    return costs, miss_causes(costs, RULES)


def test_each_cause_is_told(found):
    costs, misses = found
    told = dict(misses.select("row", "cause").rows())
    right, wrong = Counter(), []
    for row, cause in enumerate(costs["planted"]):
        if cause is not None and told.get(row) == cause:
            right[cause] += 1
        elif cause is not None:
            wrong.append((cause, told.get(row)))
    assert set(right) == set(CAUSES)
    assert sum(right.values()) / (sum(right.values()) + len(wrong)) >= 0.95, Counter(wrong)
    assert min(right.values()) >= 0.95 * (NUM - 1), (right, Counter(wrong))


def test_hits_are_no_misses(found):
    costs, misses = found
    hits = [row for row, cached in enumerate(costs["cached_input_tokens"]) if cached]
    assert not set(hits) & set(misses["row"])


def test_the_first_segment_and_block_that_differ_are_named(found):
    costs, misses = found
    named = misses.join(costs.with_row_index("row").cast({"row": pl.Int64}), on="row")
    by = {cause: rows for (cause,), rows in named.group_by("cause")}
    assert set(by["volatile_prefix"]["segment"]) == {"system"}
    assert set(by["tool_set"]["segment"]) == set(by["tool_order"]["segment"]) == {"tools"}
    # eight tools of 306 bytes and separators come before the system's text
    assert set(by["volatile_prefix"]["block"]) == {8 * 307 // 256 + 1}
    assert "'system'" in by["volatile_prefix"]["edit"][0]
    assert by["first_seen"]["lost_tokens"].max() == 2000


def test_what_a_cause_costs_is_what_reading_would_have_saved(found):
    _, misses = found
    sums = by_cause(misses)
    assert sums["num_misses"].sum() == misses.height
    assert sums["lost_usd"].sum() == pytest.approx(sums["lost_tokens"].sum() * 1.25e-6)
    assert sums["lost_usd"].to_list() == sorted(sums["lost_usd"], reverse=True)


def test_the_sdks_own_facts_are_understood():
    segments = {"tools": ["b", "a"], "system": words("s", 20_000), "messages": ["hi"]}
    with prompt("v1", segments):
        facts = {key: str(value) for key, value in call_facts().items()}
    (found,) = prompts(columns_of([facts]), RULES.stable_segments)
    assert [segment.name for segment in found.segments] == list(segments)
    assert found.segments[0].set_hash not in (None, found.segments[0].hash)
    assert found.num_blocks == 79
    assert found.blocks == (*range(1, 33), 40, 48, 56, 64, 72)
    assert len(found.hashes) == len(found.blocks)
    assert found.tokens(79, 5000) == 5000


def test_a_rotated_key_compares_with_nothing_before_it():
    rows = [call(0, "x", cached=0), call(10, "x", cached=0)]
    segments = {"tools": tools(*BASE), "system": words("system of x", 5000), "messages": "hi"}
    rows[1]["attributes"] = prompt_facts(segments, Keyed(b"the next key"))
    assert miss_causes(table(rows), RULES)["cause"].to_list() == ["first_seen"] * 2


def test_rare_users_of_one_tool_order_expire_and_do_not_reorder():
    other = tuple(reversed(BASE))
    rows = [
        call(0, "x"),
        call(1, "x", names=other, message="b"),
        call(400, "x", message="c"),
        call(401, "x", names=other, message="d"),
    ]
    causes = miss_causes(table(rows), RULES)["cause"].to_list()
    assert causes == ["first_seen", "tool_order", "ttl_expired", "ttl_expired"]


def test_a_prefix_whose_end_lies_between_two_hashes_is_no_new_prefix():
    # beyond the first 32 blocks each eighth has a hash: the 39 that all share are known as 32
    long = {"system": words("long", 7600), "input_tokens": 20_000}
    rows = [
        call(0, "x", message="a", **long),
        call(0.1, "x", message="b", **long),
        call(10, "x", message="c", replica="r2", **long),
        call(20, "x", message="d", **long),
        call(400, "x", message="e", **long),
    ]
    misses = miss_causes(table(rows), RULES)
    assert misses["cause"].to_list() == [
        "first_seen",
        "concurrent_write",
        "routing_scatter",
        "evicted_or_unknown",
        "ttl_expired",
    ]
    assert set(misses["block"][1:]) == {33}


def test_a_write_for_an_hour_lives_an_hour():
    facts = {"provider": "anthropic", "request_model": "claude-sonnet-4-6"}
    long = {"cache_write_tokens": 1800, "cache_write_1h_tokens": 1800}
    rows = [call(0, "x", **facts, **long), call(1000, "x", message="b", **facts)]
    for row in rows:
        row["attributes"][keys.CACHE_WRITE_1H_TOKENS] = str(row.pop("cache_write_1h_tokens", 0))
    assert miss_causes(table(rows), RULES)["cause"].to_list() == [
        "first_seen",
        "evicted_or_unknown",
    ]


def test_without_hashes_nothing_is_invented():
    rows = [call(at, "x", message=str(at)) for at in range(3)]
    costs = table(rows).select(
        "start_ns", "provider", "request_model", "route", "input_tokens", "cached_input_tokens"
    )
    causes = miss_causes(priced(costs, shipped()), RULES)["cause"].to_list()
    assert causes == ["first_seen"]


def test_contradictory_counts_are_left_out():
    rows = [
        call(0, "x", cached=3000),
        call(1, "x", cached=-1),
        call(2, "x", input_tokens=None),
        call(3, "x", cached=None),
    ]
    costs = table(rows)
    assert miss_causes(costs, RULES).height == 0
    (whole,) = hit_rates(costs).to_dicts()
    assert (whole["num_calls"], whole["num_known"], whole["num_contradictory"]) == (4, 0, 2)
    assert whole["hit_rate_tokens"] is whole["hit_rate_requests"] is None
    assert miss_causes(costs.head(0), RULES).height == by_cause(miss_causes(costs, RULES)).height


def test_an_ideal_cache_hits_what_prompts_share():
    rows = [call(0, "x"), call(100, "x", message="b"), call(1000, "x", message="c")]
    short, long = achievable(table(rows), RULES, (300.0, 3600.0))
    blocks = (8 * 307 + 5000) // 256  # whole blocks before the message
    share = blocks / (-(-(8 * 307 + 5000 + 401) // 256))
    assert short.hit_token_share == pytest.approx(share / 3, abs=0.01)
    assert long.hit_token_share == pytest.approx(2 * share / 3, abs=0.01)
    assert short.observed_token_share == 0
    assert long.gap_tokens == pytest.approx(long.hit_token_share * 6000, abs=1)
