"""Gemini's API and Vertex AI: generateContent, server-sent events with CRLF, and embeddings."""

from __future__ import annotations

import json
import re
from typing import Any

from fake_server import Received
from scenarios import ERROR, FINISH, THINK, TOOL, Scripted

USAGE = {
    "promptTokenCount": 1456,
    "cachedContentTokenCount": 1280,
    "candidatesTokenCount": 18,
    "thoughtsTokenCount": 12,
    "totalTokenCount": 1486,
}
ONE = {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}
REASONS = {"stop": "STOP", "tool": "STOP"}


def _usage(model: str) -> dict[str, Any]:
    if model == "no-usage":
        return {}
    return {"usageMetadata": ONE if model == "one-token" else USAGE}


def _answer(model: str, part: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "index": 0, **more}],
        "modelVersion": f"{model}-2026",
        "responseId": "resp-1",
    }


class FakeGemini(Scripted):
    """Both services; they differ in the path."""

    def asked(self, request: Received) -> tuple[str, bool]:
        found = re.search(r"models/([^:?/]+):(\w+)", request.path)
        assert found is not None, request.path
        return found[1], found[2].startswith("stream")

    def headers(self) -> dict[str, str]:
        return {"Server-Timing": "gfet4t7; dur=42", "x-gemini-service-tier": "flex"}

    def failure(self, status: int) -> dict[str, Any]:
        word = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}.get(status, "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": "no", "status": word}}

    def pieces(self, model: str, what: str, text: str, path: str) -> list[bytes]:
        if what == ERROR:
            return [_event(self.failure(503))]
        if what == FINISH:
            return [
                _event(_answer(model, {"text": ""}, finishReason=REASONS[text]) | _usage(model))
            ]
        part: dict[str, Any] = {"text": text}
        if what == THINK:
            part["thought"] = True
        if what == TOOL:
            part = {"functionCall": {"name": "search", "args": json.loads(text)}}
        early = {"promptTokenCount": 1456, "totalTokenCount": 1456}
        return [_event(_answer(model, part) | ({"usageMetadata": early} if _usage(model) else {}))]

    def whole(self, model: str, path: str) -> dict[str, Any]:
        if "batchEmbedContents" in path:
            return {"embeddings": [{"values": [0.5]}], "usageMetadata": {"promptTokenCount": 7}}
        if ":predict" in path:
            statistics = {"token_count": 7, "truncated": False}
            return {"predictions": [{"embeddings": {"values": [0.5], "statistics": statistics}}]}
        if model == "blocked":
            return {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": ONE}
        if model == "search":  # calls the function once, and answers when it has its result
            has_result = b"functionResponse" in self.requests[-1].data
            call = {"functionCall": {"name": "search", "args": {"q": "x"}}}
            part: dict[str, Any] = {"text": "done"} if has_result else call
            return _answer(model, part, finishReason="STOP") | _usage(model)
        return _answer(model, {"text": "hello"}, finishReason="STOP") | _usage(model)


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\r\n\r\n".encode()
