"""The OpenAI client: chat completions, sync and async, OpenAI's own, Azure's and compatible hosts.

Also what such hosts add to the protocol: ``reasoning_content`` (DeepSeek, vLLM, SGLang) or
``reasoning`` (OpenRouter, Groq) beside the text, and usage that leaves reasoning out of the
output count (xAI).
"""

from collections.abc import Mapping
from typing import Any

from longpole.call import TEXT, Kind, Usage
from longpole.providers.base import Answer, Method, Provider, Request, Server
from longpole.vocab import keys

_RAW_HEADER = "X-Stainless-Raw-Response"
_CACHES = ("with_raw_response", "with_streaming_response")
_REASONING = ("reasoning_content", "reasoning")


def _name(client: Any) -> str:
    is_azure = any(cls.__module__ == "openai.lib.azure" for cls in type(client).__mro__)
    return "azure.ai.openai" if is_azure else "openai"


def _server(client: Any) -> Server:
    url = client.base_url
    return Server(url.host, url.port)


def _http_client(client: Any) -> Any:
    return getattr(client, "_client", None)


def _request(kwargs: Mapping[str, Any]) -> Request:
    tokens = kwargs.get("max_completion_tokens")
    wanted: dict[str, tuple[Any, Any]] = {
        keys.REQUEST_MODEL: (kwargs.get("model"), str),
        keys.REQUEST_MAX_TOKENS: (kwargs.get("max_tokens") if tokens is None else tokens, int),
        keys.REQUEST_TEMPERATURE: (kwargs.get("temperature"), int | float),
        keys.SERVICE_TIER_REQUESTED: (kwargs.get("service_tier"), str),
    }
    found: Request = {
        key: value for key, (value, kind) in wanted.items() if isinstance(value, kind)
    }
    found[keys.REQUEST_STREAM] = kwargs.get("stream") is True
    return found


def _num_choices(kwargs: Mapping[str, Any]) -> int:
    num = kwargs.get("n")
    return num if isinstance(num, int) and num > 1 else 1


def _is_untouched(kwargs: Mapping[str, Any]) -> bool:
    """``with_streaming_response``: the application reads the body itself, whole or in part."""
    return _raw(kwargs) == "stream"


def _raw(kwargs: Mapping[str, Any]) -> str | None:
    headers = kwargs.get("extra_headers")
    return headers.get(_RAW_HEADER) if isinstance(headers, Mapping) else None


def _with_usage(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    body = kwargs.get("extra_body")
    is_said = isinstance(kwargs.get("stream_options"), Mapping) or (
        isinstance(body, Mapping) and "stream_options" in body
    )
    # Who takes the raw response may read its bytes, and would meet the chunk we asked for.
    if kwargs.get("stream") is not True or is_said or _raw(kwargs) is not None:
        return None
    return {**kwargs, "stream_options": {"include_usage": True}}


def _rejects_usage(error: BaseException) -> bool:
    if getattr(error, "status_code", None) not in (400, 422):
        return False
    text = f"{error} {getattr(error, 'body', '')}"
    return "stream_options" in text or "include_usage" in text


def _stream(result: Any) -> Any:
    if hasattr(result, "http_response"):  # with_raw_response: parse() keeps what it returns
        result = result.parse()
    return result if hasattr(result, "_iterator") and hasattr(result, "response") else None


def _chunk(chunk: Any, answer: Answer) -> Kind:
    if answer.response_id is None:
        answer.response_id, answer.model = chunk.id or None, chunk.model or None
    usage = chunk.usage
    if usage is not None:
        answer.usage = answer.usage.merged(_usage(usage))
    tier, choices = chunk.service_tier, chunk.choices
    if tier is not None:
        answer.service_tier = tier
    if not choices:
        return Kind.EMPTY if usage is None else Kind.USAGE
    kind = Kind.EMPTY
    for choice in choices:
        reason = choice.finish_reason
        if reason is not None:
            answer.finish_reasons[choice.index] = reason
        delta = choice.delta
        if delta is None:
            continue
        if delta.content or delta.refusal:
            kind = TEXT
        elif kind is Kind.EMPTY or kind is Kind.ROLE:
            kind = _other_kind(delta)
    return kind


def _other_kind(delta: Any) -> Kind:
    """What a delta without text carries."""
    extra = delta.model_extra or {}
    if any(extra.get(name) for name in _REASONING):
        return Kind.REASONING
    calls = [call.function for call in delta.tool_calls or () if call.function is not None]
    if delta.function_call is not None:
        calls.append(delta.function_call)
    if any(call.name or call.arguments for call in calls):
        return Kind.TOOL
    audio = delta.audio
    if audio is not None and (audio.data or audio.transcript):
        return Kind.TEXT  # what the user perceives
    return Kind.ROLE if delta.role else Kind.EMPTY


def _response(result: Any, answer: Answer) -> None:
    if hasattr(result, "http_response"):
        result = result.parse()
    answer.response_id, answer.model = result.id, result.model
    answer.service_tier = result.service_tier
    for choice in result.choices:
        answer.finish_reasons[choice.index] = choice.finish_reason
    if result.usage is not None:
        answer.usage = _usage(result.usage)


def _usage(usage: Any) -> Usage:
    """OpenAI's counts: input holds the cached part and output the reasoning.

    A host that counts reasoning beside the output shows it in the total.
    """
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    inside_prompt, inside_output = usage.prompt_tokens_details, usage.completion_tokens_details
    reasoning = inside_output.reasoning_tokens if inside_output is not None else None
    if reasoning and None not in (prompt, completion):
        is_beside = usage.total_tokens == prompt + completion + reasoning
        completion += reasoning if is_beside else 0
    return Usage(
        input_tokens=prompt,
        cached_input_tokens=inside_prompt.cached_tokens if inside_prompt is not None else None,
        cache_write_tokens=getattr(inside_prompt, "cache_write_tokens", None),
        output_tokens=completion,
        reasoning_tokens=reasoning,
    )


def _error_type(error: BaseException) -> str:
    """The exception's class; for an error event inside a stream, the provider's own code."""
    if type(error).__name__ == "APIError":
        code = getattr(error, "code", None) or getattr(error, "type", None)
        if isinstance(code, str):
            return code
    return type(error).__name__


PROVIDER = Provider(
    package="openai",
    majors=frozenset({3}),
    classes=("OpenAI", "AsyncOpenAI"),
    methods=(
        Method("chat.completions.create", "chat", _CACHES),
        Method("chat.completions.parse", "chat", _CACHES),
    ),
    copies=("copy", "with_options"),
    name=_name,
    server=_server,
    http_client=_http_client,
    request=_request,
    num_choices=_num_choices,
    is_untouched=_is_untouched,
    with_usage=_with_usage,
    rejects_usage=_rejects_usage,
    stream=_stream,
    chunk=_chunk,
    response=_response,
    error_type=_error_type,
)
