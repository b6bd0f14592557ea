"""Providers' own records as libraries copy them into span attributes, often as JSON text.

Shapes: OpenAI chat and Responses, Anthropic Messages, Google generateContent, DeepSeek, xAI.
Sources: the providers' API references.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from longpole.reported import reported_cost
from longpole_collector.decode.raw import Value
from longpole_collector.dialects.base import count, finish_reason, number, paid, word

MAX_CHARS: Final = 1 << 20
"""Longest text that is parsed; a longer one stays an attribute."""
_INPUT_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_OUTPUT_DETAILS: Final = (
    "completion_tokens_details",
    "output_tokens_details",
    "output_token_details",
)


def parse(value: Value | None) -> Any:
    """What a JSON text holds; ``None`` if it is no text, no JSON, or longer than is looked at."""
    if not isinstance(value, str) or len(value) > MAX_CHARS:
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def as_map(value: Any) -> Mapping[str, Any]:
    """The value if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def parse_map(value: Value | None) -> dict[str, Any]:
    """A JSON object as text, or a map as such; empty for anything else."""
    found = value if isinstance(value, dict) else parse(value)
    return found if isinstance(found, dict) else {}


def _first(record: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        num = count(record.get(name, ""))
        if num is not None:
            return num
    return None


def _inner(record: Mapping[str, Any], groups: tuple[str, ...], *names: str) -> int | None:
    for group in groups:
        inner = record.get(group)
        num = _first(inner, *names) if isinstance(inner, Mapping) else None
        if num is not None:
            return num
    return None


def usage_columns(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of tokens and cost from a provider's usage record; what it does not say is absent.

    Anthropic counts cached input beside ``input_tokens`` and Google counts thoughts beside the
    candidates; both are added, since our columns hold the whole. A total that only fits with the
    reasoning on top (xAI) says the same of reasoning.
    """
    prompt = _first(usage, "prompt_tokens", "prompt_token_count", "promptTokenCount")
    plain = _first(usage, "input_tokens")
    output = _first(
        usage,
        "completion_tokens",
        "output_tokens",
        "candidates_token_count",
        "candidatesTokenCount",
    )
    beside_read = _first(usage, "cache_read_input_tokens")
    beside_write = _first(usage, "cache_creation_input_tokens")
    cached = _inner(usage, _INPUT_DETAILS, "cached_tokens", "cache_read")
    if cached is None:
        cached = _first(usage, "cached_content_token_count", "cachedContentTokenCount")
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens")
    written = _inner(usage, _INPUT_DETAILS, "cache_write_tokens", "cache_creation")
    thoughts = _first(usage, "thoughts_token_count", "thoughtsTokenCount")
    reasoning = _inner(usage, _OUTPUT_DETAILS, "reasoning_tokens", "reasoning")
    whole = prompt
    if whole is None and plain is not None:
        whole = plain + (beside_read or 0) + (beside_write or 0)
    if output is not None and thoughts is not None:
        output += thoughts
    elif whole is not None and output is not None and reasoning:
        is_beside = _first(usage, "total_tokens") == whole + output + reasoning
        output += reasoning if is_beside else 0
    found = {
        "input_tokens": whole,
        "cached_input_tokens": beside_read if cached is None else cached,
        "cache_write_tokens": beside_write if written is None else written,
        "output_tokens": output,
        "reasoning_tokens": thoughts if reasoning is None else reasoning,
        "cache_write_1h_tokens": _inner(
            usage, ("cache_creation",), "ephemeral_1h_input_tokens", "ephemeral1hInputTokens"
        ),
        "reported_cost_usd": reported_cost(usage),
    }
    return {column: num for column, num in found.items() if num is not None}


def details_cost(details: Mapping[str, Any]) -> float | None:
    """The total of a library's record of costs, or the sum of its parts; ``None`` without any."""
    total = details.get("total", details.get("total_cost"))
    if total is not None:
        return paid(total)
    return paid(sum(number(part) or 0.0 for part in details.values()))


def _finish(body: Mapping[str, Any]) -> str | None:
    for group in ("choices", "candidates"):
        choices = body.get(group)
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            first = choices[0]
            return finish_reason(first.get("finish_reason") or first.get("finishReason") or "")
    if body.get("stop_reason"):
        return finish_reason(body["stop_reason"])
    status, output = body.get("status"), body.get("output")
    if status not in ("completed", "incomplete", "failed") or not isinstance(output, list):
        return None
    why = body.get("incomplete_details")
    if isinstance(why, Mapping) and why.get("reason"):
        return finish_reason(why["reason"])
    is_tool = any(isinstance(i, Mapping) and i.get("type") == "function_call" for i in output)
    return "tool_call" if is_tool and status == "completed" else finish_reason(status)


def _unwrapped(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer inside LangChain's ``LLMResult``, in the shape of a chat completion."""
    first = result["generations"]
    while isinstance(first, list):
        first = first[0] if first else None
    generation = as_map(first)
    message = as_map(generation.get("message"))
    metadata = as_map(as_map(message.get("kwargs", message)).get("response_metadata"))
    info, outer = as_map(generation.get("generation_info")), as_map(result.get("llm_output"))
    known = {**outer, **info, **metadata}
    return {
        "id": known.get("id"),
        "model": known.get("model_name") or known.get("model"),
        "service_tier": known.get("service_tier"),
        "choices": [{"finish_reason": known.get("finish_reason") or known.get("stop_reason")}],
        "usage": known.get("token_usage") or known.get("usage"),
    }


def answer_columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that a provider's response body fills; what it does not say is absent.

    LangChain's wrapping of an answer (``generations``) is opened.
    """
    if "generations" in body:
        body = _unwrapped(body)
    usage = body.get("usage") or body.get("usage_metadata") or body.get("usageMetadata")
    usage = usage if isinstance(usage, Mapping) else {}
    found = {
        "response_id": word(body.get("id") or body.get("response_id") or ""),
        "response_model": word(body.get("model") or body.get("model_version") or ""),
        "service_tier": word(body.get("service_tier") or usage.get("service_tier") or ""),
        "finish_reason": _finish(body),
    }
    known: dict[str, Any] = {column: value for column, value in found.items() if value is not None}
    return known | usage_columns(usage)
