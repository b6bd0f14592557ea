"""LiteLLM: the functions of its module (``completion``, ...) and those of a ``Router``.

It calls other clients underneath; the call counts once, here. Where a provider sends no token
counts in a stream, LiteLLM makes some up with a tokenizer of its own and shows them in the same
place: so the counts are taken where it turns the provider's chunks into its own.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any
from weakref import WeakSet

from longpole import health, transport
from longpole.call import Kind
from longpole.providers import _messages, _openai_chat, _openai_responses
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
from longpole.record import current
from longpole.vocab import keys

_NAMES = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "azure_text": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "ollama_chat": "ollama",
    "text-completion-openai": "openai",
    "vertex_ai": "gcp.vertex_ai",
    "vertex_ai_beta": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""LiteLLM's names of providers that differ from OpenTelemetry's."""


def _is_client(client: Any) -> bool:
    return client is sys.modules.get("litellm") or type(client).__name__ == "Router"


# --- requests -----------------------------------------------------------------------------------


def _request(
    args: Sequence[Any],
    kwargs: Arguments,
    *,
    is_model_first: bool,
    asks: bool = False,
    prompt: str | None = None,
) -> Request:
    """What a call asks for.

    Args:
        args: positional arguments; where the model is not surely the first, they are not read.
        kwargs: the others.
        is_model_first: the model is the first positional argument.
        asks: token counts have to be asked for.
        prompt: the argument with the prompt: after the model or, without that, the first.
    """
    model = args[0] if args and is_model_first else kwargs.get("model")
    tokens = next((kwargs[name] for name in _MAX_TOKENS if kwargs.get(name) is not None), None)
    is_streamed = kwargs.get("stream") is True
    asking = None
    if asks and is_streamed and kwargs.get("stream_options") is None:
        asking = {**kwargs, "stream_options": {"include_usage": True}}
    return Request(
        facts={
            **asked(model, tokens, kwargs.get("temperature"), kwargs.get("service_tier")),
            **_named_in(model, kwargs),
        },
        is_streamed=is_streamed,
        num_choices=at_least_one(kwargs.get("n")),
        asking=asking,
        prompt=partial(_prompt, prompt, args[is_model_first:], kwargs) if prompt else None,
        server=_server(kwargs.get("api_base") or kwargs.get("base_url")),
    )


_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def _prompt(name: str, args: Sequence[Any], kwargs: Arguments) -> Prompt:
    return _messages.chat(
        args[0] if args else kwargs.get(name),
        tools=kwargs.get("tools") or kwargs.get("functions"),
        schema=kwargs.get("response_format"),
        system=kwargs.get("instructions"),
    )


def _named_in(model: Any, kwargs: Arguments) -> dict[str, str]:
    """The provider, where the call names it."""
    name = kwargs.get("custom_llm_provider")
    if not isinstance(name, str) and isinstance(model, str) and "/" in model:
        name = model.partition("/")[0]
    return {keys.PROVIDER: _NAMES.get(name, name)} if isinstance(name, str) else {}


def _server(url: Any) -> Server | None:
    return server_at(url) if isinstance(url, str) else None


# --- answers ------------------------------------------------------------------------------------


def _about(result: Any, answer: Answer) -> None:
    """What LiteLLM notes beside an answer: who gave it, and where."""
    answer.response_id = getattr(result, "id", None) or answer.response_id
    hidden = getattr(result, "_hidden_params", None)
    hidden = hidden if isinstance(hidden, Mapping) else {}
    model = hidden.get("provider_response_model") or getattr(result, "model", None)
    answer.model = model if isinstance(model, str) else answer.model
    tier = getattr(result, "service_tier", None)
    answer.service_tier = tier if isinstance(tier, str) else answer.service_tier
    name = hidden.get("custom_llm_provider")
    if isinstance(name, str):
        answer.facts[keys.PROVIDER] = _NAMES.get(name, name)
    server = _server(hidden.get("api_base"))
    if server is not None:
        answer.facts[keys.SERVER_ADDRESS] = server.host
        if server.port is not None:
            answer.facts[keys.SERVER_PORT] = server.port


def _chunk(chunk: Any, answer: Answer) -> Kind:
    """Read one chunk of a chat or a text completion, without the counts."""
    choices = chunk.choices
    if answer.response_id is None:
        _about(chunk, answer)
    if not choices:
        tier = getattr(chunk, "service_tier", None)
        answer.service_tier = tier if isinstance(tier, str) else answer.service_tier
        return Kind.EMPTY if getattr(chunk, "usage", None) is None else Kind.USAGE
    kind = Kind.EMPTY
    for choice in choices:
        reason, index = getattr(choice, "finish_reason", None), getattr(choice, "index", None) or 0
        if reason is not None:
            answer.finish_reasons[index] = reason
        delta = getattr(choice, "delta", None)
        if answer.said is not None:
            answer.said.text(getattr(choice, "text", None) or "", index)
            _messages.say_delta(delta, answer.said, index)
        if getattr(choice, "text", None) or getattr(delta, "content", None):
            kind = Kind.TEXT
        elif delta is not None and kind in (Kind.EMPTY, Kind.ROLE):
            kind = _openai_chat.other_kind(delta)
    return kind


def _event(event: Any, answer: Answer) -> Kind:
    """Read one event of the Responses API."""
    if answer.response_id is None:
        _about(event, answer)
    return _openai_responses.event(event, answer)


def _response(result: Any, answer: Answer) -> None:
    """Read a whole answer of any kind but the Responses API's."""
    _about(result, answer)
    for choice in getattr(result, "choices", None) or ():
        reason, index = getattr(choice, "finish_reason", None), getattr(choice, "index", None) or 0
        if isinstance(reason, str):
            answer.finish_reasons[index] = reason
        if answer.said is not None:
            said = getattr(choice, "message", None) or getattr(choice, "text", None)
            answer.said.parts(_messages.said_by(said), index)
    _count(getattr(result, "usage", None), answer)


def _responded(result: Any, answer: Answer) -> None:
    _openai_responses.response(result, answer)
    _about(result, answer)


def _count(usage: Any, answer: Answer) -> None:
    """LiteLLM's counts: input holds the cached part and the written, output the reasoning."""
    if usage is None:
        return
    found = _openai_chat.usage(usage)
    if found.cache_write_tokens is None:
        written = count(getattr(usage, "cache_creation_input_tokens", None))
        found = found._replace(cache_write_tokens=written)
    if found.input_tokens or found.output_tokens:  # two zeros are its word for unknown
        answer.usage = answer.usage.merged(found)


def _chunks(name: str, result: Any) -> Chunks | None:
    return Chunks(result, name) if hasattr(result, name) else None


# --- inside LiteLLM -----------------------------------------------------------------------------

_clients: "WeakSet[Any]" = WeakSet()
_watching: list[Callable[[], None]] = []
_uses = 0


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    """Hook the HTTP clients that LiteLLM keeps and will keep, and its reading of chunks."""
    global _uses  # noqa: PLW0603 - the module and each router share the clients
    _uses += 1
    if _uses == 1:
        _watch(sys.modules["litellm"])
    return [_detach]


def _detach() -> None:
    global _uses  # noqa: PLW0603 - as above
    _uses -= 1
    if _uses == 0:
        while _watching:
            _watching.pop()()
        for http_client in list(_clients):
            transport.unhook(http_client)
        _clients.clear()


def _watch(module: Any) -> None:
    _watch_usage(module.CustomStreamWrapper)
    cache = module.in_memory_llm_clients_cache
    keep = cache.set_cache

    @wraps(keep)
    def set_cache(key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        _hook(value)
        return keep(key, value, *args, **kwargs)

    vars(cache)["set_cache"] = set_cache
    _watching.append(partial(vars(cache).pop, "set_cache", None))
    single = ("module_level_client", "module_level_aclient", "client_session", "aclient_session")
    for value in (*cache.cache_dict.values(), *(getattr(module, name, None) for name in single)):
        _hook(value)


def _watch_usage(stream_class: Any) -> None:
    """Read the counts of each chunk that a provider sent while a call of ours is read."""
    make = stream_class.chunk_creator

    @wraps(make)
    def chunk_creator(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(self, *args, **kwargs)
        record = current.get()
        if record is not None:
            try:
                _count(getattr(made, "usage", None), record.answer)
            except Exception as error:  # noqa: BLE001 - counted; the chunk is the application's
                health.swallow("usage", error)
        return made

    stream_class.chunk_creator = chunk_creator
    _watching.append(partial(setattr, stream_class, "chunk_creator", make))


def _hook(value: Any) -> None:
    """An httpx client, or what stands around one: LiteLLM's handlers, OpenAI's clients."""
    for found in (value, getattr(value, "client", None), getattr(value, "_client", None)):
        # LiteLLM's own handler keeps its hooks under the same name, and often none.
        if isinstance(getattr(found, "event_hooks", None), dict) and found not in _clients:
            _clients.add(found)
            transport.hook(found)


def _methods() -> tuple[Method, ...]:
    chat = partial(_request, is_model_first=True, asks=True, prompt="messages")
    text = partial(_request, is_model_first=False, asks=True, prompt="prompt")
    embed = partial(_request, is_model_first=True)
    respond = partial(_request, is_model_first=False, prompt="input")
    found: list[Method] = []
    for prefix, step in (("", "__next__"), ("a", "__anext__")):
        chunks = partial(_chunks, step)
        found += [
            Method(f"{prefix}completion", "chat", chat, _chunk, _response, chunks),
            Method(f"{prefix}text_completion", "text_completion", text, _chunk, _response, chunks),
            Method(f"{prefix}embedding", "embeddings", embed, _chunk, _response),
            Method(f"{prefix}responses", "chat", respond, _event, _responded, chunks),
        ]
    return tuple(found)


PROVIDER = Provider(
    package="litellm",
    majors=frozenset({1}),
    classes=("Router",),
    is_module=True,
    methods=_methods(),
    name=lambda client: "litellm",
    server=lambda client: None,
    attach=_attach,
    is_client=_is_client,
    rejects_usage=lambda error: "stream_options" in str(error),
    error_type=class_name,
)
