"""The Anthropic client, sync and async, and its variants for Bedrock, Vertex AI, Foundry and AWS.

The client has a span of its own around each call. On a wrapped client it is off, or every call
would be counted twice; the rest of the client's OpenTelemetry option stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from longpole.call import REASONING, TEXT, TOOL, Kind, Usage
from longpole.providers import _messages, _stainless
from longpole.providers.base import Answer, Arguments, Method, Prompt, Provider, Request, count
from longpole.vocab import keys

_DELTAS = {
    "text_delta": (TEXT, "text"),
    "thinking_delta": (REASONING, "thinking"),
    "input_json_delta": (TOOL, "partial_json"),
}
_BLOCKS = {
    "text": (TEXT, "text"),
    "thinking": (REASONING, "thinking"),
    "redacted_thinking": (REASONING, "data"),
    "tool_use": (TOOL, "name"),
    "server_tool_use": (TOOL, "name"),
    "mcp_tool_use": (TOOL, "name"),
}
_SET_OPTION = "_set_open_telemetry"


def _name(client: Any) -> str:
    name = getattr(client, "_gen_ai_provider_name", None)
    return name if isinstance(name, str) else "anthropic"


def _request(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    body = _stainless.body_of("/v1/messages", args, kwargs)
    if body is None:
        return None
    return _stainless.request(body, kwargs, body.get("max_tokens"), _prompt)


def _prompt(body: Mapping[str, Any]) -> Prompt:
    return _messages.chat(body.get("messages"), tools=body.get("tools"), system=body.get("system"))


def _event(event: Any, answer: Answer) -> Kind:
    name = event.type
    if answer.said is not None:
        _messages.say_event(event, answer.said)
    if name == "content_block_delta":
        return _carried(event.delta, _DELTAS)
    if name == "content_block_start":
        return _carried(event.content_block, _BLOCKS)
    if name == "message_start":
        _response(event.message, answer)
        # Its output count is how much was there at the start, not how much there will be.
        answer.usage = answer.usage._replace(output_tokens=None)
        return Kind.ROLE
    if name == "message_delta":
        _stopped(event.delta, answer)
        _use(event.usage, answer)
    elif name == "error":  # the client raises it; a raw body holds it
        answer.error_type = str(getattr(event.error, "type", None) or name)
    return Kind.PING if name == "ping" else Kind.EMPTY


def _carried(part: Any, kinds: dict[str, tuple[Kind, str]]) -> Kind:
    """What a delta or the start of a block carries."""
    kind, name = kinds.get(part.type, (Kind.EMPTY, ""))
    return kind if name and getattr(part, name, None) else Kind.EMPTY


def _response(result: Any, answer: Answer) -> None:
    answer.response_id, answer.model = getattr(result, "id", None), getattr(result, "model", None)
    _stopped(result, answer)
    _use(getattr(result, "usage", None), answer)
    if answer.said is not None:
        answer.said.parts(_messages.parts_of(getattr(result, "content", None)))


def _stopped(part: Any, answer: Answer) -> None:
    reason = getattr(part, "stop_reason", None)
    if reason is not None:
        answer.finish_reasons[0] = reason


def _use(usage: Any, answer: Answer) -> None:
    """Anthropic's counts: input leaves out what was read from and written to the cache.

    In a stream the start has the input and the end the final counts, with any field left out.
    """
    if usage is None:
        return
    before = answer.usage
    read = _later(usage, "cache_read_input_tokens", before.cached_input_tokens)
    written = _later(usage, "cache_creation_input_tokens", before.cache_write_tokens)
    plain = before.input_tokens
    if plain is not None:
        plain -= (before.cached_input_tokens or 0) + (before.cache_write_tokens or 0)
    plain = _later(usage, "input_tokens", plain)
    thought = getattr(usage, "output_tokens_details", None)
    answer.usage = Usage(
        input_tokens=None if plain is None else plain + (read or 0) + (written or 0),
        cached_input_tokens=read,
        cache_write_tokens=written,
        output_tokens=_later(usage, "output_tokens", before.output_tokens),
        reasoning_tokens=_later(thought, "thinking_tokens", before.reasoning_tokens),
    )
    split = getattr(usage, "cache_creation", None)
    for key, name in (
        (keys.CACHE_WRITE_5M_TOKENS, "ephemeral_5m_input_tokens"),
        (keys.CACHE_WRITE_1H_TOKENS, "ephemeral_1h_input_tokens"),
    ):
        num_tokens = count(getattr(split, name, None))
        if num_tokens is not None:
            answer.facts[key] = num_tokens
    answer.service_tier = getattr(usage, "service_tier", None) or answer.service_tier


def _later(usage: Any, name: str, before: int | None) -> int | None:
    found = count(getattr(usage, name, None))
    return before if found is None else found


# --- the client's own span ---------------------------------------------------------------------


def _silence(client: Any) -> Sequence[Callable[[], None]]:
    """Take the client its tracer, also when a copy of it is given its option anew."""
    original = getattr(client, _SET_OPTION, None)
    if original is None:  # a client from before it had spans
        return ()

    def set_silently(option: Any) -> None:
        original(option)
        client._lazy_tracer = None

    setattr(client, _SET_OPTION, set_silently)
    client._lazy_tracer = None
    return (partial(_give_back, client),)


def _give_back(client: Any) -> None:
    vars(client).pop(_SET_OPTION, None)
    getattr(client, _SET_OPTION)(client.open_telemetry)


PROVIDER = Provider(
    package="anthropic",
    majors=frozenset({2}),
    classes=(  # the clients for Foundry, AWS and Google Cloud are made through the first two
        "Anthropic",
        "AsyncAnthropic",
        "AnthropicBedrock",
        "AsyncAnthropicBedrock",
        "AnthropicBedrockMantle",
        "AsyncAnthropicBedrockMantle",
        "AnthropicVertex",
        "AsyncAnthropicVertex",
    ),
    methods=(
        Method("messages._post", "chat", _request, _event, _response, _stainless.chunks),
        Method("beta.messages._post", "chat", _request, _event, _response, _stainless.chunks),
    ),
    copies=("copy", "with_options"),
    name=_name,
    server=_stainless.server,
    place=_stainless.place,
    attach=_stainless.attach,
    is_client=_stainless.is_client,
    prepare=_silence,
    error_type=_stainless.error_type,
)
