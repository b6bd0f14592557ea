"""A model has one name in all of a cache report: the price table's, else what the call tells."""

import polars as pl

from longpole_analytics.cache.report import report
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cost import priced
from longpole_analytics.prices import shipped

MODELS = [
    ("openai", "gpt-4o", None),
    ("openai", "gpt-4o", "gpt-4o-2024-08-06"),
    ("openai", "smollm2", "smollm2"),
    (None, "own", None),
]
NAMES = {"openai/gpt-4o", "openai/smollm2", "own"}


def test_every_table_calls_a_model_the_same():
    calls = pl.DataFrame(
        [
            {
                "trace_id": f"{n:032x}",
                "start_ns": 1_790_000_000_000_000_000 + n * 10**9,
                "route": "chat",
                "provider": provider,
                "request_model": asked,
                "response_model": answered,
                "input_tokens": 2_000,
                "cached_input_tokens": 1_500,
                "output_tokens": 10,
                "ttft_ms": 100.0,
            }
            for n, (provider, asked, answered) in enumerate(MODELS * 5)
        ]
    )
    costs = priced(calls, shipped())
    document = report(costs, pl.DataFrame(), shipped(), CacheRules())
    slices = {row["model_key"]: row["num_calls"] for row in document["hits"]["slices"]}
    assert slices == {"openai/gpt-4o": 10, "openai/smollm2": 5, "own": 5}
    assert {row["model"] for row in document["speed"]} == NAMES


def test_a_model_that_nothing_tells_has_no_name():
    calls = pl.DataFrame({"start_ns": [1], "input_tokens": [10], "cached_input_tokens": [0]})
    document = report(priced(calls, shipped()), pl.DataFrame(), shipped(), CacheRules())
    assert [row["model_key"] for row in document["hits"]["slices"]] == [None]
