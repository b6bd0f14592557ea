"""Predictions from made requests, whose outcome is known by arithmetic."""

import numpy as np
import polars as pl
import pytest

from longpole_dashboard.lab.whatif import (
    Known,
    Quantile,
    fewer_input_tokens,
    fewer_output_tokens,
    other_rate,
    shorter,
)


def known(**columns):
    return Known(pl.DataFrame(columns), None, {})


def test_half_the_output_tokens_take_half_the_decoding() -> None:
    side = known(e2e_ms=[110.0, 210.0], output_tokens=[11, 21], later_decode_ms=[100.0, 200.0])
    found = fewer_output_tokens(0.5)(side)
    assert found == pytest.approx([110 - 100 * (1 - 5 / 10), 210 - 200 * (1 - 9 / 20)])


def test_fewer_input_tokens_save_along_the_line_of_prefill() -> None:
    uncached = np.arange(100, 200, 4)
    side = known(
        e2e_ms=(500 + 0.5 * uncached).tolist(),
        input_tokens=(uncached + 50).tolist(),
        cached_input_tokens=[50] * len(uncached),
        prefill_ms=(10 + 0.5 * uncached).tolist(),
    )
    assert fewer_input_tokens(0.5)(side) == pytest.approx(500 + 0.25 * uncached)


def test_a_stage_saves_no_more_than_it_takes() -> None:
    side = known(e2e_ms=[300.0, 300.0], network_ms=[200.0, 20.0])
    assert shorter("network_ms", 150.0)(side) == pytest.approx([150.0, 280.0])


def test_arrivals_twice_as_far_apart_no_longer_wait_for_one_server() -> None:
    ms = 1_000_000
    side = known(
        start_ns=[0, 50 * ms, 100 * ms],
        e2e_ms=[100.0, 150.0, 200.0],
        queue_ms=[0.0, 50.0, 100.0],
        prefill_ms=[40.0] * 3,
        first_decode_ms=[0.0] * 3,
        later_decode_ms=[60.0] * 3,
    )
    assert other_rate(1.0, servers=1)(side) == pytest.approx([100.0, 150.0, 200.0])
    assert other_rate(0.5, servers=1)(side) == pytest.approx([100.0] * 3)
    assert other_rate(1.0, servers=3)(side) == pytest.approx([100.0] * 3)


def test_an_error_is_a_share_of_what_was_measured() -> None:
    assert Quantile(0.5, 300.0, 115.0, 100.0).error == pytest.approx(0.15)
    assert Quantile(0.5, 300.0, 114.0, 100.0).is_near
    assert not Quantile(0.5, 300.0, 116.0, 100.0).is_near
    assert Quantile(0.95, 300.0, 76.0, 100.0).is_near
