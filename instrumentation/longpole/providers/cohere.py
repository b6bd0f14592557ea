"""The Cohere client: chat, generate, embed and rerank, versions 1 and 2 of the API, sync and async.

Streams are generators. The raw forms come from another object of the client; the plain forms call
them, and the outermost of nested calls counts.
"""

from collections.abc import Callable, Sequence
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
    at_least_one,
    class_name,
    count,
    server_at,
)
from longpole.said import Said

_FAILED = ("ERROR", "TIMEOUT")
_TOOL_EVENTS = frozenset({"tool-call-start", "tool-call-delta"})
_TOOL_EVENTS_V1 = frozenset({"tool-calls-chunk", "tool-calls-generation"})


def _name(client: Any) -> str:
    is_bedrock = any(cls.__module__ == "cohere.bedrock_client" for cls in type(client).__mro__)
    return "aws.bedrock" if is_bedrock else "cohere"


def _server(client: Any) -> Server | None:
    return server_at(client._client_wrapper.get_base_url())


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    return transport.hook(client._client_wrapper.httpx_client.httpx_client)


# --- requests ----------------------------------------------------------------------------------


def _call(args: Sequence[Any], kwargs: Arguments) -> Request:
    is_said = any(name in kwargs for name in ("messages", "message", "prompt"))
    return Request(
        facts=asked(kwargs.get("model"), kwargs.get("max_tokens"), kwargs.get("temperature")),
        num_choices=at_least_one(kwargs.get("num_generations")),
        prompt=partial(_prompt, kwargs) if is_said else None,
    )


def _prompt(kwargs: Arguments) -> Prompt:
    """Of version 2 the messages; of version 1 the history and the message after it."""
    messages = _messages.first(kwargs, "messages", "prompt")
    if messages is None:
        before = _given(kwargs, "chat_history")
        messages = [*(before if isinstance(before, list | tuple) else ()), kwargs.get("message")]
    return _messages.chat(
        messages,
        tools=_given(kwargs, "tools"),
        schema=_given(kwargs, "response_format"),
        system=_given(kwargs, "preamble"),
        more={"reference": _given(kwargs, "documents")},
    )


def _given(kwargs: Arguments, name: str) -> Any:
    """An argument; the library's word for one that was left out is an ellipsis."""
    found = kwargs.get(name)
    return None if found is ... else found


def _stream(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(is_streamed=True)


def _raw_stream(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(is_streamed=True, is_raw=True)


# --- answers -----------------------------------------------------------------------------------


def _chunk(event: Any, answer: Answer) -> Kind:
    name = getattr(event, "type", None)
    if answer.said is not None:
        _say(event, answer.said)
    if name is None:
        return _chunk_v1(event, answer)
    if name == "content-delta" or name == "content-start":
        content = _inside(event, "content")
        if content is None:
            return Kind.EMPTY
        if content.text:
            return Kind.TEXT
        return Kind.REASONING if content.thinking else Kind.EMPTY
    if name in _TOOL_EVENTS:
        return Kind.TOOL
    if name == "tool-plan-delta":
        return Kind.REASONING if _inside(event, "tool_plan") else Kind.EMPTY
    if name == "message-start":
        answer.response_id = event.id
        return Kind.ROLE
    if name == "message-end":
        answer.response_id = event.id or answer.response_id
        if event.delta is not None:
            _finish(event.delta.finish_reason, answer)
            _read_usage(event.delta.usage, answer)
    return Kind.EMPTY


def _say(event: Any, said: Said) -> None:
    name = getattr(event, "type", None)
    if name is None:
        name = event.event_type
        if name == "text-generation":
            said.text(event.text or "")
        elif name == "tool-calls-chunk":
            call = event.tool_call_delta
            said.call(call.index, call.name, call.parameters)
    elif name in ("content-start", "content-delta", "tool-plan-delta"):
        content = _inside(event, "content")
        said.text(getattr(content, "text", None) or "")
        thought = getattr(content, "thinking", None) or _inside(event, "tool_plan")
        said.reasoning(thought or "")
    elif name in _TOOL_EVENTS:
        call = _inside(event, "tool_calls")
        told = getattr(call, "function", None)
        call_id, tool = getattr(call, "id", None), getattr(told, "name", None)
        said.call(event.index, tool, getattr(told, "arguments", None), call_id)


def _inside(event: Any, name: str) -> Any:
    delta = event.delta
    return getattr(getattr(delta, "message", None), name, None)


def _chunk_v1(event: Any, answer: Answer) -> Kind:
    name = event.event_type
    if name == "text-generation":
        return Kind.TEXT if event.text else Kind.EMPTY
    if name in _TOOL_EVENTS_V1:
        return Kind.TOOL
    if name == "stream-start":
        answer.response_id = event.generation_id
        return Kind.ROLE
    if name == "stream-end":
        _finish(event.finish_reason, answer)
        if event.response is not None:
            _read(event.response, answer)
    elif name == "stream-error":
        _finish(event.finish_reason, answer)
        answer.error_type = str(event.finish_reason or "error")
    return Kind.EMPTY


def _finish(reason: Any, answer: Answer, index: int = 0) -> None:
    if reason is None:
        return
    answer.finish_reasons[index] = reason
    if reason.startswith(_FAILED):
        answer.error_type = reason


def _response(result: Any, answer: Answer) -> None:
    """A whole answer of any of the methods."""
    _read(result, answer)
    if answer.said is not None:
        message = getattr(result, "message", None)
        said = answer.said
        said.parts(_messages.said_by(message or getattr(result, "text", None)))
        if message is None:
            said.parts(map(_messages.tool_call, getattr(result, "tool_calls", None) or ()))
        for index, generation in enumerate(getattr(result, "generations", None) or ()):
            said.text(generation.text or "", index)


def _read(result: Any, answer: Answer) -> None:
    """An answer, whole or in a stream's last event."""
    said_id = getattr(result, "id", None) or getattr(result, "generation_id", None)
    answer.response_id = said_id or answer.response_id
    _finish(getattr(result, "finish_reason", None), answer)
    for index, generation in enumerate(getattr(result, "generations", None) or ()):
        _finish(getattr(generation, "finish_reason", None), answer, index)
    _read_usage(getattr(result, "usage", None) or getattr(result, "meta", None), answer)


def _raw_response(result: Any, answer: Answer) -> None:
    _response(result.data, answer)


def _read_usage(usage: Any, answer: Answer) -> None:
    """Cohere's counts, which are floats; input holds the cached part.

    Where only billed units are told (embeddings), they are what there is.
    """
    if usage is None:
        return
    told = usage.tokens or usage.billed_units
    answer.usage = Usage(
        input_tokens=_whole(getattr(told, "input_tokens", None)),
        cached_input_tokens=_whole(getattr(usage, "cached_tokens", None)),
        output_tokens=_whole(getattr(told, "output_tokens", None)),
    )


def _whole(number: Any) -> int | None:
    return count(int(number)) if isinstance(number, int | float) and number == number else None


def _error_type(error: BaseException) -> str:
    """The exception's class; of a status that has none of its own, the status."""
    status = getattr(error, "status_code", None)
    is_plain = type(error).__name__ == "ApiError" and isinstance(status, int)
    return str(status) if is_plain else class_name(error)


# --- the client --------------------------------------------------------------------------------

_WHOLE = {
    "chat": "chat",
    "generate": "text_completion",
    "embed": "embeddings",
    "rerank": "rerank",
}
_STREAMED = {"chat_stream": "chat", "generate_stream": "text_completion"}


def _methods() -> tuple[Method, ...]:
    """Plain and raw forms; version 1 embeds in threads of its own, through its raw form."""
    plain = [
        Method(f"{owner}{name}", operation, request, _chunk, _response)
        for owner in ("", "v2.")
        for names, request in ((_WHOLE, _call), (_STREAMED, _stream))
        for name, operation in names.items()
    ]
    raw = [
        Method(f"{owner}.{name}", operation, request, _chunk, _raw_response)
        for owner in ("_raw_client", "_raw_client._v2", "v2._raw_client")
        for names, request in ((_WHOLE, _call), (_STREAMED, _raw_stream))
        for name, operation in names.items()
        if (owner, name) != ("_raw_client", "embed")
    ]
    return (*plain, *raw)


PROVIDER = Provider(
    package="cohere",
    majors=frozenset({7}),
    classes=("Client", "AsyncClient", "ClientV2", "AsyncClientV2"),
    is_client=lambda client: hasattr(client, "_client_wrapper"),
    methods=_methods(),
    name=_name,
    server=_server,
    attach=_attach,
    error_type=_error_type,
)
