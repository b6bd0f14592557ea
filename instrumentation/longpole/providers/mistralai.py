"""The Mistral client: chat, agents, fill-in-the-middle and embeddings, also on Azure and Google.

The ``parse`` forms call the plain ones, so only those are wrapped. The client can make a span of
its own for each request (its telemetry option); a wrapped client makes none, or the call would
count twice.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from longpole import transport
from longpole.call import Kind, Usage
from longpole.providers import _messages
from longpole.providers.base import (
    Answer,
    Arguments,
    Chunks,
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

_CLOUDS = {"mistralai.azure": "azure.ai.inference", "mistralai.gcp": "gcp.vertex_ai"}
_HOOKS = ("before_request_hooks", "after_success_hooks", "after_error_hooks")


def _name(client: Any) -> str:
    homes = (".".join(cls.__module__.split(".")[:2]) for cls in type(client).__mro__)
    return next((_CLOUDS[home] for home in homes if home in _CLOUDS), "mistral_ai")


def _server(client: Any) -> Server | None:
    address, members = client.sdk_configuration.get_server_details()
    return server_at(address.format(**members))


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    config = client.sdk_configuration
    return transport.hook(config.client, config.async_client)


def _no_second_span(client: Any) -> Sequence[Callable[[], None]]:
    """Take the client's own tracing out of its hooks; returns how to put it back."""
    hooks = client.sdk_configuration.__dict__.get("_hooks")
    undo: list[Callable[[], None]] = []
    for registered in (getattr(hooks, name, []) for name in _HOOKS):
        for place, hook in enumerate(registered):
            if type(hook).__name__ == "TracingHook":
                undo.append(partial(registered.insert, place, hook))
                del registered[place]
                break
    return undo


# --- requests ----------------------------------------------------------------------------------


def _call(args: Sequence[Any], kwargs: Arguments) -> Request:
    return Request(
        facts=asked(
            kwargs.get("model"),
            kwargs.get("max_tokens"),
            kwargs.get("temperature"),
            kwargs.get("service_tier"),
        ),
        num_choices=at_least_one(kwargs.get("n")),
        prompt=partial(_prompt, kwargs),
    )


def _embedding(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(prompt=None)


def _prompt(kwargs: Arguments) -> Prompt:
    """Of chat and agents the messages, of fill-in-the-middle what stands before the gap."""
    return _messages.chat(
        _messages.first(kwargs, "messages", "prompt"),
        tools=kwargs.get("tools") or None,
        schema=kwargs.get("response_format") or None,
    )


def _stream(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(is_streamed=True)


# --- answers -----------------------------------------------------------------------------------


def _chunks(result: Any) -> Chunks | None:
    """Where an ``EventStream`` keeps its generator."""
    if hasattr(result, "generator") and hasattr(result, "response"):
        return Chunks(result, "generator", result.response)
    return None


def _chunk(event: Any, answer: Answer) -> Kind:
    chunk = event.data
    _read(chunk, answer)
    kind = Kind.EMPTY
    for choice in chunk.choices:
        if answer.said is not None:
            _messages.say_delta(choice.delta, answer.said, choice.index)
        found = _kind(choice.delta)
        if found is Kind.TEXT or kind in (Kind.EMPTY, Kind.ROLE):
            kind = kind if found is Kind.EMPTY else found
    return Kind.USAGE if not chunk.choices and chunk.usage else kind


def _kind(delta: Any) -> Kind:
    """What a delta carries; fields that were not sent are falsy."""
    content = delta.content
    if isinstance(content, str):
        if content:
            return Kind.TEXT
    elif content:
        if any(getattr(part, "text", None) for part in content):
            return Kind.TEXT
        if any(getattr(part, "thinking", None) for part in content):
            return Kind.REASONING
    if delta.tool_calls:
        return Kind.TOOL
    return Kind.ROLE if delta.role else Kind.EMPTY


def _response(result: Any, answer: Answer) -> None:
    _read(result, answer)
    if answer.said is not None:
        for choice in result.choices:
            answer.said.parts(_messages.said_by(choice.message), choice.index)


def _read(result: Any, answer: Answer) -> None:
    if answer.response_id is None:
        answer.response_id, answer.model = result.id or None, result.model or None
    for choice in result.choices:
        if choice.finish_reason:
            answer.finish_reasons[choice.index] = choice.finish_reason
            if choice.finish_reason == "error":
                answer.error_type = "error"
    if result.usage is not None:
        _read_usage(result.usage, answer)


def _read_usage(usage: Any, answer: Answer) -> None:
    """Mistral's counts: input holds the cached part; a count that was not sent reads as 0."""
    said, extra = usage.model_fields_set, usage.model_extra or {}
    inside_prompt = extra.get("prompt_tokens_details") or extra.get("prompt_token_details") or {}
    inside_output = extra.get("completion_tokens_details") or {}
    cached = inside_prompt.get("cached_tokens", extra.get("num_cached_tokens"))
    answer.usage = Usage(
        input_tokens=count(usage.prompt_tokens) if "prompt_tokens" in said else None,
        cached_input_tokens=count(cached),
        output_tokens=count(usage.completion_tokens) if "completion_tokens" in said else None,
        reasoning_tokens=count(inside_output.get("reasoning_tokens")),
    )
    answer.service_tier = getattr(usage, "service_tier", None) or None


def _embeddings(result: Any, answer: Answer) -> None:
    answer.response_id, answer.model = result.id, result.model
    if result.usage is not None:
        _read_usage(result.usage, answer)
        answer.usage = answer.usage._replace(output_tokens=None)


def _error_type(error: BaseException) -> str:
    """The exception's class; for an error event inside a stream, Mistral's own type of it."""
    if type(error).__name__ == "ResponseValidationError":
        try:
            event = json.loads(getattr(error, "body", ""))["data"]
        except (ValueError, KeyError, TypeError):
            event = None
        said = event.get("type") or event.get("code") if isinstance(event, Mapping) else None
        if isinstance(said, str):
            return said
    return class_name(error)


# --- the client --------------------------------------------------------------------------------


def _methods(resource: str, operation: str) -> tuple[Method, ...]:
    forms = (("complete", _call), ("stream", _stream))
    return tuple(
        Method(f"{resource}.{name}{suffix}", operation, request, _chunk, _response, _chunks)
        for name, request in forms
        for suffix in ("", "_async")
    )


PROVIDER = Provider(
    package="mistralai",
    majors=frozenset({3}),
    classes=("Mistral",),
    module="mistralai.client",
    methods=(
        *_methods("chat", "chat"),
        *_methods("agents", "chat"),
        *_methods("fim", "text_completion"),
        Method("embeddings.create", "embeddings", _embedding, _chunk, _embeddings),
        Method("embeddings.create_async", "embeddings", _embedding, _chunk, _embeddings),
    ),
    is_client=lambda client: hasattr(client, "sdk_configuration"),
    name=_name,
    server=_server,
    attach=_attach,
    prepare=_no_second_span,
    error_type=_error_type,
)
