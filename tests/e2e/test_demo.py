"""One line, a real model, a real workload: the planted fault is found and times add up."""

import json
import subprocess

import pytest

from longpole.vocab import ENGINE_TTFT_STAGES
from longpole_collector.stores.base import Reader
from longpole_dashboard.processes import longpole_command

from .conftest import DemoRun

pytestmark = pytest.mark.weights


def test_the_demo_finds_the_planted_fault(demo_run: DemoRun) -> None:
    document = demo_run.document
    assert demo_run.code == 0, demo_run.stderr
    assert document["schema"] == "longpole.demo/1"
    assert document["is_found"] is True
    assert document["finding"]["stage"] == "prefill"
    assert document["finding"]["where"]["prompt_version"] == "v2"
    assert document["num_failed"] == 0


def test_stages_sum_to_the_wall_time_in_stored_nanoseconds(demo_store: Reader) -> None:
    table = demo_store.sql(
        "SELECT t.trace_id, t.wall_ns, sum(s.critical_ns) AS critical_ns,"
        " t.wall_ms, sum(s.critical_ms) AS critical_ms"
        " FROM traces t JOIN trace_stages s USING (trace_id) GROUP BY ALL"
    )
    assert table.num_rows >= 10
    for row in table.to_pylist():
        assert row["wall_ns"] == row["critical_ns"]
        assert row["critical_ms"] == pytest.approx(row["wall_ms"], abs=1e-6)


def test_every_trace_has_stages(demo_store: Reader) -> None:
    missing = demo_store.sql(
        "SELECT count(*) AS n FROM traces WHERE trace_id NOT IN (SELECT trace_id FROM trace_stages)"
    )
    assert missing.to_pylist() == [{"n": 0}]


def test_client_ttft_is_engine_stages_plus_network(demo_store: Reader) -> None:
    names = ", ".join(f"'{stage}'" for stage in ENGINE_TTFT_STAGES)
    table = demo_store.sql(
        "SELECT c.span_id, c.ttft_ms, c.network_ms,"
        " sum(p.end_ns - p.start_ns) / 1e6 AS engine_ms"
        " FROM calls c JOIN spans e ON e.parent_id = c.span_id AND e.is_engine"
        f" JOIN spans p ON p.parent_id = e.span_id AND p.stage IN ({names})"
        " WHERE c.ttft_ms IS NOT NULL GROUP BY ALL"
    )
    assert table.num_rows >= 10
    for row in table.to_pylist():
        assert row["network_ms"] >= 0
        assert row["engine_ms"] + row["network_ms"] == pytest.approx(row["ttft_ms"], abs=5.0)


def test_engine_child_spans_cover_the_engine_span(demo_store: Reader) -> None:
    table = demo_store.sql(
        "SELECT e.span_id, e.start_ns, e.end_ns, min(p.start_ns) AS first_ns,"
        " max(p.end_ns) AS last_ns, sum(p.end_ns - p.start_ns) AS covered_ns"
        " FROM spans e JOIN spans p ON p.parent_id = e.span_id"
        " WHERE e.is_engine GROUP BY ALL"
    )
    assert table.num_rows >= 10
    for row in table.to_pylist():
        assert row["first_ns"] >= row["start_ns"]
        assert row["last_ns"] <= row["end_ns"]
        assert row["end_ns"] - row["start_ns"] - row["covered_ns"] <= 1_000_000


def test_every_workflow_is_stored_whole(demo_run: DemoRun, demo_store: Reader) -> None:
    rows = demo_store.sql(
        "SELECT count(*) AS traces, sum(num_calls) AS calls,"
        " count(*) FILTER (outcome IN ('accepted', 'rejected')) AS outcomes,"
        " count(*) FILTER (list_contains(flags, 'incomplete_trace')) AS incomplete"
        " FROM traces WHERE route IS NOT NULL"
    ).to_pylist()
    num = demo_run.document["num_workflows"]
    assert rows == [{"traces": num, "calls": num, "outcomes": num, "incomplete": 0}]


def test_explain_reads_the_slowest_trace(demo_run: DemoRun, demo_store: Reader) -> None:
    rows = demo_store.sql("SELECT trace_id FROM traces ORDER BY wall_ns DESC LIMIT 1").to_pylist()
    trace_id = rows[0]["trace_id"]
    command = longpole_command("explain", trace_id[:12], "--db", str(demo_run.db), "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["trace_id"] == trace_id
    total_ms = sum(stage["critical_ms"] for stage in document["stages"])
    assert total_ms == pytest.approx(document["wall_ms"], abs=1e-6)
