"""A process that calls one provider; run as a script: ``<client> <url> <way>``.

It says as JSON what it saw. Ways: ``lazy`` (nothing is imported by ``instrument``, a call is
measured), ``exit`` and ``exit-async`` (it leaves in the middle of a stream), ``fork`` (a child
makes a call of its own while its parent reads a stream).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import longpole

MESSAGES: Any = [{"role": "user", "content": "x"}]
PACKAGES = (
    "anthropic",
    "boto3",
    "botocore",
    "cohere",
    "google.genai",
    "groq",
    "httpx",
    "litellm",
    "mistralai",
    "ollama",
    "openai",
)
Call = Callable[[str, bool], Any]
"""Model and whether it streams, to what the client returns."""


def _chat(client: Any, **more: Any) -> Call:
    create = (client.messages if "max_tokens" in more else client.chat.completions).create
    return lambda model, stream: create(model=model, messages=MESSAGES, stream=stream, **more)


def openai(url: str, is_async: bool) -> Call:
    import openai

    made: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
    return _chat(made(api_key="k", base_url=url))


def groq(url: str, is_async: bool) -> Call:
    import groq

    made: Any = groq.AsyncGroq if is_async else groq.Groq
    return _chat(made(api_key="k", base_url=url))


def anthropic(url: str, is_async: bool) -> Call:
    import anthropic

    made: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
    return _chat(made(api_key="k", base_url=url), max_tokens=64)


def google(url: str, is_async: bool) -> Call:
    from google import genai

    client = genai.Client(api_key="k", http_options={"base_url": url})
    models: Any = client.aio.models if is_async else client.models

    def call(model: str, stream: bool) -> Any:
        method = models.generate_content_stream if stream else models.generate_content
        made = method(model=model, contents="x")
        _kept.append(client)
        return made

    return call


def mistral(url: str, is_async: bool) -> Call:
    from mistralai.client import Mistral

    chat = Mistral(api_key="k", server_url=url).chat
    suffix = "_async" if is_async else ""

    def call(model: str, stream: bool) -> Any:
        name = ("stream" if stream else "complete") + suffix
        return getattr(chat, name)(model=model, messages=MESSAGES)

    return call


def cohere(url: str, is_async: bool) -> Call:
    import cohere

    made: Any = cohere.AsyncClientV2 if is_async else cohere.ClientV2
    client = made(api_key="k", base_url=url)

    def call(model: str, stream: bool) -> Any:
        return (client.chat_stream if stream else client.chat)(model=model, messages=MESSAGES)

    return call


def ollama(url: str, is_async: bool) -> Call:
    import ollama

    client: Any = (ollama.AsyncClient if is_async else ollama.Client)(url)
    return lambda model, stream: client.chat(model=model, messages=MESSAGES, stream=stream)


def litellm(url: str, is_async: bool) -> Call:
    import litellm

    function: Any = litellm.acompletion if is_async else litellm.completion
    asked = {"messages": MESSAGES, "api_base": url, "api_key": "k"}
    return lambda model, stream: function(model=f"openai/{model}", stream=stream, **asked)


def bedrock(url: str, is_async: bool) -> Call:
    import boto3

    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, **keys)
    messages = [{"role": "user", "content": [{"text": "x"}]}]

    def call(model: str, stream: bool) -> Any:
        asked = {"modelId": f"x.{model}", "messages": messages}
        return client.converse_stream(**asked)["stream"] if stream else client.converse(**asked)

    return call


MAKERS: dict[str, Callable[[str, bool], Call]] = {
    "openai": openai,
    "groq": groq,
    "anthropic": anthropic,
    "google": google,
    "mistral": mistral,
    "cohere": cohere,
    "ollama": ollama,
    "litellm": litellm,
    "bedrock": bedrock,
}
NUM_READ = 4
_kept: list[Any] = []
"""What must live as long as the process."""


def read_some(stream: Any) -> None:
    """Begin to read a stream, and keep it."""
    chunks = iter(stream)
    for _ in range(NUM_READ):
        next(chunks)
    _kept.append((stream, chunks))


async def read_and_exit(made: Any) -> None:
    """The same in a task that ends the process."""
    chunks = aiter(await made if hasattr(made, "__await__") else made)
    for _ in range(NUM_READ):
        await anext(chunks)
    _kept.append(chunks)
    sys.exit(0)


def main(client: str, url: str, way: str) -> None:
    """Go one way; what it saw goes to stdout."""
    longpole.instrument()
    imported = [name for name in PACKAGES if name in sys.modules]
    make = MAKERS[client](url, way == "exit-async")
    if way == "lazy":
        make("plain", False)
        longpole.uninstrument()
        told = vars(longpole.stats())
        print(json.dumps({"imported": imported, "errors": told["num_internal_errors"]}))
    elif way == "exit":
        read_some(make("slow", True))
        sys.exit(0)
    elif way == "exit-async":

        async def begin() -> None:
            await read_and_exit(make("slow", True))

        asyncio.run(begin())
    else:
        read_some(make("slow", True))
        if not (pid := os.fork()):
            make("plain", False)
            sys.exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
