"""A proxy that makes a provider fail as providers do, the same way for the same seed.

It stands between a client and any OpenAI-compatible server on this machine and harms a share of
the answers: refusals, errors, silence, streams that break off, an error in mid stream, a gateway
that holds a stream back; and it can slow all of them down.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from longpole.errors import UsageError

MAX_HEAD_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 20 * 2**20
_READ_BYTES: Final = 65_536
_TIMEOUT_S: Final = 600.0


class Fault(StrEnum):
    """What happens to an answer."""

    RATE_LIMIT = "429"
    """429 with ``Retry-After``."""
    SILENT_RATE_LIMIT = "429_silent"
    """429 that does not say when to come back."""
    ERROR = "500"
    OVERLOADED = "529"
    """What Anthropic answers when it is overloaded."""
    HANG = "hang"
    """Nothing comes, for :attr:`Faults.hang_s`; then the connection ends."""
    CUT = "cut"
    """The stream ends after :attr:`Faults.after_events` events, without its end."""
    ERROR_EVENT = "error_event"
    """After so many events the stream says that it failed, and ends."""
    BUFFER = "buffer"
    """All of the answer at once, at its end."""


_STATUSES: Final = {
    Fault.RATE_LIMIT: (429, "Too Many Requests", "rate_limit_exceeded"),
    Fault.SILENT_RATE_LIMIT: (429, "Too Many Requests", "rate_limit_exceeded"),
    Fault.ERROR: (500, "Internal Server Error", "server_error"),
    Fault.OVERLOADED: (529, "Overloaded", "overloaded_error"),
}


@dataclass(frozen=True)
class Faults:
    """Which share of the requests (0 to 1) meets which fault, and what all of them meet.

    Raises:
        UsageError: shares below 0, or of more than 1 together.
    """

    shares: Mapping[Fault, float] = field(default_factory=dict)
    seed: int = 0
    retry_after_s: float = 1.0
    hang_s: float = 60.0
    after_events: int = 3
    jitter_s: float = 0.0
    """Each piece of an answer is late by up to so much."""
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        shares = self.shares.values()
        if not (all(share >= 0 for share in shares) and sum(shares) <= 1):  # nan is neither
            raise UsageError("shares of faults are 0 to 1, and at most 1 together")

    def of(self, number: int) -> Fault | None:
        """What meets the request of this number; the same for the same seed."""
        at = Random(f"{self.seed} {number}").random()  # noqa: S311 - no secret
        for fault, share in self.shares.items():
            at -= share
            if at < 0:
                return fault
        return None


class _Head(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[bytes, bytes]]


class Proxy:
    """Serves until its server is closed.

    Args:
        upstream: http address of the real server.
        faults: what goes wrong.

    Raises:
        UsageError: the address is not an http one.
    """

    def __init__(self, upstream: str, faults: Faults) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"'{upstream}' is no http address of a server")
        self._host, self._port = parts.hostname, parts.port or 80
        self._faults = faults
        self._num_requests = 0
        self.num_by_fault: dict[str, int] = {}
        """Requests by what met them; ``none`` for those left alone."""

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        """A listening server; ``port`` 0 takes a free one."""
        return await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD_BYTES)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass  # the client went, or sent what is no request
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _length(head)
        if length is None or length > MAX_BODY_BYTES:
            _refuse(writer, 411 if length is None else 413, "Length", "length")
            return False
        body = await reader.readexactly(length)
        fault = self._faults.of(self._num_requests)
        self._num_requests += 1
        name = "none" if fault is None else str(fault)
        self.num_by_fault[name] = self.num_by_fault.get(name, 0) + 1
        if fault in _STATUSES:
            more = ""
            if fault is Fault.RATE_LIMIT:
                more = f"Retry-After: {self._faults.retry_after_s:g}\r\n"
            _refuse(writer, *_STATUSES[fault], more)
            await writer.drain()
            return True
        if fault is Fault.HANG:
            await asyncio.sleep(self._faults.hang_s)
            return False
        return await self._relay(_forwarded(head), body, writer, fault)

    async def _relay(
        self, head: bytes, body: bytes, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        try:
            upstream, sender = await asyncio.open_connection(self._host, self._port)
        except OSError:
            _refuse(writer, 502, "Bad Gateway", "upstream_unreachable")
            return True
        try:
            sender.write(head + body)
            await sender.drain()
            answer = _Answer(upstream)
            found = await answer.head()
            lines = [f"HTTP/1.1 {found.status} {found.reason}\r\n".encode()]
            lines += [b"%s: %s\r\n" % pair for pair in found.headers]
            writer.write(b"".join([*lines, b"Transfer-Encoding: chunked\r\n\r\n"]))
            is_whole = await self._pieces(answer, writer, fault)
            if is_whole:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
            return is_whole
        finally:
            sender.close()
            with contextlib.suppress(OSError):
                await sender.wait_closed()

    async def _pieces(
        self, answer: "_Answer", writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        """Pass the body on; ``False`` if it was broken off."""
        held: list[bytes] = []
        num_events, random = 0, Random(f"{self._faults.seed} jitter")  # noqa: S311
        async for piece in answer.body():
            if fault is Fault.BUFFER:
                held.append(piece)
                continue
            if fault in (Fault.CUT, Fault.ERROR_EVENT):
                for event in piece.splitlines(keepends=True):
                    num_events += event.startswith(b"data:")
                    if num_events > self._faults.after_events:
                        if fault is Fault.ERROR_EVENT:
                            error = {"error": {"type": "server_error", "message": "it failed"}}
                            await self._send(writer, b"data: %s\n\n" % json.dumps(error).encode())
                        return fault is Fault.ERROR_EVENT
                    await self._send(writer, event)
                continue
            await asyncio.sleep(random.random() * self._faults.jitter_s)
            await self._send(writer, piece)
        if held:
            await self._send(writer, b"".join(held))
        return True

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        if self._faults.bytes_per_s:
            await asyncio.sleep(len(piece) / self._faults.bytes_per_s)


class _Answer:
    """An HTTP answer as it comes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._pieces: list[bytes] = []
        self._has_head = self._is_over = False

    async def head(self) -> _Head:
        """Its status and headers, without those that say how the body is cut into pieces."""
        while not self._has_head:
            await self._feed()
        kept = [
            (name, value)
            for name, value in self._headers
            if name.lower() not in (b"transfer-encoding", b"content-length", b"connection")
        ]
        return _Head(self._parser.get_status_code(), self._reason.decode("latin-1"), kept)

    async def body(self) -> AsyncIterator[bytes]:
        """Its body, piece by piece.

        Raises:
            asyncio.IncompleteReadError: the server broke it off.
        """
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if self._is_over:
                return
            await self._feed()

    async def _feed(self) -> None:
        data = await asyncio.wait_for(self._reader.read(_READ_BYTES), _TIMEOUT_S)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise asyncio.IncompleteReadError(data, None) from error

    # httptools' side

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._is_over = True


def _length(head: bytes) -> int | None:
    """Bytes of the body; ``None`` where the head does not say."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value) if value.strip().isdigit() else None
        if name.strip().lower() == b"transfer-encoding":
            return None
    return 0


def _forwarded(head: bytes) -> bytes:
    """The head for the server behind: one request a connection."""
    lines = head[:-4].split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


def _refuse(
    writer: asyncio.StreamWriter, status: int, reason: str, kind: str, more: str = ""
) -> None:
    body = json.dumps({"error": {"type": kind, "message": reason, "code": kind}}).encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{more}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
