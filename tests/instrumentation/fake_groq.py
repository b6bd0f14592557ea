"""Groq's chat completions: OpenAI's protocol with ``x_groq``, with scenarios by model name."""

from __future__ import annotations

import asyncio
from typing import Any

from fake_openai import FAILURES, NO_DONE, RETRY, STREAMS
from fake_server import WAIT_S, FakeServer, Out, Received

USAGE = {
    "queue_time": 0.25,
    "prompt_tokens": 1456,
    "prompt_time": 0.125,
    "completion_tokens": 30,
    "completion_time": 0.5,
    "total_tokens": 1486,
    "total_time": 0.625,
    "prompt_tokens_details": {"cached_tokens": 1280},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


class FakeGroq(FakeServer):
    """Groq's API."""

    async def respond(self, request: Received, out: Out) -> None:
        model = request.body["model"]
        if model == "retry-twice" and self.tries(model) % 3:
            await out.json({"error": {"message": "slow down"}}, 429, RETRY)
        elif model in FAILURES:
            status, message = FAILURES[model]
            await out.json({"error": {"message": message}}, status, RETRY)
        elif request.path.endswith("/embeddings"):
            embedding = {"object": "embedding", "index": 0, "embedding": [0.5]}
            used = {"prompt_tokens": 7, "total_tokens": 7}
            answer = {"object": "list", "model": model, "data": [embedding], "usage": used}
            await out.json(answer)
        elif request.body.get("stream"):
            await _stream(out, model)
        else:
            message = {"role": "assistant", "content": "a"}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            more = {"usage": USAGE, "service_tier": "on_demand"}
            await out.json(_chunk(model, choices, **more))


def _chunk(model: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": f"{model}-2026",
        "choices": choices,
        **more,
    }


def _as_groq(event: dict[str, Any]) -> dict[str, Any]:
    """Groq's name of a delta that carries reasoning."""
    thought = event.get("delta", {}).get("reasoning_content")
    return {**event, "delta": {"reasoning": thought}} if thought else event


async def _stream(out: Out, model: str) -> None:
    if model == "late-headers":
        await asyncio.sleep(WAIT_S)
    out.begin("text/event-stream")
    for wait_s, event in STREAMS.get(model, STREAMS["plain"]):
        if wait_s:
            await asyncio.sleep(wait_s)
        if event == NO_DONE:
            break
        if event == "cut":
            await out.cut()
        elif "error" in event:
            await out.sse(event)
        elif event["finish_reason"] is None:
            await out.sse(_chunk(model, [_as_groq(event)]))
        elif model == "stopped":
            await out.sse(_chunk(model, [event], x_groq={"id": "req_1", "error": "over capacity"}))
        else:
            told = {"id": "req_1", "usage": None if model == "no-usage" else USAGE}
            await out.sse(_chunk(model, [event], x_groq=told))
    if model != "no-finish":
        await out.sse("[DONE]")
    await out.end()
