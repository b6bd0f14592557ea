"""Why a prompt cache was lost is told beside the shape, where the prompts' hashes tell it."""

import numpy as np
import polars as pl
import pytest

from longpole_analytics.cache.misses import CAUSES
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.loading import Source, load_requests, select
from longpole_analytics.requests import from_flat
from longpole_analytics.shape_causes import judged
from longpole_analytics.shapes import shapes_of
from longpole_analytics.shapes._sub_causes.lost_prefix import CHECKS, TEXTS, with_causes
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

from .advisor_traffic import SYSTEM, TOOLS, Traffic, prompt_facts


def side(cached, n=100, seed=1, **columns):
    random = np.random.default_rng(seed)
    lead = 50 + 0.2 * (2_000 - cached) * random.lognormal(0, 0.1, n)
    return from_flat(
        pl.DataFrame(
            {
                "trace_id": [f"{seed}-{number}" for number in range(n)],
                "input_tokens": np.full(n, 2_000),
                "cached_tokens": np.full(n, cached),
                "output_tokens": np.full(n, 50),
                "ttft_ms": lead,
                "decode_ms": random.lognormal(6, 0.1, n),
                "e2e_ms": lead + 400,
                **columns,
            }
        )
    )


@pytest.mark.parametrize("cause", TEXTS)
def test_the_reason_of_most_misses_is_named_with_its_remedy(cause) -> None:
    reasons = pl.Series([cause] * 70 + ["first_seen"] * 20 + [None] * 10)
    (found,) = shapes_of(side(1_800), side(0, seed=2, miss_cause=reasons))
    assert found.name == "high_ttft_prefill"
    assert found.sub_cause.startswith("prompt cache lost")
    assert TEXTS[cause] in found.sub_cause
    assert found.next_check == CHECKS[cause]


def test_reasons_without_a_majority_or_none_at_all_are_not_guessed() -> None:
    mixed = pl.Series(["tool_order", "ttl_expired", "routing_scatter", "tool_set"] * 25)
    for columns in ({"miss_cause": mixed}, {}, {"miss_cause": pl.Series([None] * 100, dtype=str)}):
        (found,) = shapes_of(side(1_800), side(0, seed=2, **columns))
        assert found.sub_cause == "prompt cache lost"


def test_a_reason_is_not_told_of_another_shape() -> None:
    slow = side(1_800, seed=2).with_columns(
        pl.col("ttft_ms") + 500, pl.col("e2e_ms") + 500, miss_cause=pl.lit("tool_order")
    )
    (found,) = shapes_of(side(1_800), slow)
    assert TEXTS["tool_order"] not in (found.sub_cause or "")


def test_every_reason_that_can_be_mended_has_words() -> None:
    assert set(TEXTS) == set(CHECKS) == set(CAUSES) - {"ineligible", "first_seen"}


def test_reasons_are_joined_by_trace() -> None:
    table = pl.DataFrame({"trace_id": ["a", "b"], "miss_cause": ["old", "old"]})
    causes = pl.DataFrame({"trace_id": ["b"], "cause": ["tool_order"]})
    assert with_causes(table, causes)["miss_cause"].to_list() == [None, "tool_order"]


def test_a_store_tells_that_the_tools_changed_their_order(tmp_path) -> None:
    traffic = Traffic(5)
    sides = {}
    for name in ("before", "now"):
        for _ in range(60):
            tools = list(TOOLS)
            if name == "now":
                traffic.random.shuffle(tools)
            with traffic.workflow("shop") as run:
                facts = prompt_facts({"tools": tools, "system": SYSTEM, "messages": "q"})
                cached = 2_400 if name == "before" else 0
                run.chat(size=int(traffic.about(2_600, 0.02)), cached=cached, attributes=facts)
        sides[name] = int(traffic.at_ms * 1e6)
    store = DuckStore(tmp_path)
    writer = Writer(store, load_rollup())
    writer.write_spans(traffic.spans)
    writer.settle(everything=True)
    store.close()
    source = Source(db=tmp_path)
    every = load_requests(source, has_facts=True)
    split = f"start_ns <= {sides['before']}"
    pair = select(every, split), select(every, f"NOT ({split})")
    (found,) = judged(pair, source, cache_rules=CacheRules())
    assert TEXTS["tool_order"] in found.sub_cause
    assert TEXTS["tool_order"] not in (shapes_of(*pair)[0].sub_cause or "")
