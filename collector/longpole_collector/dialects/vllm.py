"""vLLM: one SERVER span a request, times as attributes.

Source: ``vllm/tracing/utils.py`` (``llm_request``, ``gen_ai.latency.*`` in seconds from arrival).
A public fork writes nanosecond integers under the same
names: an integer above 10,000 cannot be seconds.
"""

from collections.abc import Callable, Mapping
from typing import Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import (
    Dialect,
    Rule,
    Rules,
    count,
    draft,
    infer,
    seconds_ms,
    seconds_ns,
    word,
)
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "vllm"
_SECONDS_LIMIT: Final = 10_000
_KEYS: Final = (keys.ENGINE_E2E, keys.ENGINE_TTFT, keys.ENGINE_QUEUE)


def _seconds_or_ns(value: Value) -> int | None:
    if isinstance(value, int) and value > _SECONDS_LIMIT:
        return count(value)
    return seconds_ns(value)


def _tolerant(key: str, rule: Rule) -> Rule:
    convert: Callable[[Value], int | None] = _seconds_or_ns
    return rule._replace(convert=convert) if key.startswith("gen_ai.latency.") else rule


RULES: Final[Rules] = {
    **{key: _tolerant(key, rule) for key, rule in _GENAI_RULES.items()},
    "gen_ai.usage.cached_tokens": Rule("cached_input_tokens", count, is_fallback=True),
    keys.REQUEST_ID: Rule("response_id", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith("vllm") or any(key in attributes for key in _KEYS)


def read_engine(raw: RawSpan, dialect: str) -> Span:
    """A span of an engine that uses these names."""
    read = draft(raw, dialect, RULES)
    columns = read.columns
    infer(columns)
    output, decode_ns = columns.get("output_tokens"), columns.get("engine_decode_ns")
    if columns["is_engine"] and output is not None and output > 1 and decode_ns is not None:
        columns.setdefault("tpot_ms", seconds_ms(decode_ns / (output - 1) / 1e9))
    return read.span()


def _read(raw: RawSpan) -> Span:
    return read_engine(raw, NAME)


DIALECT: Final = Dialect(NAME, _claims, _read, order=20)
