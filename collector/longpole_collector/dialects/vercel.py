"""Vercel's AI SDK for JavaScript: version 4 to 6 (``ai.*`` keys) and 7 (``@ai-sdk/otel``).

Up to version 6 ``ai.streamText`` is the whole loop and each ``ai.streamText.doStream`` below it
one attempt of one model call; the loop repeats the sum of the tokens. Version 7 sends the GenAI
conventions with ``invoke_agent`` and ``agent_step`` around the call. Sources: ``packages/ai`` and
``packages/otel`` of vercel/ai.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.reported import reported_cost
from longpole.vocab import Span, Stage, Status, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    EMBEDDINGS,
    FAILED_ATTEMPT,
    FIRST_CONTENT,
    FIRST_EVENT,
    INVOKE_WORKFLOW,
    count_input_whole,
    exclusive_input,
    fill,
    first_token,
    mark,
    provider_name,
    settle,
    without,
)
from longpole_collector.dialects._payloads import parse_map, usage_columns
from longpole_collector.dialects.base import (
    MODEL_OPERATIONS,
    Dialect,
    Rule,
    Rules,
    count,
    draft,
    finish_reason,
    infer,
    number,
    seconds_ns,
    word,
)
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "vercel"
_SCOPES: Final = ("ai", "gen_ai")
OPERATION_ID: Final = "ai.operationId"
_METADATA: Final = "ai.response.providerMetadata"
_FIRST_CHUNK_MS: Final = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
_DURATION: Final = "gen_ai.client.operation.duration"
_OUTER_CALLS: Final = frozenset(
    f"ai.{name}" for name in ("streamText", "generateText", "streamObject", "generateObject")
)
_TOOL_CALL: Final = "ai.toolCall"


def _finish(value: Value) -> str | None:
    return None if value in ("unknown", ["unknown"]) else finish_reason(value)


_DETAILS: Final[Rules] = {
    "ai.usage.cachedInputTokens": Rule("cached_input_tokens", count, is_fallback=True),
    "ai.usage.inputTokenDetails.cacheReadTokens": Rule(
        "cached_input_tokens", count, is_fallback=True
    ),
    "ai.usage.inputTokenDetails.cacheWriteTokens": Rule(
        "cache_write_tokens", count, is_fallback=True
    ),
    "ai.usage.reasoningTokens": Rule("reasoning_tokens", count, is_fallback=True),
    "ai.usage.outputTokenDetails.reasoningTokens": Rule(
        "reasoning_tokens", count, is_fallback=True
    ),
    "ai.telemetry.metadata.sessionId": Rule("conversation_id", word, is_fallback=True),
}
RULES: Final[Rules] = {
    **_GENAI_RULES,
    **_DETAILS,
    "ai.model.provider": Rule("provider", provider_name),
    keys.PROVIDER_OLD: Rule("provider", provider_name, is_fallback=True),
    "ai.model.id": Rule("request_model", word),
    keys.REQUEST_MODEL: Rule("request_model", word, is_fallback=True),
    "ai.response.model": Rule("response_model", word),
    keys.RESPONSE_MODEL: Rule("response_model", word, is_fallback=True),
    "ai.response.id": Rule("response_id", word),
    keys.RESPONSE_ID: Rule("response_id", word, is_fallback=True),
    "ai.response.finishReason": Rule("finish_reason", _finish),
    keys.FINISH_REASONS: Rule("finish_reason", _finish, is_fallback=True),
    "ai.usage.inputTokens": Rule("input_tokens", count),
    "ai.usage.promptTokens": Rule("input_tokens", count, is_fallback=True),
    "ai.usage.tokens": Rule("input_tokens", count, is_fallback=True),
    keys.INPUT_TOKENS: Rule("input_tokens", count, is_fallback=True),
    "ai.usage.outputTokens": Rule("output_tokens", count),
    "ai.usage.completionTokens": Rule("output_tokens", count, is_fallback=True),
    keys.OUTPUT_TOKENS: Rule("output_tokens", count, is_fallback=True),
}
RULES_7: Final[Rules] = {
    # its clock stops at the first chunk of output, not at the framing before it
    **{key: rule for key, rule in _GENAI_RULES.items() if key != _FIRST_CHUNK},
    **_DETAILS,
    keys.PROVIDER: Rule("provider", provider_name),
    keys.FINISH_REASONS: Rule("finish_reason", _finish),
}
_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)
_OUTER_RULES_7: Final = without(RULES_7, ANSWER_COLUMNS)


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope in _SCOPES or OPERATION_ID in attributes


def _read(raw: RawSpan) -> Span:
    name = word(raw.attributes.get(OPERATION_ID, ""))
    return _read_7(raw) if name is None else _read_6(raw, name)


def _read_6(raw: RawSpan, name: str) -> Span:
    operation = _operation(name)
    is_call = operation in MODEL_OPERATIONS
    read = draft(raw, NAME, RULES if is_call else _OUTER_RULES)
    columns = read.columns
    columns["operation"] = operation
    infer(columns)
    if "rerank" in name:
        columns.setdefault("stage", Stage.RETRIEVAL.value)
    if is_call:
        columns["is_streamed"] = ".doStream" in name
        _read_usage(columns, raw)
        ms = next((raw.attributes[key] for key in _FIRST_CHUNK_MS if key in raw.attributes), "")
        first_ms = number(ms)
        if first_ms is not None:
            first_token(columns, seconds_ns(first_ms / 1e3), FIRST_EVENT)
    finish = finish_reason(raw.attributes.get("ai.response.finishReason", ""))
    if finish == "error":
        columns["status"] = Status.ERROR.value
    settle(columns, raw)
    if is_call and columns["status"] == Status.ERROR and columns.get("response_id") is None:
        mark(columns, FAILED_ATTEMPT)
    return read.span()


def _operation(name: str) -> str | None:
    if name in _OUTER_CALLS:
        return INVOKE_WORKFLOW
    if name == _TOOL_CALL:
        return "execute_tool"
    if name.endswith((".doStream", ".doGenerate")):
        return "chat"
    return EMBEDDINGS if name.endswith(".doEmbed") else None


def _read_usage(columns: dict[str, Any], raw: RawSpan) -> None:
    """Make the counts whole.

    Up to version 5 Anthropic's own count is passed on, which leaves cached tokens out; the
    provider's record beside it has all parts. Version 6 splits the input and counts it whole.
    """
    metadata = parse_map(raw.attributes.get(_METADATA))
    blocks = [block for block in metadata.values() if isinstance(block, dict)]
    for block in blocks:
        fill(
            columns,
            {
                "cache_write_tokens": count(block.get("cacheCreationInputTokens", "")),
                "cached_input_tokens": count(block.get("cachedPromptTokens", "")),
                "reasoning_tokens": count(block.get("reasoningTokens", "")),
                "service_tier": word(block.get("serviceTier") or ""),
                "reported_cost_usd": reported_cost(parse_map(block.get("usage"))),
            },
        )
    is_split = any(key.startswith("ai.usage.inputTokenDetails.") for key in raw.attributes)
    if is_split or not _is_anthropic(columns, metadata):
        count_input_whole(columns)
        return
    usages = (block["usage"] for block in blocks if isinstance(block.get("usage"), dict))
    whole = usage_columns(next(usages, {}))
    fill(columns, {column: num for column, num in whole.items() if column != "input_tokens"})
    if columns.get("input_tokens") != whole.get("input_tokens"):
        exclusive_input(columns)


def _is_anthropic(columns: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    return columns.get("provider") == "anthropic" or "anthropic" in metadata


def _read_7(raw: RawSpan) -> Span:
    operation = word(raw.attributes.get(keys.OPERATION, ""))
    is_call = operation in MODEL_OPERATIONS
    read = draft(raw, NAME, RULES_7 if is_call else _OUTER_RULES_7)
    columns = read.columns
    infer(columns)
    if operation == "rerank":
        columns.setdefault("stage", Stage.RETRIEVAL.value)
    if is_call:
        count_input_whole(columns)
        first_token(columns, seconds_ns(raw.attributes.get(_FIRST_CHUNK, "")), FIRST_CONTENT)
        if _DURATION in raw.attributes:
            columns.setdefault("is_streamed", False)
    settle(columns, raw)
    return read.span()


DIALECT: Final = Dialect(NAME, _claims, _read, order=30, marks=frozenset((OPERATION_ID,)))
