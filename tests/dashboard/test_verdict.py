"""The sentence on top of the Overview."""

import random

from longpole_dashboard.model.verdict import verdict
from longpole_dashboard.model.window import SECOND_NS, Filters

from .conftest import MemoryStore
from .sample import T0, workflow

EVERYTHING = Filters(T0, T0 + 10_000 * SECOND_NS)


def test_nothing_to_say_is_said(store: MemoryStore) -> None:
    assert verdict(EVERYTHING, None, store).line.startswith("No finding")
    store.add(workflow(1))
    assert verdict(EVERYTHING, None, store).tone == "grey"


def test_a_slow_prompt_version_is_named_with_its_stage_and_an_example(store: MemoryStore) -> None:
    draw = random.Random(1)
    slow = set()
    for i in range(1, 301):
        is_slow = i > 200 and draw.random() < 0.5
        spans = workflow(
            i,
            at_s=i,
            ttft_ms=draw.lognormvariate(5, 0.3) * (8 if is_slow else 1),
            prompt_version="v42" if is_slow else "v41",
        )
        if is_slow:
            slow.add(spans[0].trace_id)
        store.add(spans)
    found = verdict(EVERYTHING, None, store)
    assert found.tone == "worse"
    assert "rag.search" in found.line
    assert "prompt_version=v42" in found.line
    assert "opaque TTFT" in found.line
    assert any(fact.startswith("Next: ") for fact in found.facts)
    assert found.exemplar in slow


def test_equal_slices_are_not_blamed(store: MemoryStore) -> None:
    draw = random.Random(2)
    for i in range(1, 301):
        version = f"v{1 + i % 2}"
        store.add(workflow(i, ttft_ms=draw.lognormvariate(5, 0.3), prompt_version=version))
    found = verdict(EVERYTHING, None, store)
    assert found.tone == "grey"
    assert "no slice explains" in found.line
