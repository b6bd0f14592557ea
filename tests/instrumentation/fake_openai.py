"""A local server that speaks OpenAI's real protocols, with scenarios by model name.

Run as a script it prints its port and serves until its stdin closes (for the benchmark).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import fake_responses
from fake_server import WAIT_S, FakeServer, Out, Received

USAGE = {
    "prompt_tokens": 1456,
    "completion_tokens": 30,
    "total_tokens": 1486,
    "prompt_tokens_details": {"cached_tokens": 1280},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
RETRY_AFTER_MS = 40
RETRY = {"Retry-After-Ms": RETRY_AFTER_MS}

Event = tuple[float, Any]
"""Seconds to wait, then a delta, a whole chunk under ``chunk``, or one of the words below."""
CUT, NO_DONE = "cut", "no_done"


def _delta(**delta: Any) -> dict[str, Any]:
    return {"delta": delta, "finish_reason": None, "index": 0}


def _text(num: int, wait_s: float = 0.0) -> list[Event]:
    return [(wait_s, _delta(content=f"w{i} ")) for i in range(num)]


ROLE: Event = (0.0, _delta(role="assistant", content=""))
STOP: Event = (0.0, {"delta": {}, "finish_reason": "stop", "index": 0})


def _tool(**function: str) -> Event:
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return (0.01, _delta(tool_calls=[call]))


TOOL_STOP: Event = (0.0, {"delta": {}, "finish_reason": "tool_calls", "index": 0})

FILTERED = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
"""Azure's first chunk."""

STREAMS: dict[str, list[Event]] = {
    "plain": [ROLE, *_text(10, 0.002), STOP],
    "early-role": [ROLE, (WAIT_S, _delta(content="a")), *_text(3), STOP],
    "late-headers": [ROLE, *_text(3), STOP],
    "one-token": [ROLE, *_text(1), STOP],
    "tool": [ROLE, _tool(name="search", arguments=""), _tool(arguments='{"q": 1}'), TOOL_STOP],
    "reasoning": [
        ROLE,
        (0.0, _delta(reasoning_content="let me see")),
        (0.02, _delta(reasoning_content="yes")),
        *_text(2, 0.02),
        STOP,
    ],
    "two-choices": [
        (0.0, _delta(content="a")),
        (0.0, _delta(content="b") | {"index": 1}),
        STOP,
        (0.0, {"delta": {}, "finish_reason": "length", "index": 1}),
    ],
    "cut": [ROLE, *_text(3), (0.0, CUT)],
    "error-event": [
        ROLE,
        *_text(3),
        (0.0, {"error": {"message": "boom", "type": "server_error", "code": "overloaded"}}),
    ],
    "no-finish": [ROLE, *_text(3), (0.0, NO_DONE)],
    "slow": [ROLE, *_text(200, 0.02), STOP],
    "no-usage": [ROLE, *_text(3), STOP],
    "filtered": [(0.0, {"chunk": FILTERED}), ROLE, *_text(3), STOP],
    "thought": [ROLE, (0.0, _delta(reasoning="let me see")), *_text(1, 0.02), STOP],
    "custom-tool": [ROLE, _tool(name="search"), TOOL_STOP],
    "refused": [ROLE, (0.0, _delta(refusal="no")), STOP],
    "bare": [(0.0, {"chunk": {"object": "chat.completion.chunk"}}), *_text(3), STOP],
}
USAGE_OF: dict[str, dict[str, Any] | None] = {
    "one-token": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    "no-usage": None,
    "priced": {**USAGE, "cost": 0.00014, "is_byok": False, "cost_details": {}},
    "own-key": {
        **USAGE,
        "cost": 0.00001,
        "is_byok": True,
        "cost_details": {"upstream_inference_cost": 0.00013},
    },
    "beside": {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "total_tokens": 135,
        "completion_tokens_details": {"reasoning_tokens": 94},
    },
    "deepseek": {
        "prompt_tokens": 1456,
        "completion_tokens": 30,
        "total_tokens": 1486,
        "prompt_cache_hit_tokens": 1280,
        "prompt_cache_miss_tokens": 176,
    },
    "absurd": {
        "prompt_tokens": -5,
        "completion_tokens": "many",
        "prompt_tokens_details": {"cached_tokens": 1e99},
        "completion_tokens_details": {"reasoning_tokens": None},
    },
}
FAILURES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "messages: too long"),
    "unavailable": (429, "slow down"),
}


class FakeOpenAI(FakeServer):
    """OpenAI's API and that of hosts compatible with it."""

    @property
    def base_url(self) -> str:
        return f"{super().base_url}/v1"

    async def respond(self, request: Received, out: Out) -> None:
        body = request.body
        model, path = body["model"], request.path.partition("?")[0]
        is_text = path.endswith("/v1/completions")
        if model == "redirect" and not path.endswith("/moved"):
            await out.bytes(b"", 307, {"Location": f"{self.base_url}/moved"})
        elif model == "retry-twice" and self.tries(model) % 3:
            error = {"message": "slow down", "code": "rate_limit"}
            await out.json({"error": error}, 429, RETRY)
        elif model == "no-stream-options" and "stream_options" in body:
            await out.json({"error": {"message": "Unknown field: stream_options"}}, 400, RETRY)
        elif model in FAILURES:
            status, message = FAILURES[model]
            await out.json({"error": {"message": message}}, status, RETRY)
        elif path.endswith("/responses"):
            await fake_responses.respond(model, bool(body.get("stream")), out)
        elif path.endswith("/embeddings"):
            await out.json(_embeddings(model))
        elif body.get("stream"):
            await _stream(out, model, body, is_text=is_text)
        else:
            await out.json(_completion(model, is_text=is_text))


async def _stream(out: Out, model: str, body: dict[str, Any], is_text: bool) -> None:
    if model == "late-headers":
        await asyncio.sleep(WAIT_S)
    out.begin("text/event-stream")
    async for event in _events(model, body, is_text):
        if event is CUT:
            await out.cut()
        elif model.startswith("burst:"):
            out.write(f"data: {event}\n\n".encode())
        else:
            await out.sse(event)
    await out.end()


def _as_text(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a chat as one of a completion."""
    delta = choice["delta"]
    return {**choice, "delta": None, "text": delta.get("content", "")}


def _completion(model: str, is_text: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": '{"answer": 42}'}
    said = {"text": "a"} if is_text else {"message": message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{model}-2026",
        "service_tier": "default",
        "choices": [{"index": 0, "finish_reason": "stop", **said}],
        "usage": USAGE_OF.get(model, USAGE),
    }


def _embeddings(model: str) -> dict[str, Any]:
    return {
        "object": "list",
        "model": f"{model}-2026",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


def _chunk(model: str, choices: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"{model}-2026",
            "choices": choices,
            **more,
        }
    )


async def _events(model: str, body: dict[str, Any], is_text: bool) -> AsyncIterator[str]:
    if model.startswith("burst:"):
        events = [ROLE, *_text(int(model.partition(":")[2])), STOP]
    else:
        events = STREAMS.get(model, STREAMS["plain"])
    for wait_s, event in events:
        if wait_s:
            await asyncio.sleep(wait_s)
        if event is NO_DONE:
            return
        if event is CUT:
            yield CUT
            return
        if "error" in event or "chunk" in event:
            yield json.dumps(event.get("chunk", event))
        else:
            yield _chunk(model, [_as_text(event) if is_text else event])
    if (body.get("stream_options") or {}).get("include_usage") and USAGE_OF.get(model, USAGE):
        yield _chunk(model, [], usage=USAGE_OF.get(model, USAGE), service_tier="default")
    yield "[DONE]"


if __name__ == "__main__":
    FakeOpenAI.main()
