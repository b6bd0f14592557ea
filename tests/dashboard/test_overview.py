"""The Overview's view model against a real store."""

import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import Span, Stage
from longpole_analytics.slo.objectives import from_tables
from longpole_collector.files import write_parquet
from longpole_collector.stores.minutes import refresh
from longpole_dashboard.model import cards as cards_model
from longpole_dashboard.model import overview as model
from longpole_dashboard.model import rolled
from longpole_dashboard.model.budgets import budgets
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.sampled import whole
from longpole_dashboard.model.window import SECOND_NS, Filters, Match

from .conftest import MemoryStore
from .sample import T0, agent_trace, workflow

LABELS = ["p50 TTFT", "p99 TTFT", "p50 TPOT, per token", "p99 workflow", "accepted"]
EVERYTHING = Filters(T0 - SECOND_NS, T0 + 10_000 * SECOND_NS)


def many(
    n: int, first: int = 1, ttft_ms: Callable[[int], float] = float, **given: Any
) -> list[Span]:
    return [
        span
        for i in range(n)
        for span in workflow(first + i, at_s=i, ttft_ms=ttft_ms(i + 1), **given)
    ]


def bins_of(shown: model.Overview, store: MemoryStore) -> tuple[model.Bin, ...]:
    asked = (shown.filters, shown.bin_s, shown.size, UTC_CLOCK)
    return model.stage_bins(*asked, store).bins


def by_label(shown: model.Overview) -> dict[str, cards_model.Card]:
    return {card.label: card for card in shown.cards}


def test_an_empty_window_shows_nothing(store: MemoryStore) -> None:
    store.add(workflow(1))
    shown = model.overview(Filters(0, 1), store)
    assert (shown.num_traces, shown.cards, shown.slices) == (0, (), ())
    assert model.slowest(Filters(0, 1), store) == ()


def test_a_small_sample_shows_its_maximum_instead_of_p99(store: MemoryStore) -> None:
    store.add(many(40))
    found = by_label(model.overview(EVERYTHING, store))
    assert list(found) == [label.replace("p99", "max") for label in LABELS]
    assert found["max TTFT"].value == "40.0 ms"
    assert found["max TTFT"].interval == "p99 (n too small)"
    assert found["p50 TTFT"].value == "20.0 ms"
    assert found["p50 TTFT"].samples == "n = 40 calls"


def test_a_single_trace_is_shown(store: MemoryStore) -> None:
    store.add(workflow(1))
    shown = model.overview(EVERYTHING, store)
    assert by_label(shown)["max workflow"].value == "150 ms"
    assert len(bins_of(shown, store)) == len(model.slowest(EVERYTHING, store)) == 1
    assert len(shown.slices) == 1


def test_unknown_outcomes_are_not_success(store: MemoryStore) -> None:
    store.add(many(30))
    store.add(many(10, first=100, outcome="rejected"))
    store.add(many(5, first=200, outcome=None))
    card = by_label(model.overview(EVERYTHING, store))["accepted"]
    assert card.value == "75.0 %"
    assert card.samples == "n = 40 with an outcome"
    assert card.interval.endswith("5 unknown")


def test_a_change_is_grey_until_it_is_decided(store: MemoryStore) -> None:
    store.add(many(100, ttft_ms=lambda i: 100 + i % 7))
    middle = T0 + 1_000 * SECOND_NS
    slower = [
        span
        for i in range(100)
        for span in workflow(1_000 + i, at_s=1_000 + i, ttft_ms=200 + i % 7)
    ]
    store.add(slower)
    before = Filters(T0, middle)
    filters = Filters(middle, middle + 1_000 * SECOND_NS, (), before, "previous period")
    found = by_label(model.overview(filters, store))
    assert (found["p50 TTFT"].change, found["p50 TTFT"].tone) == ("+97 %", "worse")
    assert (found["accepted"].change, found["accepted"].tone) == ("+0.0 points", "grey")
    assert found["p50 TPOT, per token"].tone == "grey"
    without = by_label(model.overview(Filters(middle, filters.end_ns), store))
    assert without["p50 TTFT"].change is None


def test_slices_are_worst_first_and_hold_every_workflow(store: MemoryStore) -> None:
    store.add(many(30, ttft_ms=lambda i: 50.0))
    store.add(many(25, first=100, ttft_ms=lambda i: 900.0, prompt_version="v2"))
    store.add(workflow(900, route=None, prompt_version=None, ttft_ms=None))
    found = model.slices(EVERYTHING, store)
    assert [(s.route, s.prompt_version) for s in found] == [
        ("rag.search", "v2"),
        ("rag.search", "v1"),
        (None, None),
    ]
    assert [s.num_workflows for s in found] == [25, 30, 1]
    assert [s.num_calls for s in found] == [25, 30, 0]
    assert found[0].ttft_p50.value == 900.0
    assert found[2].ttft_p50.n == 0


def test_the_route_filter_holds_everywhere(store: MemoryStore) -> None:
    store.add(many(5))
    store.add(many(7, first=50, route="chat"))
    chat = Filters(EVERYTHING.start_ns, EVERYTHING.end_ns, (Match("route", "chat"),))
    shown = model.overview(chat, store)
    assert shown.num_traces == 7
    slow = model.slowest(chat, store)
    assert {s.route for s in shown.slices} == {t.route for t in slow} == {"chat"}
    assert sum(b.num_traces for b in bins_of(shown, store)) == 7


def test_the_mean_stages_of_all_bins_add_up_to_all_wall_time(store: MemoryStore) -> None:
    draw = random.Random(3)
    spans: list[Span] = []
    for i in range(1, 40):
        at = T0 + int(draw.uniform(0, 3_000) * SECOND_NS)
        spans += agent_trace(i, at, turns=1 + i % 3)
    store.add(spans)
    shown = model.overview(EVERYTHING, store)
    bins = bins_of(shown, store)
    total = sum(b.num_traces * sum(b.mean_ms.values()) for b in bins)
    wall = store.sql("SELECT sum(wall_ms) AS ms, count(*) AS n FROM traces").to_pylist()[0]
    assert total == pytest.approx(wall["ms"])
    assert sum(b.num_traces for b in bins) == wall["n"]
    assert len(bins) <= model.MAX_BINS


def test_of_very_many_traces_a_sample_is_drawn(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [draw_id * (16**29) for draw_id in range(1, 161)]
    store.add(
        [
            span._replace(trace_id=f"{ids[i]:032x}")
            for i in range(160)
            for span in workflow(i + 1, stages={Stage.TOOL: 50.0})
        ]
    )
    monkeypatch.setattr(model, "MAX_BINNED", 40)
    found = model.stage_bins(EVERYTHING, 3_600, whole(4_096 * 40 // 80), UTC_CLOCK, store)
    # the ids are spread over 16**3 values, of which the lowest 80 are drawn
    assert (found.num_traces, found.is_sample) == (79, True)
    assert found.bins[0].mean_ms["tool"] == 50.0
    every = model.stage_bins(EVERYTHING, 3_600, whole(40), UTC_CLOCK, store)
    assert (every.num_traces, every.is_sample) == (160, False)


def test_stages_counted_by_the_minute_are_those_of_the_workflows(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [
        span
        for i in range(300)
        for span in workflow(
            i + 1,
            at_s=31 * i,
            stages={Stage.TOOL: 50.0 + i, **({Stage.QUEUE: 1.0 * i} if i % 3 else {})},
            prompt_version=f"v{i % 2}",
        )
    ]
    store.add(spans)
    every = Filters(T0, T0 + 9_300 * SECOND_NS)
    half = Filters(every.start_ns, every.end_ns, (Match("prompt_version", "v1"),))
    asked = [(window, width_s) for window in (every, half) for width_s in (60, 3_600, 7_200)]
    exact = [model.stage_bins(*each, whole(300), UTC_CLOCK, store) for each in asked]
    monkeypatch.setattr(model, "MAX_BINNED", 40)
    assert model.stage_bins(every, 60, whole(300), UTC_CLOCK, store).is_sample  # not counted yet
    refresh(store, T0 + 10 * 3_600 * SECOND_NS)
    for each, true in zip(asked, exact, strict=True):
        found = model.stage_bins(*each, whole(int(true.num_traces)), UTC_CLOCK, store)
        assert (found.num_traces, found.is_sample) == (true.num_traces, False)
        assert [(b.start_ns, b.num_traces) for b in found.bins] == [
            (b.start_ns, b.num_traces) for b in true.bins
        ]
        for told, known in zip(found.bins, true.bins, strict=True):
            assert told.mean_ms == pytest.approx(known.mean_ms)


def test_stages_by_the_second_or_by_what_is_not_counted_are_not_read_from_counts(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(many(50))
    refresh(store, T0 + 3_600 * SECOND_NS)
    monkeypatch.setattr(model, "MAX_BINNED", 40)
    assert not model.stage_bins(EVERYTHING, 60, whole(50), UTC_CLOCK, store).is_sample
    assert model.stage_bins(EVERYTHING, 30, whole(50), UTC_CLOCK, store).is_sample
    accepted = Filters(EVERYTHING.start_ns, EVERYTHING.end_ns, (Match("outcome", "accepted"),))
    assert model.stage_bins(accepted, 60, whole(50), UTC_CLOCK, store).is_sample


@pytest.mark.parametrize("num_traces", [1, 2, 50, 1_000_000])
@pytest.mark.parametrize("extent_s", [0, 1, 119, 3_600, 604_800, 400 * 86_400, 20 * 365 * 86_400])
def test_there_are_never_more_than_120_bins(extent_s: int, num_traces: int) -> None:
    width = model.bin_width_s(extent_s * SECOND_NS, num_traces)
    # The first bin starts at a round time, up to a width before the first trace.
    assert extent_s // width + 2 <= model.MAX_BINS or width == 1


def test_bins_start_at_round_times(store: MemoryStore) -> None:
    store.add(many(100))
    shown = model.overview(EVERYTHING, store)
    assert shown.bin_s == 10
    assert all(b.start_ns % (shown.bin_s * SECOND_NS) == 0 for b in bins_of(shown, store))


def test_the_slowest_come_first_with_their_long_pole(store: MemoryStore) -> None:
    spans: list[Span] = []
    for i in range(60):
        spans += workflow(i + 1, stages={Stage.TOOL: 10.0 * i + 1, Stage.RETRIEVAL: 5.0})
    store.add(spans)
    found = model.slowest(EVERYTHING, store)
    assert len(found) == model.MAX_SLOWEST
    assert found[0].wall_ms == max(t.wall_ms for t in found)
    assert found[0].long_pole == "tool"
    assert found[0].long_pole_ratio == pytest.approx(591 / (591 + 5 + 100))


def test_of_more_equally_slow_ones_those_with_the_lowest_ids_are_shown(store: MemoryStore) -> None:
    store.add([s for i in range(60) for s in workflow(100 - i, stages={Stage.TOOL: 50.0})])
    found = model.slowest(EVERYTHING, store)
    assert [int(trace.trace_id, 16) for trace in found] == list(range(41, 91))


def test_wilson_holds_the_known_interval() -> None:
    # Brown, Cai & DasGupta, Statistical Science 16 (2001): 1 of 10 gives about [0.018, 0.404].
    low, high = cards_model.wilson(1, 10)
    assert (round(low, 3), round(high, 3)) == (0.018, 0.404)
    assert cards_model.wilson(0, 5)[0] == 0.0
    assert cards_model.wilson(5, 5)[1] == 1.0


def test_the_line_of_a_slice_follows_its_calls(store: MemoryStore) -> None:
    store.add(many(120, ttft_ms=lambda i: 100.0 if i <= 60 else 400.0))
    window = Filters(T0, T0 + 120 * SECOND_NS)
    (found,) = model.slices(window, store)
    assert found.line == (100.0,) * 12 + (400.0,) * 12


def test_rolled_up_numbers_are_the_exact_ones_to_within_one_per_cent(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    spans = [
        span
        for i in range(1_200)
        for span in workflow(
            i + 1,
            at_s=i,
            ttft_ms=draw.lognormvariate(5, 0.6),
            prompt_version=f"v{i % 2}",
        )
    ]
    store.add(spans)
    refresh(store, T0 + 3_600 * SECOND_NS)
    window = Filters(T0, T0 + 1_200 * SECOND_NS)
    exact = model.overview(window, store)
    assert not exact.is_rolled
    monkeypatch.setattr(rolled, "FROM_CALLS", 100)
    shown = model.overview(window, store)
    assert shown.is_rolled
    assert [(s.route, s.prompt_version, s.num_workflows, s.num_calls) for s in shown.slices] == [
        (s.route, s.prompt_version, s.num_workflows, s.num_calls) for s in exact.slices
    ]
    for near, true in zip(shown.slices, exact.slices, strict=True):
        for name in ("ttft_p50", "ttft_p99", "wall_p50", "wall_p99"):
            told, known = getattr(near, name), getattr(true, name)
            assert told.value == pytest.approx(known.value, rel=0.011)
            assert told.max == known.max
        assert len(near.line) == 20  # whole minutes
        assert min(v for v in true.line if v) < near.line[10] < max(v for v in true.line if v)
    assert [card.samples for card in shown.cards] == [card.samples for card in exact.cards]
    of_model = Filters(window.start_ns, window.end_ns, (Match("request_model", "tiny"),))
    assert not model.overview(of_model, store).is_rolled


def test_the_command_gives_the_same_quantiles(store: MemoryStore, tmp_path: Path) -> None:
    store.add(many(60, ttft_ms=lambda i: 100.0 + i % 7))
    store.add(many(40, first=100, prompt_version="v2"))
    write_parquet(store, tmp_path / "spans.parquet")
    words = shlex.split(model.command(EVERYTHING, "route = 'rag.search'"))[1:]
    done = CliRunner().invoke(main, [words[0], str(tmp_path / "spans.parquet"), *words[1:]])
    assert done.exit_code == 0, done.output
    told = {
        each["where"]["prompt_version"]: (each["n"], each["quantiles"][0]["value"])
        for each in json.loads(done.output)["slices"]
    }
    found = model.slices(EVERYTHING, store)
    assert told == {s.prompt_version: (s.num_workflows, s.wall_p50.value) for s in found}


def test_budgets_are_those_of_the_objectives_check(store: MemoryStore) -> None:
    store.add(many(100, ttft_ms=lambda i: 3_000.0 if i <= 5 else 100.0))
    store.add(many(4, first=500, route="chat"))
    facts = {"metric": "ttft_ms", "threshold": 2_000, "period": "30d"}
    objectives = from_tables(
        {
            "tight": {**facts, "target": 0.9, "where": "route = 'rag.search'"},
            "loose": {**facts, "target": 0.5, "where": "route = 'rag.search'"},
            "thin": {**facts, "target": 0.9, "where": "route = 'chat'"},
            "other": {**facts, "target": 0.9, "where": "input_tokens > 3"},
        }
    )
    found = budgets(tuple(objectives), Filters(T0, T0 + 3_600 * SECOND_NS), store)
    # 5 bad of 100, where 10 may be
    assert found["rag.search"] == ("tight", pytest.approx(0.5))
    assert found["chat"] == ("thin", None)
    assert set(found) == {"rag.search", "chat"}
