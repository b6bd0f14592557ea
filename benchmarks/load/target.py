"""A light local provider: streams chat completions by a plan, at little CPU.

    python -m benchmarks.load.target [--ttft 0.2] [--gap 0.02]

Prints its port; ends when its standard input does. Events have the size and the fields of vLLM's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, NamedTuple

import uvloop

MAX_BODY = 1 << 22
MODEL = "target"
_CHUNK = {
    "id": "chatcmpl-0123456789abcdef",
    "object": "chat.completion.chunk",
    "created": 1764500000,
    "model": MODEL,
    "choices": [
        {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
    ],
}
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class Plan(NamedTuple):
    """When tokens come."""

    ttft_s: float
    gap_s: float


def _event(document: Any) -> bytes:
    line = b"data: %s\n\n" % json.dumps(document).encode()
    return b"%x\r\n%s\r\n" % (len(line), line)


_WORD = _event(_CHUNK)
_STOP = _event(_CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def _usage(num_input: int, num_output: int) -> bytes:
    counts = {
        "prompt_tokens": num_input,
        "completion_tokens": num_output,
        "total_tokens": num_input + num_output,
    }
    return _event(_CHUNK | {"choices": [], "usage": counts})


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self._plan, self._loop = plan, loop
        self._held = b""
        self._is_open = False

    def connection_made(self, transport: Any) -> None:
        self._write, self._is_open = transport.write, True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, rest = self._held.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):
            self._held = rest
            self._json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            return
        _, _, length = head.lower().partition(b"content-length:")
        wanted = int(length.split(None, 1)[0])
        if wanted > MAX_BODY or len(rest) < wanted:
            return
        self._held = rest[wanted:]
        self._asked(json.loads(rest[:wanted]))

    def _asked(self, body: dict[str, Any]) -> None:
        num = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        words = sum(len(str(each.get("content")).split()) for each in body["messages"])
        if not body.get("stream"):
            message = {"role": "assistant", "content": " word" * num}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": words, "completion_tokens": num, "total_tokens": words + num}
            self._json({"id": "1", "model": MODEL, "choices": [choice], "usage": usage})
            return
        plan = self._plan
        self._num_left = num
        self._usage = _usage(words, num)
        self._next_s = self._loop.time() + plan.ttft_s
        self._write(_STREAM)
        self._loop.call_at(self._next_s, self._word)

    def _word(self) -> None:
        if not self._is_open:
            return
        self._num_left -= 1
        if self._num_left:
            self._write(_WORD)
            self._next_s += self._plan.gap_s
            self._loop.call_at(self._next_s, self._word)
            return
        self._write(b"".join((_WORD, _STOP, self._usage, _END)))

    def _json(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._write(head % len(body) + body)


async def _serve(plan: Plan) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(plan, loop), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttft", type=float, default=0.2)
    parser.add_argument("--gap", type=float, default=0.02)
    args = parser.parse_args()
    uvloop.run(_serve(Plan(args.ttft, args.gap)))


if __name__ == "__main__":
    main()
