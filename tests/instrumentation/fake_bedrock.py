"""A local server that speaks Amazon Bedrock's runtime API, with scenarios by model id.

Streams are real AWS event-stream frames (binary). A model id is ``<family>.<scenario>``; the
family says which body InvokeModel has. Signatures are not checked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from typing import Any
from urllib.parse import unquote

from fake_server import WAIT_S, FakeServer, Out, Received

USAGE = {
    "inputTokens": 176,
    "outputTokens": 30,
    "totalTokens": 1486,
    "cacheReadInputTokens": 1024,
    "cacheWriteInputTokens": 256,
}
"""Counts that lie beside each other: 1456 input tokens in all."""
GROSS = {"inputTokens": 1456, "outputTokens": 30, "totalTokens": 1486, "cacheReadInputTokens": 1024}
LATENCY_MS = 180
REQUEST_ID = "11111111-2222-3333-4444-555555555555"
CUT = "cut"
METRICS = {
    "amazon-bedrock-invocationMetrics": {
        "inputTokenCount": 176,
        "outputTokenCount": 30,
        "invocationLatency": 400,
        "firstByteLatency": LATENCY_MS,
    }
}
_HEADERS = {"x-amzn-RequestId": REQUEST_ID}
_EVENT_STREAM = "application/vnd.amazon.eventstream"

Event = tuple[float, str, dict[str, Any]]
"""Seconds to wait, the event's name, its payload."""


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of the AWS event stream: prelude, its CRC, headers, payload, CRC of it all."""
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07"
        + struct.pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )  # fmt: skip
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    body = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return body + struct.pack("!I", zlib.crc32(body))


def _event(name: str, payload: dict[str, Any]) -> bytes:
    kind = "exception" if name.endswith("Exception") else "event"
    headers = {
        f":{kind}-type": name,
        ":content-type": "application/json",
        ":message-type": kind,
    }
    return frame(headers, json.dumps(payload).encode())


def _delta(wait_s: float = 0.0, **delta: Any) -> Event:
    return (wait_s, "contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})


ROLE: Event = (0.0, "messageStart", {"role": "assistant"})
STOP: Event = (0.0, "messageStop", {"stopReason": "end_turn"})
META: Event = (
    0.0,
    "metadata",
    {"usage": USAGE, "metrics": {"latencyMs": 400}, "serviceTier": {"type": "default"}},
)
_TEXTS = [_delta(0.002, text=f"w{i} ") for i in range(10)]
_TOOL_START = {"toolUse": {"toolUseId": "t1", "name": "search"}}
_TOOL: list[Event] = [
    (0.0, "contentBlockStart", {"contentBlockIndex": 0, "start": _TOOL_START}),
    _delta(0.01, toolUse={"input": '{"q": 1}'}),
    (0.0, "messageStop", {"stopReason": "tool_use"}),
]
_THINKING = [
    _delta(reasoningContent={"text": "let me see"}),
    _delta(0.01, reasoningContent={"signature": "x"}),
    _delta(0.02, text="yes"),
]
STREAMS: dict[str, list[Event]] = {
    "plain": [ROLE, *_TEXTS, STOP, META],
    "early": [ROLE, _delta(WAIT_S, text="a"), _delta(text="b"), STOP, META],
    "late": [ROLE, _delta(text="a"), STOP, META],
    "tool": [ROLE, *_TOOL, META],
    "reasoning": [ROLE, *_THINKING, STOP, META],
    "gross": [ROLE, *_TEXTS, STOP, (0.0, "metadata", {"usage": GROSS})],
    "no-usage": [ROLE, *_TEXTS, STOP],
    "slow": [ROLE, *(_delta(0.02, text="w") for _ in range(200)), STOP, META],
    "error": [ROLE, *_TEXTS[:3], (0.0, "throttlingException", {"message": "slow down"})],
    "cut": [ROLE, *_TEXTS[:3], (0.0, CUT, {})],
}


def _anthropic() -> list[dict[str, Any]]:
    usage = {
        "input_tokens": 176,
        "cache_read_input_tokens": 1024,
        "cache_creation_input_tokens": 256,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "role": "assistant", "model": "claude-x", "usage": usage}
    texts = [{"type": "text_delta", "text": f"w{i} "} for i in range(10)]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": text} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 30},
        },
        {"type": "message_stop"},
    ]


_WORDS = [f"w{i} " for i in range(10)]
PARTS: dict[str, list[dict[str, Any]]] = {
    "anthropic": _anthropic(),
    "amazon": [{name: payload} for _, name, payload in STREAMS["plain"]],
    "meta": [
        *({"generation": word, "stop_reason": None} for word in _WORDS),
        {
            "generation": "",
            "prompt_token_count": 176,
            "generation_token_count": 30,
            "stop_reason": "stop",
        },
    ],
    "mistral": [
        *({"outputs": [{"text": word, "stop_reason": None}]} for word in _WORDS),
        {"outputs": [{"text": "", "stop_reason": "stop"}]},
    ],
    "cohere": [
        {"event_type": "stream-start", "is_finished": False},
        *({"event_type": "text-generation", "text": word} for word in _WORDS),
        {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"text": "w"}},
    ],
}
"""By family: the parts of a stream, without Bedrock's own metrics."""
_CONVERSED = {
    "output": {"message": {"role": "assistant", "content": [{"text": "42"}]}},
    "stopReason": "end_turn",
    "usage": USAGE,
    "metrics": {"latencyMs": LATENCY_MS},
}
WHOLE: dict[str, dict[str, Any]] = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "42"}],
        "stop_reason": "end_turn",
        "usage": {**PARTS["anthropic"][0]["message"]["usage"], "output_tokens": 30},
    },
    "amazon": _CONVERSED,
    "meta": {
        "generation": "42",
        "prompt_token_count": 176,
        "generation_token_count": 30,
        "stop_reason": "stop",
    },
    "mistral": {"outputs": [{"text": "42", "stop_reason": "stop"}]},
    "cohere": {"response_id": "r-1", "text": "42", "finish_reason": "COMPLETE"},
    "embed": {"embedding": [0.1, 0.2], "inputTextTokenCount": 176},
}


class FakeBedrock(FakeServer):
    """Converse, ConverseStream, InvokeModel and InvokeModelWithResponseStream."""

    async def respond(self, request: Received, out: Out) -> None:
        _, model, operation = request.path.lstrip("/").split("/")
        family, _, scenario = unquote(model).partition(".")
        if scenario == "retry-twice" and self.tries(model) % 3:
            await out.json({"message": "slow down"}, 429, _error("ThrottlingException"))
        elif scenario == "bad-request":
            await out.json({"message": "too long"}, 400, _error("ValidationException"))
        elif operation == "converse":
            document = {**_CONVERSED, "serviceTier": {"type": "default"}}
            await out.json(document, headers=_HEADERS)
        elif operation == "invoke":
            counts = {
                "X-Amzn-Bedrock-Input-Token-Count": 176,
                "X-Amzn-Bedrock-Output-Token-Count": 30,
                "X-Amzn-Bedrock-Invocation-Latency": LATENCY_MS,
            }
            counts = {} if family == "embed" else counts
            await out.json(WHOLE[family], headers={**_HEADERS, **counts})
        elif operation == "converse-stream":
            await _stream(out, scenario)
        else:
            await _parts(out, family)


def _error(code: str) -> dict[str, str]:
    return {**_HEADERS, "x-amzn-ErrorType": code}


async def _stream(out: Out, scenario: str) -> None:
    if scenario == "late":
        await asyncio.sleep(WAIT_S)
    out.begin(_EVENT_STREAM, _HEADERS)
    for wait_s, name, payload in STREAMS.get(scenario, STREAMS["plain"]):
        if wait_s:
            await asyncio.sleep(wait_s)
        if name is CUT:
            await out.cut()
        await out.send(_event(name, payload))
    await out.end()


async def _parts(out: Out, family: str) -> None:
    out.begin(_EVENT_STREAM, _HEADERS)
    parts = PARTS[family]
    for part in [*parts[:-1], {**parts[-1], **METRICS}]:
        data = base64.b64encode(json.dumps(part).encode()).decode()
        await out.send(_event("chunk", {"bytes": data}))
        await asyncio.sleep(0.002)
    await out.end()


if __name__ == "__main__":
    FakeBedrock.main()
