"""A trace against its route: the same answers as the command, and the way to the next slow one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from longpole.vocab import Span, Stage, keys
from longpole_analytics.commands import explain
from longpole_collector.files import write_parquet
from longpole_dashboard.components.waterfall import stages
from longpole_dashboard.model import trace as model
from longpole_dashboard.model import trace_kin
from longpole_dashboard.model.trace_kin import kin, next_slow

from .conftest import MemoryStore
from .sample import workflow


def route(slow_ms: float = 4_000.0, num: int = 90) -> list[Span]:
    """A route whose tools take 50 to 139 ms, and one slow workflow, the last."""
    spans = [
        each
        for i in range(1, num + 1)
        for each in workflow(i, at_s=i, stages={Stage.TOOL: 49.0 + i, Stage.RENDER: 5.0})
    ]
    slow = workflow(999, at_s=200, stages={Stage.TOOL: slow_ms, Stage.RENDER: 5.0})
    calls = {keys.TOOL_CALL_ID: "call_1", "app.note": "x"}
    return [*spans, *(span._replace(attributes=calls) for span in slow)]


SLOW = f"{999:032x}"


@pytest.fixture(scope="module")
def routed() -> Iterator[MemoryStore]:
    held = MemoryStore()
    held.add(route())
    yield held
    held.close()


def test_shape_evidence_and_next_check_are_those_of_explain(
    routed: MemoryStore, tmp_path: Path
) -> None:
    write_parquet(routed, tmp_path / "spans.parquet")
    told = CliRunner().invoke(explain, [SLOW, "--file", str(tmp_path / "spans.parquet"), "--json"])
    document = json.loads(told.stdout)
    found, view = kin(SLOW, routed), model.trace(SLOW, routed)
    assert found is not None
    assert view is not None
    shape = document["shape"]
    assert found.shape == shape["name"] == "workflow_slow_serial_tools"
    assert found.sub_cause == shape["sub_cause"]
    assert found.next_check == shape["next_check"]
    assert found.evidence[0].startswith("tool_ms 4,000 ms, p50 of its like ")
    assert len(found.parallel) == min(len(document["opportunities"]), trace_kin.MAX_PARALLEL)
    half = model.FASTER_BY.index(0.5)
    for listed in document["what_if"]:
        share = next(each for each in view.stages if each.stage == listed["stage"])
        assert share.saved_ns[half] / 1e6 == listed["saved_ms"]
    assert [(s.stage, s.critical_ns / 1e6) for s in view.stages] == [
        (told["stage"], told["critical_ms"])
        for stage in Stage
        for told in document["stages"]
        if told["stage"] == stage.value and told["critical_ms"]
    ]


def test_a_stage_stands_against_the_median_of_its_like(routed: MemoryStore) -> None:
    found, view = kin(SLOW, routed), model.trace(SLOW, routed)
    assert found is not None
    assert view is not None
    tool = next(each for each in found.usual if each.stage == Stage.TOOL)
    # All are of one length: the like are the first 72 by start, their tools take 50 to 121 ms.
    assert tool.p50_ms == 85.0
    assert found.like.startswith(
        "Usual: the median of 72 workflows of about its length, out of 90 on its route"
    )
    table = stages.payload(view, found)
    row = next(each for each in table["rows"] if each["label"] == "tool")
    assert (row["usual"], row["change"]) == ("85.0 ms", "+3,920 ms")


def test_too_few_like_it_give_no_median_and_no_shape(store: MemoryStore) -> None:
    store.add(route(num=19))
    found = kin(SLOW, store)
    assert found is not None
    assert all(each.p50_ms is None for each in found.usual)
    assert "its route has 19 other workflows within a day, 20 are needed" in found.like
    assert found.shape is None
    assert "too few samples" in found.sub_cause
    assert "tools that run one after another" in found.next_check


def test_what_is_usual_but_absent_here_is_listed(store: MemoryStore) -> None:
    spans = [s for s in route() if not (s.trace_id == SLOW and s.stage == Stage.RENDER)]
    store.add(spans)
    found, view = kin(SLOW, store), model.trace(SLOW, store)
    assert found is not None
    assert view is not None
    row = next(r for r in stages.payload(view, found)["rows"] if r["label"] == "render")
    assert (row["time"], row["usual"], row["change"], row["saved"]) == (
        *("0 ms", "5.00 ms", "\u22125.00 ms"),
        [],
    )


def test_a_trace_that_is_not_rolled_up_has_no_kin(routed: MemoryStore) -> None:
    assert kin("f" * 32, routed) is None
    assert next_slow("f" * 32, routed) is None


def test_the_next_slow_ones_are_walked_from_the_slowest_down_and_each_once(
    store: MemoryStore,
) -> None:
    like = {7: 300.0, 3: 900.0, 5: 900.0, 9: 150.0}
    others = (
        workflow(20, stages={Stage.RENDER: 5_000.0}, ttft_ms=20.0),
        workflow(21, stages={Stage.TOOL: 5_000.0}, ttft_ms=20.0, route="other"),
        workflow(22, stages={Stage.TOOL: 5_000.0}, ttft_ms=20.0, prompt_version="v2"),
        workflow(23, stages={Stage.TOOL: 5_000.0}, ttft_ms=20.0, at_s=3 * 86_400),
    )
    alike = (workflow(n, stages={Stage.TOOL: ms}, ttft_ms=20.0) for n, ms in like.items())
    store.add([span for spans in (*alike, *others) for span in spans])
    walked, at = [3], next_slow(f"{3:032x}", store)
    while at is not None and at.trace_id is not None:
        walked.append(int(at.trace_id, 16))
        assert (at.place, at.num_like) == (len(walked) - 1, 4)
        at = next_slow(at.trace_id, store)
    assert walked == [3, 5, 7, 9]
    assert at == trace_kin.NextSlow(4, 4, None, None)
