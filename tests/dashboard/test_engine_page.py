"""The engine's page: counts by model that add up to the time that requests spent."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import streamlit as st
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import Kind, Span, keys
from longpole_collector.files import write_parquet
from longpole_dashboard import app, server, source
from longpole_dashboard.figures import engine as figures
from longpole_dashboard.model import engine, engine_asked
from longpole_dashboard.model.clock import UTC_CLOCK, Clock, iso
from longpole_dashboard.model.window import SECOND_NS, Filters, Match
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import MS, T0, Builder, workflow

EVERYTHING = Filters(T0, T0 + 600 * SECOND_NS)
NUM = 60


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def request(number: int, at_s: float, model: str, **given: object) -> list[Span]:
    """A workflow whose one call is told by its engine alone: 1 ms door, 4 ms tokens, then queue."""
    made = Builder(number, T0 + int(at_s * SECOND_NS))
    root = made.span("invoke_workflow", 0, 1_000, route="rag.search")
    facts: dict[str, object] = {
        "request_model": model,
        "engine_admission_ns": 1 * MS,
        "tokenize_ns": 4 * MS,
        "queue_ns": 100 * MS,
        "prefill_ns": 195 * MS,
        "engine_ttft_ns": 300 * MS,
        "engine_decode_ns": 400 * MS,
        "input_tokens": 1_000,
        "cached_input_tokens": 250,
        "output_tokens": 41,
    }
    facts |= given
    made.span(
        "llm_request",
        0,
        700,
        root,
        kind=Kind.SERVER,
        scope="longpole.engine",
        operation="chat",
        is_model_call=True,
        is_engine=True,
        **facts,
    )
    return made.spans


def two_models() -> list[Span]:
    found: list[Span] = []
    for i in range(NUM):
        drafts = {keys.ENGINE_NUM_DRAFTED: "10", keys.ENGINE_NUM_ACCEPTED: str(i % 5)}
        found += request(i + 1, 5.0 * i, "large", attributes=drafts)
        found += request(1_000 + i, 5.0 * i + 1, "small", queue_ns=None, cached_input_tokens=None)
    return found


def test_running_and_waiting_are_the_time_that_requests_spent(store: MemoryStore) -> None:
    store.add(two_models())
    view = engine.engine(EVERYTHING, UTC_CLOCK, store)
    assert [model.name for model in view.models] == ["large", "small"]
    large, small = view.models
    assert large.num_requests == small.num_requests == NUM
    ran = sum((point.running or 0.0) * point.length_s for point in large.points)
    waited = sum((point.waiting or 0.0) * point.length_s for point in large.points)
    assert ran == pytest.approx(NUM * (0.7 - 0.005 - 0.1))
    assert waited == pytest.approx(NUM * 0.1)
    assert all(point.waiting is None for point in small.points)
    assert sum((p.running or 0.0) * p.length_s for p in small.points) == pytest.approx(NUM * 0.695)
    assert sum(point.num_requests for point in large.points) == NUM


def test_shares_and_medians_are_by_model_and_unknown_is_none(store: MemoryStore) -> None:
    store.add(two_models())
    large, small = engine.engine(EVERYTHING, UTC_CLOCK, store).models
    assert large.prefix.ratio == 0.25
    assert small.prefix.ratio is None
    assert large.drafts is not None
    assert (large.drafts.part, large.drafts.whole) == (NUM // 5 * 10, 10 * NUM)
    assert small.drafts == engine.Share(0, 0, 0)
    assert large.queue[0].value == 100.0
    assert small.queue[0].value is None
    assert large.ttft[0].value == 300.0
    assert large.itl[0].value == 10.0
    assert not large.ttft[1].is_shown


def test_what_began_before_the_window_counts_as_running_in_it(store: MemoryStore) -> None:
    store.add(request(1, 0.0, "large") + request(2, 10.0, "large"))
    view = engine.engine(Filters(T0 + 400 * MS, T0 + 60 * SECOND_NS), UTC_CLOCK, store)
    (large,) = view.models
    ran = sum((point.running or 0.0) * point.length_s for point in large.points)
    assert large.num_requests == 1
    assert ran == pytest.approx(0.3 + 0.595)
    assert large.points[0].length_s == view.bin_s - 0.4


def test_days_are_those_of_the_clock_also_where_it_is_changed(store: MemoryStore) -> None:
    zone = "America/New_York"
    begins = [int(datetime(2026, *day, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND_NS
              for day in ((10, 31), (11, 1), (11, 2), (11, 3))]  # fmt: skip
    half_ns = 1_800 * SECOND_NS
    moments = [
        at
        for day, end in pairwise(begins)
        for at in (*(day + n * half_ns for n in range(7)), end - half_ns, end - 500 * MS)
    ]
    made = [request(n, (at - T0) / SECOND_NS, "large") for n, at in enumerate(moments, 1)]
    store.add([span for spans in made for span in spans])
    clock, window = Clock(zone), Filters(begins[0], begins[-1])
    view = engine.engine(window, clock, store)
    points = view.models[0].points
    assert view.bin_s == 86_400
    assert [(point.start_ns, point.num_requests) for point in points] == [
        (at, 9) for at in begins[:-1]
    ]
    assert [point.length_s // 3_600 for point in points] == [24, 25, 24]
    # each runs for 595 ms after 105: 200 ms of a day's last one are the next day's, or nobody's
    ran_s = [(point.running or 0.0) * point.length_s for point in points]
    assert ran_s == pytest.approx([9 * 0.595 - 0.2, 9 * 0.595, 9 * 0.595])
    for point in points:
        found = engine.requests(window, "large", point.start_ns, view.bin_s, clock, store)
        assert len(found) == 9


def test_filters_choose_the_model_and_the_route(store: MemoryStore) -> None:
    store.add(two_models())

    def models(*where: Match) -> list[tuple[str, int]]:
        view = engine.engine(replace(EVERYTHING, where=where), UTC_CLOCK, store)
        return [(model.name, model.num_requests) for model in view.models]

    assert models(Match("request_model", "small")) == [("small", NUM)]
    assert models(Match("request_model", "small", is_not=True)) == [("large", NUM)]
    assert models(Match("route", "rag.search")) == [("large", NUM), ("small", NUM)]
    assert models(Match("route", "$end")) == []


def test_an_engine_is_known_by_its_spans_and_stays_known(store: MemoryStore) -> None:
    assert not engine.has_engine(0, store)
    store.add(request(1, 0.0, "large"))
    assert not engine.has_engine(T0 + SECOND_NS, store)
    assert engine.has_engine(T0, store)
    assert engine.has_engine(T0 + SECOND_NS, store)


def test_a_point_leads_to_the_requests_that_began_then(store: MemoryStore) -> None:
    store.add(two_models())
    view = engine.engine(EVERYTHING, UTC_CLOCK, store)
    point = view.models[0].points[0]
    found = engine.requests(EVERYTHING, "large", point.start_ns, view.bin_s, UTC_CLOCK, store)
    assert len(found) == point.num_requests
    assert {each.queue_ms for each in found} == {100.0}
    figure = figures.lines(view, Clock(), "running", lambda p: p.running, lambda p: "")
    assert figure is not None
    clicked = {"selection": {"points": [{"customdata": list(figure.data[0].customdata[0])}]}}
    assert figures.picked(clicked) == ("large", point.start_ns)
    assert figures.picked({"selection": {"points": []}}) is None
    assert figures.picked({"selection": {"points": [{"x": 3, "customdata": "no"}]}}) is None
    assert figures.lines(view, Clock(), "nothing", lambda p: None, lambda p: "") is None


def test_the_statement_shown_gives_the_same_medians(store: MemoryStore, tmp_path: Path) -> None:
    store.add(two_models())
    write_parquet(store, tmp_path / "spans.parquet")
    filters = replace(EVERYTHING, where=(Match("route", "rag.search"),))
    view = engine.engine(filters, UTC_CLOCK, store)
    words = ["query", engine_asked.statement(filters), "--json", "--file"]
    told = CliRunner().invoke(main, [*words, str(tmp_path / "spans.parquet")])
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    assert [(row["model"], row["num"]) for row in rows] == [("large", NUM), ("small", NUM)]
    for model, row in zip(view.models, rows, strict=True):
        medians = (model.queue[0].value, model.ttft[0].value, model.itl[0].value)
        assert medians == (row["p50_queue_ms"], row["p50_ttft_ms"], row["p50_itl_ms"])
        assert model.prefix.ratio == row["prefix_hits"]
    assert shlex.split(shlex.join(words))[1] == engine_asked.statement(filters)


def test_the_page_draws_and_is_hidden_without_an_engine(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "open", lambda self: store)
    source.use(Source(files=(Path("spans.parquet"),)))
    store.add(workflow(1))
    pages = app._pages(app._members(), [])
    assert set(pages) == set(server.PAGES)  # each is at its address
    assert (pages["engine"].visibility, pages["overview"].visibility) == ("hidden", "visible")
    st.cache_data.clear()
    store.add(two_models())
    assert app._pages(app._members(), [])["engine"].visibility == "visible"
    said = texts(run("engine", of="large", at=iso(T0)))
    assert "Requests of large that began at 2026-09-14 13:30:00" in said
    assert "metrics are not stored" in said
    assert "large: the longest wait in the queue was 100 ms" in said
