"""Anthropic's Messages API, also as Bedrock and Vertex AI carry it; scenarios by model name."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

from fake_bedrock import frame
from fake_server import WAIT_S, FakeServer, Out, Received

RETRY = {"Retry-After-Ms": 40}
START_USAGE = {
    "input_tokens": 100,
    "cache_read_input_tokens": 1280,
    "cache_creation_input_tokens": 76,
    "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 26},
    "output_tokens": 1,
    "service_tier": "standard",
}
END_USAGE = {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}}
CUT = "cut"
Event = tuple[float, dict[str, Any] | str]


def _message(model: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{model}-2026",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": START_USAGE,
        **more,
    }


def _block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]], wait_s: float) -> Any:
    yield 0.0, {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield wait_s, {"type": "content_block_delta", "index": index, "delta": delta}
    yield 0.0, {"type": "content_block_stop", "index": index}


def _text(num: int, wait_s: float = 0.0, index: int = 0) -> Iterator[Event]:
    deltas = [{"type": "text_delta", "text": f"w{i} "} for i in range(num)]
    yield from _block(index, {"type": "text", "text": ""}, deltas, wait_s)


def _content(model: str) -> Iterator[Event]:
    if model == "tool":
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in ("", '{"q":', " 1}")]
        start = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
        yield from _block(0, start, deltas, 0.01)
    elif model == "reasoning":
        deltas = [{"type": "thinking_delta", "thinking": t} for t in ("let me see", "yes")]
        deltas.append({"type": "signature_delta", "signature": "s"})
        start = {"type": "thinking", "thinking": "", "signature": ""}
        yield from _block(0, start, deltas, 0.02)
        yield from _text(2, 0.02, index=1)
    elif model == "early-role":
        yield from _text(4)
    elif model == "one-token":
        yield from _text(1)
    elif model == "slow":
        yield from _text(200, 0.02)
    elif model in ("cut", "error-event", "no-finish"):
        yield from list(_text(3))[:4]
    else:
        yield from _text(10, 0.002)


def _events(model: str) -> Iterator[Event]:
    more: dict[str, Any] = {"usage": None} if model == "no-usage" else {}
    yield 0.0, {"type": "message_start", "message": _message(model, **more)}
    yield WAIT_S if model == "early-role" else 0.0, {"type": "ping"}
    yield from _content(model)
    if model == "cut":
        yield 0.0, CUT
    elif model == "error-event":
        yield 0.0, {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}
    elif model != "no-finish":
        used = {**END_USAGE, "output_tokens": 1} if model == "one-token" else END_USAGE
        stop = {"stop_reason": "tool_use" if model == "tool" else "end_turn", "stop_sequence": None}
        yield 0.0, {"type": "message_delta", "delta": stop, "usage": _maybe(model, used)}
        yield 0.0, {"type": "message_stop"}


def _maybe(model: str, used: dict[str, Any]) -> dict[str, Any] | None:
    return None if model == "no-usage" else used


class FakeAnthropic(FakeServer):
    """Anthropic's API, and the doors of Bedrock and Vertex AI to it."""

    async def respond(self, request: Received, out: Out) -> None:
        model, is_streamed = _asked(request)
        if request.path.endswith("/count_tokens"):
            await out.json({"input_tokens": 7})
        elif model == "retry-twice" and self.tries(model) % 3:
            await _error(out, 429, "rate_limit_error")
        elif model == "bad-request":
            await _error(out, 400, "invalid_request_error")
        elif is_streamed:
            await _stream(out, model, is_framed=request.path.startswith("/model/"))
        else:
            content = [{"type": "text", "text": '{"answer": 42}'}]
            used = {**START_USAGE, **END_USAGE}
            message = _message(model, content=content, stop_reason="end_turn", usage=used)
            await out.json(message, headers={"request-id": "req_1"})


def _asked(request: Received) -> tuple[str, bool]:
    """Model and stream, from the body or, in the clouds, from the path."""
    parts = request.path.split("/")
    if parts[1] == "model":
        return parts[2], parts[3] == "invoke-with-response-stream"
    if "publishers" in parts:
        model, _, verb = parts[-1].partition(":")
        return model, verb == "streamRawPredict"
    return request.body["model"], bool(request.body.get("stream"))


async def _error(out: Out, status: int, kind: str) -> None:
    await out.json({"type": "error", "error": {"type": kind, "message": "no"}}, status, RETRY)


async def _stream(out: Out, model: str, is_framed: bool) -> None:
    if model == "late-headers":
        await asyncio.sleep(WAIT_S)
    out.begin("application/vnd.amazon.eventstream" if is_framed else "text/event-stream")
    for wait_s, event in _events(model):
        if wait_s:
            await asyncio.sleep(wait_s)
        if isinstance(event, str):
            await out.cut()
        elif is_framed:
            await out.send(_framed(event))
        else:
            await out.sse(event, event["type"])
    await out.end()


def _framed(event: dict[str, Any]) -> bytes:
    data = base64.b64encode(json.dumps(event).encode()).decode()
    headers = {
        ":message-type": "event",
        ":event-type": "chunk",
        ":content-type": "application/json",
    }
    return frame(headers, json.dumps({"bytes": data, "p": "abc"}).encode())
