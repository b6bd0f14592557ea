"""Real frameworks on a wrapped client, to a real collector: one tree, each model call once."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longpole_collector.app import Collector, background
from longpole_collector.settings import Settings

sys.path.append(str(Path(__file__).parent))  # where the fake model is

import frameworks_model


class Told(NamedTuple):
    """What the collector has of one program."""

    spans: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    traces: list[dict[str, Any]]
    num_asked: int

    def tree(self, root: str) -> list[str]:
        """The lines of the tree under the root of that name, in the order of time."""
        (top,) = (row for row in self.spans if row["name"] == root and row["parent_id"] is None)
        lines: list[str] = []

        def walk(row: dict[str, Any], depth: int) -> None:
            lines.append("  " * depth + row["name"])
            for below in self.spans:
                if below["parent_id"] == row["span_id"]:
                    walk(below, depth + 1)

        walk(top, 0)
        return lines


@contextmanager
def collecting(folder: Path) -> Iterator[Collector]:
    settings = Settings(db=folder / "db", http="127.0.0.1:0", grpc="127.0.0.1:0")
    with background(settings) as running:
        deadline = time.monotonic() + 20
        while not running.ingest.is_ready:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield running


def tell(name: str, module: str, folder: Path) -> Told:
    """Run the program of a framework; skips where the framework is not installed."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    program = Path(__file__).parent / f"frameworks_{name}.py"
    with collecting(folder) as collector, frameworks_model.Model().serving() as model:
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        command = [sys.executable, str(program), model.url]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        num = len(model.asked)
        deadline = time.monotonic() + 30
        while collector.store.sql(
            "SELECT (SELECT count(*) FROM calls) AS calls, (SELECT sum(num_spans) FROM traces)"
            " = (SELECT count(*) FROM spans) AS is_whole"
        ).to_pylist() != [{"calls": num, "is_whole": True}]:
            assert time.monotonic() < deadline, (
                num,
                collector.store.sql("SELECT * FROM calls").to_pylist(),
            )
            time.sleep(0.1)
        return Told(
            *(
                collector.store.sql(f"SELECT * FROM {view} ORDER BY start_ns").to_pylist()
                for view in ("spans", "calls", "traces")
            ),
            num,
        )


@pytest.fixture(scope="module")
def pydantic_ai(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell("pydantic_ai", "pydantic_ai", tmp_path_factory.mktemp("pydantic_ai"))


@pytest.fixture(scope="module")
def openai_agents(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell("openai_agents", "agents", tmp_path_factory.mktemp("openai_agents"))


@pytest.fixture(scope="module")
def langchain(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell("langchain", "langchain_openai", tmp_path_factory.mktemp("langchain"))


FRAMEWORKS = ["pydantic_ai", "openai_agents", "langchain"]


@pytest.fixture(params=FRAMEWORKS)
def told(request: pytest.FixtureRequest) -> Told:
    found: Told = request.getfixturevalue(request.param)
    return found


def test_each_request_of_the_model_is_one_call(told: Told) -> None:
    assert len(told.calls) == told.num_asked
    assert len({call["response_id"] for call in told.calls}) == told.num_asked
    for call in told.calls:
        assert (call["input_tokens"], call["output_tokens"]) == (20, 7)
        assert (call["request_model"], call["response_model"]) == ("fake", "fake-1")
        assert (call["ttft_ms"] is not None) == bool(call["is_streamed"])
        assert call["num_attempts"] == 1


def test_no_text_is_kept(told: Told) -> None:
    assert "secret" not in str((told.spans, told.calls))


def test_the_times_of_each_trace_add_up(told: Told) -> None:
    for trace in told.traces:
        assert "incomplete_trace" not in trace["flags"]
    assert sum(trace["num_calls"] for trace in told.traces) == told.num_asked


def test_pydantic_ai_s_own_spans_hold_the_client_s(pydantic_ai: Told) -> None:
    expected = [
        "  invoke_agent weather",
        "    chat fake",
        "      chat fake",
        "    execute_tool look_up",
        "    chat fake",
        "      chat fake",
    ]
    for name in ("once", "streamed"):
        assert pydantic_ai.tree(f"invoke_workflow {name}") == [f"invoke_workflow {name}", *expected]
    streamed = [call for call in pydantic_ai.calls if call["is_streamed"]]
    assert len(streamed) == 2
    assert {call["stream_state"] for call in streamed} == {"completed"}
    tools = [row for row in pydantic_ai.spans if row["stage"] == "tool"]
    assert len(tools) == 2


def test_openai_agents_runs_are_workflows_with_steps(openai_agents: Told) -> None:
    agent = [
        "invoke_agent weather",
        "  guardrail is_polite",
        "  chat fake",
        "  execute_tool look_up",
        "  chat fake",
    ]
    for name in ("once", "own"):
        tree = openai_agents.tree(f"invoke_workflow {name}")
        assert tree[:2] == [f"invoke_workflow {name}", f"  {agent[0]}"]
        assert sorted(tree[2:]) == sorted(f"  {line}" for line in agent[1:])
    handed = openai_agents.tree("invoke_workflow handed over")
    assert handed[:4] == [
        "invoke_workflow handed over",
        "  invoke_agent desk",
        "    chat fake",
        "    handoff desk",
    ]
    assert handed[4] == "  invoke_agent weather"
    stages = {row["name"]: row["stage"] for row in openai_agents.spans}
    assert stages["guardrail is_polite"] == "validation"
    assert stages["execute_tool look_up"] == "tool"
    (failed,) = (row for row in openai_agents.spans if row["name"] == "execute_tool break_down")
    assert (failed["status"], failed["error_type"]) == ("error", "_OTHER")
    roots = {trace["root_name"]: trace for trace in openai_agents.traces}
    assert roots["invoke_workflow own"]["outcome"] == "accepted"
    (root,) = (row for row in openai_agents.spans if row["name"] == "invoke_workflow once")
    assert root["conversation_id"] is not None


def test_langchain_runs_are_steps_around_the_client_s_calls(langchain: Told) -> None:
    assert langchain.tree("invoke_workflow once") == [
        "invoke_workflow once",
        "  chain agent",
        "    retrieval notes",
        "    chat fake",
        "    execute_tool look_up",
    ]
    branch = ["  chain RunnableSequence", "    prompt_assembly ChatPromptTemplate"]
    both = langchain.tree("invoke_workflow both")
    assert sorted(both[1:]) == sorted([*branch, "    chat fake"] * 2)
    for name in ("streamed", "awaited"):
        assert langchain.tree(f"invoke_workflow {name}") == [
            f"invoke_workflow {name}",
            "  prompt_assembly ChatPromptTemplate",
            "  chat fake",
        ]
    assert langchain.tree("invoke_workflow failing") == [
        "invoke_workflow failing",
        "  execute_tool break_down",
    ]
    (failed,) = (row for row in langchain.spans if row["name"] == "execute_tool break_down")
    assert (failed["status"], failed["error_type"]) == ("error", "ValueError")
