"""The sentences on top of the Overview."""

import random
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from longpole.vocab import Span, Stage
from longpole_analytics.finding import find
from longpole_dashboard.model import verdict
from longpole_dashboard.model.verdict import told, verdicts
from longpole_dashboard.model.window import SECOND_NS, Filters

from .conftest import MemoryStore
from .sample import T0, workflow

EVERYTHING = Filters(T0, T0 + 10_000 * SECOND_NS)


def slow_version(first: int, route: str, stage: Stage | None = None) -> list[Span]:
    """300 workflows, the last 100 of which are of v42 half of the time, and slow then."""
    draw = random.Random(1)
    spans: list[Span] = []
    for i in range(1, 301):
        is_slow = i > 200 and draw.random() < 0.5
        ttft_ms = draw.lognormvariate(5, 0.3) * (8 if is_slow and stage is None else 1)
        spans += workflow(
            first + i,
            at_s=i,
            ttft_ms=ttft_ms,
            stages={Stage.TOOL: 50.0, stage: 9_000.0} if is_slow and stage else None,
            prompt_version="v42" if is_slow else "v41",
            route=route,
        )
    return spans


@pytest.fixture(scope="module")
def planted() -> Iterator[MemoryStore]:
    """One route slow by its TTFT, one by a retrieval, one that is not."""
    held = MemoryStore()
    draw = random.Random(2)
    held.add(slow_version(0, "rag.search") + slow_version(1_000, "docs", Stage.RETRIEVAL))
    held.add(
        [
            span
            for i in range(300)
            for span in workflow(
                2_000 + i, at_s=i, ttft_ms=draw.lognormvariate(5, 0.3), route="calm"
            )
        ]
    )
    yield held
    held.close()


def test_nothing_to_say_is_said(store: MemoryStore) -> None:
    (nothing,) = verdicts(EVERYTHING, {}, store)
    assert nothing.line.startswith("No finding")
    store.add(workflow(1))
    (thin,) = verdicts(EVERYTHING, {}, store)
    assert (thin.tone, thin.limit_ms) == ("grey", None)


def test_what_is_wrong_is_told_worst_first_with_stage_slice_and_since_when(
    planted: MemoryStore,
) -> None:
    first, second = verdicts(EVERYTHING, {}, planted)
    assert (first.route, first.metric, first.tone) == ("docs", "e2e_ms", "worse")
    assert "retrieval holds" in first.line
    assert (second.route, second.metric, second.tone) == ("rag.search", "ttft_ms", "worse")
    assert "prompt_version=v42" in second.line
    assert "opaque TTFT" in second.line
    assert any(fact.startswith("Next: ") for fact in second.facts)
    for each in (first, second):
        assert each.since_ns is not None
        assert each.since_ns >= T0 + 200 * SECOND_NS
        assert each.limit_ms is not None
        of = f"SELECT prompt_version FROM traces WHERE trace_id = '{each.exemplar}'"
        assert planted.sql(of).column(0).to_pylist() == ["v42"]


def test_a_route_is_held_to_its_own_objective(planted: MemoryStore) -> None:
    told = verdicts(EVERYTHING, {("ttft_ms", "calm"): 20.0}, planted)
    calm = next(each for each in told if each.route == "calm")
    assert calm.line.startswith("calm: 300 of 300 workflows over the TTFT objective of 20.0 ms")
    assert (calm.tone, calm.limit_ms) == ("worse", 20.0)
    assert len(told) == 3


def test_equal_slices_are_not_blamed(store: MemoryStore) -> None:
    draw = random.Random(2)
    spans: list[Span] = []
    for i in range(1, 301):
        version = f"v{1 + i % 2}"
        spans += workflow(i, ttft_ms=draw.lognormvariate(5, 0.3), prompt_version=version)
    store.add(spans)
    (found,) = verdicts(EVERYTHING, {}, store)
    assert found.tone == "grey"
    assert "no slice explains" in found.line


def test_the_box_of_a_finding_holds_enough_to_be_compared(planted: MemoryStore) -> None:
    found = next(each for each in verdicts(EVERYTHING, {}, planted) if each.metric == "ttft_ms")
    assert found.limit_ms is not None
    assert found.box_ms is not None
    assert found.box_ms < found.limit_ms  # 5 % of 300 workflows are fewer than 30
    query = (
        "SELECT count(DISTINCT trace_id) AS n FROM calls WHERE route = $route AND ttft_ms >= $low"
    )
    (row,) = planted.sql(query, {"route": found.route, "low": found.box_ms}).to_pylist()
    assert 30 <= row["n"] <= 40


def lost_cache(**of_slow: Any) -> list[Span]:
    """300 workflows, a third of which find nothing cached any more, and are ``of_slow``."""
    draw = random.Random(4)
    spans: list[Span] = []
    for i in range(300):
        ttft_ms = draw.lognormvariate(5, 0.3)
        facts = {"cached_input_tokens": 90, "cache_state": "hit", "prefix_hash": "same"}
        if i % 3 == 0:
            lost = {"cached_input_tokens": 0, "cache_state": "miss", "prefix_hash": f"{i:08x}"}
            ttft_ms, facts = 9 * ttft_ms, {**lost, **of_slow}
        made = workflow(i + 1, at_s=i, ttft_ms=ttft_ms)
        spans += [span._replace(**facts) if span.is_model_call else span for span in made]
    return spans


@pytest.mark.parametrize(
    "of_slow",
    [{"request_model": "slow"}, {"is_cold_start": True, "output_tokens": 900}],
    ids=str,
)
def test_what_is_read_tells_what_whole_views_tell(
    store: MemoryStore, of_slow: dict[str, Any]
) -> None:
    store.add(lost_cache(**of_slow))
    views = [
        pl.DataFrame(store.sql(f"SELECT * FROM {name} ORDER BY ALL"))
        for name in ("traces", "trace_stages", "calls")
    ]
    found = [find(*views, metric=metric) for metric in ("ttft_ms", "wall_ms")]
    known = {told(each).line: told(each).facts for each in found if each is not None}
    shown = verdicts(EVERYTHING, {}, store)
    assert shown[0].tone == "worse"
    assert any("cached tokens 90 % -> 0 %" in fact for fact in shown[0].facts)
    assert any("the prefix differs" in fact for fact in shown[0].facts)
    for each in shown:
        assert known[each.line] == each.facts


def test_the_newest_are_found_wherever_they_lie_in_a_long_window(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    day_s = 86_400
    store.add([span for n in range(12) for span in workflow(n + 1, at_s=n * day_s // 2)])
    monkeypatch.setattr(verdict, "MAX_TRACES", 4)
    for end_s in (5 * day_s, 6 * day_s, 40 * day_s):
        window = Filters(T0, T0 + end_s * SECOND_NS)
        inside = [n + 1 for n in range(12) if n * day_s // 2 < end_s]
        found = verdict._newest(window, store).requests["trace_id"]
        assert sorted(int(each, 16) for each in found) == inside[-4:]
