"""The bar's address: read back as written, and followed as far as it can be, whatever it holds."""

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_dashboard.model.box import Box, read_box
from longpole_dashboard.model.clock import LAST_NS, Clock, axis
from longpole_dashboard.model.heatmap import METRICS
from longpole_dashboard.model.selection import (
    NAMES,
    RANGES,
    Known,
    Selection,
    read,
    resolve,
    write,
)
from longpole_dashboard.model.window import COLUMNS, SECOND_NS, Bounds, Filters, Match

from .sample import T0

NOW = T0 + 30 * 86_400 * SECOND_NS
HOUR_NS = 3_600 * SECOND_NS
HELD = Bounds(T0, NOW, 9, ("chat", "rag"), ("m1",), ("v1", "v2"), ("r1",))
KNOWN = Known(HELD, "1 h", ("default", "other"))
BERLIN = Clock("Europe/Berlin")

matches = st.builds(
    Match,
    st.sampled_from(COLUMNS),
    st.none()
    | st.text(min_size=1).filter(lambda s: "\0" not in s).filter(lambda s: not s.startswith("=")),
    st.booleans(),
)
selections = st.builds(
    Selection,
    choice=st.sampled_from(list(RANGES)),
    route=st.sampled_from([None, "chat", "rag"]),
    model=st.sampled_from([None, "m1"]),
    compare=st.sampled_from(["previous", "week", "prompt_version=v2", "route_version=r1"]),
    where=st.lists(matches, max_size=8, unique=True).map(tuple),
    project=st.sampled_from([None, "default", "other"]),
)


@given(selections, st.integers(0, NOW // 1_000), st.integers(1, 10**9), st.booleans())
def test_an_address_is_read_back_as_it_was_written(
    selected: Selection, start_us: int, length_us: int, is_custom: bool
) -> None:
    if is_custom:
        end_us = start_us + length_us
        selected = replace(
            selected, choice="custom", from_ns=start_us * 1_000, to_ns=end_us * 1_000
        )
    assert read(write(selected, "1 h"), KNOWN, BERLIN) == (selected, ())


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.text(), max_size=12)))
def test_whatever_an_address_holds_it_gives_a_selection(address: dict[str, list[str]]) -> None:
    selected, said = read(address, KNOWN, BERLIN)
    filters = resolve(selected, HELD, NOW, is_recorded=False)
    assert filters.start_ns < filters.end_ns
    assert all(sentence.endswith(".") and "\n" not in sentence[-1] for sentence in said)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ({"range": ["2 y"]}, "range '2 y'"),
        ({"from": ["2026-09-14T15:00:00Z"], "to": ["2026-09-14T13:00:00Z"]}, "ends before"),
        ({"from": ["2026-09-14T15:00:00Z"]}, "two times"),
        ({"from": ["0001-01-01"], "to": ["9999-01-01"]}, "two times"),
        ({"from": ["<b>"], "to": ["' OR 1=1"]}, "two times"),
        ({"route": ["gone"]}, "no route 'gone'"),
        ({"model": ["x" * 500]}, "no model 'xxx"),
        ({"compare": ["prompt_version=v9"]}, "'prompt_version=v9' to compare"),
        ({"compare": ["trace_id=1"]}, "'trace_id=1' to compare"),
        ({"refresh": ["1 s"]}, "refresh '1 s'"),
        ({"tz": ["Mars"]}, "tz 'Mars'"),
        ({"where": ["1=1"]}, "'1=1' is no condition"),
        ({"where": ["route"]}, "'route' is no condition"),
        ({"project": ["secret"]}, "no project 'secret'"),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(address: dict[str, list[str]], says: str) -> None:
    selected, said = read(address, KNOWN, BERLIN)
    assert selected == Selection("1 h")
    assert len(said) == 1
    assert says in said[0]
    assert len(said[0]) < 200


def test_times_without_a_zone_are_utc_in_an_address_and_local_for_a_local_clock() -> None:
    utc, _ = read({"from": ["2026-09-14 13:30"], "to": ["2026-09-14T14:30+00:00"]}, KNOWN, BERLIN)
    assert (utc.from_ns, utc.to_ns) == (T0, T0 + HOUR_NS)
    assert BERLIN.read("2026-09-14 15:30") == T0
    assert BERLIN.text(T0) == "2026-09-14 15:30:00"


def test_a_range_that_does_not_end_now_is_not_refreshed() -> None:
    address = {"from": ["2026-09-14"], "to": ["2026-09-15"], "refresh": ["10 s"]}
    assert read(address, KNOWN, BERLIN)[0].refresh_s is None
    assert read({"refresh": ["10 s"]}, KNOWN, BERLIN)[0].refresh_s == 10
    assert read({"refresh": ["10 s"], "range": ["all"]}, KNOWN, BERLIN)[0].refresh_s is None


@pytest.mark.parametrize("choice", [*RANGES, "nonsense"])
def test_recorded_ranges_end_at_the_last_trace_and_hold_it(choice: str) -> None:
    held = Bounds(T0, T0 + 2 * HOUR_NS, 5, ())
    filters = resolve(Selection(choice), held, NOW, is_recorded=True)
    assert filters.end_ns == T0 + 2 * HOUR_NS + 1
    assert filters.start_ns <= T0 + 2 * HOUR_NS


def test_live_ranges_end_now_and_are_compared_with_the_period_before() -> None:
    selected = Selection("1 h", route="chat", model="m1", where=(Match("outcome", "failed"),))
    filters = resolve(selected, HELD, NOW, is_recorded=False)
    where = (Match("route", "chat"), Match("request_model", "m1"), Match("outcome", "failed"))
    # the newest trace ended now, so the window holds this very moment
    assert (filters.start_ns, filters.end_ns) == (NOW + 1 - HOUR_NS, NOW + 1)
    assert filters.where == where
    assert filters.baseline == Filters(NOW + 1 - 2 * HOUR_NS, NOW + 1 - HOUR_NS, where)
    assert filters.versus == "previous 1 h"


def test_a_comparison_may_be_a_week_back_or_a_version_of_the_same_time() -> None:
    week = resolve(Selection("1 h", compare="week"), HELD, NOW, is_recorded=False)
    assert week.baseline is not None
    assert week.start_ns - week.baseline.start_ns == 7 * 24 * HOUR_NS
    selected = Selection("1 h", compare="prompt_version=v1", where=(Match("prompt_version", "v2"),))
    version = resolve(selected, HELD, NOW, is_recorded=False)
    assert version.versus == "prompt v1"
    assert version.baseline == Filters(
        version.start_ns, version.end_ns, (Match("prompt_version", "v1"),)
    )


def test_there_is_nothing_to_compare_with_before_the_first_trace() -> None:
    held = Bounds(NOW - 60 * SECOND_NS, NOW, 5, ())
    for selected in (Selection("1 h"), Selection("all"), Selection("1 h", compare="week")):
        assert resolve(selected, held, NOW, is_recorded=False).baseline is None


def test_a_span_from_a_clock_ahead_is_still_in_range() -> None:
    held = Bounds(T0, NOW + 5 * SECOND_NS, 5, ())
    ahead = resolve(Selection("1 h"), held, NOW, is_recorded=False)
    assert ahead.end_ns > NOW + 5 * SECOND_NS


def test_two_questions_of_one_selection_are_the_same_while_the_clock_runs() -> None:
    first, second = (
        resolve(Selection("1 h"), HELD, now, is_recorded=False) for now in (NOW, NOW + HOUR_NS)
    )
    assert first != second
    assert first.asked == second.asked is not None
    fixed = Selection("custom", from_ns=T0, to_ns=NOW)
    assert resolve(fixed, HELD, NOW, is_recorded=False).asked is None


def test_ticks_stand_at_round_local_times_also_where_a_day_has_25_hours() -> None:
    start = BERLIN.read("2026-10-25 00:00")
    end = BERLIN.read("2026-10-26 00:00")
    assert start is not None
    assert end is not None
    assert end - start == 25 * HOUR_NS
    at, labels = BERLIN.ticks(start, end)
    assert labels[0].startswith("00:00<br>Oct 25")
    assert [label[:5] for label in labels] == [f"{3 * i:02}:00" for i in range(8)]
    assert at[:2] == ["2026-10-24 22:00:00", "2026-10-25 02:00:00"]


@given(
    st.integers(0, NOW),
    st.one_of(
        st.integers(1, 5 * 10**9), st.integers(1, 400 * 24 * HOUR_NS), st.integers(1, LAST_NS)
    ),
    st.sampled_from([5, 10]),
)
def test_there_are_few_ticks_all_within_and_one_away_from_the_ends(
    start_ns: int, length_ns: int, most: int
) -> None:
    end_ns = min(start_ns + length_ns, LAST_NS)
    at, labels = BERLIN.ticks(start_ns, end_ns, most)
    assert 1 <= len(at) == len(labels) <= most + 1
    assert axis(start_ns)[:19] <= at[0] <= at[-1] <= axis(end_ns)
    length = end_ns - start_ns
    places = [(BERLIN.read(f"{each}+00:00") or 0) - start_ns for each in at]
    # Plotly draws no label that reaches beyond the figure, and fails where it draws none.
    assert any(0.09 * length <= place + 1_000 and place <= 0.91 * length for place in places)


def test_a_clock_that_goes_back_shows_an_hour_twice_and_one_that_goes_forward_leaves_it_out() -> (
    None
):
    for day, most, labels in (
        ("2026-10-25", 8, ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00", "03:30"]),
        ("2026-03-29", 4, ["01:30", "03:00", "03:30"]),
    ):
        start, end = (BERLIN.read(f"{day} {time}") for time in ("01:30", "04:00"))
        assert start is not None
        assert end is not None
        assert [each[:5] for each in BERLIN.ticks(start, end, most)[1]] == labels


def test_an_unknown_zone_is_shown_in_utc_and_says_so() -> None:
    assert Clock("Mars/Olympus").label == Clock("../etc").label == "UTC"
    assert Clock("Mars/Olympus").text(T0) == "2026-09-14 13:30:00"
    assert BERLIN.stretch(T0, T0 + HOUR_NS) == "2026-09-14 15:30:00 to 16:30:00 Europe/Berlin"


def test_the_link_of_an_alert_is_followed_without_a_complaint() -> None:
    link = (
        "http://127.0.0.1:8501/explore?from=2026-09-14T12%3A30%3A00Z&to=2026-09-14T13%3A30%3A00Z"
        "&route=rag&metric=ttft_ms&box=%2C%2C2000%2C"
    )
    address = parse_qs(urlsplit(link).query)
    selected, said = read(address, KNOWN, BERLIN)
    assert (selected.choice, selected.from_ns, selected.to_ns) == ("custom", T0 - HOUR_NS, T0)
    assert (selected.route, said) == ("rag", ())
    assert read_box(address["box"][0]) == (Box(low=2_000.0), None)
    assert address["metric"][0] in METRICS
