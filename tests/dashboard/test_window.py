"""What a store holds, what a page opens with, and the conditions on each view."""

from collections.abc import Iterator

import pytest

from longpole_collector.stores.minutes import refresh
from longpole_dashboard.model import window
from longpole_dashboard.model.selection import default_range
from longpole_dashboard.model.window import COLUMNS, SECOND_NS, Bounds, Filters, Match

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
    assert (held.models, held.prompt_versions, held.route_versions) == (("tiny",), ("v1",), ())
    assert held.last_ns == T0 + 60 * SECOND_NS + 150_000_000


def test_a_recorded_file_opens_with_everything_however_old() -> None:
    held = Bounds(T0, T0 + SECOND_NS, 5, ())
    assert default_range(held, NOW, is_recorded=True) == "all"


@pytest.mark.parametrize(
    ("age_s", "opens"),
    [(0, "1 h"), (HOUR, "1 h"), (HOUR + 1, "6 h"), (8 * HOUR, "24 h"), (30 * 24 * HOUR, "all")],
)
def test_a_live_store_opens_with_the_shortest_range_that_shows_something(
    age_s: int, opens: str
) -> None:
    held = Bounds(T0, NOW - age_s * SECOND_NS, 5, ())
    assert default_range(held, NOW, is_recorded=False) == opens


def test_an_empty_live_store_opens_with_the_last_hour() -> None:
    assert default_range(Bounds(None, None, 0, ()), NOW, is_recorded=False) == "1 h"


CHOICES = [
    (Match("route", "a"), {1, 2}),
    (Match("route", None), {4}),
    (Match("route", "a", is_not=True), {3, 4}),
    (Match("route", None, is_not=True), {1, 2, 3}),
    (Match("request_model", "tiny"), {1, 2, 3}),
    (Match("request_model", "tiny", is_not=True), {4}),
    (Match("request_model", None), {4}),
    (Match("request_model", None, is_not=True), {1, 2, 3}),
    (Match("outcome", "rejected"), {2}),
    (Match("outcome", None), {3}),
    (Match("is_streamed", "true"), {1, 2, 3}),
    (Match("is_streamed", "true", is_not=True), {4}),
    (Match("route", "' OR true --"), set()),
]


@pytest.fixture(scope="module")
def four() -> Iterator[MemoryStore]:
    """Two of route a, one of b without an outcome, one without a route and without a call."""
    held = MemoryStore()
    held.add(workflow(1, route="a") + workflow(2, route="a", outcome="rejected"))
    held.add(workflow(3, route="b", outcome=None) + workflow(4, route=None, ttft_ms=None))
    yield held
    held.close()


@pytest.mark.parametrize(("match", "chosen"), CHOICES)
def test_a_match_chooses_the_same_traces_in_every_view(
    four: MemoryStore, match: Match, chosen: set[int]
) -> None:
    filters = Filters(T0, T0 + 60 * SECOND_NS, (match,))
    for view in ("traces", "calls"):
        rows = four.sql(f"SELECT trace_id FROM {view} WHERE {filters.on(view)}", filters.params)
        with_calls = chosen if view == "traces" else chosen - {4}
        assert {int(name, 16) for name in rows.column("trace_id").to_pylist()} == with_calls


def test_every_column_can_be_matched_in_both_views(four: MemoryStore) -> None:
    where = tuple(Match(column, None, is_not) for column in COLUMNS for is_not in (True, False))
    filters = Filters(T0, T0 + 60 * SECOND_NS, where)
    for view in ("traces", "calls"):
        found = four.sql(f"SELECT trace_id FROM {view} WHERE {filters.on(view)}", filters.params)
        assert found.num_rows == 0


def test_the_rolled_up_views_answer_what_they_know() -> None:
    of_model = Filters(0, 1, (Match("request_model", "m"),))
    assert of_model.fits_minutes(of_calls=True)
    assert not of_model.fits_minutes(of_calls=False)
    other = Filters(0, 1, (Match("outcome", "failed"),))
    assert not other.fits_minutes(of_calls=True)
    with pytest.raises(ValueError, match="outcome"):
        other.on("minutes")


def test_the_names_of_a_large_store_are_those_of_a_small_one(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour_s = 3_600
    for number, version in enumerate(("v1", "v2", "v3", "v4")):
        store.add(workflow(1 + number, at_s=number * hour_s, prompt_version=version))
    exact = window.bounds(store)
    assert exact.prompt_versions == ("v1", "v2", "v3", "v4")
    assert exact.models == ("tiny",)
    monkeypatch.setattr(window, "_MANY", 1)
    assert window.bounds(store) == exact  # nothing is counted yet
    refresh(store, T0 + 4 * hour_s * window.SECOND_NS)
    assert window.bounds(store) == exact
    store.add(workflow(9, at_s=3 * hour_s + 1, prompt_version="v5", route="new"))
    assert window.bounds(store).prompt_versions == (*exact.prompt_versions, "v5")
    assert "new" in window.bounds(store).routes
    store.add(workflow(10, at_s=1, prompt_version="v0"))  # late, and not yet counted
    assert window.bounds(store).prompt_versions[0] == "v0"
