"""The page of stages and slices: its figures are those of ``longpole slices``."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from longpole.vocab import STAGE_COLOURS, Span, Stage
from longpole_analytics import loading
from longpole_analytics.advise_loading import population_of
from longpole_analytics.advisor import advise
from longpole_analytics.compare_loading import compared_of
from longpole_analytics.price_overrides import configured_prices
from longpole_analytics.stage_slices import Part, StageMean, StageSlice
from longpole_collector.stores.connection import Limits
from longpole_dashboard.figures import stage_bars
from longpole_dashboard.figures.stage_bars import StageChange
from longpole_dashboard.model.scope import scope
from longpole_dashboard.model.stages import stages
from longpole_dashboard.model.window import SECOND_NS, Filters, Match

from .conftest import MemoryStore
from .drawn import Held, drawn, holding, plain, texts
from .sample import T0, workflow

NUM = 400
EVERYTHING = Filters(T0, T0 + 100_000 * SECOND_NS)


def mixed(n: int) -> list[Span]:
    """Workflows of two routes and versions; of the slowest tenth of ``b`` it is the queue."""
    draw = random.Random(4)
    found: list[Span] = []
    for i in range(n):
        is_slow = i % 10 == 3
        usual = {Stage.TOOL: draw.uniform(40, 60), Stage.QUEUE: draw.uniform(1, 5)}
        slow = {Stage.TOOL: draw.uniform(40, 60), Stage.QUEUE: 2_000.0 + i}
        found += workflow(
            i + 1,
            at_s=i,
            stages=slow if is_slow else usual,
            ttft_ms=draw.lognormvariate(5, 0.5),
            route="a" if i % 2 else "b",
            prompt_version=f"v{i % 3}",
        )
    return found


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with holding(tmp_path_factory.mktemp("stages"), mixed(NUM)) as found:
        yield found


@pytest.mark.parametrize(
    ("where", "by", "metric"),
    [
        ((), "prompt_version", None),
        ((Match("route", "a"),), None, "ttft_ms"),
        (
            (Match("prompt_version", "v1", is_not=True), Match("request_model", "tiny")),
            "hour",
            None,
        ),
    ],
)
def test_the_page_and_its_command_say_the_same(
    held: Held, where: tuple[Match, ...], by: str | None, metric: str | None
) -> None:
    window = Filters(T0 + 20 * SECOND_NS + 7, T0 + 320 * SECOND_NS, where)
    shown = stages(window, by, metric, "UTC", held.reader)
    assert 0 < shown.num_requests <= 300
    assert shown.quantiles is not None
    assert shown.stages is not None
    told = held.run(shown.command)
    assert told == plain(shown.quantiles.document() | shown.stages.document())
    assert [each["where"] for each in told["slices"]] == [each["where"] for each in told["stages"]]
    assert sum(each["n"] + each["num_unknown"] for each in told["slices"]) == shown.num_requests


def test_the_tail_of_a_slice_is_told_apart_from_its_mean(held: Held) -> None:
    shown = stages(EVERYTHING, "route", None, "UTC", held.reader)
    assert shown.stages is not None
    by_route = {each.where["route"]: each for each in shown.stages.slices}
    whole, above_p90, above_p99 = by_route["a"].parts
    shares = {stage.stage: stage.share for stage in whole.stages}
    assert sum(shares.values()) == pytest.approx(1)
    assert whole.n == 200
    assert above_p90.n == 20
    assert above_p90.limit is not None
    in_tail = {stage.stage: stage.share for stage in above_p90.stages}
    assert in_tail[Stage.QUEUE] > 0.9 > shares[Stage.QUEUE]
    # 200 workflows do not carry a p99
    assert (above_p99.n, above_p99.stages) == (0, ())
    rest = {stage.stage: stage.share for stage in by_route["b"].parts[1].stages}
    assert rest[Stage.QUEUE] < 0.1


def test_what_was_not_sent_is_no_choice(store: MemoryStore) -> None:
    store.add(mixed(30))
    shown = stages(EVERYTHING, "slo_class", "time_to_accepted_ms", "UTC", store)
    assert {"route", "prompt_version", "input_tokens", "hour"} <= set(shown.dimensions)
    assert {"slo_class", "cache_state", "uncached_input_tokens"} <= set(shown.not_sent)
    assert not set(shown.dimensions) & set(shown.not_sent)
    assert (shown.by, shown.metric) == ("route", "e2e_ms")
    assert "time_to_accepted_ms" not in shown.metrics
    assert shown.grid is None


def test_the_grid_stands_on_cache_states_or_else_on_cached_tokens(
    store: MemoryStore, tmp_path: Path
) -> None:
    spans = [
        span._replace(cached_input_tokens=64 * (i % 2), input_tokens=100 * (1 + i % 5))
        if span.is_model_call
        else span
        for i in range(60)
        for span in workflow(i + 1, at_s=i)
    ]
    with holding(tmp_path / "db", spans) as own:
        grid = stages(EVERYTHING, None, "ttft_ms", "UTC", own.reader).grid
        assert grid is not None
        assert grid.cache == "cached_input_tokens"
        assert {cell.where["cached_input_tokens"] for cell in grid.cells.slices} == {"0", "33-64"}
        assert own.run(grid.command) == plain(grid.cells.document())
    marked = [
        span._replace(cache_state="hit") if span.is_model_call else span for span in spans[:20]
    ]
    store.add(marked)
    grid = stages(EVERYTHING, None, None, "UTC", store).grid
    assert grid is not None
    assert grid.cache == "cache_state"


def test_nothing_here_is_no_failure(store: MemoryStore) -> None:
    store.add(workflow(1))
    shown = stages(Filters(0, 1), None, None, "UTC", store)
    assert (shown.num_requests, shown.quantiles, shown.dimensions) == (0, None, ())


def test_a_window_of_too_many_is_narrowed_to_the_newest_and_says_so(store: MemoryStore) -> None:
    store.add(mixed(40))
    whole = scope(EVERYTHING, store)
    assert (whole.num_left_out, whole.limits()) == (0, ())
    cut = scope(EVERYTHING, store, most=15)
    assert cut.num_left_out == 25
    assert "25 older ones" in cut.limits()[0]
    rows = store.sql("SELECT count(*) AS n FROM traces WHERE start_ns >= ?", [cut.since_ns])
    assert rows.to_pylist() == [{"n": 15}]
    # each workflow has four spans
    assert scope(EVERYTHING, store, most_spans=41).num_left_out == 30


def test_a_store_that_bounds_its_answers_is_read_to_the_end(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(mixed(40))
    whole = stages(EVERYTHING, "prompt_version", None, "UTC", store)
    compared = compared_of(store, configured_prices())
    advised = advise(population_of(store)).document()
    monkeypatch.setattr(store, "_limits", Limits(max_rows=21))
    monkeypatch.setattr(loading, "PAGE_ROWS", 20)
    assert stages(EVERYTHING, "prompt_version", None, "UTC", store) == whole
    assert compared_of(store, configured_prices()).equals(compared)
    assert advise(population_of(store)).document() == advised


def test_conditions_that_calls_cannot_tell_are_named(store: MemoryStore) -> None:
    store.add(workflow(1, route="it's"))
    filters = Filters(0, 2 * T0, (Match("route", "it's"), Match("long_pole", "tool")))
    found = scope(filters, store, table="calls")
    assert found.where == "route = 'it''s'"
    assert found.unfit == ("long_pole",)
    assert "long_pole" in found.limits()[0]
    assert scope(filters, store).unfit == ()


def test_the_page_draws_what_the_address_asks_for(held: Held) -> None:
    with drawn("stages", held.folder, by="prompt_version", metric="ttft_ms") as app:
        assert [title.value for title in app.title] == ["Stages & slices"]
        assert app.selectbox(key="choice-by").value == "prompt_version"
        assert app.selectbox(key="choice-metric").value == "ttft_ms"
        said = texts(app)
        assert "--by prompt_version --metric ttft_ms --stages" in said
        assert " % of the time (" in said
        assert "slo_class" in said.partition("Not sent")[2]
        app.query_params["by"] = "<nonsense>"
        app.run()
        assert app.selectbox(key="choice-by").value == "route"
        assert "&lt;nonsense&gt;" in texts(app)


def test_one_workflow_is_enough_for_the_pages_to_say_something(tmp_path: Path) -> None:
    spans = workflow(1, route="<img src=x onerror=alert(1)>", prompt_version="=cmd()")
    with holding(tmp_path / "db", spans):
        pass
    for page, sentence in (
        ("stages", "longpole slices --since"),
        ("compare", "There is nothing before this range to compare it with"),
        ("cache", "No call here says how much"),
        ("advisor", "Nothing to advise"),
    ):
        with drawn(page, tmp_path / "db") as app:
            said = texts(app)
            assert sentence in said
            assert "lp-note" in said  # the verdict, or why there is none
            assert "<img" not in said


def test_bars_are_stages_in_their_order_and_colours_with_names_that_are_only_text() -> None:
    shares = (StageMean(Stage.TTFT_OPAQUE, 30.0, 0.3), StageMean(Stage.TOOL, 70.0, 0.7))
    parts = (Part(None, 200, None, 100.0, shares), Part(0.9, 0, None, None, ()))
    tail = Part(0.9, 20, 150.0, 160.0, shares)
    hostile = StageSlice({"route": "<b onclick=x>a</b>"}, 0, parts)
    figure = stage_bars.shares([hostile])
    assert [bar.name for bar in figure.data] == ["opaque TTFT", "tool"]
    assert [bar.marker.color for bar in figure.data] == [
        STAGE_COLOURS[Stage.TTFT_OPAQUE],
        STAGE_COLOURS[Stage.TOOL],
    ]
    assert [bar.marker.pattern.shape for bar in figure.data] == ["/", ""]
    assert [list(bar.x) for bar in figure.data] == [[30.0], [70.0]]
    (label,) = figure.layout.yaxis.ticktext
    assert label == "<b>&lt;b onclick=x&gt;a&lt;/b&gt;</b>  all, n 200, mean 100 ms"
    # slices of one name stay apart, and each begins with all of its workflows
    several = stage_bars.shares([StageSlice({"hour": "x" * 40}, 0, (parts[0], tail))] * 3)
    assert [label.startswith("<b>") for label in several.layout.yaxis.ticktext] == [True, False] * 3
    at = list(several.layout.yaxis.tickvals)
    assert at == sorted(set(at)) == list(several.data[0].y)
    assert len(stage_bars.shares([]).data) == 0


def test_what_did_not_move_has_no_bar() -> None:
    rows = [
        StageChange("queue", 10.0, 35.5),
        StageChange("tool", 5.0, 5.0),
        StageChange("prefill", None, 5.0),
    ]
    figure = stage_bars.changes(rows, "candidate less baseline")
    assert [(bar.name, list(bar.x)) for bar in figure.data] == [("queue", [25.5])]
    assert figure.data[0].text == "+25.5 ms"
