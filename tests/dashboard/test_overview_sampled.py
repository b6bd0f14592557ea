"""The Overview of sampled traces tells of all that came, and of all kept what it always told."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st

from longpole.vocab import Span, Stage
from longpole_collector.stores.minutes import refresh
from longpole_dashboard import source
from longpole_dashboard.model import overview as model
from longpole_dashboard.model import sampled
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.window import SECOND_NS, Filters, Match
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import T0, workflow
from .thinned import every, sent, take_out, weights

NUM = 2_400
WINDOW = Filters(T0, T0 + NUM * SECOND_NS)
LATER_NS = T0 + 10**6 * SECOND_NS


def card(shown: model.Overview, label: str) -> tuple[str, str]:
    (found,) = [each for each in shown.cards if each.label == label]
    return found.value, found.samples


def by_hand() -> list[Span]:
    """20 fast accepted workflows that stand for 9 each; 20 slow rejected ones, 1 of no outcome."""
    spans: list[Span] = []
    for i in range(41):
        weight = 9.0 if i < 20 else 1.0
        outcome = "accepted" if i < 20 else "rejected" if i < 40 else None
        made = workflow(
            i + 1,
            at_s=i,
            ttft_ms=i + 1.0,
            stages={Stage.TOOL: 10.0 if i < 20 else 100.0},
            outcome=outcome,
            prompt_version="v1" if i < 30 else "v2",
        )
        spans += [span._replace(weight=weight) for span in made]
    return spans


def test_every_number_is_the_one_by_hand(store: MemoryStore) -> None:
    store.add(by_hand())
    window = Filters(T0, T0 + 41 * SECOND_NS)
    shown = model.overview(window, store)
    assert shown.size == (41, 201.0, 20 * 9 * 8, 41)
    assert shown.num_traces == 201
    assert not shown.is_rolled
    # of 201 the rank is 101: eleven times nine are 99
    assert card(shown, "p50 TTFT") == ("12.0 ms", "n = 201 calls, told by 41")
    assert card(shown, "max TTFT") == ("41.0 ms", "n = 201 calls, told by 41")
    assert card(shown, "accepted") == ("90.0 %", "n = 200 with an outcome, told by 40")
    assert shown.cards[4].interval.endswith(", 1 unknown")
    first, second = shown.slices
    assert (first.prompt_version, second.prompt_version) == ("v2", "v1")
    assert (first.num_workflows, first.num_calls, first.ttft_p99.kept) == (11, 11, None)
    assert (second.num_workflows, second.num_calls, second.ttft_p50.kept) == (190, 190, 30)
    # of 190 the rank is 95
    assert second.ttft_p50.value == 11.0
    assert second.ttft_p99.tail == 30.0
    assert second.line[0] is None  # two calls
    binned = model.stage_bins(window, 20, shown.size, UTC_CLOCK, store)
    assert [(b.num_traces, b.mean_ms["tool"]) for b in binned.bins] == [
        (180, pytest.approx(10.0)), (20, pytest.approx(100.0)), (1, pytest.approx(100.0)),
    ]  # fmt: skip
    whole = model.stage_bins(window, 3_600, shown.size, UTC_CLOCK, store)
    assert whole.bins[0].mean_ms["tool"] == pytest.approx((180 * 10 + 21 * 100) / 201)
    assert (whole.num_traces, whole.is_sample) == (201, False)


def test_a_line_weighs_too(store: MemoryStore) -> None:
    times = (100.0, 200.0, 300.0, 400.0)
    made = [workflow(i + 1, at_s=0.1 * i, ttft_ms=ms) for i, ms in enumerate(times)]
    spans = sent(made, (1.0, 1.0, 1.0, 9.0))
    store.add(spans)
    (found,) = model.overview(Filters(T0, T0 + 24 * SECOND_NS), store).slices
    assert found.line == (400.0,) + (None,) * 23


def test_a_percentile_that_few_stand_for_is_not_shown(store: MemoryStore) -> None:
    made = [workflow(i + 1, at_s=i, ttft_ms=i + 1.0) for i in range(30)]
    store.add(sent(made, [1_000.0 if i > 15 else 1.0 for i in range(30)]))
    shown = model.overview(Filters(T0, T0 + 60 * SECOND_NS), store)
    found = shown.slices[0].ttft_p50
    assert (found.n, found.kept, found.is_shown, found.tail) == (14_016, 30, False, 30.0)
    first = shown.cards[0]
    assert (first.label, first.value, first.interval) == (
        "max TTFT", "30.0 ms", "p50 (n too small)",
    )  # fmt: skip


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[list[list[Span]], MemoryStore, model.Overview]]:
    made = every(NUM)
    held = MemoryStore()
    held.add([span for spans in made for span in spans])
    yield made, held, model.overview(WINDOW, held)
    held.close()


Full = tuple[list[list[Span]], MemoryStore, model.Overview]


def test_a_sample_tells_what_all_tell(full: Full, store: MemoryStore) -> None:
    made, held, true = full
    drawn = weights(made, 0.2)
    store.add(sent(made, drawn))
    shown = model.overview(WINDOW, store)
    assert not shown.is_rolled
    assert shown.size.num_kept == sum(w is not None for w in drawn) < NUM / 2
    assert shown.num_traces == pytest.approx(NUM, rel=0.05)
    assert [s.prompt_version for s in shown.slices] == [s.prompt_version for s in true.slices]
    for near, known in zip(shown.slices, true.slices, strict=True):
        assert near.num_workflows == pytest.approx(known.num_workflows, rel=0.1)
        for name in ("ttft_p50", "ttft_p99", "wall_p50", "wall_p99"):
            told, right = getattr(near, name), getattr(known, name)
            assert told.is_shown == right.is_shown, name
            assert told.tail == pytest.approx(right.tail, rel=0.1), name
        assert near.ttft_p50.low < known.ttft_p50.value < near.ttft_p50.high
    share = [float(card(each, "accepted")[0].removesuffix(" %")) for each in (shown, true)]
    assert share[0] == pytest.approx(share[1], abs=3)
    # not weighed the slow ones, all kept, would pull it far up
    asked = "SELECT quantile_disc(ttft_ms, 0.5) AS ms FROM calls"
    plain, right = (each.sql(asked).to_pylist()[0]["ms"] for each in (store, held))
    assert plain > 1.2 * right
    near_bins, true_bins = (
        model.stage_bins(WINDOW, 3_600, each.size, UTC_CLOCK, reader).bins
        for each, reader in ((shown, store), (true, held))
    )
    for told, right in zip(near_bins, true_bins, strict=True):
        assert told.mean_ms["tool"] == pytest.approx(right.mean_ms["tool"], rel=0.1)


def test_what_a_collector_counted_before_it_dropped_is_the_whole_answer(
    full: Full, store: MemoryStore
) -> None:
    made, held, true = full
    store.add([span for spans in made for span in spans])
    refresh(store, LATER_NS)
    take_out(store, made, weights(made, 0.1))
    refresh(store, LATER_NS)
    shown = model.overview(WINDOW, store)
    assert shown.is_rolled
    assert shown.size.num_kept < NUM / 2
    assert [(s.prompt_version, s.num_workflows, s.num_calls) for s in shown.slices] == [
        (s.prompt_version, s.num_workflows, s.num_calls) for s in true.slices
    ]
    for near, known in zip(shown.slices, true.slices, strict=True):
        assert near.ttft_p99.tail == pytest.approx(known.ttft_p99.tail, rel=0.011)
    assert [each.samples for each in shown.cards[:4]] == [each.samples for each in true.cards[:4]]
    assert "told by" in shown.cards[4].samples
    binned = model.stage_bins(WINDOW, 60, shown.size, UTC_CLOCK, store)
    right = model.stage_bins(WINDOW, 60, true.size, UTC_CLOCK, held)
    assert [(b.start_ns, b.num_traces) for b in binned.bins] == [
        (b.start_ns, b.num_traces) for b in right.bins
    ]
    for told, known in zip(binned.bins, right.bins, strict=True):
        assert told.mean_ms == pytest.approx(known.mean_ms)


def test_counts_that_lack_a_part_are_not_taken(full: Full, store: MemoryStore) -> None:
    made, _, _ = full
    drawn = weights(made, 0.1)
    store.add(sent(made, drawn))
    refresh(store, LATER_NS)  # what a sender dropped was never counted
    assert not model.overview(WINDOW, store).is_rolled
    # few that stand for many: chance is no excuse for counts that are those of the kept
    few = Filters(T0, T0 + 240 * SECOND_NS)
    assert not model.overview(few, store).is_rolled


def test_counts_of_whole_minutes_are_not_taken_for_a_part_of_one(
    full: Full, store: MemoryStore
) -> None:
    made, _, _ = full
    store.add([span for spans in made for span in spans])
    refresh(store, LATER_NS)
    take_out(store, made, weights(made, 0.1))
    part = Filters(T0 + 20 * SECOND_NS, T0 + 50 * SECOND_NS)
    shown = model.overview(part, store)
    assert not shown.is_rolled
    assert shown.size.is_sampled
    binned = model.stage_bins(part, 60, shown.size, UTC_CLOCK, store)
    assert sum(b.num_traces for b in binned.bins) == pytest.approx(shown.num_traces)


def test_of_more_than_can_be_read_some_are_drawn(
    full: Full, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, true = full
    drawn = weights(made, 0.5)
    store.add(sent(made, drawn))
    monkeypatch.setattr(sampled, "MAX_READ", 500)
    shown = model.overview(WINDOW, store)
    told = shown.slices[0].ttft_p50.kept or 0
    assert 150 < told < 350
    num = sum(w or 0 for w in drawn)
    assert sum(s.num_calls for s in shown.slices) == pytest.approx(num, rel=0.1)
    for near, known in zip(shown.slices, true.slices, strict=True):
        assert near.ttft_p50.value == pytest.approx(known.ttft_p50.value, rel=0.2)


def test_a_sampled_period_is_compared_with_one_that_was_not(full: Full, store: MemoryStore) -> None:
    made, _, _ = full
    half = T0 + NUM // 2 * SECOND_NS
    drawn = weights(made, 0.2)
    first = [1.0] * (NUM // 2)
    for given in ((*first, *drawn[NUM // 2 :]), (*drawn[: NUM // 2], *first)):
        held = MemoryStore()
        held.add(sent(made, given))
        now = Filters(half, WINDOW.end_ns, (), Filters(T0, half), "previous period")
        told = {each.label: each for each in model.overview(now, held).cards}
        moved = told["p50 TTFT"]
        assert moved.change is not None
        assert float(moved.change.removesuffix(" %")) == pytest.approx(0, abs=12)
        assert moved.tone == "grey"
        assert told["accepted"].change is not None
        held.close()


class Watched:
    """A reader that remembers what it was asked."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.asked: list[str] = []

    def sql(self, query: str, params: object = ()) -> object:
        self.asked.append(query)
        return self._store.sql(query, params)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", [(), (Match("outcome", "accepted"),)])
def test_where_all_was_kept_weights_are_asked_for_once(
    full: Full, store: MemoryStore, where: tuple[Match, ...]
) -> None:
    made, held, _ = full
    window = Filters(T0, WINDOW.end_ns, where)
    reader = Watched(held)
    shown = model.overview(window, reader)  # type: ignore[arg-type]
    binned = model.stage_bins(window, shown.bin_s, shown.size, UTC_CLOCK, reader)  # type: ignore[arg-type]
    assert len(reader.asked) == 6  # extent, calls, walls, lines, slices, bins
    assert ["weight" in query for query in reader.asked] == [True] + [False] * 5
    assert shown.sampled is None
    # weights of one, said or not, are none
    store.add(sent(made, [1.0] * NUM))
    assert model.overview(window, store) == shown
    assert model.stage_bins(window, shown.bin_s, shown.size, UTC_CLOCK, store) == binned


@pytest.fixture
def page(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    st.cache_data.clear()
    st.cache_resource.clear()
    monkeypatch.setattr(Source, "open", lambda self: store)
    source.use(Source(files=(Path("spans.parquet"),)))
    yield lambda: texts(run("overview"))
    source._source = None


def test_the_page_says_that_traces_were_sampled(
    store: MemoryStore, page: Callable[[], str]
) -> None:
    store.add(by_hand())
    said = page()
    assert "201 workflows" in said
    assert "41 workflows that were kept stand for 201; told by the kept ones alone:" in said
    assert "n = 201 calls, told by 41" in said
    assert "and more where not all were kept" in said


def test_the_page_says_nothing_of_sampling_where_all_was_kept(
    store: MemoryStore, page: Callable[[], str]
) -> None:
    draw = random.Random(1)
    store.add([s for i in range(41) for s in workflow(i + 1, ttft_ms=draw.uniform(1, 9))])
    said = page()
    assert "41 workflows" in said
    assert "kept" not in said
