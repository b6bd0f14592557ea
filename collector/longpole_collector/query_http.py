"""Runs readers' statements: bounded in number, answered as an Arrow stream or as JSON.

An Arrow stream is there to its end before any of it is sent, in memory or in a file: every error
is a clean refusal, and a reader that fetches slowly keeps no other from the store. One that takes
too long is broken off: it sees an answer without an end, never a short one that looks whole.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from tempfile import SpooledTemporaryFile
from threading import Lock, get_native_id
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from pydantic import BaseModel, Field
from starlette.responses import Response

from longpole_collector.asgi import Message, Receive, Scope, Send, to_json
from longpole_collector.batch import Budget, Full
from longpole_collector.documents import query_document
from longpole_collector.stores.base import Params, Stream, Value
from longpole_collector.stores.remote import ARROW

_MAX_QUERIES: Final = 32
_NUM_THREADS: Final = 2 * (os.cpu_count() or 2)
_NICENESS: Final = 5
"""A query gets a third of the time that storing gets where both want a core."""
_PIECE_BYTES: Final = 4 << 20
"""Sent at once; what an answer has beyond that lies in a file until it is sent."""
_MAX_UNSENT_BYTES: Final = 1 << 30
"""Of all answers together."""
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
        self._unsent = Budget(_MAX_UNSENT_BYTES)
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
            Full: too many statements run, or too much is still to be sent; nothing was sent then.
            LongpoleError: as the source's ``sql``; nothing was sent then.
        """
        with self._place(), closing(_Answer(self._unsent)) as answer:
            piece = await self._in_thread(lambda: answer.fetched(source, query))
            deadline = asyncio.get_running_loop().time() + self._fetch_timeout_s
            headers = [(b"content-type", ARROW.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                while piece:
                    part: Message = {"type": "http.response.body", "body": piece, "more_body": True}
                    async with asyncio.timeout_at(deadline):
                        await send(part)
                    piece = await asyncio.to_thread(answer.piece)  # whatever statements run
            except TimeoutError:
                _log.warning("an answer was broken off: its reader is too slow")
                return  # no end was sent, so the server closes the connection
            await send({"type": "http.response.body", "body": b""})

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


class _Answer:
    """A whole answer as an Arrow IPC stream, until it is sent."""

    def __init__(self, room: Budget) -> None:
        self._room = room
        self._num_bytes = 0
        self._lock = Lock()
        self._file = SpooledTemporaryFile(_PIECE_BYTES)  # noqa: SIM115 - closed with this

    def fetched(self, source: Source, query: Query) -> bytes:
        """Fetch it; gives its first piece."""
        try:
            with (
                source.stream(query.sql, query.params, query.timeout_s) as stream,
                pa.ipc.new_stream(self._file, stream.schema) as writer,
            ):
                for batch in stream.batches:
                    self._take(batch.nbytes)
                    writer.write_batch(batch)
        except OSError as error:
            raise Full(f"no room for the answer ({error.strerror}): try again") from error
        self._file.seek(0)
        return self.piece()

    def piece(self) -> bytes:
        """The next piece; empty at the end."""
        return self._file.read(_PIECE_BYTES)

    def close(self) -> None:
        """Let go of it, even while it is fetched: that fails then."""
        with self._lock:
            self._file.close()
            self._room.give(self._num_bytes)

    def _take(self, num_bytes: int) -> None:
        with self._lock:
            if not self._file.closed:
                self._room.take(num_bytes)
                self._num_bytes += num_bytes


def _give_way() -> None:
    """Let the threads that take and store spans go first: readers can wait, senders cannot."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        os.setpriority(
            os.PRIO_PROCESS, get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS
        )
