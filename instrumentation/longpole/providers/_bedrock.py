"""What the answers of Amazon Bedrock say: Converse, and the bodies of InvokeModel by model family.

Sources: the Amazon Bedrock API reference (Converse, ConverseStream, InvokeModel) and its
"inference request parameters" of Anthropic, Nova, Llama, Mistral, Cohere and Titan models.
"""

from collections.abc import Mapping
from typing import Any

from longpole.call import Kind, Usage
from longpole.providers import _messages
from longpole.providers.base import Answer, count
from longpole.said import Said
from longpole.vocab import keys

Document = Mapping[str, Any]

METRICS = "amazon-bedrock-invocationMetrics"
"""Bedrock's own counts, in the last part of every InvokeModel stream."""
_MS_PER_S = 1e3


# --- Converse, and Nova's bodies, which have the same form ---------------------------------------


def event(name: str, doc: Document, answer: Answer) -> Kind:
    """Read one event of a ConverseStream."""
    if answer.said is not None:
        _say(name, doc, answer.said)
    if name == "contentBlockDelta":
        return _delta(doc.get("delta") or {})
    if name == "messageStart":
        return Kind.ROLE
    if name == "contentBlockStart":
        return Kind.TOOL if at(doc, "start", "toolUse", "name") else Kind.EMPTY
    if name == "messageStop":
        _finish(answer, doc.get("stopReason"))
        return Kind.EMPTY
    if name == "metadata":
        _said(doc, answer)
        return Kind.USAGE
    return Kind.EMPTY


def _say(name: str, doc: Document, said: Said) -> None:
    index = doc.get("contentBlockIndex")
    if name == "contentBlockDelta":
        said.text(at(doc, "delta", "text") or "")
        said.reasoning(at(doc, "delta", "reasoningContent", "text") or "")
        arguments = at(doc, "delta", "toolUse", "input")
        if arguments:
            said.call(index, arguments=arguments)
    elif name == "contentBlockStart":
        call = at(doc, "start", "toolUse")
        if call:
            said.call(index, call.get("name"), call_id=call.get("toolUseId"))


def converse(doc: Document, answer: Answer) -> None:
    """Read a whole answer."""
    if answer.said is not None:
        answer.said.parts(_messages.parts_of(at(doc, "output", "message", "content")))
    _finish(answer, doc.get("stopReason"))
    _said(doc, answer)
    _took(answer, at(doc, "metrics", "latencyMs"), "metrics.latencyMs")


def _delta(delta: Document) -> Kind:
    if delta.get("text") or delta.get("image"):
        return Kind.TEXT
    if at(delta, "toolUse", "input"):
        return Kind.TOOL
    reasoning = delta.get("reasoningContent") or {}
    # A signature proves reasoning that came before it.
    has_reasoning = reasoning.get("text") or reasoning.get("redactedContent")
    return Kind.REASONING if has_reasoning else Kind.EMPTY


def _said(doc: Document, answer: Answer) -> None:
    """Usage, tier, and the model that a prompt router chose."""
    answer.usage = answer.usage.merged(_converse_usage(doc.get("usage") or {}))
    answer.service_tier = at(doc, "serviceTier", "type") or answer.service_tier
    answer.model = at(doc, "trace", "promptRouter", "invokedModelId") or answer.model


def _converse_usage(usage: Document) -> Usage:
    """Converse counts cached tokens beside the input.

    Streams of some models have them inside: then input and output alone make the total.
    """
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens")
    fresh, read, write, output = (count(usage.get(name)) for name in names)
    if fresh is not None and output is not None and usage.get("totalTokens") == fresh + output:
        return Usage(fresh, read, write, output)
    return _beside(fresh, read, write, output)


def _beside(*told: Any) -> Usage:
    """Usage from counts of which none holds another: fresh input, reads, writes, output."""
    fresh, read, write, output = map(count, told)
    whole = None if fresh is None else fresh + (read or 0) + (write or 0)
    return Usage(whole, read, write, output)


# --- InvokeModel --------------------------------------------------------------------------------


def part(doc: Document, answer: Answer) -> Kind:
    """Read one part of an InvokeModel stream, whatever the model's family."""
    metrics = doc.get(METRICS)
    if metrics is not None:
        # What the model itself said wins: it tells cached tokens apart.
        answer.usage = _invocation(metrics).merged(answer.usage)
        _took(answer, metrics.get("firstByteLatency"), "firstByteLatency")
    if "type" in doc:
        return _anthropic_event(doc, answer)
    for name in ("contentBlockDelta", "contentBlockStart", "messageStart", "messageStop"):
        if name in doc:
            return event(name, doc[name] or {}, answer)
    if "metadata" in doc:
        return event("metadata", doc["metadata"] or {}, answer)
    return _plain_part(doc, answer)


def whole(doc: Document, answer: Answer) -> None:
    """Read a whole body of InvokeModel."""
    answer.response_id = doc.get("id") or doc.get("response_id")
    answer.model = doc.get("model")
    if "stopReason" in doc or "output" in doc:
        converse(doc, answer)
    elif doc.get("type") == "message":
        _finish(answer, doc.get("stop_reason"))
        answer.usage = answer.usage.merged(_anthropic_usage(doc.get("usage") or {}))
        if answer.said is not None:
            answer.said.parts(_messages.parts_of(doc.get("content")))
    else:
        _plain_part(doc, answer)


def head(headers: Mapping[str, str], answer: Answer) -> None:
    """Read the response headers, which count the tokens of a whole answer."""
    prefix = "x-amzn-bedrock-"
    names = ("input", "cache-read-input", "cache-write-input", "output")
    told = (headers.get(f"{prefix}{name}-token-count", "") for name in names)
    answer.usage = _beside(*(int(text) if text.isdecimal() else None for text in told))
    answer.service_tier = headers.get(f"{prefix}service-tier")
    latency = headers.get(f"{prefix}invocation-latency", "")
    _took(answer, int(latency) if latency.isdecimal() else None, f"{prefix}invocation-latency")


def _anthropic_event(doc: Document, answer: Answer) -> Kind:
    what = doc["type"]
    if answer.said is not None:
        _messages.say_event(doc, answer.said)
    if what == "content_block_delta":
        delta = doc.get("delta") or {}
        if delta.get("text"):
            return Kind.TEXT
        if delta.get("partial_json"):
            return Kind.TOOL
        return Kind.REASONING if delta.get("thinking") else Kind.EMPTY
    if what == "message_start":
        message = doc.get("message") or {}
        answer.response_id, answer.model = message.get("id"), message.get("model")
        answer.usage = answer.usage.merged(_anthropic_usage(message.get("usage") or {}))
        return Kind.ROLE
    if what == "content_block_start":
        return Kind.TOOL if at(doc, "content_block", "name") else Kind.EMPTY
    if what == "message_delta":
        _finish(answer, at(doc, "delta", "stop_reason"))
        answer.usage = answer.usage.merged(_anthropic_usage(doc.get("usage") or {}))
        return Kind.USAGE
    if what == "error":
        answer.error_type = at(doc, "error", "type") or "error"
    return Kind.PING if what == "ping" else Kind.EMPTY


def _anthropic_usage(usage: Document) -> Usage:
    """Anthropic counts cached tokens beside the input; an event may tell the output alone."""
    return _beside(
        usage.get("input_tokens"),
        usage.get("cache_read_input_tokens"),
        usage.get("cache_creation_input_tokens"),
        usage.get("output_tokens"),
    )


def _plain_part(doc: Document, answer: Answer) -> Kind:
    """Llama, Mistral, Cohere, Titan, and OpenAI's form: the text beside its finish reason."""
    first: Any = next((doc[name][0] for name in _LISTS if doc.get(name)), {})
    if isinstance(first, Mapping):
        _finish(answer, next((first[name] for name in _REASONS if first.get(name)), None))
    else:
        first = {}
    _finish(answer, next((doc[name] for name in _REASONS if doc.get(name)), None))
    answer.usage = answer.usage.merged(_plain_usage(doc, first))
    message = first.get("delta") or first.get("message") or {}
    sources = (doc, first, message) if doc.get("event_type") != "stream-end" else ()
    if answer.said is not None:
        for source in sources[:2]:
            texts = (source.get(name) for name in _TEXTS)
            answer.said.text(next((text for text in texts if isinstance(text, str)), ""))
        _messages.say_delta(message, answer.said, 0)
    if any(source.get(name) for source in sources for name in _TEXTS):
        return Kind.TEXT
    if message.get("reasoning_content") or message.get("reasoning"):
        return Kind.REASONING
    if message.get("tool_calls") or doc.get("tool_call_delta"):
        return Kind.TOOL
    return Kind.ROLE if message.get("role") else Kind.EMPTY


_LISTS = ("choices", "outputs", "results", "generations")
_REASONS = ("stop_reason", "finish_reason", "completionReason")
_TEXTS = ("generation", "text", "outputText", "content")


def _plain_usage(doc: Document, first: Document) -> Usage:
    """Llama's, Titan's, and OpenAI's counts."""
    usage = doc.get("usage") or {}
    return Usage(
        _first_count(
            doc.get("prompt_token_count"),
            doc.get("inputTextTokenCount"),
            usage.get("prompt_tokens"),
        ),
        count(at(usage, "prompt_tokens_details", "cached_tokens")),
        None,
        _first_count(
            doc.get("generation_token_count"),
            doc.get("totalOutputTextTokenCount"),
            first.get("tokenCount"),
            usage.get("completion_tokens"),
        ),
        count(at(usage, "completion_tokens_details", "reasoning_tokens")),
    )


def _invocation(metrics: Document) -> Usage:
    return _beside(
        metrics.get("inputTokenCount"),
        metrics.get("cacheReadInputTokenCount"),
        metrics.get("cacheWriteInputTokenCount"),
        metrics.get("outputTokenCount"),
    )


# --- shared -------------------------------------------------------------------------------------


def at(doc: Document, *path: str) -> Any:
    """What is at the end of the path, ``None`` where it breaks off."""
    found: Any = doc
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _finish(answer: Answer, reason: Any) -> None:
    if isinstance(reason, str):
        answer.finish_reasons[0] = reason


def _first_count(*values: Any) -> int | None:
    return next((found for value in values if (found := count(value)) is not None), None)


def _took(answer: Answer, taken_ms: Any, source: str) -> None:
    """The server's own time until it began to answer."""
    if isinstance(taken_ms, int | float):
        answer.facts[keys.SERVER_PROCESSING] = taken_ms / _MS_PER_S
        answer.facts[keys.SERVER_PROCESSING_SOURCE] = source
