"""Logfire's instrumentations and Pydantic AI: the GenAI conventions, with streams in two spans.

A streamed call is one span until the response headers, then, when the stream has ended, a log (a
span of no length) with its ``duration`` and everything that came with the answer. The first is
marked ``stream_head``, the second ``stream_summary``; whoever counts calls joins them. Source:
``logfire/_internal/integrations/llm_providers/llm_provider.py``.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    EMBEDDINGS,
    FIRST_EVENT,
    STREAM_HEAD,
    STREAM_SUMMARY,
    count_input_whole,
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
    flag,
    infer,
    seconds_ns,
    word,
)
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "logfire"
PYDANTIC_AI: Final = "pydantic-ai"
SPAN_TYPE: Final = "logfire.span_type"
_DURATION: Final = "duration"
_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
_REQUEST: Final = "request_data"
_RESPONSE: Final = "response_data"
_RAW_USAGE: Final = "gen_ai.usage.raw"
_LLM_SCOPE: Final = "logfire."
"""How the scopes of Logfire's own instrumentations begin."""
PENDING: Final = "pending"

RULES: Final[Rules] = {
    **_GENAI_RULES,
    keys.PROVIDER: Rule("provider", provider_name),
    keys.PROVIDER_OLD: Rule("provider", provider_name, is_fallback=True),
    "gen_ai.usage.details.reasoning_tokens": Rule("reasoning_tokens", count, is_fallback=True),
    _FIRST_CHUNK: Rule("first_chunk_ns", seconds_ns, is_fallback=True),
}
_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(NAME) or scope == PYDANTIC_AI or SPAN_TYPE in attributes


def _read(raw: RawSpan) -> Span:
    operation = _operation(raw)
    read = draft(raw, NAME, RULES if operation in MODEL_OPERATIONS else _OUTER_RULES)
    columns = read.columns
    fill(columns, {"operation": operation})
    infer(columns)
    if raw.attributes.get(SPAN_TYPE) == "pending_span":
        # what Logfire shows while the span of the same name runs; the finished one follows
        columns.update(is_model_call=False, is_detached=True)
        mark(columns, PENDING)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _operation(raw: RawSpan) -> str | None:
    """The operation; versions before Logfire took up the conventions only say what was asked."""
    stated = word(raw.attributes.get(keys.OPERATION, ""))
    if stated is None and raw.scope.startswith(_LLM_SCOPE) and _REQUEST in raw.attributes:
        return EMBEDDINGS if raw.name.startswith("Embedding") else "chat"
    return stated


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    request = parse_map(raw.attributes.get(_REQUEST))
    fill(columns, {"request_model": word(request.get("model") or "")})
    usage = parse_map(raw.attributes.get(_RAW_USAGE))
    usage = usage or parse_map(parse_map(raw.attributes.get(_RESPONSE)).get("usage"))
    fill(columns, usage_columns(usage))
    fill(columns, {"service_tier": word(usage.get("service_tier") or "")})
    count_input_whole(columns)
    first_token(columns, columns.get("first_chunk_ns"), FIRST_EVENT)
    if raw.scope.startswith(_LLM_SCOPE):
        _read_two_spans(columns, raw, flag(request.get("stream", "")))


def _read_two_spans(columns: dict[str, Any], raw: RawSpan, is_streamed: bool | None) -> None:
    """Tell the head of a stream, its summary and a call in one span from each other."""
    if raw.attributes.get(SPAN_TYPE) == "log":
        columns["is_streamed"] = True
        mark(columns, STREAM_SUMMARY)
        duration_ns = seconds_ns(raw.attributes.get(_DURATION, ""))
        if duration_ns is not None and raw.end_ns > duration_ns:
            columns["start_ns"] = raw.end_ns - duration_ns
        return
    has_answer = (
        columns.get("response_id") is not None
        or columns.get("input_tokens") is not None
        or columns.get("finish_reason") is not None
        or _RESPONSE in raw.attributes
    )
    if has_answer:
        columns.setdefault("is_streamed", False)
        return
    columns.pop("response_model", None)  # nobody has answered yet: it repeats the request
    is_open = columns["status"] != "error" and not raw.events
    if is_open and columns["operation"] != EMBEDDINGS and is_streamed is not False:
        columns["is_streamed"] = True
        mark(columns, STREAM_HEAD)
    elif is_streamed is not None:
        columns["is_streamed"] = is_streamed


DIALECT: Final = Dialect(NAME, _claims, _read, order=60, marks=frozenset((SPAN_TYPE,)))
