"""OpenAI's Responses API, with scenarios by model name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from fake_server import WAIT_S, Out

USAGE = {
    "input_tokens": 1456,
    "input_tokens_details": {"cached_tokens": 1280, "cache_write_tokens": 64},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 1486,
}
TEXT = '{"answer": 42}'
CUT = "cut"
Event = tuple[float, dict[str, Any] | str]
"""Seconds to wait, then an event, or the word to cut the connection."""


def _response(model: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": f"{model}-2026",
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
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part] if text else [],
    }


def _of(name: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", "item_id": "msg_1", "output_index": 0, **more}


def _text(num: int, wait_s: float = 0.0) -> Iterator[Event]:
    empty = {"type": "output_text", "text": "", "annotations": []}
    yield 0.0, _of("output_item.added", item=_message(""))
    yield 0.0, _of("content_part.added", content_index=0, part=empty)
    for i in range(num):
        delta = _of("output_text.delta", content_index=0, delta=f"w{i} ", logprobs=[])
        yield wait_s, delta
    text = "".join(f"w{i} " for i in range(num))
    yield 0.0, _of("output_text.done", content_index=0, text=text, logprobs=[])
    yield 0.0, _of("output_item.done", item=_message(text))


def _tool() -> Iterator[Event]:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": "search"}
    yield 0.0, _of("output_item.added", item={**call, "arguments": "", "status": "in_progress"})
    for part in ('{"q":', " 1}"):
        yield 0.01, _of("function_call_arguments.delta", delta=part)
    yield 0.0, _of("function_call_arguments.done", arguments='{"q": 1}')
    yield 0.0, _of("output_item.done", item={**call, "arguments": '{"q": 1}'})


def _reasoning() -> Iterator[Event]:
    for wait_s, text in ((0.0, "let me see"), (0.02, "yes")):
        yield wait_s, _of("reasoning_summary_text.delta", summary_index=0, delta=text)
    yield from _text(2, 0.02)


def _content(model: str) -> Iterator[Event]:
    if model == "tool":
        yield from _tool()
    elif model == "reasoning":
        yield from _reasoning()
    elif model == "slow":
        yield from _text(200, 0.02)
    elif model == "one-token":
        yield from _text(1)
    elif model in ("cut", "error-event", "failed", "no-finish"):
        yield from list(_text(3))[:5]
    else:
        yield from _text(10, 0.002)


def _end(model: str) -> Event:
    if model == "cut":
        return 0.0, CUT
    if model == "error-event":
        return 0.0, {"type": "error", "code": "server_error", "message": "boom", "param": None}
    if model == "failed":
        error = {"code": "rate_limit_exceeded", "message": "boom"}
        failed = _response(model, "failed", error=error)
        return 0.0, {"type": "response.failed", "response": failed}
    more: dict[str, Any] = {"usage": None if model == "no-usage" else USAGE}
    if model == "incomplete":
        more["incomplete_details"] = {"reason": "max_output_tokens"}
        incomplete = _response(model, "incomplete", **more)
        return 0.0, {"type": "response.incomplete", "response": incomplete}
    completed = _response(model, "completed", **more)
    return 0.0, {"type": "response.completed", "response": completed}


def _events(model: str) -> Iterator[Event]:
    for name in ("created", "in_progress"):
        started = _response(model, "in_progress", usage=None)
        yield 0.0, {"type": f"response.{name}", "response": started}
    if model == "early-role":
        yield WAIT_S, _of("reasoning_summary_part.added", summary_index=0, part={})
    yield from _content(model)
    if model != "no-finish":
        yield _end(model)


async def respond(model: str, is_streamed: bool, out: Out) -> None:
    """Answer one request."""
    if not is_streamed:
        status = "failed" if model == "failed" else "completed"
        more = {"error": {"code": "server_error", "message": "boom"}} if model == "failed" else {}
        output = [_message(TEXT)]
        await out.json(_response(model, status, output=output, usage=USAGE, **more))
        return
    if model == "late-headers":
        await asyncio.sleep(WAIT_S)
    out.begin("text/event-stream")
    for number, (wait_s, event) in enumerate(_events(model)):
        if wait_s:
            await asyncio.sleep(wait_s)
        if isinstance(event, str):
            await out.cut()
        else:
            await out.sse({**event, "sequence_number": number}, event["type"])
    await out.end()
