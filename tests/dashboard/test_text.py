"""How numbers become text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_dashboard.model import text

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "—"),
        (0.0, "0 ms"),
        (0.01234, "0.0123 ms"),
        (9.996, "10.0 ms"),
        (332.4, "332 ms"),
        (5844.0, "5,840 ms"),
        (9_999.4, "10,000 ms"),
        (13_600.0, "13.6 s"),
        (-12.5, "-12.5 ms"),
        (4_000_000.0, "4,000 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ms: float | None, shown: str) -> None:
    assert text.duration(ms) == shown


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_three_significant_digits_are_within_half_a_percent(value: float) -> None:
    assert float(text.significant(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_a_range_is_in_the_unit_of_its_upper_end() -> None:
    assert text.span_of(320, 345) == "320 to 345 ms"
    assert text.span_of(9_000, 12_000) == "9.00 to 12.0 s"


def test_unknown_is_a_dash_never_zero() -> None:
    assert text.count(None) == text.percent(None) == text.utc(None) == "—"
    assert text.count(0) == "0"
    assert text.percent(0.0) == "0.0 %"


def test_time_is_utc_whatever_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert text.utc(1_789_392_600 * SECOND) == "2026-09-14 13:30:00"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s"), (12, "12 s"), (300, "5 min"), (7_300, "2 h"), (200_000, "2 d")],
)
def test_age_is_in_one_unit(seconds: int, shown: str) -> None:
    assert text.ago(0, seconds * SECOND) == shown
