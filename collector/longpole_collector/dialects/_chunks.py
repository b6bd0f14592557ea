"""What one event of a stream carries, told from the provider's own chunk.

For libraries that log every chunk whole. Shapes: OpenAI chat, text completions and Responses,
Anthropic Messages, plain text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from longpole.call import Call, Kind, Times, Usage
from longpole_collector.dialects._payloads import as_map

_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
_TOOL_FIELDS: Final = ("name", "arguments")


def chunk_kind(chunk: Any) -> Kind | None:
    """What the chunk carries; ``None`` if its shape is not known."""
    if isinstance(chunk, str):
        return Kind.TEXT if chunk else Kind.EMPTY
    if not isinstance(chunk, Mapping):
        return None
    choices, event = chunk.get("choices"), chunk.get("type")
    if isinstance(choices, list):
        kinds = [_choice_kind(choice) for choice in choices if isinstance(choice, Mapping)]
        content = [kind for kind in kinds if kind in (Kind.TEXT, Kind.REASONING, Kind.TOOL)]
        if content:
            return content[0]
        if kinds:
            return kinds[0]
        return Kind.USAGE if chunk.get("usage") else Kind.EMPTY
    return _event_kind(event, chunk) if isinstance(event, str) else None


def _choice_kind(choice: Mapping[str, Any]) -> Kind:
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        return Kind.TEXT if choice.get("text") else Kind.EMPTY
    if delta.get("content") or delta.get("refusal"):
        return Kind.TEXT
    if any(delta.get(name) for name in _REASONING):
        return Kind.REASONING
    calls = delta.get("tool_calls")
    named = [as_map(call).get("function") for call in calls] if isinstance(calls, list) else []
    for function in map(as_map, (*named, delta.get("function_call"))):
        if any(function.get(name) for name in _TOOL_FIELDS):
            return Kind.TOOL
    return Kind.ROLE if delta.get("role") else Kind.EMPTY


def _event_kind(event: str, chunk: Mapping[str, Any]) -> Kind:
    """An event of OpenAI's Responses (``*.delta``) or of Anthropic's Messages."""
    delta = chunk.get("delta")
    if event.startswith("response."):
        if not (event.endswith(".delta") and delta):
            return Kind.USAGE if event == "response.completed" else Kind.EMPTY
        if "reasoning" in event:
            return Kind.REASONING
        return Kind.TOOL if "arguments" in event or "input" in event else Kind.TEXT
    if event == "content_block_start":
        return Kind.TOOL if as_map(chunk.get("content_block")).get("name") else Kind.EMPTY
    if event == "content_block_delta":
        part = as_map(delta)
        if part.get("text"):
            return Kind.TEXT
        if part.get("thinking"):
            return Kind.REASONING
        return Kind.TOOL if part.get("partial_json") else Kind.EMPTY
    return {"ping": Kind.PING, "message_delta": Kind.USAGE}.get(event, Kind.EMPTY)


def stream_times(
    events: Sequence[tuple[Kind, int]], start_ns: int, end_ns: int, usage: Usage
) -> Times:
    """The times of a stream by our own stopwatch, from what each event carried and when it came."""
    call = Call(start_ns, is_streamed=True)
    for kind, at_ns in events:
        call.event(kind, at_ns)
    call.use(usage)
    call.end(end_ns)
    return call.times()


def time_columns(times: Times) -> dict[str, Any]:
    """Columns of the times; what is unknown is absent."""
    found: dict[str, Any] = {
        "first_chunk_ns": times.first_event_ns,
        "ttft_ns": times.ttft_ns,
        "ttfv_ns": times.ttfv_ns,
        "last_content_ns": times.last_content_ns,
        "tpot_ms": None if times.tpot_ns is None else round(times.tpot_ns / 1e6, 6),
        "num_chunks": times.num_chunks,
        "tokens_per_chunk": times.tokens_per_chunk,
        "chunk_gap_p50_ns": times.gap_p50_ns,
        "chunk_gap_p99_ns": times.gap_p99_ns,
        "chunk_gap_max_ns": times.gap_max_ns,
        "num_stalls": times.num_stalls,
        "stall_ns": times.stall_ns,
    }
    return {column: value for column, value in found.items() if value is not None}
