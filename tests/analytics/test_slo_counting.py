"""Many objectives counted at once are each counted as by themselves."""

import random

import numpy as np
import polars as pl
import pytest

from longpole.errors import BadInput
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.slo.counting import counted
from longpole_analytics.slo.objectives import from_tables
from longpole_analytics.slo.series import minute_series

TABLES = {
    "a": {"metric": "ttft_ms", "threshold": 2000, "target": 0.99, "period": "30d"},
    "b": {"metric": "availability", "target": 0.9, "period": "30d", "cancelled": "bad"},
    "c": {"metric": "e2e_ms", "threshold": 700, "target": 0.9, "period": "1d"},
    "d": {"metric": "quality", "threshold": 0.5, "target": 0.9, "period": "1d"},
    "e": {"metric": "accepted", "target": 0.9, "period": "1d", "cancelled": "excluded"},
}


def table(seed, num=400):
    dice = random.Random(seed)
    maybe = lambda *values: dice.choice([None, *values])  # noqa: E731
    return pl.DataFrame(
        [
            {
                "start_ns": maybe(*(dice.randrange(-2, 14) * MINUTE_NS + 5 for _ in range(9))),
                "ttft_ms": maybe(10.0, 2000.0, 2001.0, float("nan")),
                "e2e_ms": maybe(100.0, 900.0),
                "quality": maybe(0.1, 0.5),
                "outcome": maybe("accepted", "rejected", "failed"),
                "stream_state": maybe("completed", "closed_early", "error"),
                "weight": maybe(1.0, 2.5, 0.1, float("nan")),
                "route": maybe("x", "y"),
            }
            for _ in range(num)
        ],
        infer_schema_length=None,
    )


@pytest.mark.parametrize("seed", range(4))
def test_all_at_once_is_each_by_itself(seed):
    requests, objectives = table(seed), from_tables(TABLES)
    own = [None, *(np.array([(row * 7 + n) % 3 > 0 for row in range(400)]) for n in range(4))]
    found = counted(requests, objectives, own, 0, 10)
    for row, objective in enumerate(objectives):
        ours = requests if own[row] is None else requests.filter(pl.Series(own[row]))
        alone = minute_series(ours.filter(pl.col("start_ns") >= 0), objective, 0, 10)
        assert found[row, :, 0].tolist() == alone.bad_e6.tolist()
        assert found[row, :, 1].tolist() == alone.total_e6.tolist()
        assert found[row, :, 2].tolist() == alone.num_bad.tolist()
        assert found[row, :, 3].sum() == alone.num_left_out


def test_no_request_is_nothing():
    assert not counted(table(1).clear(), from_tables(TABLES), [None] * 5, 0, 3).any()


def test_a_weight_below_zero_is_refused():
    requests = table(1).with_columns(weight=pl.lit(-1.0))
    with pytest.raises(BadInput, match="weight"):
        counted(requests, from_tables(TABLES), [None] * 5, 0, 3)
