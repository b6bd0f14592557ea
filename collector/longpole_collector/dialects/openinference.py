"""OpenInference: what Arize Phoenix's instrumentations send, one span kind per sort of work.

Source: openinference-semantic-conventions (``openinference.span.kind``, ``llm.*``,
``llm.token_count.*``). The time to first token is a span event of the OpenAI and LangChain
instrumentations, written at the first event of any kind, a role-only one included.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    FIRST_EVENT,
    be_kind,
    count_input_whole,
    fill,
    first_token,
    provider_name,
    settle,
    since_start,
    without,
)
from longpole_collector.dialects._payloads import answer_columns, parse_map
from longpole_collector.dialects.base import (
    Dialect,
    Rule,
    Rules,
    count,
    draft,
    finish_reason,
    word,
)
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "openinference"
SCOPE: Final = "openinference.instrumentation"
KIND: Final = "openinference.span.kind"
_OUTPUT: Final = "output.value"
_SETTINGS: Final = ("llm.invocation_parameters", "embedding.invocation_parameters")
_FIRST_TOKEN: Final = "first token stream event"  # noqa: S105 - an event's name
_SAY_WHETHER_STREAMED: Final = tuple(
    f"{SCOPE}.{library}" for library in ("openai", "anthropic", "google_genai")
)
"""Instrumentations that show a stream in the settings or the span's name, so silence means none."""

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "session.id": Rule("conversation_id", word, is_fallback=True),
    "llm.prompt_template.version": Rule("prompt_version", word, is_fallback=True),
    "llm.provider": Rule("provider", provider_name),
    "llm.system": Rule("provider", provider_name, is_fallback=True),
    "llm.request.model_name": Rule("request_model", word),
    "llm.response.model_name": Rule("response_model", word),
    "llm.model_name": Rule("response_model", word, is_fallback=True),
    "embedding.model_name": Rule("response_model", word, is_fallback=True),
    "llm.finish_reason": Rule("finish_reason", finish_reason),
    "llm.token_count.prompt": Rule("input_tokens", count),
    "llm.token_count.prompt_details.cache_read": Rule("cached_input_tokens", count),
    "llm.token_count.prompt_details.cache_write": Rule("cache_write_tokens", count),
    "llm.token_count.completion": Rule("output_tokens", count),
    "llm.token_count.completion_details.reasoning": Rule("reasoning_tokens", count),
}

_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)
_MODEL_KINDS: Final = ("llm", "embedding")
_NO_CALL: Final = "._prepare_chat_with_tools"
"""LlamaIndex's step before a call, which has the kind of one."""


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(SCOPE) or KIND in attributes


def _read(raw: RawSpan) -> Span:
    kind = "" if raw.name.endswith(_NO_CALL) else str(raw.attributes.get(KIND, "")).lower()
    read = draft(raw, NAME, RULES if kind in _MODEL_KINDS else _OUTER_RULES)
    columns = read.columns
    be_kind(columns, kind)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    settings = _settings(columns, raw)
    fill(columns, {"request_model": word(settings.get("model") or "")})
    _see_streaming(columns, raw, settings)
    answer = answer_columns(parse_map(raw.attributes.get(_OUTPUT)))
    fill(columns, answer)
    count_input_whole(columns)


def _settings(columns: dict[str, Any], raw: RawSpan) -> dict[str, Any]:
    """The request's parameters; of them only numbers, flags and the model stay attributes.

    The rest may hold instructions, schemas or tools, which is content.
    """
    settings: dict[str, Any] = {}
    for key in _SETTINGS:
        if key not in raw.attributes:
            continue
        given = parse_map(raw.attributes[key])
        settings |= given
        columns["attributes"].pop(key, None)
        for name, value in given.items():
            if isinstance(value, bool | int | float) or name == "model":
                columns["attributes"][f"{key}.{name}"] = str(value)
    return settings


def _see_streaming(columns: dict[str, Any], raw: RawSpan, settings: Mapping[str, Any]) -> None:
    for event in raw.events:
        if event.name.lower() == _FIRST_TOKEN:
            first_token(columns, since_start(columns, event.time_ns), FIRST_EVENT)
            return
    stated = settings.get("stream")
    if stated is True or "stream" in raw.name.lower():
        columns.setdefault("is_streamed", True)
    elif raw.scope.startswith(_SAY_WHETHER_STREAMED):
        columns.setdefault("is_streamed", False)


DIALECT: Final = Dialect(NAME, _claims, _read, order=30, marks=frozenset((KIND,)))
