"""The sentences on top of the Overview."""

import random
from collections.abc import Iterator

import pytest

from longpole.vocab import Span, Stage
from longpole_dashboard.model.verdict import verdicts
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
