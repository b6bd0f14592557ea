"""Runs readers' statements: bounded in number, answered as an Arrow stream or as JSON.

A stream's first bytes are held back until they are many or all, so that most errors are still a
clean refusal. An error after that breaks the connection off: the client sees an answer without
an end, never a short one that looks whole.
"""

import asyncio
import io
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import get_native_id
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from pydantic import BaseModel, Field
from starlette.responses import Response

from longpole.errors import LongpoleError
from longpole_collector.asgi import Message, Receive, Scope, Send, to_json
from longpole_collector.batch import Full
from longpole_collector.documents import query_document
from longpole_collector.stores.base import Params, Stream, Value
from longpole_collector.stores.remote import ARROW

_MAX_QUERIES: Final = 32
_NUM_THREADS: Final = 2 * (os.cpu_count() or 2)
_NICENESS: Final = 5
"""A query gets a third of the time that storing gets where both want a core."""
_HELD_BACK_BYTES: Final = 4 << 20
_T = TypeVar("_T")
_log = logging.getLogger("longpole.collector.query")


class Query(BaseModel):
    """One read-only statement over the views, and its parameters by place or by name.

    ``timeout_s`` bounds it where that is less than the collector's limit.
    """

    sql: str
    params: list[Value] | dict[str, Value] = []
    timeout_s: float | None = Field(None, gt=0)


class Source(Protocol):
    """The part of a store that answers statements."""

    def sql(self, query: str, params: Params = (), timeout_s: float | None = None) -> pa.Table:
        """The whole answer."""

    def stream(
        self, query: str, params: Params = (), timeout_s: float | None = None
    ) -> AbstractContextManager[Stream]:
        """The answer batch by batch."""


class Queries:
    """Runs statements in threads of its own."""

    def __init__(self, fetch_timeout_s: float) -> None:
        """``fetch_timeout_s`` bounds how long a reader may take to fetch its answer."""
        self._fetch_timeout_s = fetch_timeout_s
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "longpole-query", _give_way)
        self.num_running = 0
        """Statements that run, or whose answer is fetched, now."""

    async def json(self, source: Source, query: Query) -> Response:
        """The answer as a document.

        Raises:
            Full: too many statements run.
            LongpoleError: as the source's ``sql``.
        """

        def answer() -> bytes:
            return to_json(query_document(source.sql(query.sql, query.params, query.timeout_s)))

        with self._place():
            return Response(await self._in_thread(answer), media_type="application/json")

    async def send_arrow(self, source: Source, query: Query, send: Send) -> None:
        """Send the answer as an Arrow IPC stream.

        Raises:
            Full: too many statements run.
            LongpoleError: as the source's ``sql``; nothing was sent then.
        """
        with self._place():
            chunks = _ipc(source, query)
            try:
                held = await self._in_thread(lambda: _hold_back(chunks))
                headers = [(b"content-type", ARROW.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send_rest(held, chunks, send)
            finally:
                self._threads.submit(_close, chunks)

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """What ``call`` gives, run like a statement.

        Raises:
            Full: too many statements run.
        """
        with self._place():
            return await self._in_thread(call)

    def close(self) -> None:
        """End the threads once their statements have ended."""
        self._threads.shutdown()

    async def _send_rest(self, held: bytes, chunks: Iterator[bytes], send: Send) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._fetch_timeout_s
        chunk: bytes | None = held
        try:
            while chunk is not None:
                piece: Message = {"type": "http.response.body", "body": chunk, "more_body": True}
                async with asyncio.timeout_at(deadline):
                    await send(piece)
                chunk = await self._in_thread(lambda: next(chunks, None))
        except (LongpoleError, TimeoutError) as error:
            _log.warning("an answer was broken off: %s", error or "its reader is too slow")
            return  # no end was sent, so the server closes the connection
        await send({"type": "http.response.body", "body": b""})

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self.num_running >= _MAX_QUERIES:
            raise Full(f"{_MAX_QUERIES} queries run already: try again")
        self.num_running += 1
        try:
            yield
        finally:
            self.num_running -= 1


class ArrowResponse(Response):
    """A response that runs its statement when it is sent."""

    media_type = ARROW

    def __init__(self, queries: Queries, source: Source, query: Query) -> None:
        super().__init__()
        self._queries = queries
        self._source = source
        self._query = query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
            LongpoleError: the statement cannot be answered; nothing was sent.
        """
        await self._queries.send_arrow(self._source, self._query, send)


class _Sink(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _give_way() -> None:
    """Let the threads that take and store spans go first: readers can wait, senders cannot."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        os.setpriority(
            os.PRIO_PROCESS, get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS
        )


def _ipc(source: Source, query: Query) -> Generator[bytes, None, None]:
    sink = _Sink()
    with source.stream(query.sql, query.params, query.timeout_s) as stream:
        writer = pa.ipc.new_stream(sink, stream.schema)
        for batch in stream.batches:
            writer.write_batch(batch)
            yield sink.take()
        writer.close()
    yield sink.take()


def _hold_back(chunks: Iterator[bytes]) -> bytes:
    held: list[bytes] = []
    for chunk in chunks:
        held.append(chunk)
        if sum(map(len, held)) >= _HELD_BACK_BYTES:
            break
    return b"".join(held)


def _close(chunks: Generator[bytes, None, None]) -> None:
    with suppress(ValueError):  # it runs in another thread, and ends with its statement
        chunks.close()
