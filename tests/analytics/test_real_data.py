"""What public data say, by our functions: every number of ``real_data.json``."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from longpole_analytics.cache.replay import replayed
from longpole_analytics.queueing import variation2
from longpole_analytics.requests import from_flat
from longpole_analytics.risk import Tally, risk_ratios
from longpole_analytics.stats import interval, quantile

DATA = Path(__file__).parent / "data"
TRUTH = json.loads((DATA / "real_data.json").read_text())
TTLS_S = (60, 300, 3600)


@pytest.mark.parametrize("name", ["mooncake_conversation", "mooncake_synthetic"])
def test_an_ideal_cache_would_have_hit_so_much(name):
    table, truth = pl.read_parquet(DATA / f"{name}.parquet"), TRUTH[name]
    assert table.height == truth["requests"]
    assert table["input_tokens"].sum() == truth["input_tokens"]
    found = replayed(table, TTLS_S)
    shares = {f"ttl_{each.ttl_s:g}s": each.hit_token_share for each in found}
    assert shares == pytest.approx(truth["hit_token_share"], abs=1e-6)
    assert found[1].requests_with_hit == truth["requests_with_hit_300s"]


@pytest.mark.parametrize("name", ["code", "conv"])
def test_arrivals_and_lengths_of_an_assistant_and_of_a_chat(name):
    table, truth = pl.read_parquet(DATA / f"azure_llm_2023_{name}.parquet"), TRUTH[f"azure_{name}"]
    assert table.height == truth["rows"]
    for kind in ("input", "output"):
        lengths = table[f"{kind}_tokens"].to_list()
        for q, tokens in truth[f"{kind}_disc"].items():
            assert quantile(lengths, float(q)) == tokens
    gaps = np.diff(table["t_s"].to_numpy())
    assert 1 / gaps.mean() == pytest.approx(truth["mean_rate_per_s"], rel=1e-6)
    assert variation2(gaps) == pytest.approx(truth["interarrival_cv2"], rel=1e-3)


@pytest.mark.parametrize("name", TRUTH["llmperf"])
def test_times_of_providers_that_clients_measured(name):
    provider, size = name.split("/")
    truth, table = TRUTH["llmperf"][name], pl.read_csv(DATA / "llmperf_2023_requests.csv")
    rows = table.filter((pl.col("provider") == provider) & (pl.col("size") == size))
    answered = rows.filter(pl.col("error_code").is_null())
    assert (rows.height, answered.height) == (truth["requests"], truth["ok"])
    requests = from_flat(
        answered.select(
            "output_tokens",
            ttft_ms=1000 * pl.col("ttft_s"),
            later_decode_ms=1000 * (pl.col("e2e_s") - pl.col("ttft_s")),
        )
    )
    for metric in ("ttft", "tpot"):
        seconds = (requests[f"{metric}_ms"] / 1000).to_list()
        for q, value in truth[f"{metric}_disc"].items():
            assert quantile(seconds, float(q)) == pytest.approx(value, abs=1e-6)
    ttft = (requests["ttft_ms"] / 1000).to_list()
    assert interval(ttft, 0.95) == pytest.approx(truth["ttft_p95_ci"], abs=1e-6)


@pytest.mark.parametrize("name", TRUTH["tail_attribution"]["slices"])
def test_slices_of_slow_requests(name):
    """Strata are the tenths of the prompts' lengths, each with its upper end."""
    truth, table = TRUTH["tail_attribution"], pl.read_parquet(DATA / "tail_attribution.parquet")
    limit = quantile(table["e2e_ms"].to_list(), 0.95)
    assert limit == truth["slow_threshold_p95_ms"]
    where = {"ap&p16": {"region": "ap", "prompt_version": "p16"}}.get(name)
    where = where or dict([name.split("=")])
    inside = pl.all_horizontal(pl.col(column) == value for column, value in where.items())
    is_in = table.select(inside.alias("is_in"))["is_in"].to_numpy()
    is_slow = table["e2e_ms"].to_numpy() > limit
    length = table["input_tokens"].to_numpy()
    tenth = np.searchsorted(np.quantile(length, np.arange(1, 10) / 10), length)

    def counted(chosen):
        cases, num = (
            np.bincount(tenth[rows], minlength=10).astype(float)[None]
            for rows in (chosen & is_slow, chosen)
        )
        return Tally(cases, num, cases.sum(1), num.sum(1))

    found = risk_ratios(counted(is_in), counted(np.ones_like(is_in)))
    expected = truth["slices"][name]
    assert int(is_in.sum()) == expected["n"]
    assert int((is_in & is_slow).sum()) == expected["slow"]
    assert (is_in & is_slow).sum() / is_slow.sum() == pytest.approx(expected["share_of_slow"], 1e-3)
    assert found.crude[0] == pytest.approx(expected["risk_ratio"], abs=1e-4)
    adjusted = expected["risk_ratio_mh_by_input_decile"]
    assert found.estimate[0] == pytest.approx(adjusted, abs=1e-4)
