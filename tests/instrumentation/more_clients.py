"""Wrapped clients of the Gemini, Mistral, Cohere and Ollama fakes; the forms of their streams."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple, Self

import cohere
import fake_cohere
import fake_google_genai
import fake_mistralai
import fake_ollama
import ollama
from exits import Form
from google import genai
from mistralai.client import Mistral

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]
FAKES: dict[str, Any] = {
    "google": fake_google_genai.FakeGemini,
    "mistral": fake_mistralai.FakeMistral,
    "cohere": fake_cohere.FakeCohere,
    "ollama": fake_ollama.FakeOllama,
}


class Held:
    """A generator as an async context manager with ``close``."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.generator.aclose()

    def __aiter__(self) -> AsyncIterator[Any]:
        return aiter(self.generator)


def held(made: Any) -> Any:
    """What the ways out need of a generator: a context manager."""
    return Held(made) if hasattr(made, "aclose") else contextlib.closing(made)


class Case(NamedTuple):
    """A form of a client's streamed call, and what its spans say.

    ``code`` is the error event's; ``left`` the state after a close that the library itself turns
    into a dropped generator.
    """

    client: str
    form: Form
    provider: str
    operation: str
    code: str
    response_id: str | None
    left: str = "closed_early"

    @property
    def name(self) -> str:
        return f"{self.client}-{self.form.name}"


def _google() -> Iterator[Case]:
    def models(client: Any) -> Any:
        return client.models

    def plain(client: Any, model: str) -> Any:
        return models(client).generate_content_stream(model=model, contents="x")

    def chat(client: Any, model: str) -> Any:
        return client.chats.create(model=model).send_message_stream("x")

    def with_tool(client: Any, model: str) -> Any:
        def search(q: str) -> str:
            """Search."""
            return q

        config = {"tools": [search]}
        return models(client).generate_content_stream(model=model, contents="x", config=config)

    for name, provider in (("google", "gcp.gemini"), ("vertex", "gcp.vertex_ai")):
        facts = (provider, "generate_content", "UNAVAILABLE", "resp-1")
        yield Case(name, Form("stream", plain, held), *facts)
        yield Case(name, Form("chat", chat, held), *facts, left="abandoned")
        yield Case(name, Form("tool", with_tool, held), *facts, left="abandoned")


def _mistral() -> Iterator[Case]:
    def suffix(client: Any) -> str:
        return "_async" if getattr(client, "is_for_async", False) else ""

    def method(resource: str, name: str) -> Callable[[Any], Any]:
        return lambda client: getattr(getattr(client, resource), name + suffix(client))

    from pydantic import BaseModel

    class Found(BaseModel):
        answer: int

    chat, parse = method("chat", "stream"), method("chat", "parse_stream")
    agents, fim = method("agents", "stream"), method("fim", "stream")
    forms = (
        (Form("chat", lambda c, m: chat(c)(model=m, messages=MESSAGES)), "chat"),
        (Form("parse", lambda c, m: parse(c)(Found, model=m, messages=MESSAGES)), "chat"),
        (Form("agents", lambda c, m: agents(c)(agent_id=m, messages=MESSAGES)), "chat"),
        (Form("fim", lambda c, m: fim(c)(model=m, prompt="x")), "text_completion"),
    )
    for form, operation in forms:
        yield Case("mistral", form, "mistral_ai", operation, "overloaded", "cmpl-1")


def _cohere() -> Iterator[Case]:
    def raw(make: Callable[[Any], Any]) -> Form:
        return Form(
            "raw",
            lambda c, m: make(c).with_raw_response.chat_stream(model=m, messages=MESSAGES),
            Entered,
        )

    def v2(client: Any, model: str) -> Any:
        return client.chat_stream(model=model, messages=MESSAGES)

    def nested(client: Any, model: str) -> Any:
        return client.v2.chat_stream(model=model, messages=MESSAGES)

    def v1(client: Any, model: str) -> Any:
        return client.chat_stream(model=model, message="x")

    facts = ("cohere", "chat", "ERROR", "id-1")
    yield Case("cohere", Form("stream", v2, held), *facts)
    yield Case("cohere", raw(lambda c: c), *facts)
    yield Case("cohere-v1", Form("stream", v1, held), *facts)
    yield Case("cohere-v1", Form("v2", nested, held), *facts)


class Entered:
    """A raw response's manager, with a ``close`` that leaves it."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.response: Any = None

    def __enter__(self) -> Self:
        self.response = self.manager.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self.manager.__exit__(*error)

    async def __aenter__(self) -> Self:
        self.response = await self.manager.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self.manager.__aexit__(*error)

    def close(self) -> Any:
        return self.response.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.response.data

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for chunk in self.response.data:
            yield chunk


def _ollama() -> Iterator[Case]:
    def chat(client: Any, model: str) -> Any:
        return client.chat(model=model, messages=MESSAGES, stream=True)

    def generate(client: Any, model: str) -> Any:
        return client.generate(model=model, prompt="x", stream=True)

    facts = ("ResponseError", None)
    yield Case("ollama", Form("chat", chat, held), "ollama", "chat", *facts)
    yield Case("ollama", Form("generate", generate, held), "ollama", "text_completion", *facts)


CASES = [*_google(), *_mistral(), *_cohere(), *_ollama()]


class AsyncMistral(Mistral):
    """The client, with a word for the tests that call its async methods."""

    is_for_async = True


@contextlib.asynccontextmanager
async def opened(name: str, url: str, is_async: bool, **more: Any) -> AsyncIterator[Any]:
    """A wrapped client, closed at the end; of Google the part for its kind of call."""
    if name in ("google", "vertex"):
        made = longpole.wrap(_google_client(name, url, **more))
        try:
            yield made.aio if is_async else made
        finally:
            await made.aio.aclose()
            made.close()
    elif name == "mistral":
        cls: Any = AsyncMistral if is_async else Mistral
        async with cls(api_key="k", server_url=url, **more) as client:
            with client:
                yield longpole.wrap(client)
    elif name == "ollama":
        made_by: Any = ollama.AsyncClient if is_async else ollama.Client
        client = made_by(url)
        try:
            yield longpole.wrap(client)
        finally:
            await value(client.close())
    else:
        client = _COHERE[name, is_async](api_key="k", base_url=url)
        async with client if is_async else contextlib.nullcontext():
            with contextlib.nullcontext() if is_async else client:
                yield longpole.wrap(client)


def _google_client(name: str, url: str, **more: Any) -> genai.Client:
    options: Any = {"base_url": url, **more}
    return genai.Client(api_key="k", vertexai=name == "vertex", http_options=options)


_COHERE: dict[tuple[str, bool], Any] = {
    ("cohere", False): cohere.ClientV2,
    ("cohere", True): cohere.AsyncClientV2,
    ("cohere-v1", False): cohere.Client,
    ("cohere-v1", True): cohere.AsyncClient,
}


# --- what the tests share ------------------------------------------------------------------------

TOKENS = (
    keys.INPUT_TOKENS,
    keys.CACHED_INPUT_TOKENS,
    keys.CACHE_WRITE_TOKENS,
    keys.OUTPUT_TOKENS,
    keys.REASONING_TOKENS,
)
PLAIN = {
    "google": (1456, 1280, None, 30, 12),
    "vertex": (1456, 1280, None, 30, 12),
    "mistral": (1456, 1280, None, 30, None),
    "cohere": (1456, 1280, None, 30, None),
    "cohere-v1": (1456, 1280, None, 30, None),
    "ollama": (1456, None, None, 30, None),
}
"""The tokens that the fakes tell, in the order of TOKENS."""


@contextlib.contextmanager
def serving() -> Iterator[dict[str, Any]]:
    """The fakes by the client's name, running inside the block."""
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(cls.serving()) for name, cls in FAKES.items()}
        yield {**found, "vertex": found["google"], "cohere-v1": found["cohere"]}


def facts(spans: Spans) -> dict[str, Any]:
    """The attributes of the one span."""
    assert len(spans) == 1
    assert not longpole.stats().num_internal_errors
    return dict(spans[0].attributes or {})


def tokens(found: dict[str, Any]) -> tuple[Any, ...]:
    """The counts of a span, ``None`` where it has none."""
    return tuple(found.get(key) for key in TOKENS)


async def value(found: Any) -> Any:
    """What a method gave, whether its client is sync or async."""
    return await found if inspect.iscoroutine(found) else found


def whole(client: Any, name: str, model: str, is_async: bool) -> Any:
    """One call that does not stream, in the client's plainest form."""
    if name in ("google", "vertex"):
        config = {"temperature": 0.5, "max_output_tokens": 64}
        return client.models.generate_content(model=model, contents="x", config=config)
    asked = {"model": model, "messages": MESSAGES}
    if name == "mistral":
        method = client.chat.complete_async if is_async else client.chat.complete
        return method(**asked, temperature=0.5, max_tokens=64)
    if name == "cohere-v1":
        return client.chat(model=model, message="x", temperature=0.5, max_tokens=64)
    if name == "cohere":
        return client.chat(**asked, temperature=0.5, max_tokens=64)
    return client.chat(**asked, options={"temperature": 0.5, "num_predict": 64})
