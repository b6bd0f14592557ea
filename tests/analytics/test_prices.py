"""The price table: against the package it was made from, and a user's own prices against sense."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from genai_prices import Usage
from genai_prices.data import providers
from genai_prices.data_snapshot import get_snapshot

from longpole.errors import UsageError
from longpole_analytics.cost import priced
from longpole_analytics.price_overrides import renewed, with_overrides
from longpole_analytics.prices import shipped

MOMENTS = [
    datetime(2025, 1, 5, 0, 10, tzinfo=UTC),
    datetime(2026, 8, 20, 2, 30, tzinfo=UTC),
    datetime(2026, 11, 20, 8, 0, tzinfo=UTC),
    datetime(2026, 11, 20, 20, 0, tzinfo=UTC),
]
SIZES = [1000, 150_000, 200_000, 200_001, 272_001]
ROOT = Path(__file__).parents[2]


def ns(moment):
    return int(moment.timestamp()) * 10**9


def named():
    """A name of each model of the package whose match is a plain name."""
    for provider in providers:
        for model in provider.models:
            yield provider.id, model.id


@pytest.fixture(scope="module")
def every_model():
    pairs = list(named())
    rows = [
        {
            "provider": provider,
            "request_model": model,
            "start_ns": ns(moment),
            "input_tokens": size,
            "cached_input_tokens": size // 2,
            "cache_write_tokens": size // 5,
            "output_tokens": 700,
        }
        for number, (provider, model) in enumerate(pairs)
        for moment, size in [
            (MOMENTS[number % len(MOMENTS)], SIZES[number % len(SIZES)]),
            (MOMENTS[(number + 1) % len(MOMENTS)], SIZES[(number + 3) % len(SIZES)]),
        ]
    ]
    return priced(pl.DataFrame(rows), shipped())


def theirs(row):
    """What the package says, or None where it does not know the model or cannot price tokens."""
    try:
        _, model = get_snapshot().find_provider_model(
            row["request_model"], None, row["provider"], None
        )
        moment = datetime.fromtimestamp(row["start_ns"] / 1e9, UTC)
        prices = model.get_prices(moment)
        if prices.input_mtok is None or prices.output_mtok is None:
            return None
        usage = Usage(
            input_tokens=row["input_tokens"],
            cache_read_tokens=row["cached_input_tokens"],
            cache_write_tokens=row["cache_write_tokens"],
            output_tokens=row["output_tokens"],
        )
        return float(prices.calc_price(usage)["total_price"])
    except (LookupError, ValueError):
        return None


def test_every_model_costs_what_the_source_says(every_model):
    compared = 0
    for row in every_model.iter_rows(named=True):
        expected = theirs(row)
        if expected is None:
            continue
        compared += 1
        assert row["cost_usd"] == pytest.approx(expected, rel=1e-9), row
    assert compared > 3800


def test_a_cost_names_the_table_that_gave_it(every_model):
    known = every_model.drop_nulls("cost_usd")
    assert known["price_version"].unique().to_list() == [shipped().version]
    assert shipped().version.startswith("genai-prices ")
    assert every_model.filter(pl.col("cost_usd").is_null())["cost_problem"].null_count() == 0


@pytest.mark.parametrize(
    ("provider", "name", "key"),
    [
        ("openai", "gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("azure.ai.openai", "gpt-4o", "openai/gpt-4o"),
        ("gcp.gemini", "gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("gcp.vertex_ai", "claude-sonnet-4-6", "google/claude-sonnet-4-6"),
        ("x_ai", "grok-4", "x-ai/grok-4-0709"),
        ("mistral_ai", "mistral-large-2512", "mistral/mistral-large-2512"),
        ("litellm", "anthropic/claude-sonnet-4-6", "anthropic/claude-sonnet-4-6"),
        (None, "GPT-4o", "openai/gpt-4o"),
        ("aws.bedrock", "amazon.nova-pro-v1:0", "aws/amazon.nova-pro-v1:0"),
        ("vllm", "qwen3", None),
        ("openai", "no-such-model", None),
        ("openai", "gpt-5.4-20260305", "openai/gpt-5.4"),
    ],
)
def test_names_of_opentelemetry_are_understood(provider, name, key):
    assert shipped().names.key(provider, name) == key


def test_the_generator_writes_what_is_shipped(tmp_path):
    script = ROOT / "scripts" / "make-prices"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    data = ROOT / "analytics" / "longpole_analytics" / "price_data"
    for name in ("prices", "names"):
        new, old = (pl.read_parquet(folder / f"{name}.parquet") for folder in (tmp_path, data))
        assert new.equals(old)
    assert (tmp_path / "VERSION").read_text() == (data / "VERSION").read_text()
    assert "MIT" in (data / "LICENSE.genai-prices").read_text()
    assert sum(file.stat().st_size for file in data.iterdir()) < 200_000


# --- a user's own prices ------------------------------------------------------------------------
def one(provider="openai", model="gpt-4o", **facts):
    row = {
        "provider": provider,
        "request_model": model,
        "start_ns": ns(MOMENTS[2]),
        "input_tokens": 1_000_000,
        "output_tokens": 0,
        **facts,
    }
    return pl.DataFrame([row])


def cost(text, **facts):
    (row,) = priced(one(**facts), with_overrides(shipped(), text)).to_dicts()
    return row


def test_own_prices_win_and_are_named():
    row = cost('[prices."openai/gpt-4o"]\ninput = 1\noutput = 2\n')
    assert row["cost_usd"] == 1.0
    assert row["price_version"].startswith("genai-prices ")
    assert "longpole.toml" in row["price_version"]


def test_own_prices_hold_for_models_nobody_lists():
    text = '[prices."vllm/qwen-*"]\ninput = 0.05\noutput = 0.1\n'
    assert cost(text, provider="vllm", model="Qwen-3-8b")["cost_usd"] == pytest.approx(0.05)
    assert cost(text, provider="vllm", model="llama")["cost_problem"] == "unknown_model"


def test_own_prices_have_tiers_thresholds_periods_and_hours():
    text = """
[[prices."openai/gpt-4o"]]
valid_from = 2026-11-01
input = 3
[[prices."openai/gpt-4o"]]
service_tier = "scale"
above_tokens = 500000
input = 7
output = 8
[[prices."openai/gpt-4o"]]
service_tier = "night"
hours_utc = "22:00-06:00"
input = 4
output = 4
"""
    assert cost(text)["cost_usd"] == 3.0
    assert cost(text, start_ns=ns(MOMENTS[0]))["cost_usd"] == 2.5  # the shipped price
    assert cost(text, service_tier="scale")["cost_usd"] == 7.0
    assert cost(text, service_tier="scale", input_tokens=100)["cost_problem"] is not None
    assert cost(text, service_tier="night")["cost_problem"] == "no_price_at_that_time"
    late = ns(datetime(2026, 11, 20, 23, 0, tzinfo=UTC))
    assert cost(text, service_tier="night", start_ns=late)["cost_usd"] == 4.0


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[prices."openai/gpt-4o"]\ninput = 1\noutptu = 2\n', 3, "outptu"),
        ('[prices."openai/gpt-4o"]\ninput = "1"\n', 2, "input"),
        ('[prices."openai/gpt-4o"]\ninput = -1\n', 2, "input"),
        ('[prices."openai/gpt-4o"]\ninput = nan\n', 2, "input"),
        ('[prices."openai/gpt-4o"]\ninput = true\n', 2, "input"),
        ('\n\n[prices."gpt-4o"]\ninput = 1\n', 3, "provider"),
        ('[prices."a/b"]\ninput = 1\ncurrency = "EUR"\n', 3, "currency"),
        ('[prices."a/b"]\nhours_utc = "25:00-02:00"\ninput = 1\n', 2, "hours_utc"),
        ('[prices."a/b"]\nvalid_from = "2026"\ninput = 1\n', 2, "valid_from"),
        ('[prices."a/b"]\nservice_tier = "flex"\n', 1, "names no price"),
        ('[prices."a/b"]\nabove_tokens = 0.5\ninput = 1\n', 2, "above_tokens"),
    ],
)
def test_a_bad_price_is_refused_with_line_and_key(text, line, words):
    with pytest.raises(UsageError, match=words) as caught:
        with_overrides(shipped(), text)
    assert f"line {line}:" in str(caught.value)


def test_a_half_edited_file_leaves_the_last_good_prices_in_force():
    good = with_overrides(shipped(), '[prices."openai/gpt-4o"]\ninput = 1\noutput = 2\n')
    same, problem = renewed(good, '[prices."openai/gpt-4o"]\ninput = \n')
    assert same is good
    assert "line 2" in problem
    new, problem = renewed(good, '[prices."openai/gpt-4o"]\ninput = 9\noutput = 2\n')
    assert problem is None
    assert new.own_version != good.own_version
