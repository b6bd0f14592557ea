"""What the local provider answers: the scenarios, as each of three protocols writes them.

Times are seconds since the request came. The plan of most scenarios: headers at once, first
content at 200 ms, ten contents 20 ms apart, 30 output tokens. Of these
chat and Responses keep 12 of reasoning to themselves, so TPOT is 180 / 17 = 10.6 ms; Messages has
none: 180 / 29 = 6.2 ms.
Responses and Messages begin with an event without content at 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

WHOLE_S = 0.38
"""When an answer that does not stream comes."""
CUT = "cut"
TEXT = "The longest pole of the tent decides the height."
OUTPUT_TOKENS = 30
REASONING_TOKENS = 12
STREAMED_TOKENS = {"chat": 18, "responses": 18, "messages": 30}
"""Of the output; reasoning that is counted and never sent came before the first content."""
INPUT_TOKENS = {"chat": 1200, "responses": 1200, "messages": 1456}
CACHED_TOKENS = 1024
CACHE_WRITE_TOKENS = 256


class Step(NamedTuple):
    """One event; its document is JSON, a word of the protocol, or :data:`CUT`."""

    at_s: float
    document: dict[str, Any] | str
    is_content: bool = False


class Wire(NamedTuple):
    """A protocol."""

    stream: Callable[[str, dict[str, Any]], Iterator[Step]]
    whole: Callable[[dict[str, Any]], dict[str, Any]]
    is_named: bool
    """Its events carry a name beside their data."""


class Plan(NamedTuple):
    """When a scenario's events come."""

    begin_s: float | None = None
    """The event without content; where it is ``None`` the protocol's own time holds."""
    first_s: float = 0.2
    gap_s: float = 0.02
    num: int = 10
    end: str = "stop"


PLANS = {
    "early-role": Plan(begin_s=0.04),
    "late-headers": Plan(begin_s=0.2),
    "cut": Plan(num=4, end=CUT),
    "error": Plan(num=3, end="error"),
    "one-token": Plan(num=1),
    "tools": Plan(num=8, end="tools"),
    "clock": Plan(begin_s=0.02, first_s=0.05, gap_s=0.01),
}


def plan_of(scenario: str) -> Plan:
    """The plan; ``burst:N`` is N contents with no waits."""
    if scenario.startswith("burst:"):
        return Plan(0.0, 0.0, 0.0, int(scenario.partition(":")[2]))
    return PLANS.get(scenario, Plan())


def _words(plan: Plan) -> Iterator[tuple[float, int]]:
    return ((plan.first_s + plan.gap_s * number, number) for number in range(plan.num))


def _end_s(plan: Plan) -> float:
    return plan.first_s + plan.gap_s * (plan.num - 1)


# --- chat completions ----------------------------------------------------------------------------


def _chat_usage(scenario: str) -> dict[str, Any]:
    is_one = scenario == "one-token"
    output, reasoning = (1, 0) if is_one else (OUTPUT_TOKENS, REASONING_TOKENS)
    return {
        "prompt_tokens": INPUT_TOKENS["chat"],
        "completion_tokens": output,
        "total_tokens": INPUT_TOKENS["chat"] + output,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }


def _chunk(body: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": f"{body['model']}-2026",
        "service_tier": "default",
        "choices": choices,
        **more,
    }


def _chat(scenario: str, body: dict[str, Any]) -> Iterator[Step]:
    plan = plan_of(scenario)
    begin_s = plan.first_s if plan.begin_s is None else plan.begin_s

    def said(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return _chunk(body, [{"index": 0, "delta": delta, "finish_reason": finish}])

    yield Step(begin_s, said(role="assistant", content=""))
    for at_s, number in _words(plan):
        if plan.end == "tools":
            function = {"arguments": '{"q"' if number % 4 == 0 else ":1}"}
            call: dict[str, Any] = {"index": number // 4, "function": function}
            if number % 4 == 0:
                function["name"] = "search"
                call |= {"id": f"call_{number // 4}", "type": "function"}
            yield Step(at_s, said(tool_calls=[call]), True)
        else:
            yield Step(at_s, said(content=f"w{number} "), True)
    if plan.end == CUT:
        yield Step(_end_s(plan), CUT)
        return
    if plan.end == "error":
        error = {"message": "boom", "type": "server_error", "code": "server_error"}
        yield Step(_end_s(plan), {"error": error})
        return
    yield Step(_end_s(plan), said("tool_calls" if plan.end == "tools" else "stop"))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield Step(_end_s(plan), _chunk(body, [], usage=_chat_usage(scenario)))
    yield Step(_end_s(plan), "[DONE]")


def _whole_chat(body: dict[str, Any]) -> dict[str, Any]:
    content = '{"answer": 42}' if body.get("response_format") else TEXT
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    whole = _chunk(body, [choice], usage=_chat_usage("norm"))
    return {**whole, "object": "chat.completion"}


# --- Responses -----------------------------------------------------------------------------------


def _response(body: dict[str, Any], status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": f"{body['model']}-2026",
        "status": status,
        "service_tier": "default",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    about = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return {**about, "content": [part] if text else []}


def _completed(body: dict[str, Any], text: str) -> dict[str, Any]:
    usage = {
        "input_tokens": INPUT_TOKENS["responses"],
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "total_tokens": INPUT_TOKENS["responses"] + OUTPUT_TOKENS,
    }
    return _response(body, "completed", output=[_message(text)], usage=usage)


def _responses(scenario: str, body: dict[str, Any]) -> Iterator[Step]:
    plan = plan_of(scenario)
    begin_s = 0.03 if plan.begin_s is None else plan.begin_s
    number = -1

    def event(kind: str, **more: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number, **more}

    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    yield Step(begin_s, event("response.created", response=_response(body, "in_progress")))
    yield Step(begin_s, event("response.output_item.added", output_index=0, item=_message("")))
    yield Step(begin_s, event("response.content_part.added", part=empty, **at))
    words = list(_words(plan))
    for at_s, word in words:
        delta = event("response.output_text.delta", delta=f"w{word} ", logprobs=[], **at)
        yield Step(at_s, delta, True)
    end_s = _end_s(plan)
    if plan.end == CUT:
        yield Step(end_s, CUT)
        return
    if plan.end == "error":
        yield Step(end_s, event("error", code="server_error", message="boom", param=None))
        return
    text = "".join(f"w{word} " for _, word in words)
    yield Step(end_s, event("response.output_text.done", text=text, logprobs=[], **at))
    yield Step(end_s, event("response.output_item.done", output_index=0, item=_message(text)))
    yield Step(end_s, event("response.completed", response=_completed(body, text)))


# --- Messages ------------------------------------------------------------------------------------


def _messages_usage(output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": INPUT_TOKENS["messages"] - CACHED_TOKENS - CACHE_WRITE_TOKENS,
        "cache_read_input_tokens": CACHED_TOKENS,
        "cache_creation_input_tokens": CACHE_WRITE_TOKENS,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _whole_message(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{body['model']}-2026",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": _messages_usage(OUTPUT_TOKENS),
    }


def _messages(scenario: str, body: dict[str, Any]) -> Iterator[Step]:
    plan = plan_of(scenario)
    begin_s = 0.03 if plan.begin_s is None else plan.begin_s
    started = {**_whole_message(body), "content": [], "stop_reason": None}
    started["usage"] = _messages_usage(1)
    yield Step(begin_s, {"type": "message_start", "message": started})
    block = {"type": "text", "text": ""}
    yield Step(begin_s, {"type": "content_block_start", "index": 0, "content_block": block})
    for at_s, number in _words(plan):
        delta = {"type": "text_delta", "text": f"w{number} "}
        yield Step(at_s, {"type": "content_block_delta", "index": 0, "delta": delta}, True)
    end_s = _end_s(plan)
    if plan.end == CUT:
        yield Step(end_s, CUT)
        return
    if plan.end == "error":
        error = {"type": "overloaded_error", "message": "boom"}
        yield Step(end_s, {"type": "error", "error": error})
        return
    yield Step(end_s, {"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    ended_usage = _messages_usage(OUTPUT_TOKENS)
    yield Step(end_s, {"type": "message_delta", "delta": ended, "usage": ended_usage})
    yield Step(end_s, {"type": "message_stop"})


WIRES = {
    "completions": Wire(_chat, _whole_chat, is_named=False),
    "responses": Wire(_responses, lambda body: _completed(body, TEXT), is_named=True),
    "messages": Wire(_messages, _whole_message, is_named=True),
}
"""By the last part of the request's path."""
