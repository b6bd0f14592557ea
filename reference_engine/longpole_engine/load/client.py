"""The sending side: HTTP/1.1 connections that read streamed answers with little of our own CPU.

What is measured is `longpole.call.Call`'s: one definition of TTFT and TPOT everywhere.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from longpole.call import Call, StreamState
from longpole.errors import UsageError
from longpole_engine.load.events import Broken, ErrorEvent, Events

now_ns: Final = time.perf_counter_ns
_SLOW_BYTES: Final = 512
MAX_ERROR_BYTES: Final = 2_000


class Behaviour(StrEnum):
    """What a client does with its answer."""

    READS = "reads"
    SLOW = "slow"
    """Reads 512 bytes, sleeps, reads on."""
    CANCELS = "cancels"
    """Closes the connection after so many chunks of content."""
    DISCONNECTS = "disconnects"
    """Closes the connection once the request is sent."""


class Failure(StrEnum):
    """Why there is no whole answer."""

    CONNECT = "connect"
    STATUS = "status"
    """The status was not 200; ``Answer.status`` has it."""
    CUT = "cut"
    """The connection ended before the answer did."""
    EVENT = "error_event"
    """The stream told an error."""
    BROKEN = "broken"
    """What came is no HTTP, or no JSON."""
    TIMEOUT = "timeout"


class Answer:
    """What came of one request; all times are of :data:`now_ns`."""

    __slots__ = ("body", "call", "failure", "is_cold", "status", "text")

    def __init__(self, sent_ns: int) -> None:
        self.call = Call(sent_ns, is_streamed=True)
        self.status: int | None = None
        self.failure: Failure | None = None
        self.is_cold = False
        """It had to open its connection."""
        self.text = ""
        """What an error said, cut."""
        self.body = b""

    @property
    def is_whole(self) -> bool:
        """The answer came to its end."""
        return self.call.state is StreamState.COMPLETED


class Target(NamedTuple):
    """An OpenAI-compatible address."""

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    headers: bytes

    @classmethod
    def at(cls, url: str, key: str | None) -> "Target":
        """The chat completions of ``url``, which may or may not end in ``/v1``.

        Raises:
            UsageError: it is no http(s) address.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(f"'{url}' is no address of a server: http://host:port")
        is_tls = parts.scheme == "https"
        path = parts.path.rstrip("/")
        if not path.endswith("/chat/completions"):
            path = f"{path}/chat/completions" if path else "/v1/chat/completions"
        lines = [f"Host: {parts.netloc.rpartition('@')[2]}", "Content-Type: application/json"]
        if key:
            if not key.isascii() or not key.isprintable():
                raise UsageError("the key holds characters that a header cannot")
            lines.append(f"Authorization: Bearer {key}")
        head = "".join(f"{line}\r\n" for line in lines).encode()
        context = ssl.create_default_context() if is_tls else None
        return cls(parts.hostname, port or (443 if is_tls else 80), path, context, head)

    def request(self, body: bytes, traceparent: str | None) -> bytes:
        """The bytes of one request."""
        trace = f"traceparent: {traceparent}\r\n" if traceparent else ""
        head = f"POST {self.path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{trace}".encode()
        return head + self.headers + b"\r\n" + body


class Client:
    """Connections to one target, kept open between requests."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.num_open = 0
        self._idle: deque[_Connection] = deque()

    async def ask(
        self,
        body: bytes,
        traceparent: str | None,
        timeout_s: float,
        behaviour: Behaviour = Behaviour.READS,
        limit: float = 0.0,
    ) -> Answer:
        """Send one request and read its answer; failures are told in it, none is raised.

        Args:
            body: JSON.
            traceparent: of the span that waits for it.
            timeout_s: of the whole request.
            behaviour: what this client does.
            limit: chunks before it cancels, or seconds of sleep of a slow one.
        """
        answer = Answer(now_ns())
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection(answer)
                await connection.exchange(
                    self.target.request(body, traceparent), answer, behaviour, limit
                )
        except TimeoutError:
            if answer.call.end_ns is None:  # its end may have come while this process had no time
                answer.failure = Failure.TIMEOUT
        except OSError as error:
            answer.failure, answer.text = Failure.CONNECT, str(error)
        if answer.call.end_ns is None:
            state = StreamState.ERROR if answer.failure else StreamState.CLOSED_EARLY
            answer.call.end(now_ns(), state)
        return answer

    def close(self) -> None:
        """Close what is open."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self, answer: Answer) -> "_Connection":
        while self._idle:
            known = self._idle.pop()
            if known.is_open:
                return known
        answer.is_cold = True
        target = self.target
        _, made = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._idle.append), target.host, target.port, ssl=target.context
        )
        return made


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, give_back: Callable[["_Connection"], None]) -> None:
        self._give_back = give_back
        self._transport: asyncio.Transport | None = None
        self._is_asked = False
        self.is_open = False

    # --- the request ---

    async def exchange(
        self, request: bytes, answer: Answer, behaviour: Behaviour, limit: float
    ) -> None:
        """Send, and wait until the answer ended or the client went."""
        assert self._transport is not None  # noqa: S101 - a connection is made with one
        loop = asyncio.get_running_loop()
        self._answer, self._behaviour, self._limit = answer, behaviour, limit
        self._parser = httptools.HttpResponseParser(self)
        self._events = Events(answer.call)
        self._num_slow = 0
        self._is_stream = self._is_kept = False
        self._done: asyncio.Future[None] = loop.create_future()
        self._is_asked = True
        self._transport.write(request)
        try:
            if behaviour is Behaviour.DISCONNECTS:
                self._transport.close()  # once the request is out
            else:
                await self._done
        finally:
            self._is_asked = False  # what still comes is not this answer's
            if answer.is_whole and self.is_open and self._is_kept:
                self._give_back(self)
            elif behaviour is not Behaviour.DISCONNECTS:
                self.close()

    def close(self) -> None:
        """Go, without waiting for what is still to come."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side went."""
        self.is_open = False
        if self._is_asked:
            self._fail(Failure.CUT, str(exc or "the connection ended"))

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if not self._is_asked:
            self.close()  # nobody waits for it
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Failure.BROKEN, str(error))
        if self._behaviour is Behaviour.SLOW and self._is_asked:
            self._dawdle(len(data))

    def _dawdle(self, num_bytes: int) -> None:
        transport = self._transport
        self._num_slow += num_bytes
        if transport is not None and self._num_slow >= _SLOW_BYTES and self.is_open:
            self._num_slow = 0
            transport.pause_reading()
            asyncio.get_running_loop().call_later(self._limit, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.resume_reading()

    # --- httptools' side ---

    def on_headers_complete(self) -> None:
        """The head of the answer is here."""
        self._answer.status = self._parser.get_status_code()
        self._is_kept = self._parser.should_keep_alive()
        self._answer.call.headers(now_ns())

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name.lower() == b"content-type":
            self._is_stream = value.lower().startswith(b"text/event-stream")

    def on_body(self, body: bytes) -> None:
        """A piece of the answer."""
        answer = self._answer
        if answer.status != 200 or not self._is_stream:
            answer.body += body[: max(0, 1_000_000 - len(answer.body))]
        elif self._is_asked:
            self._told(self._events.feed, body)

    def on_message_complete(self) -> None:
        """The answer is over."""
        if not self._is_asked:
            return
        answer = self._answer
        if answer.status != 200:
            text = answer.body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
            self._fail(Failure.STATUS, text)
            return
        if not self._is_stream:
            answer.call.is_streamed = False
            self._told(self._events.whole, answer.body)
        if self._is_asked:
            answer.call.end(now_ns(), StreamState.COMPLETED)
            self._finish()

    # --- what it says ---

    def _told(self, tell: Callable[[bytes, int], None], body: bytes) -> None:
        try:
            tell(body, now_ns())
        except ErrorEvent as error:
            self._fail(Failure.EVENT, str(error))
        except Broken as error:
            self._fail(Failure.BROKEN, str(error))
        if (
            self._behaviour is Behaviour.CANCELS
            and len(self._answer.call.content_ns) >= self._limit
            and self._is_asked
        ):
            self._finish()

    def _fail(self, failure: Failure, text: str) -> None:
        answer = self._answer
        answer.failure, answer.text = failure, text[:MAX_ERROR_BYTES]
        answer.call.end(now_ns(), StreamState.ERROR)
        if self._is_asked:
            self._finish()

    def _finish(self) -> None:
        self._is_asked = False
        if not self._done.done():  # it was cancelled where the request ran out of time
            self._done.set_result(None)
