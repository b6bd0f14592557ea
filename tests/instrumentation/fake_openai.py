"""A local server that speaks the real chat-completions protocol, with scenarios by model name.

A fake at the network edge only: HTTP/1.1, chunked server-sent events, OpenAI's JSON. Run as a
script it prints its port and serves until its stdin closes (for the benchmark).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

USAGE = {
    "prompt_tokens": 1456,
    "completion_tokens": 30,
    "total_tokens": 1486,
    "prompt_tokens_details": {"cached_tokens": 1280},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
WAIT_S = 0.12
RETRY_AFTER_MS = 40

Event = tuple[float, Any]
"""Seconds to wait, then a delta, a whole chunk under ``chunk``, or one of the words below."""
CUT, NO_DONE = "cut", "no_done"


@dataclass
class Received:
    """One request as the server saw it."""

    headers: dict[str, str]
    body: dict[str, Any]
    at_ns: int = field(default_factory=time.perf_counter_ns)


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
}
USAGE_OF: dict[str, dict[str, Any] | None] = {
    "one-token": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    "no-usage": None,
    "beside": {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "total_tokens": 135,
        "completion_tokens_details": {"reasoning_tokens": 94},
    },
}
FAILURES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "messages: too long"),
    "unavailable": (429, "slow down"),
}


class FakeOpenAI:
    """The server, on a thread of its own; ``requests`` holds what it received."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self._tries: dict[str, int] = {}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        self.requests.append(Received(headers, body))
        model = body["model"]
        tries = self._tries[model] = self._tries.get(model, 0) + 1
        if model == "redirect" and not head[0].split()[1].endswith("/moved"):
            writer.write(
                f"HTTP/1.1 307 X\r\nLocation: {self.base_url}/moved\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            return True
        if model == "retry-twice" and tries % 3:
            self._json(writer, 429, {"error": {"message": "slow down", "code": "rate_limit"}})
        elif model == "no-stream-options" and "stream_options" in body:
            self._json(writer, 400, {"error": {"message": "Unknown field: stream_options"}})
        elif model in FAILURES:
            status, message = FAILURES[model]
            self._json(writer, status, {"error": {"message": message}})
        elif body.get("stream"):
            return await self._stream(writer, model, body)
        else:
            self._json(writer, 200, _completion(model))
        await writer.drain()
        return True

    def _json(self, writer: asyncio.StreamWriter, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Retry-After-Ms: {RETRY_AFTER_MS}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )

    async def _stream(self, writer: asyncio.StreamWriter, model: str, body: dict[str, Any]) -> bool:
        if model == "late-headers":
            await asyncio.sleep(WAIT_S)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        async for event in _events(model, body):
            if event is CUT:
                await writer.drain()
                writer.transport.abort()
                return False
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            if not model.startswith("burst:"):
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _completion(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": '{"answer": 42}'}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{model}-2026",
        "service_tier": "default",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE_OF.get(model, USAGE),
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


async def _events(model: str, body: dict[str, Any]) -> AsyncIterator[str]:
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
        yield json.dumps(event) if "error" in event else _chunk(model, [event])
    if (body.get("stream_options") or {}).get("include_usage") and USAGE_OF.get(model, USAGE):
        yield _chunk(model, [], usage=USAGE_OF.get(model, USAGE), service_tier="default")
    yield "[DONE]"


@contextmanager
def serving() -> Iterator[FakeOpenAI]:
    """The server, running inside the block."""
    server = FakeOpenAI()
    server.start()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    with serving() as running:
        print(running.port, flush=True)
        sys.stdin.read()
