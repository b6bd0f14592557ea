"""OpenTelemetry GenAI conventions, every name they have had.

Follows open-telemetry/semantic-conventions-genai (main) and, as fallbacks, the names of
semantic-conventions up to v1.41. Also reads what the Anthropic SDK emits by itself, which is
the same convention plus ``anthropic.*``. Asked last: libraries without a reader of their own
mostly speak this.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import (
    FACTS,
    Dialect,
    Rule,
    Rules,
    attempts,
    count,
    draft,
    finish_reason,
    flag,
    infer,
    number,
    one_of,
    seconds_ms,
    seconds_ns,
    word,
)

NAME: Final = "otel_genai"
_ANTHROPIC_SDK: Final = "com.anthropic.sdk.python"
_SCOPES: Final = (
    _ANTHROPIC_SDK,
    "opentelemetry.instrumentation.genai.",
    "opentelemetry.instrumentation.google_genai",
    "opentelemetry.instrumentation.openai_v2",
    "opentelemetry.util.genai.",
)
_KEYS: Final = (keys.OPERATION, keys.PROVIDER, keys.PROVIDER_OLD, keys.REQUEST_MODEL)

RULES: Final[Rules] = {
    **FACTS,
    keys.OPERATION: Rule("operation", word),
    keys.PROVIDER: Rule("provider", word),
    keys.PROVIDER_OLD: Rule("provider", word, is_fallback=True),
    keys.REQUEST_MODEL: Rule("request_model", word),
    keys.REQUEST_STREAM: Rule("is_streamed", flag, is_fallback=True),
    keys.RESPONSE_MODEL: Rule("response_model", word),
    keys.RESPONSE_ID: Rule("response_id", word),
    keys.FINISH_REASONS: Rule("finish_reason", finish_reason),
    "anthropic.message.stop_reason": Rule("finish_reason", finish_reason, is_fallback=True),
    keys.SERVICE_TIER_REQUESTED: Rule("service_tier_requested", word),
    "gen_ai.openai.request.service_tier": Rule("service_tier_requested", word, is_fallback=True),
    keys.SERVICE_TIER: Rule("service_tier", word),
    "gen_ai.openai.response.service_tier": Rule("service_tier", word, is_fallback=True),
    "anthropic.response.service_tier": Rule("service_tier", word, is_fallback=True),
    # tokens
    keys.INPUT_TOKENS: Rule("input_tokens", count),
    keys.INPUT_TOKENS_OLD: Rule("input_tokens", count, is_fallback=True),
    keys.OUTPUT_TOKENS: Rule("output_tokens", count),
    keys.OUTPUT_TOKENS_OLD: Rule("output_tokens", count, is_fallback=True),
    keys.CACHED_INPUT_TOKENS: Rule("cached_input_tokens", count),
    "gen_ai.usage.cache_read_input_tokens": Rule("cached_input_tokens", count, is_fallback=True),
    keys.CACHE_WRITE_TOKENS: Rule("cache_write_tokens", count),
    keys.CACHE_CREATION_TOKENS: Rule("cache_write_tokens", count, is_fallback=True),
    "gen_ai.usage.cache_creation_input_tokens": Rule("cache_write_tokens", count, is_fallback=True),
    keys.REASONING_TOKENS: Rule("reasoning_tokens", count),
    keys.REASONING_TOKENS_OLD: Rule("reasoning_tokens", count, is_fallback=True),
    # times seen by the client
    keys.TIME_TO_FIRST_CHUNK: Rule("first_chunk_ns", seconds_ns),
    keys.TIME_TO_FIRST_CONTENT: Rule("ttft_ns", seconds_ns),
    keys.TIME_TO_FIRST_CONTENT_ATTEMPT: Rule("ttft_attempt_ns", seconds_ns),
    keys.TIME_TO_FIRST_VISIBLE: Rule("ttfv_ns", seconds_ns),
    keys.TIME_TO_LAST_CONTENT: Rule("last_content_ns", seconds_ns),
    keys.TIME_PER_OUTPUT_TOKEN: Rule("tpot_ms", seconds_ms),
    keys.CHUNK_COUNT: Rule("num_chunks", count),
    keys.TOKENS_PER_CHUNK: Rule("tokens_per_chunk", number),
    keys.CHUNK_GAP_P50: Rule("chunk_gap_p50_ns", seconds_ns),
    keys.CHUNK_GAP_P99: Rule("chunk_gap_p99_ns", seconds_ns),
    keys.CHUNK_GAP_MAX: Rule("chunk_gap_max_ns", seconds_ns),
    keys.NUM_STALLS: Rule("num_stalls", count),
    keys.STALL_TIME: Rule("stall_ns", seconds_ns),
    keys.CONSUMER_HOLD: Rule("consumer_hold_ns", seconds_ns),
    keys.RESEND_COUNT: Rule("num_attempts", attempts),
    keys.RETRY_TIME: Rule("retry_ns", seconds_ns),
    keys.STREAM_STATE: Rule(
        "stream_state", one_of("completed", "closed_early", "error", "abandoned")
    ),
    # times told by the engine
    keys.ENGINE_ADMISSION: Rule("engine_admission_ns", seconds_ns),
    keys.ENGINE_TOKENIZE: Rule("tokenize_ns", seconds_ns),
    keys.ENGINE_QUEUE: Rule("queue_ns", seconds_ns),
    keys.ENGINE_PREFILL: Rule("prefill_ns", seconds_ns),
    keys.ENGINE_FIRST_DECODE: Rule("first_decode_ns", seconds_ns),
    keys.ENGINE_DECODE: Rule("engine_decode_ns", seconds_ns),
    keys.ENGINE_STREAM: Rule("engine_stream_ns", seconds_ns),
    keys.ENGINE_TTFT: Rule("engine_ttft_ns", seconds_ns),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(_SCOPES) or any(key in attributes for key in _KEYS)


def count_input_whole(columns: dict[str, Any]) -> None:
    """Make ``input_tokens`` hold the cached part too, as the convention says it must.

    More cached than input tokens prove that the sender left them out; the repair is flagged.
    """
    cached = (columns.get("cached_input_tokens") or 0) + (columns.get("cache_write_tokens") or 0)
    if columns.get("input_tokens") is not None and cached > columns["input_tokens"]:
        columns["input_tokens"] += cached
        columns["flags"].append("input_excluded_cache")


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    infer(read.columns)
    count_input_whole(read.columns)
    if raw.scope.startswith(_ANTHROPIC_SDK) and "first_chunk_ns" in read.columns:
        # this SDK's clock stops at the first content, not at `message_start`
        read.columns.setdefault("ttft_ns", read.columns["first_chunk_ns"])
    return read.span()


DIALECT: Final = Dialect(NAME, _claims, _read, order=90)
