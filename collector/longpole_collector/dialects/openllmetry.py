"""OpenLLMetry and the Traceloop SDK: the GenAI conventions, with workflows of their own.

Seen in captures of version 0.62: a stream's chunks are span events, one for each event on the
wire, those without content included; errors inside a stream leave the status OK; the answer's
thoughts are left out of Google's output tokens, though the total holds them.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span, Stage
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    FIRST_EVENT,
    INVOKE_AGENT,
    INVOKE_WORKFLOW,
    TRUNCATED,
    count_input_whole,
    drop_echoed_model,
    first_token,
    settle,
)
from longpole_collector.dialects.base import Dialect, Rule, Rules, count, draft, flag, infer, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "openllmetry"
KIND: Final = "traceloop.span.kind"
_SCOPES: Final = ("traceloop.", "opentelemetry.instrumentation.")
_LIBRARIES: Final = frozenset(
    (
        *("agno", "alephalpha", "anthropic", "bedrock", "cohere", "crewai", "google_generativeai"),
        *("groq", "haystack", "langchain", "llamaindex", "mistralai", "ollama", "openai"),
        *("openai_agents", "replicate", "sagemaker", "together", "transformers", "vertexai"),
        *("watsonx", "writer"),
    )
)
"""The instrumented packages: the scope is ``opentelemetry.instrumentation.<package>[.v<n>]``."""
_CHUNK_EVENT: Final = "gen_ai.content.completion.chunk"
_TOTALS: Final = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")
_REQUEST_TYPE: Final = "llm.request.type"
_OPERATIONS: Final = {
    "chat": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "rerank": "rerank",
}
_KINDS: Final[dict[str, tuple[str | None, str | None]]] = {
    "workflow": (INVOKE_WORKFLOW, None),
    "agent": (INVOKE_AGENT, None),
    "tool": ("execute_tool", Stage.TOOL.value),
}
"""Operation and stage; a ``task`` is any function."""

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "gen_ai.is_streaming": Rule("is_streamed", flag, is_fallback=True),
    "llm.is_streaming": Rule("is_streamed", flag, is_fallback=True),
    "llm.usage.prompt_tokens": Rule("input_tokens", count, is_fallback=True),
    "llm.usage.completion_tokens": Rule("output_tokens", count, is_fallback=True),
    "traceloop.association.properties.session_id": Rule("conversation_id", word, is_fallback=True),
    "traceloop.prompt.version": Rule("prompt_version", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    if scope.startswith(_SCOPES[0]) or KIND in attributes:
        return True
    package = scope.removeprefix(_SCOPES[1]).partition(".")[0]
    return scope.startswith(_SCOPES[1]) and package in _LIBRARIES


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    columns = read.columns
    kind = str(raw.attributes.get(KIND, ""))
    if kind in _KINDS and "operation" not in columns:
        columns["operation"], stage = _KINDS[kind]
        if stage is not None:
            columns.setdefault("stage", stage)
    operation = _OPERATIONS.get(str(raw.attributes.get(_REQUEST_TYPE, "")))
    if operation is not None:
        columns.setdefault("operation", operation)
    infer(columns)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    count_input_whole(columns)
    _add_thoughts(columns, raw)
    chunk = next((event for event in raw.events if event.name == _CHUNK_EVENT), None)
    if chunk is not None and "ttft_ns" not in columns:
        first_token(columns, chunk.time_ns - raw.start_ns, FIRST_EVENT)
    elif columns.get("is_streamed") and "response_id" not in columns:
        # nothing of the answer was seen: the span ended with the response headers
        is_answered = "output_tokens" in columns or "finish_reason" in columns
        if not is_answered and columns["status"] != "error" and "error_type" not in columns:
            columns["flags"].append(TRUNCATED)


def _add_thoughts(columns: dict[str, Any], raw: RawSpan) -> None:
    """Google's total counts the thoughts that its output leaves out."""
    if not str(columns.get("provider", "")).startswith("gcp."):
        return
    drop_echoed_model(columns)
    total = next((count(raw.attributes[key]) for key in _TOTALS if key in raw.attributes), None)
    given, made = columns.get("input_tokens"), columns.get("output_tokens")
    if total is not None and given is not None and made is not None and total > given + made:
        columns.setdefault("reasoning_tokens", total - given - made)
        columns["output_tokens"] = total - given


DIALECT: Final = Dialect(NAME, _claims, _read, order=45, marks=frozenset((KIND,)))
