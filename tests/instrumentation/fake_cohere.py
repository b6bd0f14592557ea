"""Cohere's API: version 2 in named server-sent events, version 1 in lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from fake_server import Received
from scenarios import ERROR, FINISH, META, THINK, TOOL, Scripted

USAGE = {
    "billed_units": {"input_tokens": 1400.0, "output_tokens": 30.0},
    "tokens": {"input_tokens": 1456.0, "output_tokens": 30.0},
    "cached_tokens": 1280.0,
}
ONE = {"tokens": {"input_tokens": 5, "output_tokens": 1}}
REASONS = {"stop": "COMPLETE", "tool": "TOOL_CALL"}


def _usage(model: str) -> dict[str, Any] | None:
    return {"no-usage": None, "one-token": ONE}.get(model, USAGE)


class FakeCohere(Scripted):
    """Both versions; they differ in the path."""

    def asked(self, request: Received) -> tuple[str, bool]:
        return request.body["model"], request.body.get("stream") is True

    def pieces(self, model: str, what: str, text: str, path: str) -> list[bytes]:
        if "/v1/" in path:
            write = _generate if path.endswith("generate") else _v1
            return [json.dumps(event).encode() + b"\n" for event in write(model, what, text)]
        lines = [
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in _v2(model, what, text)
        ]
        return [*lines, b"data: [DONE]\n\n"] if what == FINISH else lines

    def whole(self, model: str, path: str) -> dict[str, Any]:
        meta = {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 7}}
        if path.endswith("embed"):
            kind = {"response_type": "embeddings_floats"} if "/v1/" in path else {}
            found: Any = [[0.5]] if kind else {"float": [[0.5]]}
            return {"id": "id-1", "embeddings": found, "texts": ["x"], "meta": meta, **kind}
        if path.endswith("rerank"):
            units = {"billed_units": {"search_units": 1}}
            results = [{"index": 0, "relevance_score": 0.9}]
            return {"id": "id-1", "results": results, "meta": units}
        if path.endswith("generate"):
            generation = {"id": "g", "text": "hello", "finish_reason": "COMPLETE"}
            return {"id": "id-1", "generations": [generation], "meta": _usage(model)}
        if "/v1/" in path:
            return _v1_answer(model, "COMPLETE")
        message = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}
        answer = {"id": "id-1", "finish_reason": "COMPLETE", "message": message}
        return {**answer, "usage": _usage(model)}


def _message(kind: str, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": 0, "delta": {"message": message}}


def _v2(model: str, what: str, text: str) -> list[dict[str, Any]]:
    if what == META:
        start = _message("message-start", role="assistant") | {"id": "id-1"}
        return [start, _message("content-start", content={"type": "text", "text": ""})]
    if what in (FINISH, ERROR):
        reason = {"finish_reason": REASONS[text]} if what == FINISH else {}
        failed = {"finish_reason": "ERROR", "error": text} if what == ERROR else {}
        delta = {**reason, **failed, "usage": _usage(model)}
        return [{"type": "content-end", "index": 0}, {"type": "message-end", "delta": delta}]
    if what == TOOL:
        start = {"id": "t", "type": "function", "function": {"name": "search", "arguments": ""}}
        return [
            _message("tool-plan-delta", tool_plan="I will search."),
            _message("tool-call-start", tool_calls=start),
            _message("tool-call-delta", tool_calls={"function": {"arguments": text}}),
            {"type": "tool-call-end", "index": 0},
        ]
    content = {"thinking": text} if what == THINK else {"text": text}
    return [_message("content-delta", content=content)]


def _v1_answer(model: str, reason: str) -> dict[str, Any]:
    answer = {"text": "hello", "generation_id": "id-1", "finish_reason": reason}
    return {**answer, "response_id": "r", "chat_history": [], "meta": _usage(model)}


def _v1(model: str, what: str, text: str) -> list[dict[str, Any]]:
    if what == META:
        return [{"event_type": "stream-start", "generation_id": "id-1", "is_finished": False}]
    if what in (FINISH, ERROR):
        reason = REASONS[text] if what == FINISH else "ERROR"
        answer = _v1_answer(model, reason)
        return [{"event_type": "stream-end", "finish_reason": reason, "response": answer}]
    if what == TOOL:
        delta = {"name": "search", "index": 0, "parameters": text}
        return [{"event_type": "tool-calls-chunk", "tool_call_delta": delta}]
    return [{"event_type": "text-generation", "text": text, "is_finished": False}]


def _generate(model: str, what: str, text: str) -> list[dict[str, Any]]:
    if what == META:
        return []
    if what == ERROR:
        return [{"event_type": "stream-error", "finish_reason": "ERROR_TOXIC", "err": text}]
    if what == FINISH:
        generation = {"id": "g", "text": "hello", "finish_reason": REASONS[text]}
        end = {"finish_reason": REASONS[text], "is_finished": True}
        answer = {"id": "id-1", "generations": [generation]}
        return [{"event_type": "stream-end", **end, "response": answer}]
    return [{"event_type": "text-generation", "text": text, "is_finished": False}]
