"""The skeleton of the fake providers: a local HTTP/1.1 server on a thread of its own.

A fake at the network edge only: a subclass says in ``respond`` what its provider would answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

WAIT_S = 0.12
"""The wait of the scenarios that have a known one."""


@dataclass
class Received:
    """One request as the server saw it; ``body`` is its JSON, ``data`` its bytes."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes
    at_ns: int = field(default_factory=time.perf_counter_ns)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON document; without one, an empty one."""
        found: dict[str, Any] = json.loads(self.data) if self.data else {}
        return found


class Out:
    """One answer: ``json`` or ``bytes`` whole, or ``begin``, then events, then ``end``."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def _head(self, status: int, headers: dict[str, Any]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())

    async def bytes(
        self, data: bytes, status: int = 200, headers: dict[str, Any] | None = None
    ) -> None:
        """A whole answer."""
        self._head(status, {"Content-Length": len(data), **(headers or {})})
        self._writer.write(data)
        await self._writer.drain()

    async def json(
        self, document: Any, status: int = 200, headers: dict[str, Any] | None = None
    ) -> None:
        """A whole answer of JSON."""
        data = json.dumps(document).encode()
        await self.bytes(data, status, {"Content-Type": "application/json", **(headers or {})})

    def begin(self, content_type: str, headers: dict[str, Any] | None = None) -> None:
        """The head of a streamed answer; it leaves with what is sent next."""
        chunked = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        self._head(200, {**chunked, **(headers or {})})

    def write(self, data: bytes) -> None:
        """One piece of a streamed answer, which may leave together with the next one."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def send(self, data: bytes) -> None:
        """One piece of a streamed answer, now."""
        self.write(data)
        await self._writer.drain()

    async def sse(self, data: Any, event: str | None = None) -> None:
        """One server-sent event; what is no text becomes JSON."""
        text = data if isinstance(data, str) else json.dumps(data)
        named = "" if event is None else f"event: {event}\n"
        await self.send(f"{named}data: {text}\n\n".encode())

    async def ndjson(self, document: Any) -> None:
        """One line of JSON."""
        await self.send(json.dumps(document).encode() + b"\n")

    async def end(self) -> None:
        """The end of a streamed answer."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def cut(self) -> None:
        """Break the connection in the middle of the answer."""
        await self._writer.drain()
        self._writer.transport.abort()
        raise ConnectionAbortedError


class FakeServer:
    """The server; ``requests`` holds what it received.

    A subclass has ``respond``: it answers one request through ``out``.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.port = 0
        self._tries: dict[str, int] = {}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def base_url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    async def respond(self, request: Received, out: Out) -> None:
        """Answer one request."""
        raise NotImplementedError

    def tries(self, key: str) -> int:
        """How often it was asked for ``key``, this time included."""
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key]

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator[Self]:
        """The server, running inside the block."""
        server = cls()
        server._thread.start()
        assert server._ready.wait(10)
        try:
            yield server
        finally:
            server._loop.call_soon_threadsafe(server._loop.stop)
            server._thread.join(10)

    @classmethod
    def main(cls) -> None:
        """Print the port and serve until stdin closes."""
        with cls.serving() as running:
            print(running.port, flush=True)
            sys.stdin.read()

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
        out = Out(writer)
        try:
            while True:
                request = await _received(reader)
                self.requests.append(request)
                await self.respond(request, out)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def _received(reader: asyncio.StreamReader) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = first.split()
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        data = b""
        while size := int(await reader.readline(), 16):
            data += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        data = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, data)
