"""MLflow Tracing: every attribute is JSON text, every chunk of a stream a span event.

Source: ``mlflow/tracing/constant.py`` and the autologging integrations. The events hold the
provider's chunks whole, so first content, gaps and time per token are measured, not guessed.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from longpole.call import Kind, Usage
from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._chunks import chunk_kind, stream_times, time_columns
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    FIRST_CONTENT,
    FIRST_EVENT,
    TOKEN_COLUMNS,
    TRUNCATED,
    be_kind,
    count_input_whole,
    fill,
    first_token,
    mark,
    provider_name,
    settle,
    since_start,
    without,
)
from longpole_collector.dialects._payloads import answer_columns, details_cost, parse, parse_map
from longpole_collector.dialects.base import Dialect, Rule, Rules, count, draft, flag, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "mlflow"
SCOPE: Final = "mlflow."
TYPE: Final = "mlflow.spanType"
_INPUTS: Final = "mlflow.spanInputs"
_OUTPUTS: Final = "mlflow.spanOutputs"
_USAGE: Final = "mlflow.chat.tokenUsage"
_COST: Final = "mlflow.llm.cost"
_MODEL: Final = "mlflow.llm.model"
_FORMAT: Final = "mlflow.message.format"
_PROMPTS: Final = "mlflow.linkedPrompts"
_CHUNK: Final = re.compile(r"mlflow\.chunk\.item\.(\d{1,9})")
_CHUNK_VALUE: Final = "mlflow.chunk.value"
_OBJECT: Final = re.compile(r"<[\w.]+ (object\b.* at 0x[0-9a-f]+|\[\d{3} .*)>")
"""How Python shows a stream or response: the span was logged before it was read."""
CHUNKS_DROPPED: Final = "chunks_dropped"
"""The SDK's limit on events threw the first chunks away."""
_KIND_OF_TYPE: Final = {"chat_model": "llm", "workflow": "chain"}
_PROVIDER_FORMATS: Final = frozenset(
    ("openai", "anthropic", "gemini", "bedrock", "groq", "mistral")
)
"""Message formats that name a provider; the others name a framework."""
_COLUMN_OF_COUNT: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_input_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}


def _said(value: Value | None) -> str | None:
    """A word, bare or as JSON text."""
    inner = parse(value)
    return word(value or "") if inner is None else word(inner)


RULES: Final[Rules] = {
    **_GENAI_RULES,
    "mlflow.trace.session": Rule("conversation_id", _said, is_fallback=True),
    "mlflow.llm.provider": Rule("provider", lambda value: provider_name(_said(value) or "")),
    "model": Rule("request_model", _said),
    "stream": Rule("is_streamed", flag, is_fallback=True),
}

_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)
_MODEL_TYPES: Final = ("chat_model", "llm", "embedding")


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(SCOPE) or TYPE in attributes


def _read(raw: RawSpan) -> Span:
    kind = (_said(raw.attributes.get(TYPE)) or "").lower()
    read = draft(raw, NAME, RULES if kind in _MODEL_TYPES else _OUTER_RULES)
    columns = read.columns
    be_kind(columns, _KIND_OF_TYPE.get(kind, kind))
    fill(columns, {"prompt_version": _prompt_version(raw.attributes.get(_PROMPTS))})
    _fence(columns["attributes"], raw)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _fence(attributes: dict[str, str], raw: RawSpan) -> None:
    """Put the request's arguments, which come as bare keys, under the inputs.

    Numbers and flags are told from the rest, which may be tools, prompts or instructions.
    """
    for key, value in raw.attributes.items():
        if "." not in key and key in attributes:
            is_plain = isinstance(parse(value), bool | int | float)
            where = "mlflow.request" if is_plain else _INPUTS
            attributes[f"{where}.{key}"] = attributes.pop(key)


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    # The inputs may be long, and two facts in them mostly stand beside them too.
    is_short = columns.get("request_model") is None or columns.get("is_streamed") is None
    inputs = parse_map(raw.attributes.get(_INPUTS)) if is_short else {}
    asked = {"request_model": word(inputs.get("model") or ""), "is_streamed": inputs.get("stream")}
    fill(columns, {column: value for column, value in asked.items() if value is not None})
    if "messages" in inputs or "input" in inputs:
        columns.setdefault(
            "is_streamed", False
        )  # the whole request was seen, and it asks no stream
    output = parse(raw.attributes.get(_OUTPUTS))
    usage = parse_map(raw.attributes.get(_USAGE))
    counts = {column: count(usage.get(name, "")) for name, column in _COLUMN_OF_COUNT.items()}
    fill(columns, {column: num for column, num in counts.items() if num is not None})
    fill(columns, {"reported_cost_usd": details_cost(parse_map(raw.attributes.get(_COST)))})
    fill(columns, answer_columns(output) if isinstance(output, dict) else {})
    count_input_whole(columns)
    form = _said(raw.attributes.get(_FORMAT))
    if form in _PROVIDER_FORMATS:
        fill(columns, {"provider": provider_name(form or "")})
    has_chunks = _read_chunks(columns, raw)
    if isinstance(output, str) and _OBJECT.fullmatch(output) and not has_chunks:
        mark(columns, TRUNCATED)
    elif TRUNCATED not in columns["flags"]:
        fill(columns, {"response_model": _said(raw.attributes.get(_MODEL))})


def _read_chunks(columns: dict[str, Any], raw: RawSpan) -> bool:
    """Measure the stream by its chunk events; whether there are any."""
    chunks = [
        (int(found[1]), event)
        for event in raw.events
        if (found := _CHUNK.fullmatch(event.name)) is not None
    ]
    if not chunks:
        return False
    columns["is_streamed"] = True
    if columns.get("ttft_ns") is not None:
        return True  # an export: measured before the chunks were scrubbed
    chunks.sort(key=lambda chunk: chunk[0])
    bodies = [parse(event.attributes.get(_CHUNK_VALUE)) for _, event in chunks]
    _read_answer(columns, bodies)
    if chunks[0][0] != 0 or chunks[-1][0] != len(chunks) - 1:
        mark(columns, CHUNKS_DROPPED)
        return True
    kinds = [chunk_kind(body) for body in bodies]
    # the wall clock may be set back while a stream runs
    moments = list(accumulate((event.time_ns for _, event in chunks), max))
    first_ns = since_start(columns, moments[0])
    if first_ns is None or None in kinds:
        first_token(columns, first_ns, FIRST_EVENT)
        return True
    events = [(kind or Kind.EMPTY, at_ns) for kind, at_ns in zip(kinds, moments, strict=True)]
    usage = Usage(**{column: columns.get(column) for column in TOKEN_COLUMNS})
    times = stream_times(events, raw.start_ns, raw.end_ns or moments[-1], usage)
    columns.update(time_columns(times))
    columns["flags"] += [FIRST_CONTENT] if times.ttft_ns is not None else []
    columns["flags"] += times.flags
    return True


def _read_answer(columns: dict[str, Any], chunks: list[Any]) -> None:
    """What the chunks say of the answer; their finish reason wins.

    The output is put together by MLflow, which calls a stream that ended in tool calls ``stop``.
    """
    known: dict[str, Any] = {}
    for chunk in chunks:
        if isinstance(chunk, dict):
            inner = chunk.get("response") or chunk.get("message")
            known |= answer_columns(inner if isinstance(inner, dict) else chunk)
    if "finish_reason" in known:
        columns["finish_reason"] = known["finish_reason"]
    fill(columns, known)


def _prompt_version(value: Value | None) -> str | None:
    """The version of the one prompt a span is linked to."""
    prompts = parse(value)
    if not isinstance(prompts, list) or len(prompts) != 1 or not isinstance(prompts[0], dict):
        return None
    return word(prompts[0].get("version") or "")


DIALECT: Final = Dialect(NAME, _claims, _read, order=30, marks=frozenset((TYPE,)))
