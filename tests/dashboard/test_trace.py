"""The Trace page's view model and what it sends to the browser."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.vocab import Stage
from longpole_dashboard.components import waterfall
from longpole_dashboard.components.waterfall import Chosen, payload
from longpole_dashboard.model import trace as model
from longpole_dashboard.model.trace import Attributes, SpanRow, TraceView

from .conftest import MemoryStore
from .sample import MS, Builder, agent_trace

FIRST = f"{1:032x}"
HOSTILE = "<img src=x onerror=alert(1)>"


def view_of(store: MemoryStore, spans: list) -> TraceView:  # type: ignore[type-arg]
    store.add(spans)
    found = model.trace(spans[0].trace_id, store)
    assert found is not None
    return found


def named(view: TraceView, name: str) -> SpanRow:
    return next(row for row in view.rows if row.name == name)


def test_an_unknown_trace_is_none(store: MemoryStore) -> None:
    assert model.trace("f" * 32, store) is None
    assert model.attributes("f" * 32, "0" * 16, store) == Attributes(())


def test_stages_sum_to_the_stored_wall_time_to_the_nanosecond(store: MemoryStore) -> None:
    view = view_of(store, agent_trace())
    stored = store.sql("SELECT wall_ns, long_pole, outcome FROM traces").to_pylist()[0]
    assert sum(share.critical_ns for share in view.stages) == view.wall_ns == stored["wall_ns"]
    assert (view.long_pole, view.outcome) == (stored["long_pole"], stored["outcome"])
    assert ("route", "agent.research") in view.facts


def test_a_joined_call_shows_its_phases_and_not_the_engines_spans(store: MemoryStore) -> None:
    view = view_of(store, agent_trace(turns=1))
    names = [row.name for row in view.rows]
    assert "llm_request" not in names
    at = names.index("chat smollm2")
    phases = [row for row in view.rows if row.is_phase]
    assert [row.stage for row in phases] == [
        "network", "admission", "tokenize", "queue", "prefill", "first_decode", "later_decode",
        "stream",
    ]  # fmt: skip
    call = view.rows[at]
    assert call.is_call
    assert call.num_below == len(phases)
    assert call.critical_ns == sum(row.critical_ns for row in phases)
    assert all(row.depth == call.depth + 1 for row in phases)
    assert call.stretches == tuple(row.stretches[0] for row in phases)


def test_rows_are_in_tree_order_children_by_start(store: MemoryStore) -> None:
    view = view_of(store, agent_trace())
    assert [row.name for row in view.rows if row.depth == 1] == ["turn 1", "turn 2", "turn 3"]
    for row, following in pairwise(view.rows):
        assert following.depth <= row.depth + 1
        if following.depth == row.depth + 1:
            assert following.start_ns >= row.start_ns
    assert view.rows[0].num_below == len(view.rows) - 1


def test_own_path_stretches_partition_the_wall_time(store: MemoryStore) -> None:
    view = view_of(store, agent_trace())
    stretches = sorted(s for row in view.rows if not row.is_call for s in row.path)
    assert stretches[0][0] == 0
    assert stretches[-1][1] == view.wall_ns
    assert all(a[1] == b[0] for a, b in pairwise(stretches))


def test_a_row_above_the_path_is_on_it_and_one_beside_is_not(store: MemoryStore) -> None:
    view = view_of(store, agent_trace(turns=1))
    assert named(view, "turn 1").is_on_path
    assert named(view, "execute_tool search").is_on_path
    beside = named(view, "execute_tool fetch")
    assert (beside.is_on_path, beside.critical_ns, beside.path) == (False, 0, ())
    assert named(view, "validation schema").is_error


def test_doubts_are_said_in_sentences(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 100)
    lost = Builder().span("lost", 10, 20)
    made.span("orphan", 10, 20, lost._replace(span_id="f" * 16))
    made.span("late", 90, 150, root)
    view = view_of(store, made.spans)
    said = " ".join(view.doubts)
    assert "name a parent that never arrived" in said
    assert "outlived their parent" in said


def test_opaque_ttft_is_said(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 500)
    made.span(
        "chat x", 0, 400, root, is_model_call=True, is_streamed=True, ttft_ns=300 * MS,
        last_content_ns=390 * MS,
    )  # fmt: skip
    view = view_of(store, made.spans)
    assert "TTFT is opaque where no engine span explains it" in view.doubts
    drawn = payload(view, Chosen(None, 100), Attributes(()))
    assert drawn["stages"]["ttft_opaque"]["is_hatched"] is True


def test_attributes_are_shown_as_stored_with_units(store: MemoryStore) -> None:
    view = view_of(store, agent_trace())
    pairs = dict(model.attributes(FIRST, named(view, "chat smollm2").span_id, store).pairs)
    assert pairs["ttft"] == "304 ms"
    assert pairs["input_tokens"] == "812"
    assert pairs["is_streamed"] == "yes"
    assert pairs["app.tenant"] == "acme"
    assert "cached_input_tokens" not in pairs


def test_an_unfinished_trace_has_no_rows(store: MemoryStore) -> None:
    made = Builder()
    made.span("open", 0, 1)
    view = view_of(store, [made.spans[0]._replace(end_ns=None)])
    assert (view.rows, view.wall_ns) == ((), 0)
    assert payload(view, Chosen(None, 100), Attributes(()))["rows"] == []


def test_a_trace_without_duration_is_drawn(store: MemoryStore) -> None:
    made = Builder()
    made.span("instant", 0, 0)
    drawn = payload(view_of(store, made.spans), Chosen(None, 100), Attributes(()))
    assert len(drawn["rows"]) == 1


def test_more_rows_than_a_page_are_held_back_and_counted(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 3_000)
    for i in range(2_500):
        made.span(f"tool {i}", i, i + 1, root, stage=Stage.TOOL)
    view = view_of(store, made.spans)
    drawn = payload(view, Chosen(None, waterfall.PAGE_ROWS), Attributes(()))
    assert len(drawn["rows"]) == 2_000
    assert drawn["num_more"] == 501
    assert payload(view, Chosen(None, 4_000), Attributes(()))["num_more"] == 0


def test_the_payload_is_json_and_keeps_hostile_text_as_text(store: MemoryStore) -> None:
    view = view_of(store, agent_trace(name=HOSTILE))
    drawn = payload(view, Chosen("1", 100), Attributes((("k", HOSTILE),)))
    assert json.loads(json.dumps(drawn))["detail"]["attributes"] == [["k", HOSTILE]]
    assert HOSTILE in [row["name"] for row in drawn["rows"]]
    assert drawn["sum"] == "stages sum to 4,504.000 ms = wall time 4,504.000 ms"
    assert sum(part["ratio"] for part in drawn["strip"]) == pytest.approx(1.0)


def test_a_detached_span_does_not_squeeze_the_axis(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 100)
    made.span("log", 10, 60_000, root, is_detached=True)
    drawn = payload(view_of(store, made.spans), Chosen(None, 100), Attributes(()))
    left, width, _ = drawn["rows"][0]["parts"][0]
    assert (left, width) == (0.0, pytest.approx(1 / waterfall.MAX_OVERHANG))
    assert all(
        0 <= part[0] <= 1 and part[0] + part[1] <= 1.000001
        for row in drawn["rows"]
        for part in row["parts"] + row["path"]
    )


@given(st.integers(min_value=1, max_value=10**15))
def test_ticks_are_few_round_and_inside(extent_ns: int) -> None:
    ticks = waterfall._ticks(extent_ns)
    assert 1 <= len(ticks) <= 8
    assert ticks[0]["text"].startswith("0")
    assert all(0 <= tick["ratio"] <= 1 for tick in ticks)
    assert len({tick["text"] for tick in ticks}) == len(ticks)


def test_the_scripts_write_text_only_as_text() -> None:
    for name in ("waterfall", "table"):
        folder = waterfall._HERE.parent / name
        script = (folder / f"{name}.js").read_text("utf-8")
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in script
