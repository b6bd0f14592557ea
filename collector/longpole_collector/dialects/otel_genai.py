"""OpenTelemetry GenAI conventions, every name they have had.

Follows open-telemetry/semantic-conventions-genai (main) and, as fallbacks, the names of
semantic-conventions up to v1.41. Asked last: libraries without a reader of their own mostly speak
this. By the convention the time to the first chunk stops at the first event of any kind, which
may carry no content, and ``gen_ai.request.stream`` is sent of streamed requests only.
"""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import keys
from longpole_collector.decode.raw import Value
from longpole_collector.dialects._foreign import SAY_WHETHER_STREAMED, provider_name
from longpole_collector.dialects._steps import Step, plain
from longpole_collector.dialects.base import (
    FACTS,
    Rule,
    Rules,
    attempts,
    count,
    finish_reason,
    flag,
    number,
    one_of,
    paid,
    seconds_ms,
    seconds_ns,
    word,
)

NAME: Final = "otel_genai"
_SCOPES: Final = (
    *SAY_WHETHER_STREAMED,
    "opentelemetry.instrumentation.openai_v2",
    "opentelemetry.util.genai.",
)
_KEYS: Final = (keys.OPERATION, keys.PROVIDER, keys.PROVIDER_OLD, keys.REQUEST_MODEL)

RULES: Final[Rules] = {
    **FACTS,
    keys.OPERATION: Rule("operation", word),
    keys.PROVIDER: Rule("provider", provider_name),
    keys.PROVIDER_OLD: Rule("provider", provider_name, is_fallback=True),
    keys.REQUEST_MODEL: Rule("request_model", word),
    keys.REQUEST_STREAM: Rule("is_streamed", flag, is_fallback=True),
    keys.RESPONSE_MODEL: Rule("response_model", word),
    keys.RESPONSE_ID: Rule("response_id", word),
    keys.FINISH_REASONS: Rule("finish_reason", finish_reason),
    keys.SERVICE_TIER_REQUESTED: Rule("service_tier_requested", word),
    "gen_ai.openai.request.service_tier": Rule("service_tier_requested", word, is_fallback=True),
    keys.SERVICE_TIER: Rule("service_tier", word),
    "gen_ai.openai.response.service_tier": Rule("service_tier", word, is_fallback=True),
    # tokens
    keys.INPUT_TOKENS: Rule("input_tokens", count),
    keys.INPUT_TOKENS_OLD: Rule("input_tokens", count, is_fallback=True),
    keys.OUTPUT_TOKENS: Rule("output_tokens", count),
    keys.OUTPUT_TOKENS_OLD: Rule("output_tokens", count, is_fallback=True),
    keys.CACHED_INPUT_TOKENS: Rule("cached_input_tokens", count),
    "gen_ai.usage.cache_read_input_tokens": Rule("cached_input_tokens", count, is_fallback=True),
    keys.CACHE_WRITE_TOKENS: Rule("cache_write_tokens", count),
    keys.CACHE_CREATION_TOKENS: Rule("cache_write_tokens", count, is_fallback=True),
    keys.CACHE_WRITE_1H_TOKENS: Rule("cache_write_1h_tokens", count),
    "gen_ai.usage.cache_creation_input_tokens": Rule("cache_write_tokens", count, is_fallback=True),
    keys.REASONING_TOKENS: Rule("reasoning_tokens", count),
    keys.REASONING_TOKENS_OLD: Rule("reasoning_tokens", count, is_fallback=True),
    # money
    keys.REPORTED_COST: Rule("reported_cost_usd", number),
    keys.REPORTED_CURRENCY: Rule("reported_currency", word),
    "gen_ai.usage.cost": Rule("reported_cost_usd", paid, is_fallback=True),  # OpenLIT and others
    "gen_ai.cost.total_cost": Rule("reported_cost_usd", paid, is_fallback=True),  # LiteLLM
    "operation.cost": Rule("reported_cost_usd", paid, is_fallback=True),  # Logfire, Pydantic AI
    "llm.cost.total": Rule("reported_cost_usd", paid, is_fallback=True),  # OpenInference
    # times seen by the client
    keys.TIME_TO_FIRST_CHUNK: Rule("first_chunk_ns", seconds_ns),
    "gen_ai.client.operation.time_to_first_chunk": Rule(
        "first_chunk_ns", seconds_ns, is_fallback=True
    ),
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


DIALECT: Final = plain(
    NAME,
    _claims,
    RULES,
    (Step.INFER, Step.INPUT_WHOLE, Step.FIRST_EVENT, Step.NOT_STREAMED, Step.SETTLE),
    marks=frozenset(_KEYS),
    order=90,
)
