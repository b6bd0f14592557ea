"""What attributes of spans tell of a trace: summed by the store as by hand, and seen by explain."""

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.vocab import keys
from longpole_analytics.commands import explain
from longpole_analytics.frames import by_trace
from longpole_analytics.requests import FACTS
from longpole_analytics.trace_facts import facts_of, load_facts
from longpole_collector import open_reader

from .tables import spans_table
from .test_measures_command import S, workflow
from .traces import span


def odd_workflows():
    """Used by name, by id, as plain text or not at all; numbers that are none; two engines."""
    first = workflow(100, used=["left", "right"])
    by_id = workflow(101, used=["middle"])
    by_id[0].attributes[keys.BRANCH_USED] = json.dumps([by_id[1].span_id, "nobody"])
    plain = workflow(102, used=[])
    plain[0].attributes[keys.BRANCH_USED] = "left"
    untold = workflow(103, used=["left"])
    del untold[0].attributes[keys.BRANCH_USED]
    late = workflow(104, used=["left"])
    late[4].attributes[keys.SPECULATION_AGE] = "9"
    vague = workflow(105, used=["left"])
    vague[-1].attributes[keys.ENGINE_NUM_DRAFTED] = "many"
    two = workflow(106, used=["left"])
    other = two[-1]._replace(
        span_id="e" * 16,
        instance_id="engine-2",
        attributes={keys.ENGINE_NUM_STEPS: "7", keys.SERVER_ADDRESS: "10.0.0.9"},
    )
    bare = span("b" * 16, None, 0, 5, trace_id="b" * 32)
    return [*first, *by_id, *plain, *untold, *late, *vague, *two, other, bare]


@pytest.fixture(scope="module")
def spans():
    found = [each for number in range(5) for each in workflow(number, used=["left"])]
    return [*found, *odd_workflows()]


@pytest.mark.parametrize("engine_only", [False, True])
def test_the_store_sums_as_a_hand_does(spans, tmp_path, engine_only) -> None:
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    reader = open_reader(files=[path])
    try:
        rows = load_facts(reader, engine_only=engine_only).to_dicts()
    finally:
        reader.close()
    found = {row.pop("trace_id"): row for row in rows}
    traces = by_trace(each for each in spans if each.is_engine or not engine_only)
    expected = {trace_id: facts_of(own) for trace_id, own in traces.items()}
    assert set(found) == {trace_id for trace_id, facts in expected.items() if facts}
    for trace_id, row in found.items():
        known = {name: value for name, value in row.items() if value is not None}
        assert known == expected[trace_id]
        assert set(row) == {*FACTS, "replica", "host"}


def test_a_window_keeps_its_traces(spans, tmp_path) -> None:
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    reader = open_reader(files=[path])
    try:
        found = load_facts(reader, (1 * S * 10**6, 4 * S * 10**6))
    finally:
        reader.close()
    assert found["trace_id"].to_list() == [f"{number + 1:032x}" for number in (1, 2, 3)]


def test_explain_names_what_stands_behind_one_slow_trace(tmp_path) -> None:
    """The engine decodes for 4 s, of 120 drafted tokens nearly none was accepted."""
    spans = [
        each for number in range(100) for each in workflow(number, used=["left"], at_s=10 * number)
    ]
    slow = workflow(200, used=["left"], at_s=500)
    root, chat, engine = slow[0], slow[-2], slow[-1]
    later = 4000 * 10**6
    few = {keys.ENGINE_NUM_DRAFTED: "120", keys.ENGINE_NUM_ACCEPTED: "1"}
    spans += [
        root._replace(end_ns=root.end_ns + later),
        *slow[1:-2],
        chat._replace(end_ns=chat.end_ns + later, last_content_ns=later),
        engine._replace(end_ns=engine.end_ns + later, attributes=engine.attributes | few),
    ]
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    result = CliRunner().invoke(explain, [root.trace_id, "--file", str(path), "--json"])
    assert result.exception is None
    shape = json.loads(result.stdout)["shape"]
    assert "poor draft acceptance" in shape["sub_cause"]
    (row,) = [each for each in shape["evidence"] if each["metric"] == "draft_acceptance"]
    assert row["current"] < 0.05 < row["baseline"]
    assert "draft" in shape["next_check"]
