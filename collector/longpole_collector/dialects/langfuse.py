"""Langfuse's SDK (version 3 and later, built on OpenTelemetry).

Source: ``langfuse/_client/attributes.py`` and the OpenAI and LangChain integrations. Structured
values are JSON text. The time to first token is an absolute time, taken at the first event of
any kind.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    ANSWER_COLUMNS,
    FIRST_EVENT,
    be_kind,
    fill,
    first_token,
    provider_name,
    settle,
    since_start,
    without,
)
from longpole_collector.dialects._payloads import details_cost, parse, parse_map, usage_columns
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

NAME: Final = "langfuse"
SCOPE: Final = "langfuse-sdk"
_OBSERVATION: Final = "langfuse.observation."
TYPE: Final = f"{_OBSERVATION}type"
_MODEL: Final = f"{_OBSERVATION}model.name"
_SETTINGS: Final = f"{_OBSERVATION}model.parameters"
_USAGE: Final = f"{_OBSERVATION}usage_details"
_COST: Final = f"{_OBSERVATION}cost_details"
_OUTPUT: Final = f"{_OBSERVATION}output"
_FIRST_TOKEN: Final = f"{_OBSERVATION}completion_start_time"
_LEVEL: Final = f"{_OBSERVATION}level"
_STATUS: Final = f"{_OBSERVATION}status_message"
_OPENAI: Final = "OpenAI-"
"""How the OpenAI integration begins the names of its spans."""
_KIND_OF_TYPE: Final = {"generation": "llm"}
"""Types under another name than the common kinds."""


def _json_word(value: Value) -> str | None:
    inner = parse(value)
    return word(value if inner is None else inner)


def _json_finish(value: Value) -> str | None:
    return finish_reason(_json_word(value) or "")


RULES: Final[Rules] = {
    **_GENAI_RULES,
    "session.id": Rule("conversation_id", word, is_fallback=True),
    f"{_OBSERVATION}prompt.version": Rule("prompt_version", word, is_fallback=True),
    f"{_OBSERVATION}metadata.finish_reason": Rule("finish_reason", _json_finish),
    f"{_OBSERVATION}metadata.ls_provider": Rule(
        "provider", lambda v: provider_name(_json_word(v) or "")
    ),
}

_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)
_MODEL_TYPES: Final = ("generation", "embedding")


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope == SCOPE or TYPE in attributes


def _read(raw: RawSpan) -> Span:
    kind = str(raw.attributes.get(TYPE, "")).lower()
    read = draft(raw, NAME, RULES if kind in _MODEL_TYPES else _OUTER_RULES)
    columns = read.columns
    be_kind(columns, _KIND_OF_TYPE.get(kind, kind))
    if raw.attributes.get(_LEVEL) == "ERROR":
        columns["status"] = "error"
        fill(columns, {"status_message": word(raw.attributes.get(_STATUS, ""))})
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    usage = parse_map(raw.attributes.get(_USAGE))
    fill(columns, own_usage_columns(usage) if "input" in usage else usage_columns(usage))
    fill(columns, {"reported_cost_usd": details_cost(parse_map(raw.attributes.get(_COST)))})
    settings = parse_map(raw.attributes.get(_SETTINGS))
    fill(columns, {"service_tier": word(settings.get("service_tier") or "")})
    fill(columns, {"finish_reason": _responses_finish(parse(raw.attributes.get(_OUTPUT)))})
    is_openai = raw.name.startswith(_OPENAI)
    if is_openai:
        fill(columns, {"provider": "openai"})
    first_ns = _epoch_ns(raw.attributes.get(_FIRST_TOKEN))
    if first_ns is not None:
        first_token(columns, since_start(columns, first_ns), FIRST_EVENT)
    elif is_openai and usage:
        # this integration times the first chunk of every stream
        columns.setdefault("is_streamed", False)
    # one name for both models: the answer's once there is one, until then the request's
    model = word(raw.attributes.get(_MODEL, ""))
    fill(columns, {"response_model" if usage or first_ns is not None else "request_model": model})


def _responses_finish(output: Any) -> str | None:
    """How an answer of the Responses API ended: it is logged as its output items."""
    items = output if isinstance(output, list) else [output]
    last = items[-1] if items else None
    if not isinstance(last, dict) or last.get("type") not in ("message", "function_call"):
        return None
    if last["type"] == "function_call" and last.get("status") == "completed":
        return "tool_call"
    return finish_reason(last.get("status") or "")


def own_usage_columns(usage: Mapping[str, Any]) -> dict[str, int]:
    """Token columns of Langfuse's own usage types.

    ``input`` and ``output`` leave out what has a type of its own (``input_cache_read``,
    ``output_reasoning``), unless the total says otherwise.
    """
    parts = {name: num for name, value in usage.items() if (num := count(value)) is not None}
    extra_in = sum(num for name, num in parts.items() if name.startswith(("input_", "cache_")))
    extra_out = sum(num for name, num in parts.items() if name.startswith("output_"))
    total, plain = parts.get("total"), parts.get("input", 0) + parts.get("output", 0)
    if total is not None and total == plain:
        extra_in = extra_out = 0
    found: dict[str, int] = {"input_tokens": parts["input"] + extra_in} if "input" in parts else {}
    if "output" in parts:
        found["output_tokens"] = parts["output"] + extra_out
    for column, words in _PARTS.items():
        for name, num in parts.items():
            if name.startswith(("input_", "output_", "cache_")) and any(w in name for w in words):
                found[column] = found.get(column, 0) + num
    return found


_PARTS: Final = {
    "cached_input_tokens": ("cache_read", "cached"),
    "cache_write_tokens": ("cache_creation", "cache_write"),
    "reasoning_tokens": ("reasoning",),
}


def _epoch_ns(value: Value | None) -> int | None:
    """An ISO time, bare or as JSON text, in nanoseconds since the epoch."""
    moment = word(value) if isinstance(value, str) else None
    if moment is None:
        return None
    try:
        at = datetime.fromisoformat(moment.strip('"'))
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + at.microsecond * 1_000


DIALECT: Final = Dialect(NAME, _claims, _read, order=30, marks=frozenset((TYPE,)))
