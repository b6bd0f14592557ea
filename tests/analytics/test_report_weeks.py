"""Weeks and schedules: the zone's own, through days of 23 and 25 hours."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import UsageError
from longpole_analytics.report.weeks import (
    earlier,
    iso,
    last_week,
    moment,
    nanoseconds,
    schedule,
    week,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_NS = 3600 * 10**9
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]


def at(text, tz="Europe/Berlin"):
    return nanoseconds(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)))


@pytest.mark.parametrize(
    ("name", "hours"), [("2026-W13", 167), ("2026-W14", 168), ("2026-W43", 169), ("2026-W44", 168)]
)
def test_a_week_with_a_change_of_clocks_is_an_hour_off(name, hours):
    found = week(name, "Europe/Berlin")
    assert found.until_ns - found.since_ns == hours * HOUR_NS
    days = found.days()
    assert len(days) == 7
    assert sum(day.until_ns - day.since_ns for day in days) == hours * HOUR_NS
    assert {(d.until_ns - d.since_ns) // HOUR_NS for d in days} == {24, 24 + hours - 168}


def test_the_53rd_week_and_the_turn_of_the_year():
    found = week("2026-W53", "UTC")
    assert (iso(found.since_ns), iso(found.until_ns)) == (
        "2026-12-28T00:00:00Z",
        "2027-01-04T00:00:00Z",
    )
    assert earlier(week("2027-W01", "UTC"), 1) == found
    with pytest.raises(UsageError):
        week("2025-W53", "UTC")


@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.sampled_from(ZONES),
)
def test_the_last_week_ends_before_a_moment_and_less_than_a_week_before(when, tz):
    now_ns = nanoseconds(when.replace(tzinfo=UTC))
    found = last_week(now_ns, tz)
    assert found.until_ns <= now_ns < found.until_ns + 7 * 24 * HOUR_NS + HOUR_NS
    assert found.local(found.since_ns).weekday() == 0
    assert found.local(found.since_ns).strftime("%H:%M") == "00:00"
    assert week(found.week, tz) == found
    assert earlier(found, 1).until_ns == found.since_ns


@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.sampled_from(ZONES),
    st.sampled_from(["mon 07:00", "sun 02:30", "Friday 0:15", "sat 23:59"]),
)
def test_a_schedule_comes_once_a_week_of_the_zone(when, tz, text):
    plan = schedule(f"{text} {tz}", "here")
    now_ns = nanoseconds(when.replace(tzinfo=UTC))
    first = plan.after(now_ns)
    assert first > now_ns
    assert plan.after(first - 1) == first
    second = plan.after(first)
    days = [moment(ns).astimezone(ZoneInfo(tz)).date() for ns in (first, second)]
    assert days[1] - days[0] == timedelta(days=7)
    assert last_week(first, tz) == earlier(last_week(second, tz), 1)


def test_a_time_that_is_left_out_or_comes_twice_comes_once():
    plan = schedule("sun 02:30 Europe/Berlin", "here")
    spring = plan.after(at("2026-03-28T12:00"))
    assert moment(spring) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 03:30 of the new time
    autumn = plan.after(at("2026-10-24T12:00"))
    assert moment(autumn) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert moment(plan.after(autumn)) == datetime(2026, 11, 1, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "mon", "mon 7", "mon 24:00", "moon 07:00", "mon 07:00 A B"])
def test_what_is_no_schedule_is_a_sentence(text):
    with pytest.raises(UsageError, match="write a day, a time and a zone"):
        schedule(text, "[report] schedule")


def test_a_zone_that_is_none_is_a_sentence():
    for name in ("Mars/Olympus", "../../etc/passwd", ""):
        with pytest.raises(UsageError):
            schedule(f"mon 07:00 {name or 'x y'}", "[report] schedule")
