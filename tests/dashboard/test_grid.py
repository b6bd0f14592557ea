"""Stretches of time begin when the page's clock says so, also where clocks are changed."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Stage
from longpole_collector.stores.minutes import refresh
from longpole_dashboard.figures.overview import stage_area
from longpole_dashboard.model import overview
from longpole_dashboard.model.clock import SECOND_NS, Clock, axis
from longpole_dashboard.model.grid import grid
from longpole_dashboard.model.sampled import whole
from longpole_dashboard.model.window import Filters

from .conftest import MemoryStore
from .sample import T0, workflow

HOUR, DAY = 3_600, 86_400
ZONES = (
    *("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "Asia/Kathmandu"),
    *("Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Pacific/Apia"),
)
"""The last ones: half an hour, midnight twice, no midnight, and a day left out (in 2011)."""


def ns(zone: str, *said: int) -> int:
    """The first moment at which a zone's clocks show that."""
    return int(datetime(*said, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND_NS


def days(zone: str, first_ns: int, num: int) -> list[int]:
    """Where ``num`` days begin, from the one of the moment."""
    found = grid(Clock(zone), DAY, first_ns, first_ns + num * DAY * SECOND_NS)
    number = found.number_of(first_ns)
    return [found.start_ns(number + each) for each in range(num)]


def test_a_day_in_new_york_is_as_long_as_the_clocks_make_it() -> None:
    zone = "America/New_York"
    for month, day, hours in ((3, 8, 23), (11, 1, 25)):  # clocks are changed on this day of 2026
        found = days(zone, ns(zone, 2026, month, day, 12), 3)
        assert found[0] == ns(zone, 2026, month, day)
        assert found[1] == ns(zone, 2026, month, day + 1)
        assert (found[1] - found[0]) // SECOND_NS == hours * HOUR
        assert (found[2] - found[1]) // SECOND_NS == 24 * HOUR


def test_a_day_in_india_begins_at_its_midnight() -> None:
    found = days("Asia/Kolkata", T0, 4)
    assert [axis(at)[11:] for at in found] == ["18:30:00"] * 4
    assert found[0] == ns("Asia/Kolkata", 2026, 9, 14)


def test_a_day_without_midnight_and_one_that_has_it_twice_begin_once() -> None:
    cairo, havana = "Africa/Cairo", "America/Havana"
    spring = ns(cairo, 2026, 4, 24, 12)  # the clocks go from 0:00 to 1:00
    assert days(cairo, spring, 1) == [ns(cairo, 2026, 4, 24, 1)]
    autumn = ns(havana, 2026, 11, 1, 12)  # and there from 1:00 back to 0:00
    first, second = days(havana, autumn, 2)
    assert first == ns(havana, 2026, 11, 1)
    assert (second - first) // SECOND_NS == 25 * HOUR


def test_an_hour_that_comes_twice_is_two_hours() -> None:
    zone = "America/New_York"
    start = ns(zone, 2026, 11, 1)
    found = grid(Clock(zone), HOUR, start, start + DAY * SECOND_NS)
    number = found.number_of(start)
    begins = [found.start_ns(number + each) for each in range(26)]
    assert [(at - start) // SECOND_NS for at in begins] == [each * HOUR for each in range(26)]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from((1, 60, 900, 1_800, HOUR, 2 * HOUR, 12 * HOUR, DAY, 7 * DAY)),
    st.datetimes(datetime(2005, 1, 1), datetime(2034, 1, 1)),  # noqa: DTZ001
    st.integers(0, 400 * DAY),
)
def test_every_moment_lies_in_its_stretch(
    zone: str, width_s: int, at: datetime, length_s: int
) -> None:
    at_ns = int(at.replace(tzinfo=UTC).timestamp()) * SECOND_NS
    found = grid(Clock(zone), width_s, at_ns - length_s * SECOND_NS, at_ns)
    number = found.number_of(at_ns)
    assert found.start_ns(number) <= at_ns < found.start_ns(number + 1)
    begin = found.start_ns(number) // SECOND_NS
    offsets = {datetime.fromtimestamp(begin - n, ZoneInfo(zone)).utcoffset() for n in (0, 1)}
    shown = datetime.fromtimestamp(begin, ZoneInfo(zone)).replace(tzinfo=UTC).timestamp()
    assert shown % width_s == 0 or len(offsets) == 2  # or the clocks are changed just then


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_bins_of_days_hold_the_days_of_the_clock(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    begins = [ns(zone, 2026, 10, 31), *(ns(zone, 2026, 11, day) for day in (1, 2, 3))]
    half_ns = HOUR * SECOND_NS // 2
    moments = [at for day, end in pairwise(begins) for at in (day, day + half_ns, end - half_ns)]
    store.add(
        [
            span
            for number, at in enumerate(moments, 1)
            for span in workflow(number, at_s=(at - T0) / SECOND_NS, stages={Stage.TOOL: 50.0})
        ]
    )
    filters, clock = Filters(begins[0], begins[-1]), Clock(zone)
    found = overview.stage_bins(filters, DAY, whole(len(moments)), clock, store).bins
    assert [(each.start_ns, each.num_traces) for each in found] == [(at, 3) for at in begins[:-1]]
    assert [each.end_ns for each in found] == begins[1:]
    bars = stage_area(found, clock).data[0]
    assert list(bars.width) == [(end - at) / 1e6 for at, end in pairwise(begins)]
    refresh(store, begins[-1] + DAY * SECOND_NS)  # the same from what is counted by the minute
    monkeypatch.setattr(overview, "MAX_BINNED", 1)
    counted = overview.stage_bins(filters, DAY, whole(len(moments)), clock, store)
    assert not counted.is_sample
    assert counted.bins == found
