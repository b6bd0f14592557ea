"""The Ollama client: chat, generate and embed, sync and async, and the module's own functions.

Every call comes down to the client's ``_request``, so that is what is wrapped. A stream is lines
of JSON whose last one holds Ollama's own durations: facts of the engine's side.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from longpole import transport
from longpole.call import Kind, Usage
from longpole.providers import _messages
from longpole.providers.base import (
    Answer,
    Arguments,
    Method,
    Prompt,
    Provider,
    Request,
    Server,
    asked,
    count,
)
from longpole.said import Said
from longpole.vocab import keys

COLD_START_NS = 500_000_000
"""A loaded model is found in milliseconds; loading one takes longer than this."""

_NS_PER_S = 1e9
_DURATIONS = {
    keys.ENGINE_PREFILL: "prompt_eval_duration",
    keys.ENGINE_DECODE: "eval_duration",
    keys.ENGINE_E2E: "total_duration",
}


def _http_client(client: Any) -> Any:
    """The httpx client of a client, or of the one that the module's functions use."""
    inner = client._client
    return inner if hasattr(inner, "event_hooks") else inner._client


def _server(client: Any) -> Server:
    url = _http_client(client).base_url
    return Server(url.host, url.port)


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    return transport.hook(_http_client(client))


def _request(path: str, args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = kwargs.get("json")
    if path not in args or not isinstance(body, dict):
        return None
    options = body.get("options") or {}
    return Request(
        facts=asked(body.get("model"), options.get("num_predict"), options.get("temperature")),
        is_streamed=kwargs.get("stream") is True,
        prompt=partial(_prompt, body) if "messages" in body or "prompt" in body else None,
    )


def _prompt(body: Mapping[str, Any]) -> Prompt:
    return _messages.chat(
        _messages.first(body, "messages", "prompt"),
        tools=body.get("tools"),
        schema=body.get("format"),
        system=body.get("system"),
    )


def _chat(chunk: Any, answer: Answer) -> Kind:
    _read(chunk, answer)
    message = chunk.message
    if answer.said is not None:
        _messages.say_delta(message, answer.said, 0)
    if message.content:
        return Kind.TEXT
    if message.thinking:
        return Kind.REASONING
    return Kind.TOOL if message.tool_calls else Kind.EMPTY


def _generate(chunk: Any, answer: Answer) -> Kind:
    _read(chunk, answer)
    if answer.said is not None:
        _say_generated(chunk, answer.said)
    if chunk.response or chunk.image:
        return Kind.TEXT
    return Kind.REASONING if chunk.thinking else Kind.EMPTY


def _read(chunk: Any, answer: Answer) -> None:
    if chunk.done:
        _finish(chunk, answer)
    elif answer.model is None:
        answer.model = chunk.model


def _say_generated(result: Any, said: Said) -> None:
    said.reasoning(getattr(result, "thinking", None) or "")
    said.text(getattr(result, "response", None) or "")


def _response(result: Any, answer: Answer) -> None:
    _finish(result, answer)
    message = getattr(result, "message", None)
    if answer.said is not None:
        if message is None:
            _say_generated(result, answer.said)
        else:
            answer.said.parts(_messages.said_by(message))


def _finish(result: Any, answer: Answer) -> None:
    answer.model = getattr(result, "model", None) or answer.model
    if getattr(result, "done", None):
        answer.finish_reasons[0] = result.done_reason or "stop"
    input_tokens = getattr(result, "prompt_eval_count", None)
    output_tokens = getattr(result, "eval_count", None)
    if input_tokens is not None or output_tokens is not None:
        answer.usage = Usage(input_tokens=count(input_tokens), output_tokens=count(output_tokens))
    for key, name in _DURATIONS.items():
        taken_ns = count(getattr(result, name, None))
        if taken_ns is not None:
            answer.facts[key] = taken_ns / _NS_PER_S
    loaded_ns = count(getattr(result, "load_duration", None))
    if loaded_ns is not None:
        answer.facts[keys.COLD_START] = loaded_ns >= COLD_START_NS


_CALLS = {
    "/api/chat": ("chat", _chat),
    "/api/generate": ("text_completion", _generate),
    "/api/embed": ("embeddings", _chat),
    "/api/embeddings": ("embeddings", _chat),
}

PROVIDER = Provider(
    package="ollama",
    majors=frozenset({0}),
    classes=("Client", "AsyncClient"),
    is_module=True,
    methods=tuple(
        Method(path, operation, partial(_request, endpoint), chunk, _response)
        for path in ("_request", "_client._request")
        for endpoint, (operation, chunk) in _CALLS.items()
    ),
    name=lambda client: "ollama",
    server=_server,
    attach=_attach,
)
