"""What pricing a table of calls and replaying arrivals cost, against the package and its bars.

A million calls of many models and sizes over a year are priced by the join; a few thousand of
them one by one by ``genai_prices.calc_price``, which must agree. The arrivals are those of a
public trace. Wall time, the best of three.

    python -m benchmarks.analytics.value [--calls 1000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import genai_prices
import numpy as np
import polars as pl

from longpole_analytics.cache.replay import replayed
from longpole_analytics.cost import priced
from longpole_analytics.prices import shipped

NEED_JOIN_S = 2.0
NEED_RATIO = 100.0
NEED_REPLAY_S = 3.0
ARRIVALS = Path(__file__).parents[2] / "tests/analytics/data/mooncake_conversation.parquet"
MODELS = (
    ("openai", "gpt-4o"),
    ("openai", "gpt-5.6-sol"),
    ("openai", "gpt-5.4"),
    ("anthropic", "claude-sonnet-4-6"),
    ("anthropic", "claude-haiku-5-5"),
    ("google", "gemini-2.5-pro"),
    ("deepseek", "deepseek-v4-flash"),
    ("x-ai", "grok-4"),
    ("aws", "amazon.nova-pro-v1:0"),
    ("mistral", "mistral-large-2512"),
)
NUM_ALONE = 3000


def calls(num: int) -> pl.DataFrame:
    """Calls of all models, sizes and hours of a year."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, len(MODELS), num)
    size = rng.integers(100, 400_000, num)
    end_ns = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 10**9
    return pl.DataFrame(
        {
            "provider": np.array([model[0] for model in MODELS])[which],
            "request_model": np.array([model[1] for model in MODELS])[which],
            "start_ns": end_ns - rng.integers(0, 365 * 86_400, num) * 10**9,
            "input_tokens": size,
            "cached_input_tokens": size // 2,
            "cache_write_tokens": size // 10,
            "output_tokens": rng.integers(1, 2000, num),
        }
    )


def best_of_three(work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def alone(rows: list[dict[str, Any]]) -> list[float]:
    """Each call by the package."""
    return [
        float(
            genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=row["input_tokens"],
                    cache_read_tokens=row["cached_input_tokens"],
                    cache_write_tokens=row["cache_write_tokens"],
                    output_tokens=row["output_tokens"],
                ),
                row["request_model"],
                provider_id=row["provider"],
                genai_request_timestamp=datetime.fromtimestamp(row["start_ns"] / 1e9, UTC),
            ).total_price
        )
        for row in rows
    ]


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    table, prices = calls(parser.parse_args().calls), shipped()
    rows = table.head(NUM_ALONE).to_dicts()
    alone(rows[:10])
    begun = time.perf_counter()
    theirs = alone(rows)
    each_s = (time.perf_counter() - begun) / len(rows)
    took_s = best_of_three(lambda: priced(table, prices))
    ours = priced(table.head(NUM_ALONE), prices)["cost_usd"].to_numpy()
    ratio = each_s * table.height / took_s
    arrivals = pl.read_parquet(ARRIVALS)
    replay_s = best_of_three(lambda: replayed(arrivals, (60, 300, 3600)))
    joined = f"cost of {table.height:,} calls by the join"
    largest = float(np.max(np.abs(ours / np.array(theirs) - 1)))
    print(f"{joined:46}{took_s:10.2f} s   need < {NEED_JOIN_S:g}")
    print(f"{'one by one, a call':46}{each_s * 1e6:10.0f} us")
    print(f"{'one by one / join':46}{ratio:10.0f}     need >= {NEED_RATIO:g}")
    print(f"{'largest relative difference of a cost':46}{largest:10.1g}")
    print(f"{'replay of 6,015 arrivals, 3 lives':46}{replay_s:10.2f} s   need < {NEED_REPLAY_S:g}")
    is_met = took_s < NEED_JOIN_S and ratio >= NEED_RATIO and replay_s < NEED_REPLAY_S
    return int(not is_met or largest > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
