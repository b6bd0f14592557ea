"""A response body that the application reads itself, followed as its bytes pass.

The bytes are the application's: they pass unchanged and when they would. What they say is read
beside them: server-sent events (WHATWG HTML section 9.2), lines of JSON or Bedrock's frames (AWS
event stream encoding) when the call streams, one JSON document when it does not. A body in an
encoding that is not known here, or longer than :data:`MAX_BYTES` without a break, is timed and
not read.
"""

import base64
import json
import struct
import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache
from typing import Any

from longpole import emit, health
from longpole.loose import Loose, loosened
from longpole.record import Record
from longpole.stream import AsyncSteps, SyncSteps, watch_close

MAX_BYTES = 8 << 20
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_LEGIBLE = ("", "identity", "gzip", "deflate")
_FRAMES = "application/vnd.amazon.eventstream"
_FRAME_HEAD, _FRAME_TAIL = struct.Struct("!III"), 4


def follow(response: Any, record: Record) -> None:
    """Have ``record`` follow the body of an httpx response that is not read yet."""
    inner = response.stream
    name = "AsyncByteStream" if hasattr(inner, "aclose") else "SyncByteStream"
    base = next(cls for cls in type(inner).__mro__ if cls.__name__ == name)
    headers = response.headers
    reader = _Reader(record, headers.get("content-encoding", ""), headers.get("content-type", ""))
    response.stream = _body_class(base)(inner, reader)
    record.watch(_nothing)
    emit.attendant.start()


def follow_reads(body: Any, raw: Any, record: Record) -> None:
    """Have ``record`` follow a body that is read like a file.

    Args:
        body: what the application got and reads ``raw`` through.
        raw: has ``read`` and ``close``.
        record: of the call.
    """
    reader = _Reader(record, "")
    raw.read = _Reads(raw.read, reader).read
    weakref.finalize(body, _dropped, reader).atexit = False
    record.watch(watch_close(raw, body, reader, is_async=False))
    emit.attendant.start()


class _Reads:
    """Reads of a file-like body, each reported."""

    def __init__(self, read: Callable[..., bytes], reader: Any) -> None:
        self._read = read
        self._reader = reader

    def read(self, amt: int | None = None, *args: Any, **kwargs: Any) -> bytes:
        reader = self._reader
        if not reader.is_open:
            return self._read(amt, *args, **kwargs)
        reader.pull()
        try:
            data = self._read(amt, *args, **kwargs)
        except BaseException as error:
            reader.failed(error)
            raise
        reader.arrived(data)
        if amt is None or amt < 0 or (not data and amt):
            reader.ran_dry()
        return data


def _dropped(reader: "_Reader") -> None:
    if reader.is_open:
        emit.attendant.put(reader.abandoned)


class _Reader:
    """Between a tap and a record: a chunk of the tap is bytes, one of the record an event."""

    def __init__(self, record: Record, encoding: str, media_type: str = "") -> None:
        self._record = record
        self._take = self._take_frames if media_type == _FRAMES else self._take_lines
        self._rest = b""
        self._decode: Callable[[bytes], bytes] | None = None
        if encoding in ("gzip", "deflate"):
            self._decode = zlib.decompressobj(_GZIP_OR_ZLIB).decompress
        self._is_legible = encoding in _LEGIBLE
        self.pull, self.closed, self.failed = record.pull, record.closed, record.failed
        self.abandoned = record.abandoned

    @property
    def is_open(self) -> bool:
        return self._record.is_open

    def arrived(self, data: bytes) -> bool:
        """Bytes came; none is ever hidden."""
        self._record.passed()
        if self._is_legible:
            try:
                self._rest += data if self._decode is None else self._decode(data)
                if self._record.call.is_streamed:
                    self._take()
            except Exception as error:  # noqa: BLE001 - counted; the bytes pass on
                health.swallow("body", error)
                self._is_legible = False
            self._is_legible = self._is_legible and len(self._rest) <= MAX_BYTES
        return False

    def ran_dry(self) -> None:
        """The body is complete."""
        rest, self._rest = self._rest, b""
        if self._record.call.is_streamed:
            self._record.ran_dry()
            return
        try:
            found = json.loads(rest) if self._is_legible else None
        except ValueError:
            found = None
        self._record.returned(Loose(found if isinstance(found, dict) else {}))

    def _take_frames(self) -> None:
        """Every frame that is whole; its JSON holds an event in base64."""
        while len(self._rest) >= _FRAME_HEAD.size:
            size, headers_size, _ = _FRAME_HEAD.unpack_from(self._rest)
            if not _FRAME_HEAD.size + headers_size + _FRAME_TAIL <= size <= MAX_BYTES:
                raise ValueError("not a frame of an AWS event stream")
            if len(self._rest) < size:
                return
            payload = self._rest[_FRAME_HEAD.size + headers_size : size - _FRAME_TAIL]
            self._rest = self._rest[size:]
            data = json.loads(payload or b"{}").get("bytes")
            if data:
                self._record.arrived(loosened(json.loads(base64.b64decode(data))))

    def _take_lines(self) -> None:
        """Every line that is whole; what is left waits for more bytes."""
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if data[:1] == b"{":
                self._record.arrived(loosened(json.loads(data)))


class _Body:
    """Stands where httpx keeps the body of a response, with all of its ways."""

    def __init__(self, inner: Any, reader: Any) -> None:
        self._inner = inner
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[bytes]:
        return SyncSteps(iter(self._inner), self._reader)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return AsyncSteps(aiter(self._inner), self._reader)

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._reader.closed()

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._reader.closed()

    def __del__(self) -> None:
        if self._reader.is_open:
            emit.attendant.put(self._reader.abandoned)


@lru_cache(maxsize=8)
def _body_class(base: type) -> type:
    """Both httpx and httpx2 ask for a stream of their own class."""
    return type(_Body.__name__, (_Body, base), {})


def _nothing() -> None:
    return None
