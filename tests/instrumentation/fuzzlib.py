"""A small client library with every kind of stream that is followed, for the fuzz of their ends.

A stream plays a script: ``("chunk", kind, is_last, ticks)`` or ``("raise",)``. Ticks are turns of
the event loop before an async chunk comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Self

import httpx

__version__ = "1.0"

Script = Sequence[Any]


class LibraryError(Exception):
    """What the library raises."""


class Response:
    """An HTTP response that can be closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class AsyncResponse(Response):
    """The same for async clients."""

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


def _chunk(step: Any, response: Response | None) -> dict[str, Any]:
    if response is not None and response.is_closed:
        raise LibraryError("closed")
    if step[0] == "raise":
        raise LibraryError("cut")
    return {"kind": step[1], "is_last": step[2]}


def _play(script: Script, response: Response | None) -> Iterator[Any]:
    try:
        for step in script:
            try:
                yield _chunk(step, response)
            except KeyError:
                yield {"kind": "role", "is_last": False}
    finally:
        if response is not None:
            response.close()


async def _play_async(script: Script, response: AsyncResponse | None) -> AsyncIterator[Any]:
    try:
        for step in script:
            for _ in range(step[-1] if step[0] == "chunk" else 0):
                await asyncio.sleep(0)
            try:
                yield _chunk(step, response)
            except KeyError:
                yield {"kind": "role", "is_last": False}
    finally:
        if response is not None:
            await response.aclose()


class Stream:
    """Keeps its iterator in an attribute."""

    def __init__(self, script: Script) -> None:
        self.response = Response()
        self._iterator = _play(script, self.response)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()


class AsyncStream:
    """The same, async."""

    def __init__(self, script: Script) -> None:
        self.response = AsyncResponse()
        self._iterator = _play_async(script, self.response)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._iterator.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.response.aclose()


class OwnStream:
    """Is its own iterator, sync and async."""

    def __init__(self, script: Script) -> None:
        self._steps = list(script)
        self._response = AsyncResponse()

    def __next__(self) -> Any:
        if not self._steps:
            raise StopIteration
        return _chunk(self._steps.pop(0), self._response)

    async def __anext__(self) -> Any:
        if not self._steps:
            raise StopAsyncIteration
        step = self._steps.pop(0)
        for _ in range(step[-1] if step[0] == "chunk" else 0):
            await asyncio.sleep(0)
        return _chunk(step, self._response)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        self._response.close()

    async def aclose(self) -> None:
        await self._response.aclose()


class RawFile:
    """What a body reads."""

    def __init__(self, script: Script) -> None:
        self._steps = list(script)
        self._response = Response()

    def read(self, amt: int | None = None) -> bytes:
        if not self._steps:
            return b""
        return _event(_chunk(self._steps.pop(0), self._response))

    def close(self) -> None:
        self._response.close()


class FileBody:
    """A body that is read like a file; as an iterator it reads piece by piece."""

    def __init__(self, raw: RawFile) -> None:
        self.raw = raw

    def __next__(self) -> bytes:
        data = self.raw.read(1024)
        if not data:
            raise StopIteration
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.raw.close()


def _event(chunk: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, script: Script) -> None:
        self._script = script

    def __iter__(self) -> Iterator[bytes]:
        for chunk in _play(self._script, None):
            yield _event(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in _play_async(self._script, None):
            yield _event(chunk)


class RawStream:
    """An HTTP response whose bytes the application reads."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._bytes: Any = None

    def __next__(self) -> bytes:
        self._bytes = self._bytes or self._response.iter_raw()
        data: bytes = next(self._bytes)
        return data

    async def __anext__(self) -> bytes:
        self._bytes = self._bytes or self._response.aiter_raw()
        data: bytes = await self._bytes.__anext__()
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        self._response.close()

    async def aclose(self) -> None:
        await self._response.aclose()


class Client:
    """Each method returns a stream of one kind."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.response = Response()  # of the last generator
        self.on_body: list[Callable[[FileBody], None]] = []
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=_Body(script)))
        self.http = httpx.Client(transport=transport)
        self.http_async = httpx.AsyncClient(transport=transport)

    def attribute(self) -> Stream:
        return Stream(self._script)

    async def attribute_async(self) -> AsyncStream:
        return AsyncStream(self._script)

    def generator(self) -> Iterator[Any]:
        self.response = Response()
        return _play(self._script, self.response)

    async def generator_async(self) -> AsyncIterator[Any]:
        self.response = response = AsyncResponse()
        return _play_async(self._script, response)

    def own(self) -> OwnStream:
        return OwnStream(self._script)

    async def own_async(self) -> OwnStream:
        return OwnStream(self._script)

    def raw(self) -> RawStream:
        request = self.http.build_request("GET", "http://library.example/")
        return RawStream(self.http.send(request, stream=True))

    async def raw_async(self) -> RawStream:
        request = self.http_async.build_request("GET", "http://library.example/")
        return RawStream(await self.http_async.send(request, stream=True))

    def file(self) -> FileBody:
        body = FileBody(RawFile(self._script))
        for told in self.on_body:
            told(body)
        return body
