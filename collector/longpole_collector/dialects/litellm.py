"""LiteLLM's own OpenTelemetry callback: ``litellm_request`` is the call.

Its child ``raw_gen_ai_request`` repeats the call as the provider answered it and counts for
nothing. Cached and reasoning tokens are only in the printed usage record. Of a stream the
response model is the request's name again.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import count_input_whole, drop_echoed_model, fill, settle
from longpole_collector.dialects._payloads import usage_columns
from longpole_collector.dialects._printed import printed_map
from longpole_collector.dialects.base import Dialect, Rule, Rules, draft, flag, infer
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "litellm"
_REPEATED: Final = "raw_gen_ai_request"
_USAGE: Final = "metadata.usage_object"
_REQUEST_TYPE: Final = "llm.request.type"
_OPERATIONS: Final = {
    "completion": "chat",
    "acompletion": "chat",
    "text_completion": "text_completion",
    "atext_completion": "text_completion",
    "embedding": "embeddings",
    "aembedding": "embeddings",
    "rerank": "rerank",
    "arerank": "rerank",
}

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "llm.is_streaming": Rule("is_streamed", flag, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope == NAME or scope.startswith(f"{NAME}.")


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    columns = read.columns
    operation = _OPERATIONS.get(str(raw.attributes.get(_REQUEST_TYPE, "")))
    if operation is not None:
        columns.setdefault("operation", operation)
    if raw.name == _REPEATED:
        columns.pop("operation", None)
    infer(columns)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    # usage is known to be whole: LiteLLM gives every provider's in OpenAI's shape
    usage = printed_map(raw.attributes.get(_USAGE))
    counted = usage_columns({key: value for key, value in usage.items() if value is not None})
    if columns.get("provider") == "anthropic" and not counted.get("reasoning_tokens"):
        counted.pop("reasoning_tokens", None)  # it sends none: LiteLLM's 0 stands for unknown
    fill(columns, counted)
    count_input_whole(columns)
    if columns.get("is_streamed"):
        drop_echoed_model(columns)


DIALECT: Final = Dialect(NAME, _claims, _read, order=35, marks=frozenset())
