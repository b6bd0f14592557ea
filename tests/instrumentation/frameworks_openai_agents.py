"""OpenAI Agents on a wrapped client; run with the model's address."""

import asyncio
import sys

import agents
from openai import AsyncOpenAI

import longpole
from longpole.frameworks import openai_agents

longpole.init(service="openai_agents")
agents.set_trace_processors([])
assert openai_agents.install() is openai_agents.install()
client = longpole.wrap(AsyncOpenAI(base_url=sys.argv[1], api_key="k"))
agents.set_default_openai_client(client, use_for_tracing=False)
agents.set_default_openai_api("chat_completions")


@agents.function_tool
def look_up(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@agents.function_tool
def break_down(city: str) -> str:
    """It always fails."""
    raise ValueError(f"no {city}")


@agents.input_guardrail
async def is_polite(*_: object) -> agents.GuardrailFunctionOutput:
    return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


weather = agents.Agent(name="weather", model="fake", tools=[look_up], input_guardrails=[is_polite])
desk = agents.Agent(name="desk", model="fake", handoffs=[weather])
broken = agents.Agent(name="broken", model="fake", tools=[break_down])


async def main() -> None:
    settings = agents.RunConfig(workflow_name="once", group_id="conversation-1")
    await agents.Runner.run(weather, "a secret question", run_config=settings)
    async with longpole.workflow("own") as run:
        result = agents.Runner.run_streamed(weather, "a secret question")
        async for _ in result.stream_events():
            pass
        run.accept()
    both = ("handed over", desk), ("failing", broken)
    for name, agent in both:
        settings = agents.RunConfig(workflow_name=name)
        await agents.Runner.run(agent, "a secret question", run_config=settings)
    await client.close()


asyncio.run(main())
assert longpole.stats().num_internal_errors == {}
assert longpole.flush(10)
