"""What a proxy and a balancer share: requests of HTTP/1.1 in, streamed answers through."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import httptools

MAX_HEAD_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 20 * 2**20
_READ_BYTES: Final = 65_536
_TIMEOUT_S: Final = 600.0


class Head(NamedTuple):
    """Status and headers of an answer, but for those that say how it is cut into pieces."""

    status: int
    reason: str
    headers: list[tuple[bytes, bytes]]


class Door:
    """A listening address; what comes in is :meth:`request`'s."""

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        """A listening server; ``port`` 0 takes a free one."""
        return await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD_BYTES)

    async def request(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        raise NotImplementedError

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass  # the client went, or sent what is no request
        except asyncio.CancelledError:
            pass  # the loop ends; asyncio would log a handler that is cancelled
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _length(head)
        if length is None or length > MAX_BODY_BYTES:
            refuse(writer, 411 if length is None else 413, "Length", "length")
            return False
        return await self.request(_forwarded(head), await reader.readexactly(length), writer)


class Reply:
    """An HTTP answer as it comes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._pieces: list[bytes] = []
        self._has_head = self._is_over = False

    async def head(self) -> Head:
        """Its status and headers, without those that say how the body is cut into pieces."""
        while not self._has_head:
            await self._feed()
        kept = [
            (name, value)
            for name, value in self._headers
            if name.lower() not in (b"transfer-encoding", b"content-length", b"connection")
        ]
        return Head(self._parser.get_status_code(), self._reason.decode("latin-1"), kept)

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
        """More of the reason."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is here."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """It is over."""
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


def write_head(writer: asyncio.StreamWriter, head: Head) -> None:
    """The head of an answer whose body follows by :func:`write_piece`."""
    lines = [f"HTTP/1.1 {head.status} {head.reason}\r\n".encode()]
    lines += [b"%s: %s\r\n" % pair for pair in head.headers]
    writer.write(b"".join([*lines, b"Transfer-Encoding: chunked\r\n\r\n"]))


async def write_piece(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """A piece of a body; an empty one ends it."""
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await writer.drain()


def refuse(
    writer: asyncio.StreamWriter, status: int, reason: str, kind: str, more: str = ""
) -> None:
    """An answer that is an error; ``more`` are lines of its head."""
    body = json.dumps({"error": {"type": kind, "message": reason, "code": kind}}).encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{more}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
