"""What readers of other libraries' spans share: names, marks and the last look at a span."""

from typing import Any, Final

from longpole.vocab import Stage, Status, keys
from longpole_collector.decode.raw import MAX_TIME_NS, RawSpan, Value
from longpole_collector.dialects.base import (
    EXCEPTION_EVENT,
    EXCEPTION_TYPE,
    MODEL_OPERATIONS,
    Rules,
    word,
)

FIRST_EVENT: Final = "ttft_first_event"
FIRST_CONTENT: Final = "ttft_first_content"
AFTER_HEADERS: Final = "ttft_after_headers"
TRUNCATED: Final = "truncated"
"""The span ended before its call did, mostly at the response headers."""
INCOMPLETE: Final = "incomplete"
"""A streamed call of which neither the finish reason nor the usage arrived."""
PARTIAL_OUTPUT: Final = "output_tokens_partial"
"""The count sent was the provider's early one, before the answer; it is kept as an attribute."""
ESTIMATED: Final = "tokens_estimated"
"""The library counted the tokens by itself, since the provider sent no usage."""
STREAM_HEAD: Final = "stream_head"
"""A span that ended at the headers; another one, the summary, tells the rest of the stream."""
STREAM_SUMMARY: Final = "stream_summary"
FAILED_ATTEMPT: Final = "failed_attempt"
"""A failed attempt in a span of its own; a sibling that starts after it continues the call."""
CACHE_LEFT_OUT: Final = "input_excluded_cache"
MAX_COUNT: Final = 2**63 - 1
OTHER_ERROR: Final = "_OTHER"
"""OpenTelemetry's ``error.type`` where the sender names none."""
EMBEDDINGS: Final = "embeddings"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
TOKEN_COLUMNS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
)
ANSWER_COLUMNS: Final = frozenset(
    (
        *TOKEN_COLUMNS,
        *("finish_reason", "response_model", "response_id", "request_model", "provider"),
        *("cache_write_1h_tokens", "reported_cost_usd", "reported_currency"),
    )
)
"""What the span of an agent or workflow only repeats of the model calls below it."""
KINDS: Final[dict[str, tuple[str | None, str | None]]] = {
    "llm": ("chat", None),
    "embedding": (EMBEDDINGS, None),
    "tool": ("execute_tool", Stage.TOOL.value),
    "retriever": ("retrieval", Stage.RETRIEVAL.value),
    "reranker": (None, Stage.RETRIEVAL.value),
    "guardrail": (None, Stage.VALIDATION.value),
    "evaluator": (None, Stage.VALIDATION.value),
    "agent": (INVOKE_AGENT, None),
    "chain": (INVOKE_WORKFLOW, None),
}
"""Operation and stage of the kinds of span that several libraries have in common."""
_PROVIDERS: Final = {
    "gemini": "gcp.gemini",
    "google": "gcp.gen_ai",
    "google_genai": "gcp.gen_ai",
    "vertexai": "gcp.vertex_ai",
    "vertex_ai": "gcp.vertex_ai",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure_openai": "azure.ai.openai",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
}
SAY_WHETHER_STREAMED: Final = (
    "opentelemetry.instrumentation.genai.",
    "opentelemetry.instrumentation.google_genai",
    "com.anthropic.sdk.",
)
"""Scopes of libraries that mark streamed requests, and only these."""
_DOTTED: Final = ("gcp.", "aws.", "azure.ai.", "ibm.")
"""Names of the conventions that hold a dot of their own."""


def provider_name(value: Value) -> str | None:
    """A provider's name as the conventions spell it.

    In ``openai.chat`` the part after the dot is the API, the part before it the provider.
    """
    name = word(value)
    if name is None:
        return None
    name = name.lower()
    if not name.startswith(_DOTTED):
        name = name.partition(".")[0]
    return _PROVIDERS.get(name, name)


def without(rules: Rules, columns: frozenset[str]) -> Rules:
    """The rules that fill none of these columns; such values stay attributes."""
    return {key: rule for key, rule in rules.items() if rule.column not in columns}


def fill(columns: dict[str, Any], facts: dict[str, Any]) -> None:
    """Add the facts of which nothing is known yet."""
    for column, value in facts.items():
        if columns.get(column) is None:
            columns[column] = value


def be_kind(columns: dict[str, Any], kind: str) -> None:
    """Set operation, stage and model call of one of :data:`KINDS`; a stated stage wins."""
    operation, stage = KINDS.get(kind, (None, None))
    if operation is not None:
        columns["operation"] = operation
    if stage is not None:
        columns.setdefault("stage", stage)
    columns["is_model_call"] = operation in MODEL_OPERATIONS


def exclusive_input(columns: dict[str, Any]) -> None:
    """Add the cached parts to an input known to leave them out; the flag says it was done."""
    if CACHE_LEFT_OUT in columns["flags"]:
        return
    beside = (columns.get("cached_input_tokens") or 0) + (columns.get("cache_write_tokens") or 0)
    if columns.get("input_tokens") is not None and beside:
        columns["input_tokens"] += beside
        mark(columns, CACHE_LEFT_OUT)


def since_start(columns: dict[str, Any], at_ns: int) -> int | None:
    """Time from the span's start; ``None`` before it, or if the start is not known."""
    if "no_start_time" in columns["flags"]:
        return None
    since_ns: int = at_ns - columns["start_ns"]
    return since_ns if 0 <= since_ns <= MAX_TIME_NS else None


def count_input_whole(columns: dict[str, Any]) -> None:
    """Make ``input_tokens`` hold the cached part too, as the convention says it must.

    More cached than input tokens prove that the sender left them out; the repair is flagged.
    """
    cached = (columns.get("cached_input_tokens") or 0) + (columns.get("cache_write_tokens") or 0)
    if columns.get("input_tokens") is not None and cached > columns["input_tokens"]:
        columns["input_tokens"] += cached
        columns["flags"].append("input_excluded_cache")


def drop_echoed_model(columns: dict[str, Any]) -> None:
    """Forget a response model that is the request's name again, whatever answered."""
    model = columns.get("response_model")
    if model is not None and model == columns.get("request_model"):
        columns["attributes"][keys.RESPONSE_MODEL] = columns.pop("response_model")


def say_not_streamed(columns: dict[str, Any]) -> None:
    """An answered call of a library that marks streamed requests, and has not marked this one."""
    if columns["is_model_call"] and columns.get("response_id") is not None:
        columns.setdefault("is_streamed", False)


def first_token(columns: dict[str, Any], ns: int | None, source: str) -> None:
    """Take a library's claimed time to first token, marked with what its clock stops at.

    One that the span states already, as an export does, stands.
    """
    if ns is None:
        return
    columns["is_streamed"] = True
    if columns.get("ttft_ns") is not None:
        return
    columns["ttft_ns"] = ns
    mark(columns, source)
    if source == FIRST_EVENT:
        columns["first_chunk_ns"] = ns


def settle(columns: dict[str, Any], raw: RawSpan) -> None:
    """The last look at a foreign span, the same for every library.

    An error by any sign is one; embeddings are never streamed; a call that was not streamed has
    no first token; a stream without an end is marked, and what only looks like its count of
    output tokens is taken out.
    """
    for column in TOKEN_COLUMNS:
        if (columns.get(column) or 0) > MAX_COUNT:  # a sum of counts can be, one count cannot
            columns[column] = None
    _unify_error(columns, raw)
    if not columns.get("is_model_call"):
        return
    if columns.get("operation") == EMBEDDINGS:
        columns["is_streamed"] = False
    if columns.get("is_streamed") is False:
        for column in ("ttft_ns", "first_chunk_ns"):
            columns.pop(column, None)
        columns["flags"][:] = [f for f in columns["flags"] if not f.startswith("ttft_")]
    if columns.get("is_streamed") and columns.get("finish_reason") is None:
        _settle_endless(columns)
    end_ns, first_ns = columns.get("end_ns"), columns.get("ttft_ns")
    if first_ns is not None and end_ns is not None and end_ns - columns["start_ns"] < first_ns:
        mark(columns, TRUNCATED)


def _settle_endless(columns: dict[str, Any]) -> None:
    """A stream whose finish reason never came.

    Anthropic sends a count with the first event and the true one with the finish reason, so what
    is left of a broken stream is the early one. Others send usage once, at the end.
    """
    output = columns.get("output_tokens")
    is_broken = columns["status"] == Status.ERROR or columns.get("provider") == "anthropic"
    if output is not None and is_broken:
        columns["attributes"].setdefault(keys.OUTPUT_TOKENS, str(output))
        columns["output_tokens"] = None
        columns["reported_cost_usd"] = None  # reckoned from it
        mark(columns, PARTIAL_OUTPUT)
    is_told_elsewhere = STREAM_HEAD in columns["flags"]
    if output is None and columns.get("input_tokens") is None and not is_told_elsewhere:
        mark(columns, INCOMPLETE)


def _unify_error(columns: dict[str, Any], raw: RawSpan) -> None:
    types = (
        word(event.attributes.get(EXCEPTION_TYPE, "")) or OTHER_ERROR
        for event in raw.events
        if event.name == EXCEPTION_EVENT
    )
    error = columns.get("error_type") or next(types, None)
    has_sign = error is not None or columns.get("finish_reason") == "error"
    # work that says it went well may have caught what it recorded; a broken stream cannot
    if has_sign and (columns.get("is_model_call") or columns["status"] != Status.OK):
        columns["status"] = Status.ERROR.value
    if columns["status"] == Status.ERROR:
        columns["error_type"] = error or OTHER_ERROR


def mark(columns: dict[str, Any], flag: str) -> None:
    """Set a flag once."""
    if flag not in columns["flags"]:
        columns["flags"].append(flag)
