"""The Start page: its lines run as they stand, and it knows where spans are to be sent."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from tests.dashboard.gate import sources_closed

from longpole_collector.app import Collector, background
from longpole_collector.keys import Scope, create
from longpole_collector.settings import Settings
from longpole_dashboard import source
from longpole_dashboard.model.first_span import Door, door
from longpole_dashboard.snippets import PYTHON, SNIPPETS
from longpole_dashboard.source import Source

sys.path.append(str(Path(__file__).parents[1] / "instrumentation"))  # where the fakes are

import fake_anthropic
import fake_bedrock
import fake_cohere
import fake_google_genai
import fake_groq
import fake_mistralai
import fake_ollama
import fake_openai
import scenarios

PROGRAM = Path(__file__).with_name("snippets_run.py")
FRAMEWORKS = Path(__file__).parents[2] / "docs" / "frameworks.md"
SHOWN = {
    "OpenAI": ("openai", "openai", "gpt-5-mini"),
    "Anthropic": ("anthropic", "anthropic", "claude-haiku-4-5"),
    "Google GenAI": ("google.genai", "gcp.gemini", "gemini-2.5-flash"),
    "Mistral": ("mistralai", "mistral_ai", "mistral-small-latest"),
    "Cohere": ("cohere", "cohere", "command-a-03-2025"),
    "Ollama": ("ollama", "ollama", "qwen3:0.6b"),
    "Groq": ("groq", "groq", "openai/gpt-oss-20b"),
    "LiteLLM": ("litellm", "openai", "openai/gpt-5-mini"),
    "Bedrock": ("boto3", "aws.bedrock", "amazon.nova-lite-v1:0"),
    "LangChain, LangGraph": ("langchain_openai", "openai", "gpt-5-mini"),
    "Pydantic AI": ("pydantic_ai", "openai", "gpt-5-mini"),
    "OpenAI Agents": ("agents", "openai", "gpt-5-mini"),
}
"""Snippet -> the package it needs; provider and model that its call is stored with."""
WHOLE = ("LangChain, LangGraph", "Pydantic AI", "OpenAI Agents")
"""Those that do not stream: they have no first token."""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    folder = tmp_path_factory.mktemp("start")
    with background(Settings(db=folder, http="127.0.0.1:0", grpc="127.0.0.1:0")) as running:
        yield running


@pytest.fixture(scope="module")
def surroundings(collector: Collector) -> Iterator[dict[str, str]]:
    """The environment of somebody who has all those keys; the providers are on this machine."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for _, _, model in SHOWN.values():
            patch.setitem(scenarios.STREAMS, model, scenarios.STREAMS["plain"])
        openai, anthropic, google, mistral, cohere, ollama, groq, bedrock = (
            stack.enter_context(fake.serving()).base_url
            for fake in (
                fake_openai.FakeOpenAI,
                fake_anthropic.FakeAnthropic,
                fake_google_genai.FakeGemini,
                fake_mistralai.FakeMistral,
                fake_cohere.FakeCohere,
                fake_ollama.FakeOllama,
                fake_groq.FakeGroq,
                fake_bedrock.FakeBedrock,
            )
        )
        names = ("OPENAI", "ANTHROPIC", "GEMINI", "MISTRAL", "CO", "GROQ")
        yield {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            **{f"{name}_API_KEY": "k" for name in names},
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OPENAI_BASE_URL": openai,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",  # it would send to OpenAI
            "ANTHROPIC_BASE_URL": anthropic,
            "GOOGLE_GEMINI_BASE_URL": google,
            "MISTRAL_URL": mistral,
            "CO_API_URL": cohere,
            "OLLAMA_HOST": ollama,
            "GROQ_BASE_URL": groq,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": bedrock,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_DEFAULT_REGION": "us-east-1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch prices
        }


def stored(collector: Collector, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """The calls by the names of their workflows, each of which has one."""
    query = (
        "SELECT root_name, provider, request_model, ttft_ms, calls.input_tokens AS tokens "
        "FROM calls JOIN traces USING (trace_id)"
    )
    deadline = time.monotonic() + 120
    roots = sorted(f"invoke_workflow {name}" for name in names)
    while True:  # a framework's span and the client's are two calls until they are settled
        found = collector.store.sql(query).to_pylist()
        if sorted(call["root_name"] for call in found) == roots:
            return {call["root_name"].partition(" ")[2]: call for call in found}
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_every_snippet_runs_as_it_stands_and_its_call_is_stored(
    collector: Collector, surroundings: dict[str, str]
) -> None:
    lines = {snippet.name: snippet.code for snippet in SNIPPETS if snippet.is_run}
    assert set(lines) == set(SHOWN)
    there = {name: code for name, code in lines.items() if _is_there(SHOWN[name][0])}
    assert len(there) >= 9
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(there),
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls = stored(collector, there)
    for name in there:
        call = calls[name]
        assert (call["provider"], call["request_model"]) == SHOWN[name][1:], name
        assert (call["ttft_ms"] is None) is (name in WHOLE), name
        assert call["tokens"] > 0, name


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_the_list_is_complete_and_short() -> None:
    named = [snippet.name for snippet in SNIPPETS]
    assert len(set(named)) == len(named)
    page = FRAMEWORKS.read_text("utf-8")
    rows = page.split("|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    for row in rows:
        assert row.split("|")[1].strip() in named
    for snippet in SNIPPETS:
        assert len(snippet.code.splitlines()) <= 6, snippet.name
        assert max(map(len, snippet.code.splitlines())) <= 100, snippet.name
        if snippet.language == PYTHON:
            compile(snippet.code, snippet.name, "exec")
            assert snippet.install
        else:
            assert "{endpoint}" in snippet.code


# --- where to send ------------------------------------------------------------------------------
def test_the_door_is_where_the_collector_listens_and_says_whether_it_wants_a_key(
    collector: Collector, tmp_path: Path
) -> None:
    assert door(collector.url, None, "127.0.0.1:8501") == Door(collector.url, None)
    assert door(collector.url, "shop", "127.0.0.1:8501") == Door(collector.url, "shop")
    create(tmp_path, "shop", Scope.READ)
    wanting = Settings(db=tmp_path, http="0.0.0.0:0", grpc="127.0.0.1:0")
    with background(wanting) as running:
        port = running.url.rpartition(":")[2]
        found = door(f"http://0.0.0.0:{port}", None, "dash.example:8501")
        assert found == Door(f"http://dash.example:{port}", "default")
    assert door("http://127.0.0.1:1", None, "") == Door("http://127.0.0.1:1", None)


def shown(collector: Collector, project: str | None, **params: str) -> AppTest:
    source.use(Source(url=collector.url, project=project))

    def alone() -> None:
        from longpole_dashboard import data
        from longpole_dashboard.pages import start

        start.draw(None, data.bounds())

    app = AppTest.from_function(alone, default_timeout=60)
    for name, value in params.items():
        app.query_params[name] = value
    return app.run()


@pytest.fixture
def _fresh() -> Iterator[None]:
    st.cache_data.clear()
    with sources_closed():
        yield
    source._source = None


@pytest.mark.usefixtures("_fresh")
def test_the_page_shows_the_chosen_lines_the_address_and_the_key(
    collector: Collector,
) -> None:
    by_name = {snippet.name: snippet for snippet in SNIPPETS}
    app = shown(collector, "shop", **{"with": "Anthropic"})
    assert not app.exception
    first, second, *_ = (block.value for block in app.code)
    assert first == by_name["Anthropic"].code
    assert second.splitlines() == [
        f"export OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}",
        "longpole keys create --scope ingest --project shop",
        "export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20lp_...",
    ]
    (chosen,) = app.selectbox
    assert chosen.options == list(by_name)
    app = chosen.select("vLLM").run()
    assert app.query_params["with"] in ("vLLM", ["vLLM"])
    assert app.code[0].value.endswith(f"--otlp-traces-endpoint {collector.url}/v1/traces")
    app = shown(collector, None, **{"with": "<b>x</b>"})
    assert app.code[0].value == SNIPPETS[0].code
    said = " ".join(str(part.value) for part in app.main if part.type == "html")
    assert "no lines for &#x27;&lt;b&gt;x&lt;/b&gt;&#x27;" in said
