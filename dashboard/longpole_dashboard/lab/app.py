"""The lab's application: an agent that searches, calls tools, asks the model, has people approve.

Written and instrumented as a user would do it. Searches, tools and people are waits: they stand for
the network of a real back end.
"""

import asyncio
import ssl
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Final, NamedTuple

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

import longpole
from longpole_dashboard.lab.plan import Ask
from longpole_dashboard.lab.recipe import App, Prefix
from longpole_engine.load.arrivals import Turn
from longpole_engine.load.prompts import text

TIMEOUT_S: Final = 60.0
_TOOLS: Final = ("order_status", "delivery_fee", "stock", "returns", "prices", "opening_hours")
_ALONE: Final = ""
"""Every text here is of blocks: nothing else makes it differ."""
_INSTRUCT: Final = "You answer customers in one short sentence from the notes that come along."


class Salt(NamedTuple):
    """What makes prompts differ: from other runs', and in what is not shared from other blocks'."""

    run: str
    block: int


class Name(NamedTuple):
    """What an application's traces call it: a route, and which of its versions."""

    route: str
    version: str | None


class Agent:
    """The application of one side.

    Args:
        url: the engines' door.
        model: the name it is served under.
        app: what the application does.
        name: of its traces.
        salt: of its prompts.
    """

    def __init__(self, url: str, model: str, app: App, name: Name, salt: Salt) -> None:
        client = AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=TIMEOUT_S,
            max_retries=app.retries,
            http_client=DefaultAsyncHttpxClient(verify=_tls()),
        )
        self._client = longpole.wrap(client)
        self._model, self._app, self._name, self._salt = model, app, name, salt

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def answer(self, ask: Ask) -> bool:
        """One request, from its arrival to the accepted answer; ``False`` if it failed."""
        app = self._app
        try:
            async with longpole.workflow(
                "question", route=self._name.route, route_version=self._name.version
            ) as run:
                if ask.retrieval_s:
                    with longpole.retrieval("handbook"):
                        await asyncio.sleep(ask.retrieval_s)
                await self._tools(ask)
                said = await self._ask(run, ask)
                if app.approval_s:
                    with longpole.human_wait("approval"):
                        await asyncio.sleep(ask.approval_s)
                run.accept(chunks=said)
        except OpenAIError:
            return False  # the workflow has failed, and says so in its trace
        return True

    async def _tools(self, ask: Ask) -> None:
        names = list(zip(_TOOLS, ask.tools_s, strict=False))
        if self._app.is_serial:
            for name, seconds in names:
                await self._tool(name, seconds)
        else:
            await asyncio.gather(*(self._tool(name, seconds) for name, seconds in names))

    @staticmethod
    async def _tool(name: str, seconds: float) -> None:
        with longpole.tool(name):
            await asyncio.sleep(seconds)

    async def _ask(self, run: longpole.Run, ask: Ask) -> int:
        tools, system = self._prefix(ask)
        words = f"{self._salt.run} {self._salt.block} {ask.unique}"
        question = text(Turn(blocks=(hash_of(words),)), ask.question, _ALONE)
        described = {"tools": tools, "system": system, "messages": question}
        segments = {name: segment for name, segment in described.items() if segment}
        with longpole.prompt(ask.version, segments, volatile=("messages",)):
            stream = await self._client.chat.completions.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": "\n".join([*tools, system])},
                    {"role": "user", "content": question},
                ],
                temperature=self._app.temperature,
                max_tokens=ask.answer,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            num_chunks = 0
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    if not num_chunks:
                        run.first_useful_output()
                    num_chunks += 1
                    if self._app.read_pause_s:
                        await asyncio.sleep(self._app.read_pause_s)
        return num_chunks

    def _prefix(self, ask: Ask) -> tuple[list[str], str]:
        """The tools' descriptions and the instructions."""
        app = self._app
        words = self._salt.run
        if ask.prefix != "shared":
            words += f" {self._salt.block} {ask.prefix}"
        if ask.prefix != "shared" and app.prefix is not Prefix.EDITED:
            return (
                [],
                f"{text(Turn(blocks=(hash_of(words),)), app.instructions, _ALONE)} {_INSTRUCT}",
            )
        size = max(1, app.instructions // (2 * len(_TOOLS)))
        tools = [
            f"{name}: {text(Turn(blocks=(hash_of(f'{words} {name}'),)), size, _ALONE)}"
            for name in _TOOLS
        ]
        if app.prefix is Prefix.SHUFFLED_TOOLS:
            Random(ask.unique).shuffle(tools)  # noqa: S311 - no secret
        half = max(1, app.instructions // 2)
        system = f"{_INSTRUCT} {text(Turn(blocks=(hash_of(words),)), half, _ALONE)}"
        if app.prefix is Prefix.TIMESTAMP:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            return [], f"It is {now}.\n" + "\n".join([*tools, system])
        return tools, system


@cache
def _tls() -> ssl.SSLContext:
    """Loaded once: that takes longer than a call, and a client of its own comes with each block."""
    return ssl.create_default_context()


def hash_of(words: str) -> int:
    """A number for a text, the same in every process."""
    return Random(words).randrange(1 << 30)  # noqa: S311 - no secret
