"""Ranges, routes and what a page opens with."""

import pytest

from longpole_dashboard.model import window
from longpole_dashboard.model.window import RANGES, SECOND_NS, Bounds, Filters

from .conftest import MemoryStore
from .sample import T0, workflow

NOW = T0 + 30 * 86_400 * SECOND_NS
HOUR = 3_600


def test_bounds_of_an_empty_store_are_unknown(store: MemoryStore) -> None:
    assert window.bounds(store) == Bounds(None, None, 0, ())


def test_bounds_name_extent_and_routes(store: MemoryStore) -> None:
    store.add(workflow(1, route="b") + workflow(2, at_s=60, route="a") + workflow(3, route=None))
    held = window.bounds(store)
    assert (held.first_ns, held.num_traces, held.routes) == (T0, 3, ("a", "b"))
    assert held.last_ns == T0 + 60 * SECOND_NS + 150_000_000


def test_a_recorded_file_opens_with_everything_however_old() -> None:
    held = Bounds(T0, T0 + SECOND_NS, 5, ())
    assert window.default_range(held, NOW, is_recorded=True) == "all"


@pytest.mark.parametrize(
    ("age_s", "opens"),
    [(0, "1 h"), (HOUR, "1 h"), (HOUR + 1, "6 h"), (8 * HOUR, "24 h"), (30 * 24 * HOUR, "all")],
)
def test_a_live_store_opens_with_the_shortest_range_that_shows_something(
    age_s: int, opens: str
) -> None:
    held = Bounds(T0, NOW - age_s * SECOND_NS, 5, ())
    assert window.default_range(held, NOW, is_recorded=False) == opens


def test_an_empty_live_store_opens_with_the_last_hour() -> None:
    assert window.default_range(Bounds(None, None, 0, ()), NOW, is_recorded=False) == "1 h"


@pytest.mark.parametrize("choice", [*RANGES, "nonsense"])
def test_recorded_ranges_end_at_the_last_trace_and_hold_it(choice: str) -> None:
    held = Bounds(T0, T0 + 2 * HOUR * SECOND_NS, 5, ())
    filters = window.resolve(choice, None, held, NOW, is_recorded=True)
    assert filters.end_ns == held.last_ns + 1 if held.last_ns else False
    assert filters.start_ns <= T0 + 2 * HOUR * SECOND_NS


def test_live_ranges_end_now() -> None:
    held = Bounds(T0, NOW - SECOND_NS, 5, ("a",))
    filters = window.resolve("1 h", "a", held, NOW, is_recorded=False)
    assert filters == Filters(NOW - HOUR * SECOND_NS, NOW, NOW - 2 * HOUR * SECOND_NS, "a")


def test_there_is_no_previous_period_before_the_first_trace() -> None:
    held = Bounds(NOW - 60 * SECOND_NS, NOW, 5, ())
    assert window.resolve("1 h", None, held, NOW, is_recorded=False).previous_ns is None
    assert window.resolve("all", None, held, NOW, is_recorded=False).previous_ns is None


def test_a_span_from_a_clock_ahead_is_still_in_range() -> None:
    held = Bounds(T0, NOW + 5 * SECOND_NS, 5, ())
    assert window.resolve("1 h", None, held, NOW, is_recorded=False).end_ns > NOW + 5 * SECOND_NS
