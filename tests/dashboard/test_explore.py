"""The map, the box on it, and what the selection shares, against a real store."""

import json
import random
import shlex
import tomllib
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from longpole.cli import main
from longpole.vocab import Span, Stage
from longpole_analytics.slo.objectives import from_tables
from longpole_collector.files import write_parquet
from longpole_dashboard.model import explore as model
from longpole_dashboard.model import heatmap as heat_model
from longpole_dashboard.model import population as drawn
from longpole_dashboard.model.box import Box, box_to_filter, read_box, spelled
from longpole_dashboard.model.heatmap import (
    MAX_COLUMNS,
    MAX_ROWS,
    METRICS,
    box_condition,
    column_ns,
    edge,
    heatmap,
    points,
)
from longpole_dashboard.model.population import population
from longpole_dashboard.model.window import SECOND_NS, Filters, Match

from .conftest import MemoryStore
from .sample import T0, workflow

NUM = 900
WINDOW = Filters(T0, T0 + NUM * SECOND_NS)
SLOW_MS = 1_000.0


def planted() -> list[Span]:
    """One route whose prompt v2 spends its time in prefill, an innocent tenant, another route."""
    draw = random.Random(7)
    spans: list[Span] = []
    for number in range(NUM):
        is_new = number >= NUM // 2 and draw.random() < 0.5
        is_slow = is_new and draw.random() < 0.6
        ttft_ms = draw.lognormvariate(5, 0.3) + (3_000 if is_slow else 0)
        spans += workflow(
            number + 1,
            at_s=number,
            ttft_ms=ttft_ms,
            prompt_version="v2" if is_new else "v1",
            route_version="a" if number % 2 else "b",
        )
    for number in range(300):
        # slow by nature, and no business of a box on the other route's slow ones
        spans += workflow(5_000 + number, at_s=number, route="batch", stages={Stage.TOOL: 60_000.0})
    return spans


@pytest.fixture(scope="module")
def held() -> Iterator[MemoryStore]:
    found = MemoryStore()
    found.add(planted())
    yield found
    found.close()


# --- the box ------------------------------------------------------------------------------------
def event(*boxes: dict[str, object]) -> dict[str, object]:
    """As Streamlit hands it on."""
    return {"selection": {"points": [], "point_indices": [], "box": list(boxes), "lasso": []}}


def drawn_box(x: list[str], y: list[float]) -> dict[str, object]:
    return {"xref": "x", "yref": "y", "x": x, "y": y}


def test_a_box_may_be_drawn_from_any_corner_and_the_last_one_counts() -> None:
    later = ["2026-09-14 13:35:00.2508", "2026-09-14 13:30:00"]
    falling = drawn_box(later, [8_000.5, 2_000.25])
    expected = Box(T0, T0 + 300 * SECOND_NS + 250_800_000, 2_000.25, 8_000.5)
    assert box_to_filter(event(falling)) == expected
    rising = drawn_box(later[::-1], [2_000.25, 8_000.5])
    assert box_to_filter(event(rising)) == expected
    other = drawn_box(["2026-09-14 12:00", "2026-09-14 12:01"], [1, 2])
    assert box_to_filter(event(other, falling)) == expected


@pytest.mark.parametrize(
    "nothing",
    [
        None,
        {},
        {"selection": None},
        {"selection": {"box": None}},
        event(),
        event(drawn_box([], [])),
        event(drawn_box(["2026-09-14", "2026-09-14"], [1, 2])),
        event(drawn_box(["2026-09-14", "2026-09-15"], [2, 2])),
        event(drawn_box(["yesterday", "today"], [1, 2])),
        event({"x": ["2026-09-14", "2026-09-15"]}),
        event(drawn_box(["2026-09-14", "2026-09-15"], [float("nan"), float("inf")])),
    ],
)
def test_what_is_no_box_is_none(nothing: dict[str, object] | None) -> None:
    assert box_to_filter(nothing) is None


edges = st.none() | st.floats(0, 1e12)
times = st.none() | st.integers(0, 2 * T0 // 1_000).map(lambda us: us * 1_000)


@given(times, times, edges, edges)
def test_a_box_is_read_back_from_its_address(
    start: int | None, end: int | None, low: float | None, high: float | None
) -> None:
    if start is not None and end is not None:
        start, end = min(start, end), max(start, end) + 1_000
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high) + 1.0
    box = Box(start, end, low, high)
    found, said = read_box(spelled(box))
    if box == Box():
        assert found is None
    else:
        assert (found, said) == (box, None)


@given(st.text())
def test_an_address_without_a_box_is_said_once(said: str) -> None:
    found, complaint = read_box(said)
    assert found is None or complaint is None
    assert found is not None or not said or complaint


# --- the map ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", METRICS)
def test_the_map_counts_every_workflow_once(held: MemoryStore, name: str) -> None:
    found = heatmap(WINDOW, name, None, held)
    assert sum(count for _, _, count in found.cells) == found.num - found.num_flat
    assert found.num + found.num_unknown == NUM + 300
    assert all(0 <= x < MAX_COLUMNS and 0 <= y < MAX_ROWS for x, y, _ in found.cells)


def test_cells_lie_where_the_values_are(held: MemoryStore) -> None:
    found = heatmap(WINDOW, "ttft_ms", None, held)
    for x, y, count in found.cells[::50]:
        inside = held.sql(
            f"SELECT count(*) AS n FROM ({points(WINDOW, METRICS['ttft_ms'])}) "
            "WHERE start_ns >= $from AND start_ns < $to AND value >= $low AND value < $high",
            {
                **WINDOW.params,
                "from": column_ns(found, x),
                "to": column_ns(found, x + 1),
                "low": edge(found, y) * (1 - 1e-9),
                "high": edge(found, y + 1) * (1 + 1e-9),
            },
        ).to_pylist()[0]["n"]
        assert inside == count


def test_the_slow_region_is_above_the_objective_or_what_the_sample_carries(
    held: MemoryStore,
) -> None:
    assert heatmap(WINDOW, "ttft_ms", SLOW_MS, held).slow == Box(low=SLOW_MS)
    without = heatmap(WINDOW, "ttft_ms", None, held)
    assert without.quantile == 0.95
    assert without.slow == Box(low=without.threshold)
    kept = heatmap(WINDOW, "ttft_ms", 1e9, held)
    assert (kept.num_above, kept.slow) == (0, without.slow)
    few = heatmap(Filters(T0, T0 + 20 * SECOND_NS), "ttft_ms", None, held)
    assert (few.quantile, few.slow) == (None, None)


def test_a_workflow_counts_by_its_slowest_call(store: MemoryStore) -> None:
    first = workflow(1, ttft_ms=100.0)
    more = [s._replace(trace_id=f"{1:032x}", parent_id=first[0].span_id) for s in workflow(9)]
    slow = next(s for s in more if s.is_model_call)
    store.add([*first, slow._replace(span_id=f"{99:016x}", ttft_ns=90_000_000)])
    found = store.sql(
        f"SELECT value FROM ({points(WINDOW, METRICS['ttft_ms'])})", WINDOW.params
    ).to_pylist()
    assert [row["value"] for row in found] == [100.0]


def test_an_empty_window_has_an_empty_map(held: MemoryStore) -> None:
    found = heatmap(Filters(0, 1), "ttft_ms", None, held)
    assert (found.num, found.cells, found.slow) == (0, (), None)


def test_too_many_calls_are_said_before_anybody_waits(
    held: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat_model, "MAX_CALLS", 1_000)
    found = heatmap(WINDOW, "ttft_ms", None, held)
    assert (found.num, found.num_calls) == (0, NUM + 300)
    assert heatmap(WINDOW, "e2e_ms", None, held).num == NUM + 300


# --- the selection ------------------------------------------------------------------------------
def boxed(held: MemoryStore, box: Box, metric: str = "ttft_ms") -> model.Brushed:
    return model.brushed(population(WINDOW, metric, None, held), box)


def test_the_count_is_that_of_sql_and_the_highest_come_first(held: MemoryStore) -> None:
    box = Box(T0 + 500 * SECOND_NS, T0 + 800 * SECOND_NS, SLOW_MS, 4_000.0)
    found = model.picked(WINDOW, "ttft_ms", box, held)
    expected = held.sql(
        "SELECT count(*) AS n FROM calls WHERE ttft_ms > 1000 AND ttft_ms <= 4000 "
        "AND start_ns >= ? AND start_ns < ?",
        [box.start_ns or 0, box.end_ns or 0],
    ).to_pylist()[0]["n"]
    assert found.num == expected == len(found.exemplars) > 30
    values = [each.value for each in found.exemplars]
    assert values == sorted(values, reverse=True)
    assert {each.route for each in found.exemplars} == {"rag.search"}


def test_the_planted_slice_and_stage_come_first_and_another_route_does_not_matter(
    held: MemoryStore,
) -> None:
    found = boxed(held, Box(low=SLOW_MS))
    first = found.differences[0]
    assert (first.where, first.is_cause) == ((("prompt_version", "v2"),), True)
    assert first.of_selected == 1.0
    assert first.low is not None
    assert first.low > 1.5
    assert found.num_rest == NUM - found.num_selected
    assert found.extra[0].stage == "ttft_opaque"
    assert found.extra[0].mean_ms == pytest.approx(3_000, rel=0.05)
    assert not any(each.is_decided for each in found.differences if "route_version" in each.text)


def test_stages_are_signed_against_the_same_route(held: MemoryStore) -> None:
    found = boxed(held, Box(low=2_000.0, high=30_000.0), "e2e_ms")
    extra = {each.stage: each.mean_ms for each in found.extra}
    # the other route's minute of tools would be minus 60 s here
    assert extra["tool"] == pytest.approx(0, abs=1)
    assert extra["ttft_opaque"] == pytest.approx(3_000, rel=0.05)
    assert found.extra_ms == pytest.approx(sum(extra.values()), rel=0.01)


def test_fewer_than_thirty_say_nothing_in_per_cent(held: MemoryStore) -> None:
    few = boxed(held, Box(T0 + 880 * SECOND_NS, None, SLOW_MS))
    assert few.reason is not None
    assert few.reason.startswith("too few selected")
    assert few.differences == few.extra == ()
    assert model.picked(WINDOW, "ttft_ms", Box(T0 + 880 * SECOND_NS, None, SLOW_MS), held).is_thin


def test_a_box_around_everything_has_nothing_to_compare_with(held: MemoryStore) -> None:
    found = boxed(held, Box(low=0.0))
    assert found.reason is not None
    assert "others of the same routes" in found.reason


def test_a_split_compares_the_values_of_one_dimension(held: MemoryStore) -> None:
    people = population(WINDOW, "ttft_ms", None, held)
    assert "route_version" in model.splits(people)
    found = model.brushed(people, Box(low=SLOW_MS), "route_version")
    assert {each.where for each in found.differences} == {
        (("route_version", "a"),),
        (("route_version", "b"),),
    }


def test_excluding_a_slice_leaves_its_workflows_out(held: MemoryStore) -> None:
    without = Filters(WINDOW.start_ns, WINDOW.end_ns, (Match("prompt_version", "v2", True),))
    assert model.picked(without, "ttft_ms", Box(low=SLOW_MS), held).num == 0


def test_a_sample_tells_what_the_whole_tells(
    held: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = boxed(held, Box(low=SLOW_MS))
    monkeypatch.setattr(drawn, "MAX_HIGH", 40)
    monkeypatch.setattr(drawn, "MAX_REST", 400)
    people = population(WINDOW, "ttft_ms", None, held)
    assert people.is_drawn
    assert people.is_weighed
    assert people.num == NUM + 300
    assert people.requests["weight"].sum() == pytest.approx(NUM + 300)
    found = model.brushed(people, Box(low=SLOW_MS))
    assert found.differences[0].where == whole.differences[0].where
    assert found.extra[0].stage == whole.extra[0].stage
    assert found.extra[0].mean_ms == pytest.approx(whole.extra[0].mean_ms, rel=0.1)
    monkeypatch.setattr(drawn, "MAX_HIGH", 400)
    middle = Box(low=140.0, high=150.0)
    dense = population(WINDOW, "ttft_ms", middle, held)
    assert dense.num_inside(middle) == model.picked(WINDOW, "ttft_ms", middle, held).num
    assert dense.num_inside(middle) > people.num_inside(middle)


def test_the_command_names_the_same_causes(
    held: MemoryStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    route = Filters(WINDOW.start_ns, WINDOW.end_ns, (Match("route", "rag.search"),))
    file = tmp_path_factory.mktemp("top") / "spans.parquet"
    write_parquet(held, file)
    box = Box(low=SLOW_MS)
    told = model.command(route, "ttft_ms", box, "route = 'rag.search'")
    words = ["top", str(file), *told.split()[2:]]
    words[words.index("--where") + 1 : -1] = ["route = 'rag.search'"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    causes = json.loads(done.output)["causes"]
    found = model.brushed(population(route, "ttft_ms", None, held), box)
    assert [
        (dict(each.where), each.of_selected, each.of_rest, each.risk_ratio, [each.low, each.high])
        for each in found.differences
        if each.is_cause
    ] == [
        (c["where"], c["share_of_slow"], c["share_of_rest"], c["risk_ratio"], c["ci95"])
        for c in causes
    ]


def test_of_a_part_of_the_window_the_command_counts_the_same(held: MemoryStore) -> None:
    where = Filters(WINDOW.start_ns, WINDOW.end_ns, (Match("route", "it's"),))
    box = Box(T0 + 500 * SECOND_NS, None, SLOW_MS)
    for filters in (WINDOW, where):
        told = model.command(filters, "ttft_ms", box, None)
        query = shlex.split(told)[2]
        assert held.sql(query).column(0).to_pylist() == [
            model.picked(filters, "ttft_ms", box, held).num
        ]
    assert box_condition(Box()) == ("true", {})


def test_an_objective_made_of_a_box_can_be_read_back(held: MemoryStore) -> None:
    toml = model.objective_toml("ttft_ms", SLOW_MS, "rag.search", "route = 'rag.search'", 0.97)
    read = from_tables(tomllib.loads(toml)["slo"])[0]
    assert (read.metric, read.threshold, read.target) == ("ttft_ms", SLOW_MS, 0.95)
    assert read.where == "route = 'rag.search'"
    assert model.objective_toml("cost_usd", 1.0, None, None, 0.99) is None
