"""Explore's map and its cut of sampled traces count what came, and compare by weight."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import streamlit as st

from longpole.vocab import Span
from longpole_analytics import weighted
from longpole_dashboard import source
from longpole_dashboard.model import explore as model
from longpole_dashboard.model import population as population_model
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.heatmap import MIN_BOXED, Heat, heatmap
from longpole_dashboard.model.population import population
from longpole_dashboard.model.window import SECOND_NS, Filters
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import T0, workflow
from .thinned import SLOW_MS, every, sent, weights

NUM = 2_400
WINDOW = Filters(T0, T0 + NUM * SECOND_NS)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[MemoryStore, MemoryStore]]:
    """All workflows, and a sample of them."""
    made = every(NUM)
    full, thin = MemoryStore(), MemoryStore()
    full.add([span for spans in made for span in spans])
    thin.add(sent(made, weights(made, 0.2)))
    yield full, thin
    full.close()
    thin.close()


def rows(store: MemoryStore) -> tuple[np.ndarray, np.ndarray]:
    """TTFT of the workflows, ascending, and their weights."""
    asked = (
        "SELECT c.ttft_ms, t.weight FROM traces AS t JOIN calls AS c USING (trace_id) ORDER BY 1"
    )
    found = store.sql(asked)
    return found["ttft_ms"].to_numpy(), found["weight"].to_numpy()


def test_cells_and_numbers_are_sums_of_weights(both: tuple[MemoryStore, MemoryStore]) -> None:
    full, thin = both
    values, weight = rows(thin)
    found, true = (heatmap(WINDOW, "ttft_ms", SLOW_MS, store) for store in (thin, full))
    assert (found.num_kept, true.num_kept) == (len(values), None)
    assert found.num == pytest.approx(weight.sum())
    assert sum(n for _, _, n in found.cells) == pytest.approx(found.num)
    assert found.num_above == weight[values > SLOW_MS].sum() == true.num_above
    assert found.num == pytest.approx(true.num, rel=0.05)
    assert (found.num_flat, found.num_unknown) == (0, 0)
    # by columns of time both tell the same, within chance
    halves = [
        [sum(n for x, _, n in heat.cells if (x < 80) == is_early) for is_early in (True, False)]
        for heat in (found, true)
    ]
    assert halves[0] == pytest.approx(halves[1], rel=0.1)


@pytest.mark.parametrize("name", ["ttft_ms", "e2e_ms", "cost_usd", "time_to_useful_ms"])
def test_workflows_without_the_metric_count_by_weight(
    both: tuple[MemoryStore, MemoryStore], name: str
) -> None:
    found = heatmap(WINDOW, name, None, both[1])
    assert found.num + found.num_unknown == pytest.approx(rows(both[1])[1].sum(), abs=1)


def test_the_cut_is_the_quantile_by_weight_that_those_kept_carry(store: MemoryStore) -> None:
    # 100 fast ones that stand for 9 each, 60 slow ones: of 960 the slow ones are the last 6.25 %
    made = [workflow(i + 1, at_s=i, ttft_ms=i + 1.0) for i in range(160)]
    store.add(sent(made, [9.0] * 100 + [1.0] * 60))
    window = Filters(T0, T0 + 160 * SECOND_NS)
    found = heatmap(window, "ttft_ms", None, store)
    values, weight = rows(store)
    expected = {q: weighted.quantile(values, weight, q) for q in (0.99, 0.95)}
    # rank 950.4 is the 151st, above it 9; rank 912 is the 112th, above it 48
    assert {q: each and each.value for q, each in expected.items()} == {0.99: 151.0, 0.95: 112.0}
    assert (found.quantile, found.threshold) == (0.95, 112.0)
    assert found.slow == Box(low=112.0)
    picked = model.picked(window, "ttft_ms", Box(low=112.0), store)
    assert (picked.num, picked.stood_for, picked.is_thin) == (48, None, False)
    wide = model.picked(window, "ttft_ms", Box(low=90.0), store)
    assert (wide.num, wide.stood_for) == (70, 150.0)
    few = model.picked(window, "ttft_ms", Box(high=MIN_BOXED - 1.0), store)
    assert (few.num, few.stood_for, few.is_thin) == (29, 261.0, True)
    assert model.picked(window, "ttft_ms", Box(low=1e6), store) == model.Picked(0, ())


def test_few_that_stand_for_many_are_still_few(store: MemoryStore) -> None:
    made = [workflow(i + 1, at_s=i, ttft_ms=i + 1.0) for i in range(40)]
    store.add(sent(made, [100.0] * 40))
    found = heatmap(Filters(T0, T0 + 60 * SECOND_NS), "ttft_ms", None, store)
    assert (found.num, found.num_kept, found.quantile, found.slow) == (4_000, 40, None, None)


def test_a_selection_is_compared_by_weight(
    both: tuple[MemoryStore, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(low=SLOW_MS)
    full, thin = (population(WINDOW, "ttft_ms", None, store) for store in both)
    assert [each.is_drawn for each in (full, thin)] == [False, False]
    assert [each.is_weighed for each in (full, thin)] == [False, True]
    true, found = (model.brushed(each, box, "prompt_version") for each in (full, thin))
    assert found.num_selected == true.num_selected > found.num_rest / 3
    assert found.num_rest < true.num_rest / 2
    for near, known in zip(found.differences, true.differences, strict=True):
        assert near.where == known.where
        assert near.of_selected == pytest.approx(known.of_selected)
        assert near.of_rest == pytest.approx(known.of_rest, abs=0.06)
        assert near.risk_ratio == pytest.approx(known.risk_ratio, rel=0.15)
    assert found.extra_ms == pytest.approx(true.extra_ms, rel=0.1)
    # by hand
    requests = thin.requests
    rest = requests.filter(requests["box_value"] <= SLOW_MS)
    own = rest.filter(rest["prompt_version"] == "v2")["weight"].sum() / rest["weight"].sum()
    (of_v2,) = [d for d in found.differences if d.where == (("prompt_version", "v2"),)]
    assert of_v2.of_rest == pytest.approx(own)
    # and what is drawn of it weighs for both
    monkeypatch.setattr(population_model, "MAX_REST", 150)
    drawn = population(WINDOW, "ttft_ms", None, both[1])
    assert drawn.is_drawn
    assert drawn.requests["weight"].sum() == pytest.approx(requests["weight"].sum(), rel=0.1)


@pytest.mark.parametrize("box", [Box(T0 + 500 * SECOND_NS, None, 100.0), Box(high=200.0)])
def test_the_command_gives_the_number_that_is_shown(
    both: tuple[MemoryStore, MemoryStore], box: Box
) -> None:
    for store, is_weighed in zip(both, (False, True), strict=True):
        query = shlex.split(model.command(WINDOW, "ttft_ms", box, None, is_weighed=is_weighed))[2]
        picked = model.picked(WINDOW, "ttft_ms", box, store)
        expected = picked.num if picked.stood_for is None else picked.stood_for
        assert store.sql(query).column(0).to_pylist() == [pytest.approx(expected)]
        assert (picked.stood_for is not None) == is_weighed


def test_weights_of_one_change_nothing() -> None:
    made = [workflow(i + 1, at_s=i, ttft_ms=i + 1.0) for i in range(80)]
    shown: list[tuple[Heat, model.Picked]] = []
    window, box = Filters(T0, T0 + 80 * SECOND_NS), Box(low=20.0)
    for given in ([s for spans in made for s in spans], sent(made, [1.0] * 80)):
        held = MemoryStore()
        held.add(given)
        heat = heatmap(window, "ttft_ms", None, held)
        shown.append((heat, model.picked(window, "ttft_ms", box, held)))
        assert type(heat.num) is int
        held.close()
    assert shown[0] == shown[1]
    assert shown[0][0].sampled is None


def planted() -> list[Span]:
    """60 fast ones that stand for five, 50 slow ones on another version."""
    made = [
        workflow(
            i + 1,
            at_s=i,
            ttft_ms=100.0 + i if i < 60 else 2_000.0 + i,
            prompt_version="v2" if i >= 55 else "v1",
        )
        for i in range(110)
    ]
    return sent(made, [5.0] * 60 + [1.0] * 50)


def test_the_page_tells_how_many_came_and_how_many_are_there(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(planted())
    st.cache_data.clear()
    st.cache_resource.clear()
    monkeypatch.setattr(Source, "open", lambda self: store)
    source.use(Source(files=(Path("spans.parquet"),)))
    try:
        said = texts(run("explore", box=",,130,"))
    finally:
        source._source = None
    assert "110 workflows that were kept stand for 350." in said
    # 29 of the fast ones lie above 130 ms
    assert "**195 workflows selected** of 350, told by 79 kept" in said
    assert "79 selected against 31 others of the same routes, weighted" in said
