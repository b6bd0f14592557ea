"""Quantiles from the store agree with the analytics' definition."""

import random

import duckdb
import pytest

from longpole_analytics import stats
from longpole_dashboard.model import quantiles
from longpole_dashboard.model.quantiles import P50, P99, Quantile


def computed(values: list[float | None], per_mille: int) -> Quantile:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (v DOUBLE)")
    connection.executemany("INSERT INTO t VALUES (?)", [(v,) for v in [*values, None]])
    query = (
        f"WITH lists AS (SELECT {quantiles.sorted_list('v', 'a')} FROM t) "
        f"SELECT {quantiles.columns('a', per_mille)} FROM lists"
    )
    row = connection.sql(query).to_arrow_table().to_pylist()[0]
    connection.close()
    return quantiles.read(row, "a", per_mille)


@pytest.mark.parametrize("n", [1, 2, 19, 20, 100, 999, 1_000])
@pytest.mark.parametrize("per_mille", [P50, 950, P99])
def test_a_quantile_is_the_element_of_nearest_rank(n: int, per_mille: int) -> None:
    values: list[float | None] = [float(v) for v in random.Random(n).sample(range(10 * n), n)]
    found = computed(values, per_mille)
    known = [v for v in values if v is not None]
    assert found.value == stats.quantile(known, per_mille / 1000)
    assert (found.n, found.max) == (n, max(known))
    assert found.is_shown == stats.is_shown(n, per_mille / 1000)


@pytest.mark.parametrize(("n", "per_mille"), [(20, P50), (200, P50), (1_000, P99), (1_500, P99)])
def test_its_interval_is_within_one_rank_of_the_exact_one(n: int, per_mille: int) -> None:
    found = computed([float(v) for v in range(1, n + 1)], per_mille)
    low, high = stats.rank_interval(n, per_mille / 1000)
    assert low is not None
    assert high is not None
    assert found.low == pytest.approx(low, abs=1)
    assert found.high == pytest.approx(high, abs=1)


def test_no_value_is_unknown() -> None:
    assert computed([], P50) == Quantile(P50, 0, None, None, None, None)
    assert quantiles.read(None, "a", P99).n == 0


def test_a_percentile_without_its_samples_gives_way_to_the_maximum() -> None:
    found = computed([float(v) for v in range(999)], P99)
    assert not found.is_shown
    assert found.tail == 998.0


def test_a_change_is_decided_only_when_the_intervals_are_apart() -> None:
    before = Quantile(P50, 100, 100.0, 95.0, 105.0, 200.0)
    near = Quantile(P50, 100, 104.0, 99.0, 109.0, 200.0)
    far = Quantile(P50, 100, 150.0, 140.0, 160.0, 200.0)
    few = Quantile(P50, 19, 150.0, 140.0, 160.0, 200.0)
    assert quantiles.change(near, before) == (pytest.approx(0.04), False)
    assert quantiles.change(far, before) == (pytest.approx(0.5), True)
    assert quantiles.change(before, far) == (pytest.approx(-1 / 3), True)
    assert quantiles.change(few, before) is None
