"""The Trace page's view model and what it sends to the browser."""

import json
from itertools import pairwise
from typing import Any

import pytest

from longpole.vocab import Span, Stage
from longpole_analytics.explain import document
from longpole_analytics.frames import spans_from_table
from longpole_analytics.stages import partition
from longpole_analytics.whatif import what_if
from longpole_dashboard.components import waterfall
from longpole_dashboard.components.waterfall import payload, stages
from longpole_dashboard.model import trace as model
from longpole_dashboard.model.trace import FASTER_BY, TraceView
from longpole_dashboard.model.trace_rows import SpanRow

from .conftest import MemoryStore
from .sample import MS, Builder, agent_trace

FIRST = f"{1:032x}"
HOSTILE = "<img src=x onerror=alert(1)>"


def view_of(store: MemoryStore, spans: list[Span]) -> TraceView:
    store.add(spans)
    found = model.trace(spans[0].trace_id, store)
    assert found is not None
    return found


def named(view: TraceView, name: str) -> SpanRow:
    return next(row for row in view.rows if row.name == name)


def drawn(view: TraceView) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload(view)[8:])
    return found


def test_an_unknown_trace_is_none(store: MemoryStore) -> None:
    assert model.trace("f" * 32, store) is None


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


def test_rows_of_calls_lead_to_their_engines_span_and_phases_share_it(
    store: MemoryStore,
) -> None:
    view = view_of(store, agent_trace(turns=1))
    call = named(view, "chat smollm2")
    engine = store.sql("SELECT span_id FROM spans WHERE is_engine").to_pylist()[0]["span_id"]
    assert (call.call_id, call.engine_id) == (call.span_id, engine)
    phases = [row for row in view.rows if row.is_phase]
    assert {(row.call_id, row.engine_id) for row in phases} == {(call.span_id, engine)}
    assert named(view, "turn 1").call_id is None


def test_slack_is_nothing_on_the_path_and_what_is_left_beside_it(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 100)
    made.span("long", 0, 90, root)
    made.span("short", 0, 60, root)
    made.span("log", 10, 20, root, is_detached=True)
    view = view_of(store, made.spans)
    slacks = {row.name: row.slack_ns for row in view.rows}
    assert slacks == {"root": 0, "long": 0, "short": 30 * MS, "log": None}


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


def test_opaque_ttft_is_said_with_its_reason_and_hatched(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 500)
    made.span(
        "chat x", 0, 400, root, is_model_call=True, is_streamed=True, ttft_ns=300 * MS,
        last_content_ns=390 * MS,
    )  # fmt: skip
    view = view_of(store, made.spans)
    assert view.opaque == (
        "opaque TTFT: 100 % of the wait for first content, since no engine span came with "
        "1 of 1 model call"
    )
    shown = drawn(view)
    part = next(p for p in shown["strip"] if shown["stages"][p["stage"]]["is_hatched"])
    assert part["text"] == "300 ms"
    assert shown["opaque"] == view.opaque
    assert view_of(store, agent_trace(2)).opaque == ""


def test_an_unfinished_trace_has_no_rows(store: MemoryStore) -> None:
    made = Builder()
    made.span("open", 0, 1)
    view = view_of(store, [made.spans[0]._replace(end_ns=None)])
    assert (view.rows, view.stages, view.wall_ns) == ((), (), 0)
    assert drawn(view)["rows"]["key"] == []


def test_a_trace_without_duration_is_drawn(store: MemoryStore) -> None:
    made = Builder()
    made.span("instant", 0, 0)
    assert len(drawn(view_of(store, made.spans))["rows"]["key"]) == 1


def test_every_saving_is_that_of_explain(store: MemoryStore) -> None:
    """Bit by bit: at 50 % what its document lists, at every step what one replay of it says."""
    view = view_of(store, agent_trace())
    found = store.sql("SELECT * FROM spans WHERE trace_id = $trace", {"trace": FIRST})
    split = partition(spans_from_table(found))
    half = FASTER_BY.index(0.5)
    saved = {share.stage: share.saved_ns for share in view.stages}
    for listed in document(split, None)["what_if"]:
        assert saved[listed["stage"]][half] / 1e6 == listed["saved_ms"]
    for stage, savings in saved.items():
        assert list(savings) == [what_if(split.tree, Stage(stage), k) for k in FASTER_BY]
        assert savings[0] == 0
        assert all(a <= b for a, b in pairwise(savings))
        assert savings[-1] <= split.critical_ns(Stage(stage))


def test_the_table_of_stages_says_what_is_left_of_the_wall_time(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 1_000)
    made.span("tool", 0, 600, root, stage=Stage.TOOL)
    table = stages.payload(view_of(store, made.spans), None)
    tool = next(row for row in table["rows"] if row["label"] == "tool")
    assert tool["saved"][table["percents"].index(50)] == "\u2212300 ms, then 700 ms in all"
    assert (tool["time"], tool["share"], tool["usual"]) == ("600 ms", "60.0 %", "—")


def test_the_payload_is_json_and_keeps_hostile_text_as_text(store: MemoryStore) -> None:
    shown = drawn(view_of(store, agent_trace(name=HOSTILE)))
    assert HOSTILE in shown["rows"]["names"]
    assert shown["sum"] == "stages sum to 4,504.000 ms = wall time 4,504.000 ms"
    assert sum(part["ratio"] for part in shown["strip"]) == pytest.approx(1.0)
    lengths = {len(column) for name, column in shown["rows"].items() if name != "names"}
    assert len(lengths) == 1


def test_a_row_says_once_that_all_of_it_is_on_the_path(store: MemoryStore) -> None:
    view = view_of(store, agent_trace(turns=1))
    rows = drawn(view)["rows"]
    for place, row in enumerate(view.rows):
        is_whole = bool(row.path) and row.path == row.stretches
        assert (rows["path"][place] == 1) == is_whole
        assert bool(rows["is"][place] & waterfall.ON_PATH) == row.is_on_path
    assert 1 in rows["path"]


def test_a_detached_span_does_not_squeeze_the_axis(store: MemoryStore) -> None:
    made = Builder()
    root = made.span("root", 0, 100)
    made.span("log", 10, 60_000, root, is_detached=True)
    rows = drawn(view_of(store, made.spans))["rows"]
    left, width, _ = rows["parts"][0]
    assert (left, width) == (0, pytest.approx(waterfall.AXIS_TICKS / waterfall.MAX_OVERHANG))
    assert all(
        start >= 0 and start + width <= waterfall.AXIS_TICKS
        for parts in rows["parts"]
        for start, width in zip(parts[::3], parts[1::3], strict=True)
    )


def test_the_scripts_write_text_only_as_text() -> None:
    scripts = sorted(waterfall._HERE.parent.glob("*/*.js"))
    assert {path.stem for path in scripts} >= {"rows", "panel", "stages", "waterfall", "table"}
    for path in scripts:
        script = path.read_text("utf-8")
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in script
