"""Rolled up values: buckets, merging, quantiles within 1 %, weights."""

import json
import math
import random
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_analytics import stats
from longpole_analytics.minutes import (
    MINUTE_NS,
    bucket,
    estimate,
    mean_ms,
    merge,
    roll_up,
)
from longpole_collector.stores.views import macros

DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "quantiles.json").read_text())
SAMPLES = [
    *sorted(DATA.glob("*.parquet")),
    *sorted(DATA.glob("*.csv")),
    Path(__file__).parents[2] / "sample_data" / "demo.parquet",
]
QUANTILES = (0.5, 0.9, 0.95, 0.99)


def frame(values, **columns):
    starts = [number * 7 * 10**9 for number in range(len(values))]
    values = [None if value is None else float(value) for value in values]
    kinds = {"start_ns": pl.Int64, "ttft_ms": pl.Float64}
    return pl.DataFrame({"start_ns": starts, "ttft_ms": values, **columns}, schema_overrides=kinds)


def edges():
    """Values at, just below and just above the edges of buckets, and ordinary ones."""
    source = random.Random(3)
    at = [stats.BUCKET_GAMMA**k for k in range(-400, 1200, 7)]
    near = [math.nextafter(value, to) for value in at for to in (0.0, math.inf)]
    return [*at, *near, *(math.exp(source.uniform(-9, 20)) for _ in range(5000)), 0.0, -1.0, 1e-9]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"n={len(case['values'])}")
def test_vectors_are_exact(case):
    rows = merge([roll_up(frame(case["values"]), ["ttft_ms"])], by=[])
    for q, of_bucket in case["expect"]["logbucket_alpha_0_01"].items():
        found = estimate(rows, float(q))
        assert found.value == pytest.approx(of_bucket["value"], rel=1e-6)
        assert found.n == len(case["values"])
        ci = case["expect"]["ci95"][q]
        for ours, exact, is_low in ((found.low, ci["low"], True), (found.high, ci["high"], False)):
            assert (ours is None) == (exact is None)
            if exact is not None:
                assert (ours < exact or math.isclose(ours, exact)) if is_low else ours >= exact
                assert ours == pytest.approx(exact, rel=0.021)


def test_the_three_ways_to_a_bucket_agree():
    values = edges()
    truth = [stats.bucket(value) for value in values]
    table = pl.DataFrame({"x": values})
    assert table.select(bucket("x"))["bucket"].to_list() == truth
    with duckdb.connect() as con:
        con.execute(macros())
        con.register("t", table.to_arrow())
        found = con.sql("SELECT log_bucket(x) AS b, log_value(b) AS v FROM t").fetchall()
    assert [row[0] for row in found] == truth
    for b, value in found:
        assert value is None if b is None else value == pytest.approx(stats.bucket_value(b))


def columns_of_data():
    for path in SAMPLES:
        table = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
        for name, kind in table.schema.items():
            if kind.is_numeric() and name.endswith(("_s", "_ms", "_ns", "_tokens")):
                values = [float(v) for v in table[name].drop_nulls().to_list() if 0 < v < 1e12]
                if values:
                    yield pytest.param(values, id=f"{path.stem}-{name}")


@pytest.mark.parametrize("values", list(columns_of_data()))
def test_a_quantile_is_within_one_percent_of_the_exact_one(values):
    rows = roll_up(frame(values), ["ttft_ms"])
    for q in QUANTILES:
        assert estimate(rows, q).value == pytest.approx(stats.quantile(values, q), rel=0.0100001)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_a_quantile_of_a_heavy_tail_too(spread):
    values = np.random.default_rng(1).lognormal(5, spread, 20_000).tolist()
    rows = roll_up(frame(values), ["ttft_ms"])
    for q in (*QUANTILES, 0.999, 0.01):
        assert estimate(rows, q).value == pytest.approx(stats.quantile(values, q), rel=0.0100001)


def test_shards_merge_to_the_same_rows_bit_by_bit():
    source = random.Random(5)
    table = frame(
        [source.expovariate(0.01) for _ in range(5000)],
        route=[source.choice(["a", "b", None]) for _ in range(5000)],
        weight=[source.choice([1.0, 1 / 0.3, 20.0, None]) for _ in range(5000)],
    )
    whole = roll_up(table, ["ttft_ms"], ["route"])
    for num in (1, 7, 60):
        shard = pl.Series(source.choices(range(num), k=table.height))
        parts = [roll_up(table.filter(shard == k), ["ttft_ms"], ["route"]) for k in range(num)]
        source.shuffle(parts)
        assert merge(parts).equals(whole)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=120),
    st.sampled_from(QUANTILES),
    st.integers(1, 5),
)
def test_a_weight_counts_as_so_many_values(values, q, weight):
    weighted = roll_up(frame(values, weight=[weight] * len(values)), ["ttft_ms"])
    repeated = roll_up(frame(values * weight), ["ttft_ms"])
    once = estimate(weighted, q)
    assert once.weight == len(values) * weight
    assert once.n == len(values)
    assert once.value == estimate(repeated, q).value
    # as many were seen as without weights, so as much is known
    plain = estimate(roll_up(frame(values), ["ttft_ms"]), q)
    assert (once.low, once.high) == (plain.low, plain.high)


def test_weights_undo_uneven_sampling():
    """All slow requests kept and one in twenty of the others: the true median is a fast one."""
    values = [10.0] * 50 + [1000.0] * 100
    weights = [20.0] * 50 + [1.0] * 100
    rows = roll_up(frame(values, weight=weights), ["ttft_ms"])
    assert estimate(rows, 0.5).value == pytest.approx(10, rel=0.01)
    assert estimate(rows, 0.95).value == pytest.approx(1000, rel=0.01)
    assert mean_ms(rows) == (10 * 1000 + 1000 * 100) / 1100


def test_a_minute_is_a_row_of_its_own_and_sums_are_exact():
    table = frame([1.0, 2.0, 0.1, 0.2, 0.3]).with_columns(
        start_ns=pl.Series([0, MINUTE_NS - 1, MINUTE_NS, MINUTE_NS, MINUTE_NS])
    )
    rows = roll_up(table, ["ttft_ms"])
    by_minute = rows.group_by("start_ns").agg(pl.col("num", "sum_ns").sum()).sort("start_ns")
    assert by_minute.rows() == [(0, 2, 3_000_000), (MINUTE_NS, 3, 600_000)]


def test_what_is_no_value_is_left_out_and_zero_is_counted_apart():
    values = [None, math.nan, math.inf, -math.inf, 1e300, 0.0, -5.0, 7.0]
    rows = roll_up(frame(values), ["ttft_ms"])
    assert rows["num"].sum() == 3
    assert rows.filter(pl.col("bucket").is_null())["num"].to_list() == [2]
    assert estimate(rows, 0.5).value == 0.0
    assert estimate(rows, 0.99).value == pytest.approx(7, rel=0.01)


def test_nothing_has_no_quantile():
    for table in (frame([]), frame([None, None])):
        rows = roll_up(table, ["ttft_ms"])
        assert rows.height == 0
        assert estimate(rows, 0.5) is None
        assert mean_ms(rows) is None
        assert merge([rows, rows]).height == 0


def test_what_cannot_be_rolled_up_is_told():
    with pytest.raises(BadInput, match="no column e2e_ms"):
        roll_up(frame([1.0]), ["e2e_ms"])
    with pytest.raises(BadInput, match="weight"):
        roll_up(frame([1.0], weight=[-1.0]), ["ttft_ms"])


def test_order_statistics_of_many_values_are_where_the_binomial_has_them(monkeypatch):
    for n, q in ((50_000, 0.5), (200_000, 0.9), (300_000, 0.99)):
        exact = stats.rank_interval(n, q)
        monkeypatch.setattr(stats, "_EXACT_VARIANCE", 0)
        fast = stats.rank_interval.__wrapped__(n, q)
        monkeypatch.undo()
        assert abs(fast.low_rank - exact.low_rank) <= 2
        assert abs(fast.high_rank - exact.high_rank) <= 2
