"""LangSmith in its OpenTelemetry mode: the GenAI conventions plus ``langsmith.*``.

As spans of langsmith 0.15 were seen to be: the details of the usage are printed Python dicts;
there is no time to first token; errors of a stream are exception events under status OK.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    be_kind,
    count_input_whole,
    fill,
    provider_name,
    settle,
    without,
)
from longpole_collector.dialects._printed import printed_map
from longpole_collector.dialects.base import Dialect, Rule, Rules, count, draft, flag, infer, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "langsmith"
KIND: Final = "langsmith.span.kind"
_MODEL_KINDS: Final = ("llm", "embedding")


_INPUT_DETAILS: Final = "gen_ai.usage.input_token_details"
_OUTPUT_DETAILS: Final = "gen_ai.usage.output_token_details"

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "langsmith.metadata.ls_provider": Rule("provider", provider_name, is_fallback=True),
    "langsmith.metadata.ls_model_name": Rule("request_model", word, is_fallback=True),
    "langsmith.request.streaming": Rule("is_streamed", flag, is_fallback=True),
    "langsmith.trace.session_id": Rule("conversation_id", word, is_fallback=True),
    "langsmith.metadata.session_id": Rule("conversation_id", word, is_fallback=True),
    "langsmith.metadata.thread_id": Rule("conversation_id", word, is_fallback=True),
    "gen_ai.response.service_tier": Rule("service_tier", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope == NAME or KIND in attributes


def _read(raw: RawSpan) -> Span:
    kind = str(raw.attributes.get(KIND, "")).lower()
    is_model = kind in _MODEL_KINDS or KIND not in raw.attributes
    read = draft(raw, NAME, RULES if is_model else without(RULES, ANSWER_COLUMNS))
    columns = read.columns
    if kind == "embedding" or "operation" not in columns:
        be_kind(columns, kind)
    infer(columns)
    if not is_model:
        columns["is_model_call"] = False
    if columns["is_model_call"]:
        _read_details(columns, raw)
        count_input_whole(columns)
    settle(columns, raw)
    return read.span()


def _read_details(columns: dict[str, Any], raw: RawSpan) -> None:
    given = printed_map(raw.attributes.get(_INPUT_DETAILS))
    made = printed_map(raw.attributes.get(_OUTPUT_DETAILS))
    known = {
        "cached_input_tokens": count(given.get("cache_read", "")),
        "cache_write_tokens": count(given.get("cache_creation", "")),
        "reasoning_tokens": count(made.get("reasoning", "")),
    }
    fill(columns, {column: num for column, num in known.items() if num is not None})


DIALECT: Final = Dialect(NAME, _claims, _read, order=35, marks=frozenset((KIND,)))
