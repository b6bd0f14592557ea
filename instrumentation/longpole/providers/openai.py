"""The OpenAI client, sync and async: OpenAI's own host, Azure's, Bedrock's and compatible ones.

Chat completions, responses, embeddings and completions, in all of their forms.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from longpole.call import Kind
from longpole.providers import _openai_chat, _openai_responses, _stainless
from longpole.providers.base import Answer, Arguments, Method, Provider, Request

_BY_MODULE = {"openai.lib.azure": "azure.ai.openai", "openai.lib.bedrock": "aws.bedrock"}
_BY_HOST = {
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "openrouter.ai": "openrouter",
}
"""Hosts that are known by more than their protocol; any other counts as OpenAI's."""


def _name(client: Any) -> str:
    kind: Any = type(client)
    return _named(kind, client.base_url.host)


@lru_cache(maxsize=256)
def _named(kind: Any, host: str) -> str:
    for cls in kind.__mro__:
        if cls.__module__ in _BY_MODULE:
            return _BY_MODULE[cls.__module__]
    for known_host, name in _BY_HOST.items():
        if host == known_host or host.endswith(f".{known_host}"):
            return name
    return "openai"


def _chat(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/chat/completions", args, kwargs)
    if body is None:
        return None
    return _openai_chat.request(body, kwargs, _openai_chat.prompt, can_ask=True)


def _completion(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/completions", args, kwargs)
    return None if body is None else _openai_chat.completion_request(body, kwargs)


def _embeddings(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/embeddings", args, kwargs)
    return None if body is None else _openai_chat.request(body, kwargs)


def _never_streamed(chunk: Any, answer: Answer) -> Kind:
    return Kind.EMPTY


PROVIDER = Provider(
    package="openai",
    majors=frozenset({3}),
    classes=("OpenAI", "AsyncOpenAI"),  # Azure's and Bedrock's are made through them
    methods=(
        Method(
            "chat.completions._post",
            "chat",
            _chat,
            _openai_chat.chunk,
            _openai_chat.response,
            _stainless.chunks,
        ),
        Method(
            "responses._post",
            "chat",
            _openai_responses.request,
            _openai_responses.event,
            _openai_responses.response,
            _stainless.chunks,
        ),
        Method(
            "completions._post",
            "text_completion",
            _completion,
            _openai_chat.completion_chunk,
            _openai_chat.response,
            _stainless.chunks,
        ),
        Method(
            "embeddings._post", "embeddings", _embeddings, _never_streamed, _openai_chat.response
        ),
    ),
    copies=("copy", "with_options"),
    name=_name,
    server=_stainless.server,
    place=_stainless.place,
    attach=_stainless.attach,
    is_client=_stainless.is_client,
    rejects_usage=_openai_chat.rejects_usage,
    error_type=_stainless.error_type,
)
