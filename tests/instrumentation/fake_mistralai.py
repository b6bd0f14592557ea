"""Mistral's API: chat and fill-in-the-middle, streamed and whole, and embeddings."""

from __future__ import annotations

import json
from typing import Any

from fake_server import Received
from scenarios import ERROR, FINISH, META, THINK, TOOL, Scripted

USAGE = {
    "prompt_tokens": 1456,
    "completion_tokens": 30,
    "total_tokens": 1486,
    "prompt_tokens_details": {"cached_tokens": 1280},
    "service_tier": "standard",
}
ONE = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
REASONS = {"stop": "stop", "tool": "tool_calls"}


def _usage(model: str) -> dict[str, Any]:
    return {"usage": {} if model == "no-usage" else ONE if model == "one-token" else USAGE}


def _document(model: str, **more: Any) -> dict[str, Any]:
    base = {"id": "cmpl-1", "object": "x", "created": 1, "model": f"{model}-2026"}
    return {**base, **more}


def _delta(what: str, text: str) -> dict[str, Any]:
    if what == THINK:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}
    if what == TOOL:
        call = {"id": "c1", "index": 0, "function": {"name": "search", "arguments": text}}
        return {"tool_calls": [call]}
    return {"content": text, **({"role": "assistant"} if what == META else {})}


class FakeMistral(Scripted):
    """One API for all of it."""

    def asked(self, request: Received) -> tuple[str, bool]:
        body = request.body
        return body.get("model") or body["agent_id"], body.get("stream") is True

    def pieces(self, model: str, what: str, text: str, path: str) -> list[bytes]:
        if what == ERROR:
            return [_event({"object": "error", "message": text, "type": "overloaded"})]
        if what == FINISH:
            choice = {"index": 0, "delta": {"content": ""}, "finish_reason": REASONS[text]}
            return [
                _event(_document(model, choices=[choice], **_usage(model))),
                b"data: [DONE]\n\n",
            ]
        choice = {"index": 0, "delta": _delta(what, text), "finish_reason": None}
        return [_event(_document(model, choices=[choice]))]

    def whole(self, model: str, path: str) -> dict[str, Any]:
        if "embeddings" in path:
            data = [{"object": "embedding", "embedding": [0.5], "index": 0}]
            usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
            return _document(model, data=data, usage=usage)
        message = {"role": "assistant", "content": '{"answer": 42}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return _document(model, choices=[choice], **_usage(model))


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()
