"""The Groq client, sync and async: OpenAI's chat protocol, and ``x_groq`` beside it.

Usage comes unasked, in the last chunk of a stream, and says how long the request waited and ran.
"""

from collections.abc import Sequence
from typing import Any

from longpole.call import Kind
from longpole.providers import _openai_chat, _stainless
from longpole.providers.base import Answer, Arguments, Method, Provider, Request, known
from longpole.vocab import keys

_STREAM_ERROR = "stream_error"
"""``error.type`` of a stream that Groq stopped early; it says why in free text only."""


def _name(client: Any) -> str:
    return "groq"


def _chat(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/openai/v1/chat/completions", args, kwargs)
    return None if body is None else _openai_chat.request(body, kwargs, _openai_chat.prompt)


def _embeddings(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/openai/v1/embeddings", args, kwargs)
    return None if body is None else _openai_chat.request(body, kwargs)


def _chunk(chunk: Any, answer: Answer) -> Kind:
    kind = _openai_chat.chunk(chunk, answer)
    told = chunk.x_groq
    if told is not None:
        used = getattr(told, "usage", None)
        if used is not None:
            answer.usage = answer.usage.merged(_openai_chat.usage(used))
            answer.facts.update(_times(used))
        if getattr(told, "error", None):
            answer.error_type = _STREAM_ERROR
    return kind


def _response(result: Any, answer: Answer) -> None:
    _openai_chat.response(result, answer)
    if result.usage is not None:
        answer.facts.update(_times(result.usage))


def _times(usage: Any) -> dict[str, Any]:
    """Where the server's time went, seconds."""
    number = int | float
    return known(
        {
            keys.ENGINE_QUEUE: (getattr(usage, "queue_time", None), number),
            keys.ENGINE_PREFILL: (getattr(usage, "prompt_time", None), number),
            keys.ENGINE_DECODE: (getattr(usage, "completion_time", None), number),
        }
    )


def _never_streamed(chunk: Any, answer: Answer) -> Kind:
    return Kind.EMPTY


PROVIDER = Provider(
    package="groq",
    majors=frozenset({1}),
    classes=("Groq", "AsyncGroq"),
    methods=(
        Method("chat.completions._post", "chat", _chat, _chunk, _response, _stainless.chunks),
        Method("embeddings._post", "embeddings", _embeddings, _never_streamed, _response),
    ),
    copies=("copy", "with_options"),
    name=_name,
    server=_stainless.server,
    place=_stainless.place,
    attach=_stainless.attach,
    is_client=_stainless.is_client,
    error_type=_stainless.error_type,
)
