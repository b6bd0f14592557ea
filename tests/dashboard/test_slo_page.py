"""The page of objectives: its figures are those of ``longpole slo check``."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from click.testing import CliRunner
from tests.alerts.made_store import MadeStore

from longpole.vocab import Span
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.slo.burn import burn_rates, panel, window
from longpole_analytics.slo.check import document
from longpole_analytics.slo.objectives import Objective, from_tables
from longpole_analytics.slo_command import slo as command
from longpole_collector.files import write_parquet
from longpole_dashboard import source
from longpole_dashboard.figures import slo as figures
from longpole_dashboard.model import slo, slo_counting
from longpole_dashboard.model.alerts import Alert
from longpole_dashboard.model.box import read_box
from longpole_dashboard.model.clock import Clock, iso
from longpole_dashboard.model.slo_counting import count
from longpole_dashboard.model.window import Filters
from longpole_dashboard.pages import slo as page
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import T0, workflow

TOML = """
[slo.ttft]
metric = "ttft_ms"
threshold = 250
target = 0.9
period = "2h"
where = "route = 'rag.search'"
floors = [
  { metric = "accepted", target = 0.5 },
  { metric = "e2e_ms", threshold = 10, target = 0.9 },
]
rules = [
  { severity = "page", long = "1h", short = "5m", factor = 2 },
  { severity = "ticket", long = "2h", short = "30m", factor = 1, for = "3m", keep = "20m" },
]

[slo.time-per-token]
metric = "tpot_ms"
threshold = 9
target = 0.99
period = "1d"

[slo.quality]
metric = "quality"
threshold = 0.9
target = 0.99
period = "7d"

[slo.answers]
metric = "accepted"
target = 0.95
period = "3h"
min_bad = 1
where = "prompt_version <> 'v1' AND tool_ms > 1"
"""
START = 29_833_320  # a minute


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(slo_counting, "LOOK_S", 1e9)
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def objectives(text: str = TOML) -> tuple[Objective, ...]:
    import tomllib

    return tuple(from_tables(tomllib.loads(text)["slo"]))


def one(**given: Any) -> Objective:
    table = {"metric": "ttft_ms", "threshold": 2000, "target": 0.9, "period": "1d", **given}
    told = {key: value for key, value in table.items() if value is not None}
    return from_tables({"search": told})[0]


def until(minute: int) -> Filters:
    return Filters(0, minute * MINUTE_NS)


def some_hours() -> list[Span]:
    """Three hours of two routes; one gets slow towards the end, some are rejected or fail."""
    found: list[Span] = []
    for i in range(90):
        is_slow = i > 55 and i % 3 == 0
        found += workflow(
            i + 1,
            at_s=120.0 * i,
            ttft_ms=400.0 + i if is_slow else 100.0 + i,
            route="rag.search" if i % 4 else "chat",
            prompt_version=f"v{1 + i // 45}",
            outcome=("accepted", "rejected", "failed")[(i % 7) // 3],
        )
    return found


def test_the_page_and_the_command_say_the_same(store: MemoryStore, tmp_path: Path) -> None:
    store.add(some_hours())
    write_parquet(store, tmp_path / "spans.parquet")
    (tmp_path / "longpole.toml").write_text(TOML)
    words = ["check", "--file", str(tmp_path / "spans.parquet"), "--json"]
    words += ["--config", str(tmp_path / "longpole.toml")]
    for minutes_before in (0, 47):
        last_ns = T0 + (180 - minutes_before) * MINUTE_NS
        found = slo.slos(objectives(), Filters(T0, last_ns), store)
        assert found.at_ns % MINUTE_NS == 0
        assert found.num_uncounted == 0
        at = datetime.fromtimestamp(found.at_ns // 10**9, UTC).isoformat()
        told = json.loads(CliRunner().invoke(command, [*words, "--at", at]).stdout)
        shown = document(found.standings, found.at_ns)
        by_id = {each["id"]: each for each in shown["slos"]}
        assert by_id == {each["id"]: each for each in told["slos"]}
        assert shown["at"] == told["at"]
        assert by_id["ttft"]["events"]["bad"] > 0
        assert by_id["quality"]["status"] == "no_data"
        left = [each["budget"]["remaining"] for each in shown["slos"]]
        known = [each for each in left if each is not None]
        assert known == sorted(known)
        assert left[len(known) :] == [None] * (len(left) - len(known))


def test_the_detail_ends_where_the_objective_stands() -> None:
    store = MadeStore()
    for minute in range(300):
        store.add(START + minute, good=9, bad=4 if minute >= 200 else 0)
    (objective,) = (one(where="route = 'search'"),)
    found = slo.detail((objective,), "search", until(START + 300), store)
    standing = found.standing
    assert found.left[-1] == standing.budget.remaining
    assert found.left[0] is None
    assert standing.budget.remaining is not None
    assert standing.budget.remaining < 0
    assert min(left for left in found.left if left is not None) == found.left[-1]
    assert sum(found.bad) == standing.bad == 400
    assert sum(found.good) == standing.total - standing.bad
    assert [burn.window for burn in found.burns] == ["1h", "6h", "24h"]
    assert found.burns[0].rates[-1] == pytest.approx(4 / 13 / 0.1)
    assert max(rate or 0.0 for rate in found.burns[-1].rates) < 4 / 13 / 0.1
    assert [line.factor for line in found.lines] == [each.factor_used for each in standing.rules]
    assert found.ends_ns[-1] == (START + 300) * MINUTE_NS
    assert len(found.ends_ns) <= slo.MAX_STEPS
    alert = Alert("search", "page", "PAGE", (START + 210) * MINUTE_NS, None, "firing", None)
    drawn = [
        figures.budget(found, Clock()),
        figures.burn(found, [alert], Clock("Europe/Berlin")),
        figures.counts(found, Clock()),
    ]
    assert drawn[0].layout.yaxis.range[0] < 100 * min(left for left in found.left if left)
    assert [trace.name for trace in drawn[1].data] == ["burn 1h", "burn 6h", "burn 24h"]
    assert sum(len(trace.x) for figure in drawn for trace in figure.data) <= 5_000


def test_a_burst_of_a_minute_is_not_lost_between_two_points() -> None:
    store = MadeStore()
    for minute in range(0, 1440, 5):
        store.add(START + minute, good=1)
    store.add(START + 703, bad=4)
    objective = one(
        rules=[{"severity": "page", "long": "4m", "short": "2m", "factor": 2}], period="7d"
    )
    found = slo.detail((objective,), "search", until(START + 1440), store)
    assert found.step_min > 4
    assert max(rate or 0.0 for rate in found.burns[0].rates) == pytest.approx(10.0)


def test_burn_rates_are_those_of_single_windows() -> None:
    store = MadeStore()
    for minute in (3, 4, 9, 40, 41):
        store.add(START + minute, good=minute % 4, bad=minute % 3)
    objective = one(period="1h")
    minutes = panel([objective], count((objective,), START + 60, store).series)
    for length in (1, 5, 30):
        rates = burn_rates(minutes, 0, length, START + 1, START + 60)
        each = [window(minutes, 0, START + 1 + i, length).burn(0.1) for i in range(60)]
        assert [None if np.isnan(rate) else rate for rate in rates.tolist()] == each


def test_later_looks_read_what_changed_and_find_what_a_first_look_finds() -> None:
    store, again = MadeStore(), MadeStore()
    objective = one()
    for minute in range(0, 600, 10):
        for each in (store, again):
            each.add(START + minute, good=5, bad=1)
    count((objective,), START + 600, store)
    num_asked = len(store.asked)
    count((objective,), START + 601, store)
    assert len(store.asked) == num_asked + 1
    for each in (store, again):
        each.add(START + 100, bad=7)
        each.add(START + 602, good=2)
    later = count((objective,), START + 602, store)
    first = count((objective,), START + 602, again)
    assert later.num_uncounted == first.num_uncounted == 0
    assert len(store.asked) <= num_asked + 2 + 2 * 4
    for mine, other in zip(later.series, first.series, strict=True):
        assert np.array_equal(mine.bad_e6, other.bad_e6)
        assert np.array_equal(mine.total_e6, other.total_e6)
        assert mine.num_left_out == other.num_left_out


def test_a_look_that_takes_long_goes_on_at_the_next_and_says_what_is_left() -> None:
    store = MadeStore()
    for days in range(3):  # apart, so that each is read by itself
        store.add(START + 1440 * 10 * days, good=10)
    objective, last = one(period="30d"), START + 1440 * 20
    left = [count((objective,), last, store, look_s=0.0).num_uncounted for _ in range(2)]
    assert left == [20, 10]
    assert slo.count_on((objective,), until(last + 1), 1, store) == 0


def test_looking_back_does_not_change_what_now_is() -> None:
    store = MadeStore()
    for minute in range(100):
        store.add(START + minute, good=1, bad=1)
    now = count((one(period="1h"),), START + 99, store)
    back = count((one(period="1h"),), START + 50, store)
    again = count((one(period="1h"),), START + 99, store)
    short = count((one(period="1h"),), START + 90, store)  # a moment earlier, asked late
    assert short.series[0].first_minute == START + 31
    assert int(short.series[0].total_e6.sum()) == 60 * 2 * 10**6
    assert back.series[0].first_minute == START - 9
    assert int(back.series[0].total_e6.sum()) == 51 * 2 * 10**6
    assert np.array_equal(now.series[0].total_e6, again.series[0].total_e6)


def test_a_condition_that_cannot_be_asked_is_said_and_the_others_stand() -> None:
    store = MadeStore()
    store.add(START, good=5, bad=5)
    good, wrong = one(), from_tables({"x": {"metric": "accepted", "target": 0.9, "period": "1d",
                                            "where": "no_such = 1"}})[0]  # fmt: skip
    found = slo.slos((wrong, good), until(START + 1), store)
    assert [each.objective.id for each in found.standings] == ["search"]
    assert [name for name, _ in found.broken] == ["x"]
    assert "no_such" in found.broken[0][1]


def test_a_share_is_shown_where_enough_requests_tell_of_it() -> None:
    cases = {
        (0, 0): ("—", "no data"),
        (5, 0): ("—", "not enough events"),
        (29, 0): ("—", "not enough events"),
        (30, 0): ("100 %", ""),
        (28, 2): ("93.33 %", ""),
        (8, 2): ("—", "not enough events"),
        (2, 3): ("40 %", ""),
    }
    store = MadeStore()
    for good, bad in cases:
        store.add(START, good=good, bad=bad, route=f"{good}-{bad}")
    table = {"metric": "ttft_ms", "threshold": 2000, "target": 0.9, "period": "1d"}
    given = {f"{g}-{b}": table | {"where": f"route = '{g}-{b}'"} for g, b in cases}
    found = slo.slos(tuple(from_tables(given)), until(START + 1), store)
    shown = {each.objective.id: page._good(each) for each in found.standings}
    assert shown == {f"{good}-{bad}": said for (good, bad), said in cases.items()}
    (standing,) = (each for each in found.standings if each.objective.id == "30-0")
    almost = replace(standing, bad=1.0, total=30_001.0, num_bad=1)
    assert page._good(almost) == ("> 99.99 %", "")


def test_versions_that_appear_are_marked_and_those_that_were_there_are_not() -> None:
    store = MadeStore()
    for minute in range(60):
        store.add(START + minute, good=3, prompt="v41" if minute < 30 else "v42")
        store.add(START + minute, good=1, route="chat", prompt="v9")
    store.add(START + 10, good=1, prompt="rare")
    found = slo.marks(
        one(where="route = 'search'"), START * MINUTE_NS, (START + 60) * MINUTE_NS, store
    )
    assert [mark.text for mark in found] == ["prompt version v42 on search"]
    assert found[0].at_ns // MINUTE_NS == START + 30


def test_the_burn_is_explained_over_its_window_with_the_bad_ones_boxed() -> None:
    store = MadeStore()
    for minute in range(60):
        store.add(START + minute, good=5, bad=5)
    where = "route = 'search' AND prompt_version = 'v41' and outcome='failed'"
    end_ns = (START + 60) * MINUTE_NS

    def explained(objective: Objective) -> slo.Explained:
        detail = slo.detail((objective,), objective.id, until(START + 60), store)
        return slo.explained(detail, end_ns)

    for asked, route, others in (
        (where, "search", ["prompt_version=v41", "outcome=failed"]),
        (None, "", []),
    ):
        found = explained(one(where=asked))
        assert found.is_whole
        assert (found.params["route"], found.params["where"]) == (route, others)
        assert found.params["metric"] == "ttft_ms"
        box, said = read_box(str(found.params["box"]))
        assert said is None
        assert box is not None
        assert (box.end_ns, box.low, box.high) == (end_ns, 2000.0, None)
        assert Clock().read(str(found.params["to"])) == end_ns
        start_ns = Clock().read(str(found.params["from"]))
        assert start_ns is not None
        assert box.start_ns is not None
        assert box.start_ns - start_ns == end_ns - box.start_ns
    found = explained(one(metric="accepted", threshold=None, where="route LIKE 's%'"))
    assert not found.is_whole
    assert found.params["metric"] == "e2e_ms"
    assert str(found.params["box"]).endswith(",,")


def test_a_window_of_few_bad_requests_is_explained_by_a_longer_one() -> None:
    store = MadeStore()
    for hour in range(24):
        store.add(START + 60 * hour, good=1, bad=3)
    detail = slo.detail((one(),), "search", until(START + 1440), store)
    assert detail.num_bad == ((60, 3), (360, 18), (1440, 72))
    found = slo.explained(detail, (START + 1440) * MINUTE_NS)
    assert str(found.params["box"]).startswith(iso(START * MINUTE_NS))


def test_a_route_chooses_the_objectives_that_are_about_it() -> None:
    found = slo.about(objectives(), "rag.search")
    assert [each.id for each in found] == ["ttft", "time-per-token", "quality", "answers"]
    assert "ttft" not in {each.id for each in slo.about(objectives(), "chat")}


def test_the_pages_draw_and_say_what_is_missing(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Source, "open", lambda self: store)
    store.add(some_hours())
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    assert "No objective is written." in texts(run("slo"))
    (tmp_path / "longpole.toml").write_text(TOML)
    assert "longpole slo check --at 2026-09-14T16:29:00Z --json" in texts(run("slo"))
    detail = run("slo", slo="ttft")
    assert "Budget left over the last 2h" in texts(detail)
    assert "floor e2e_ms missed" in texts(detail)
    assert "No data: no request in the last 7d tells quality." in texts(run("slo", slo="quality"))
    assert "There is no objective &#x27;nope&#x27;" in texts(run("slo", slo="nope"))
