"""The engine's page of sampled traces: medians, loads and shares are those of all that came."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import Span, keys
from longpole_collector.files import write_parquet
from longpole_dashboard import source
from longpole_dashboard.model import engine, engine_asked, sampled
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.window import SECOND_NS, Filters, Match
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import MS, T0
from .test_engine_page import request

WINDOW = Filters(T0, T0 + 600 * SECOND_NS)


def by_hand(*, is_told_by_engine: bool = True) -> list[Span]:
    """Of one model 30 short waits that stand for five each and 30 long ones; of another 40.

    The engine may not say what its spans stand for: a sender's trace state need not reach it.
    """
    found: list[Span] = []
    for i in range(60):
        weight = 5.0 if i < 30 else 1.0
        drafts = {keys.ENGINE_NUM_DRAFTED: "10", keys.ENGINE_NUM_ACCEPTED: "8" if i < 30 else "2"}
        made = request(
            i + 1, 5.0 * i, "large",
            queue_ns=(i + 1) * MS, attributes=drafts, cached_input_tokens=500 if i < 30 else 0,
        )  # fmt: skip
        found += [
            span._replace(weight=weight if is_told_by_engine or not span.is_engine else None)
            for span in made
        ]
    for i in range(40):
        made = request(1_000 + i, 5.0 * i + 1, "small", queue_ns=None, cached_input_tokens=None)
        found += made
    return found


@pytest.mark.parametrize("is_told_by_engine", [True, False])
def test_every_number_is_the_one_by_hand(store: MemoryStore, is_told_by_engine: bool) -> None:
    store.add(by_hand(is_told_by_engine=is_told_by_engine))
    view = engine.engine(WINDOW, UTC_CLOCK, store)
    large, small = view.models
    assert (large.name, large.num_requests, small.num_requests) == ("large", 180, 40)
    assert (view.num_kept, view.num_came) == (100, 220)
    median = large.queue[0]
    # of 180 the rank is 90: the 18th that stands for five
    assert (median.value, median.n, median.kept, median.is_shown) == (18.0, 180, 60, True)
    assert not large.queue[1].is_shown
    assert large.queue[1].tail == 60.0
    assert large.prefix == engine.Share(150 * 500, 180 * 1_000, 180)
    assert large.drafts == engine.Share(150 * 8 + 30 * 2, 1_800, 180)
    assert (small.queue[0].n, small.prefix.ratio) == (0, None)
    assert small.ttft[0] == (500, 40, 300.0, 300.0, 300.0, 300.0, None)
    waited = sum((point.waiting or 0.0) * point.length_s for point in large.points)
    ran = sum((point.running or 0.0) * point.length_s for point in large.points)
    queued = sum((5 if i < 30 else 1) * (i + 1) / 1_000 for i in range(60))
    assert waited == pytest.approx(queued)
    assert ran == pytest.approx(180 * 0.695 - queued)
    assert sum(point.num_requests for point in large.points) == 180
    first = large.points[0]
    assert (first.queue_ms.kept or 0) * 5 == first.num_requests == first.queue_ms.n


def test_models_are_ranked_by_what_came(store: MemoryStore) -> None:
    made = [span for i in range(20) for span in request(i + 1, i, "rare")]
    spans = [span._replace(weight=50.0) for span in made]
    spans += [span for i in range(60) for span in request(100 + i, i, "plain")]
    store.add(spans)
    view = engine.engine(WINDOW, UTC_CLOCK, store)
    assert [(model.name, model.num_requests) for model in view.models] == [
        ("rare", 1_000), ("plain", 60),
    ]  # fmt: skip
    plain = replace(WINDOW, where=(Match("request_model", "plain"),))
    alone = engine.engine(plain, UTC_CLOCK, store)
    assert (alone.num_kept, alone.models[0].num_requests) == (None, 60)


def test_a_sample_tells_what_all_tell(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(4)
    full, every, kept = MemoryStore(), list[Span](), list[Span]()
    for i in range(1_000):
        wait_ms = draw.expovariate(1 / 100)
        made = request(i + 1, i / 2, "large", queue_ns=int(wait_ms * MS))
        every += made
        share = 1.0 if wait_ms > 200 else 0.25
        if draw.random() < share:
            kept += [span._replace(weight=1 / share) for span in made]
    full.add(every)
    store.add(kept)
    true = engine.engine(WINDOW, UTC_CLOCK, full)
    full.close()
    for most in (sampled.MAX_READ, 200):
        monkeypatch.setattr(sampled, "MAX_READ", most)
        found = engine.engine(WINDOW, UTC_CLOCK, store)
        assert found.num_came == pytest.approx(1_000, rel=0.1)
        median, known = found.models[0].queue[0], true.models[0].queue[0]
        assert median.low < known.value < median.high
        assert median.value == pytest.approx(known.value, rel=0.3)
        load, right = (
            sum((point.running or 0.0) * point.length_s for point in each.models[0].points)
            for each in (found, true)
        )
        assert load == pytest.approx(right, rel=0.1)


def test_weights_of_one_change_nothing(store: MemoryStore) -> None:
    made = [span for i in range(60) for span in request(i + 1, 5.0 * i, "large")]
    held = MemoryStore()
    held.add([span._replace(weight=1.0) for span in made])
    store.add(made)
    shown = engine.engine(WINDOW, UTC_CLOCK, held)
    assert shown == engine.engine(WINDOW, UTC_CLOCK, store)
    assert shown.sampled is None
    held.close()


def test_the_statement_shown_gives_the_same_medians(store: MemoryStore, tmp_path: Path) -> None:
    store.add(by_hand())
    write_parquet(store, tmp_path / "spans.parquet")
    filters = replace(WINDOW, where=(Match("route", "rag.search"),))
    view = engine.engine(filters, UTC_CLOCK, store)
    statement = engine_asked.statement(filters, is_weighed=True)
    words = ["query", statement, "--json", "--file", str(tmp_path / "spans.parquet")]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    found = {(row[0], row[1]): row[2:] for row in json.loads(told.stdout)["rows"]}
    large, small = view.models
    for model in (large, small):
        for name, quantile in zip(
            engine_asked.TIMES, (model.queue, model.ttft, model.itl), strict=True
        ):
            row = found.get((model.name, f"p50_{name}_ms"))
            assert (row or [0, None]) == [quantile[0].n, quantile[0].value]
    assert found["large", "prefix_hits"] == [180, large.prefix.ratio]
    assert ("small", "prefix_hits") not in found


@pytest.fixture
def page(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    monkeypatch.setattr(Source, "open", lambda self: store)
    source.use(Source(files=(Path("spans.parquet"),)))
    yield
    source._source = None


@pytest.mark.usefixtures("page")
def test_the_page_says_that_requests_were_sampled(store: MemoryStore) -> None:
    store.add(by_hand())
    said = texts(run("engine"))
    assert "220 requests as the engines tell them" in said
    assert "100 requests that were kept stand for 220." in said
    assert "PARTITION BY model, what" in said
