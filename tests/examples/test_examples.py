"""Each example runs as its page says, on the real engine, and its spans say what it does."""

import re
from typing import Any

import httpx
import pytest
from tests.examples.running import EXAMPLES, Stack

TRACE, PAGE_SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def settled(running: Stack, service: str, num: int = 1) -> list[dict[str, Any]]:
    """The traces of a service, once all of them ended and were rolled up."""
    ended = f"service = '{service}' AND outcome IS NOT NULL"
    return running.rows(f"SELECT * FROM traces WHERE {ended} ORDER BY start_ns", num)


def spans(running: Stack, trace_id: str) -> dict[str, dict[str, Any]]:
    rows = running.rows(f"SELECT * FROM spans WHERE trace_id = '{trace_id}' ORDER BY start_ns")
    return {row["name"]: row for row in rows}


def test_the_agent_s_steps_are_one_tree(running: Stack) -> None:
    child = running.run("agent/agent.py", "What", "is", "prefill")
    assert "".join(child.tail()).strip()
    (trace,) = settled(running, "agent")
    assert (trace["outcome"], trace["route"], trace["route_version"]) == (
        *("accepted", "agent.notes", "1"),
    )
    assert (trace["num_calls"], trace["num_tools"]) == (2, 2)
    assert "incomplete_trace" not in trace["flags"]
    assert trace["time_to_useful_ms"] <= trace["time_to_accepted_ms"] <= trace["wall_ms"]
    found = spans(running, trace["trace_id"])
    root, tools = found["invoke_workflow agent"], found["fanout tools"]
    assert found["retrieval notes"]["parent_id"] == root["span_id"]
    assert found["validation not_empty"]["parent_id"] == root["span_id"]
    for name in ("execute_tool word_count", "execute_tool clock"):
        assert found[name]["parent_id"] == tools["span_id"]
        assert found[name]["stage"] == "tool"
    both = [found["execute_tool word_count"], found["execute_tool clock"]]
    assert max(row["start_ns"] for row in both) < min(row["end_ns"] for row in both)
    joined = f"trace_id = '{trace['trace_id']}' AND NOT list_contains(flags, 'engine_side')"
    query = f"SELECT * FROM calls WHERE {joined} ORDER BY start_ns"
    versions = [row["prompt_version"] for row in running.rows(query, 2)]
    assert versions == ["plan-1", "answer-1"]


def test_the_batch_waits_in_admission_and_loses_nothing(running: Stack) -> None:
    child = running.run("batch_job/batch.py", "--items", "12", "--places", "2")
    said = re.fullmatch(r"12 of 12 items, (\d+) spans sent, 0 lost", child.tail()[-1])
    assert said is not None
    assert int(said[1]) == 12 * 3
    traces = settled(running, "batch", 12)
    assert {trace["outcome"] for trace in traces} == {"accepted"}
    assert {(trace["num_calls"], trace["slo_class"]) for trace in traces} == {(1, "offline")}
    rows = running.rows(
        "SELECT c.start_ns, c.end_ns FROM calls c WHERE c.service = 'batch' ORDER BY start_ns", 12
    )
    edges = sorted(
        [(row["start_ns"], 1) for row in rows] + [(row["end_ns"], -1) for row in rows],
        key=lambda edge: (edge[0], edge[1]),
    )
    in_flight, most = 0, 0
    for _, change in edges:
        in_flight += change
        most = max(most, in_flight)
    assert most == 2
    (waited,) = running.rows(
        "SELECT count(*) AS n, count(*) FILTER (s.critical_ms > 0) AS waited FROM traces t"
        " JOIN trace_stages s USING (trace_id) WHERE t.service = 'batch' AND s.stage = 'admission'"
    )
    assert waited["waited"] >= 8


def test_the_chat_page_joins_whoever_asks(running: Stack) -> None:
    running.serve_chat()
    with httpx.Client(base_url=running.page, trust_env=False, timeout=60) as client:
        page = client.get("/").text
        assert '<script src="/longpole.js" data-collector="http://127.0.0.1:' in page
        script = client.get("/longpole.js")
        assert script.headers["content-type"].startswith(("text/javascript", "application/java"))
        headers = {"traceparent": f"00-{TRACE}-{PAGE_SPAN}-01"}
        answer = client.post("/chat", json={"text": "hello"}, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("event: done\ndata: {}\n\n")
    ended = f"trace_id = '{TRACE}' AND num_calls = 1 AND outcome IS NOT NULL"
    (trace,) = running.rows(f"SELECT * FROM traces WHERE {ended}")
    assert (trace["outcome"], trace["route"]) == ("accepted", "chat.sse")
    found = spans(running, TRACE)
    assert found["POST /chat"]["parent_id"] == PAGE_SPAN
    assert found["invoke_workflow chat"]["parent_id"] == found["POST /chat"]["span_id"]
    joined = f"trace_id = '{TRACE}' AND prefill_ms > 0"
    (call,) = running.rows(f"SELECT * FROM calls WHERE {joined}")
    assert call["is_streamed"]
    assert call["stream_state"] == "completed"


@pytest.mark.parametrize("name", ["fastapi_sse", "agent", "batch_job"])
def test_each_example_says_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text("utf-8")
    assert "longpole engine serve --model tiny" in text
    assert "OPENAI_BASE_URL" in text
    for script in re.findall(r"python (\S+\.py)", text):
        assert (EXAMPLES.parent / script).is_file()
