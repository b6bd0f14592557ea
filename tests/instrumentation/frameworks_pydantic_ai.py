"""A Pydantic AI agent on a wrapped client; run with the model's address."""

import asyncio
import sys

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import longpole

longpole.init(service="pydantic_ai")
client = longpole.wrap(AsyncOpenAI(base_url=sys.argv[1], api_key="k"))
model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
agent = Agent(model, name="weather", capabilities=[Instrumentation()])


@agent.tool_plain
def look_up(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    async with longpole.workflow("once") as run:
        await agent.run("a secret question")
        run.accept()
    async with longpole.workflow("streamed"), agent.run_stream("a secret question") as result:
        async for _ in result.stream_text():
            pass
    await client.close()


asyncio.run(main())
assert longpole.flush(10)
