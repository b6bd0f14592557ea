"""Bad input to the shapes: an answer or a sentence, never an exception or a wrong number."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analytics.population_generator import populations

from longpole_analytics.requests import from_flat
from longpole_analytics.shapes import shapes_of
from longpole_analytics.shapes.base import NAMES

NUMBERS = (
    "ttft_ms",
    "e2e_ms",
    "tpot_ms",
    "queue_ms",
    "prefill_ms",
    "tool_ms",
    "retry_ms",
    "client_ms",
    "in_flight",
)
TOKENS = ("input_tokens", "output_tokens", "cached_tokens")


def told(base, current, by=()):
    found = shapes_of(from_flat(base), from_flat(current), by)
    for shape in found:
        json.dumps(shape.document(), allow_nan=False)
        assert shape.name in (*NAMES, None)
        if shape.name is None:
            assert "too few samples" in shape.sub_cause
    return found


def plain(n, **columns):
    return pl.DataFrame({"ttft_ms": np.full(n, 100.0), "e2e_ms": np.full(n, 900.0)}).with_columns(
        **{name: pl.lit(value) for name, value in columns.items()}
    )


@pytest.mark.parametrize("n", range(8))
def test_tiny_samples_get_a_sentence_or_an_answer(n: int) -> None:
    (found,) = told(plain(300), plain(n))
    assert found.name is None if n < 6 else found.name == "normal"
    (found,) = told(plain(n), plain(300))
    assert found.name is None if n < 6 else found.name == "normal"


def test_nothing_at_all_is_no_slice() -> None:
    assert told(plain(0), plain(0), ["route"]) == []


def test_a_slice_on_one_side_only_has_too_few_samples() -> None:
    shapes = told(plain(50, route="a"), plain(50, route="b"), ["route"])
    assert [(s.where, s.name) for s in shapes] == [({"route": "a"}, None), ({"route": "b"}, None)]


def test_unknown_values_of_a_dimension_are_a_slice_of_their_own() -> None:
    frame = pl.concat([plain(30, route="a"), plain(30).with_columns(route=pl.lit(None, pl.String))])
    assert [s.where for s in told(frame, frame, ["route"])] == [
        {"route": None},
        {"route": "a"},
    ]


@pytest.mark.parametrize("value", [None, 0.0, -5.0, float("nan"), float("inf"), 7.0])
def test_a_column_of_one_bad_value_leaves_an_answer(value: float | None) -> None:
    frame, _ = populations(1, per_label=1, n=(80, 80))
    few = frame.filter(pl.col("slice_id") % 5 == 3)
    for column in NUMBERS:
        bad = few.with_columns(pl.lit(value, pl.Float64).alias(column))
        sides = [bad.filter(pl.col("period") == period) for period in (0, 1)]
        assert len(told(*sides, ["slice_id"])) == 3
        assert len(told(sides[0], few.filter(pl.col("period") == 1), ["slice_id"])) == 3


def test_all_null_metrics_are_too_few_samples() -> None:
    empty = pl.DataFrame({"e2e_ms": pl.Series([None] * 90, dtype=pl.Float64)})
    (found,) = told(empty, empty)
    assert found.name is None


def test_constants_are_normal_and_a_doubled_constant_is_not() -> None:
    assert told(plain(300), plain(300))[0].name == "normal"
    assert told(plain(300), plain(300, ttft_ms=2000.0))[0].name == "high_ttft_opaque"


def test_a_dimension_that_is_unique_per_row_is_all_too_few() -> None:
    frame = plain(20_000).with_row_index("user").with_columns(pl.col("user").cast(pl.String))
    assert {s.name for s in told(frame, frame, ["user"])} == {None}


WILD = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True), st.sampled_from((0.0, -1.0, 1e300))
)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_wild_tables_never_raise(data) -> None:
    def side():
        n = data.draw(st.integers(0, 90))
        seed = np.random.default_rng(data.draw(st.integers(0, 99)))
        columns = {}
        for name in data.draw(st.sets(st.sampled_from(NUMBERS))):
            pool = data.draw(st.lists(WILD, min_size=1, max_size=6))
            columns[name] = pl.Series(
                [pool[i] for i in seed.integers(0, len(pool), n)], dtype=pl.Float64
            )
        for name in data.draw(st.sets(st.sampled_from(TOKENS))):
            columns[name] = pl.Series(seed.integers(-2, 9, n), dtype=pl.Int64)
        return pl.DataFrame({"route": ["r"] * n, **columns})

    base, current = side(), side()
    found = told(base, current, ["route"])
    is_there = base.height + current.height > 0
    assert [shape.where for shape in found] == ([{"route": "r"}] if is_there else [])
    if min(base.height, current.height) < 6:
        assert {shape.name for shape in found} <= {None}
