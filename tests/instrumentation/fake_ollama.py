"""Ollama's API: chat, generate and embed, in lines of JSON with durations at the end."""

from __future__ import annotations

import json
from typing import Any

from fake_server import Received
from scenarios import ERROR, FINISH, THINK, TOOL, Scripted

DURATIONS = {
    "total_duration": 900_000_000,
    "load_duration": 20_000_000,
    "prompt_eval_duration": 250_000_000,
    "eval_duration": 600_000_000,
}


def _end(model: str) -> dict[str, Any]:
    end = {"done": True, "done_reason": "stop", **DURATIONS}
    if model == "cold":
        end["load_duration"] = 3_000_000_000
    if model == "no-usage":
        return end
    counts = (5, 1) if model == "one-token" else (1456, 30)
    return {**end, "prompt_eval_count": counts[0], "eval_count": counts[1]}


class FakeOllama(Scripted):
    """A local Ollama."""

    content_type = "application/x-ndjson"

    def asked(self, request: Received) -> tuple[str, bool]:
        return request.body["model"], request.body.get("stream") is True

    def failure(self, status: int) -> dict[str, Any]:
        return {"error": "no"}

    def pieces(self, model: str, what: str, text: str, path: str) -> list[bytes]:
        if what == ERROR:
            return [_line({"error": text})]
        end = _end(model) if what == FINISH else {"done": False}
        shown = "" if what == FINISH else text
        return [_line({**_said(model, what, shown, path), **end})]

    def whole(self, model: str, path: str) -> dict[str, Any]:
        if path.endswith("/embed"):
            times = {"total_duration": 5_000_000, "load_duration": 1_000_000}
            counts = {"prompt_eval_count": 7}
            return {"model": f"{model}-2026", "embeddings": [[0.5]], **times, **counts}
        if path.endswith("/embeddings"):
            return {"embedding": [0.5]}
        return {**_said(model, "text", "hello", path), **_end(model)}


def _said(model: str, what: str, text: str, path: str) -> dict[str, Any]:
    base = {"model": f"{model}-2026", "created_at": "2026-11-30T00:00:00Z"}
    if path.endswith("/generate"):
        said = {"response": "", "thinking": text} if what == THINK else {"response": text}
        return {**base, **said}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if what == THINK:
        message = {"role": "assistant", "content": "", "thinking": text}
    if what == TOOL:
        calls = [{"function": {"name": "search", "arguments": json.loads(text)}}]
        message = {"role": "assistant", "content": "", "tool_calls": calls}
    return {**base, "message": message}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
