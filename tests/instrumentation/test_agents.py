"""Runs of the OpenAI Agents SDK: its models call an OpenAI client, which is what is wrapped."""

from collections.abc import AsyncIterator
from typing import Any

import agents
import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from opentelemetry.sdk.trace import ReadableSpan

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MODELS = [OpenAIChatCompletionsModel, OpenAIResponsesModel]


@pytest.fixture(autouse=True)
def _no_tracing() -> None:
    agents.set_tracing_disabled(True)  # its own spans would go to OpenAI


@pytest.fixture
async def client(server: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as made:
        yield longpole.wrap(made)


def agent(model: Any, client: Any, scenario: str, **more: Any) -> Any:
    return Agent(name="a", model=model(model=scenario, openai_client=client), **more)


def call(spans: Spans) -> ReadableSpan:
    """The only model call; its parent is the workflow around the run."""
    found = [span for span in spans if span.name.startswith("chat")]
    roots = [span for span in spans if span.name == "invoke_workflow answer"]
    assert len(found) == len(roots) == 1
    assert found[0].parent is not None
    assert found[0].parent.span_id == roots[0].context.span_id
    return found[0]


@pytest.mark.parametrize("model", MODELS)
async def test_a_run_is_one_call(client: Any, spans: Spans, model: Any) -> None:
    with longpole.workflow("answer"):
        result = await Runner.run(agent(model, client, "plain"), "a question")
    assert result.final_output == '{"answer": 42}'
    found = dict(call(spans).attributes or {})
    assert (found[keys.INPUT_TOKENS], found[keys.OUTPUT_TOKENS]) == (1456, 30)
    assert found[keys.RESEND_COUNT] == 0


@pytest.mark.parametrize("model", MODELS)
async def test_a_streamed_run_is_one_call(client: Any, spans: Spans, model: Any) -> None:
    with longpole.workflow("answer"):
        result = Runner.run_streamed(agent(model, client, "plain"), "a question")
        assert [event async for event in result.stream_events()]
    found = dict(call(spans).attributes or {})
    assert found[keys.CHUNK_COUNT] == 10
    assert found[keys.OUTPUT_TOKENS] == 30
    assert found[keys.STREAM_STATE] == "completed"


@pytest.mark.parametrize("model", MODELS)
async def test_a_cancelled_run_is_one_call(client: Any, spans: Spans, model: Any) -> None:
    with longpole.workflow("answer"):
        result = Runner.run_streamed(agent(model, client, "slow"), "a question")
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                result.cancel()
                break
        async for _ in result.stream_events():
            pass
    assert dict(call(spans).attributes or {})[keys.STREAM_STATE] in ("closed_early", "abandoned")


async def test_a_tool_runs_between_the_calls_and_not_inside_one(client: Any, spans: Spans) -> None:
    @agents.function_tool
    async def search(q: int) -> str:
        with longpole.tool("search"):
            return str(q)

    with longpole.workflow("answer"):
        asking = agent(
            OpenAIChatCompletionsModel,
            client,
            "tool",
            tools=[search],
            tool_use_behavior="stop_on_first_tool",
        )
        result = Runner.run_streamed(asking, "a question")
        async for _ in result.stream_events():
            pass
    assert result.final_output == "1"
    tool = next(span for span in spans if "search" in span.name)
    assert tool.parent == call(spans).parent
    assert tool.start_time >= call(spans).end_time


@pytest.mark.parametrize("model", MODELS)
async def test_instrument_openai_covers_the_client_that_the_library_makes(
    server: Any, spans: Spans, model: Any
) -> None:
    longpole.instrument("openai")
    try:
        client = openai.AsyncOpenAI(api_key="k", base_url=server.base_url)
    finally:
        longpole.uninstrument()
    async with client:
        with longpole.workflow("answer"):
            await Runner.run(agent(model, client, "plain"), "a question")
    assert dict(call(spans).attributes or {})[keys.OUTPUT_TOKENS] == 30
