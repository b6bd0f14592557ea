"""Wrapped clients of the OpenAI, Anthropic and Groq fakes; the forms of their streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import anthropic
import fake_anthropic
import fake_groq
import fake_openai
import groq
import openai
from exits import Form

import longpole

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]


def parsed(raw: Any) -> Any:
    return raw.parse()


def lines(response: Any) -> Any:
    return response.iter_lines()


def forms_of(prefix: str, resource: Any, has_helper: bool = True, **asked: Any) -> list[Form]:
    """Create, helper, raw and streaming forms of one resource's ``create``."""
    found = [
        Form(
            f"{prefix}-create",
            lambda c, model: resource(c).create(model=model, stream=True, **asked),
        ),
        Form(
            f"{prefix}-raw",
            lambda c, model: resource(c).with_raw_response.create(
                model=model, stream=True, **asked
            ),
            parsed,
        ),
        Form(
            f"{prefix}-streaming",
            lambda c, model: resource(c).with_streaming_response.create(
                model=model, stream=True, **asked
            ),
            read=lines,
        ),
    ]
    if has_helper:
        helper = Form(f"{prefix}-helper", lambda c, model: resource(c).stream(model=model, **asked))
        found.append(helper)
    return found


class Case(NamedTuple):
    """A form of a client's call, and what its spans say."""

    client: str
    form: Form
    provider: str
    operation: str
    code: str  # of the error event

    @property
    def name(self) -> str:
        return f"{self.client}-{self.form.name}"


def _cases() -> Iterator[Case]:
    chat = {"messages": MESSAGES}
    for form in forms_of("chat", lambda c: c.chat.completions, **chat):
        yield Case("openai", form, "openai", "chat", "overloaded")
    for form in forms_of("responses", lambda c: c.responses, input="x"):
        yield Case("openai", form, "openai", "chat", "server_error")
    for form in forms_of("text", lambda c: c.completions, has_helper=False, prompt="x"):
        yield Case("openai", form, "openai", "text_completion", "overloaded")
    for form in forms_of("chat", lambda c: c.chat.completions, has_helper=False, **chat):
        yield Case("groq", form, "groq", "chat", "overloaded")
    asked = {"messages": MESSAGES, "max_tokens": 64}
    clouds = {"anthropic": "anthropic", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}
    for client, provider in clouds.items():
        forms = forms_of("messages", lambda c: c.messages, **asked)
        for form in forms if client != "vertex" else forms[:1]:  # it differs by its address only
            yield Case(client, form, provider, "chat", "overloaded_error")
    for form in forms_of("beta", lambda c: c.beta.messages, **asked):
        yield Case("anthropic", form, "anthropic", "chat", "overloaded_error")


CASES = list(_cases())


@contextlib.contextmanager
def serving() -> Iterator[dict[str, Any]]:
    """The fakes by the client's name, running inside the block."""
    fakes: Any = {
        "openai": fake_openai.FakeOpenAI,
        "groq": fake_groq.FakeGroq,
        "anthropic": fake_anthropic.FakeAnthropic,
    }
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(cls.serving()) for name, cls in fakes.items()}
        yield {**found, "bedrock": found["anthropic"], "vertex": found["anthropic"]}


def made(name: str, url: str, is_async: bool) -> Any:
    """A wrapped client."""
    cloud = {"base_url": url, "max_retries": 0}
    bedrock = {**cloud, "aws_region": "r", "api_key": "k"}
    vertex = {**cloud, "region": "r", "project_id": "p", "access_token": "t"}
    plain = {"base_url": url, "api_key": "k"}
    makers: dict[str, Any] = {
        "openai": (openai.OpenAI, openai.AsyncOpenAI, plain),
        "groq": (groq.Groq, groq.AsyncGroq, plain),
        "anthropic": (anthropic.Anthropic, anthropic.AsyncAnthropic, {**cloud, "api_key": "k"}),
        "bedrock": (anthropic.AnthropicBedrock, anthropic.AsyncAnthropicBedrock, bedrock),
        "vertex": (anthropic.AnthropicVertex, anthropic.AsyncAnthropicVertex, vertex),
    }
    sync_class, async_class, kwargs = makers[name]
    return longpole.wrap((async_class if is_async else sync_class)(**kwargs))
