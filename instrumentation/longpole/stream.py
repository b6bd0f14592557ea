"""The tap on a provider's own stream object.

The application keeps the object its library returned, of the same type. Its inner iterator is
replaced in place by one that tells the record of each chunk, and closing its HTTP response (what
every close, context exit and helper of the libraries comes down to) ends the record. A stream
that nobody reads or closes ends when it is garbage-collected, on a thread of ours.
"""

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from longpole import emit
from longpole.record import Record


class _Tap:
    """What the sync and the async tap share: the end by garbage collection."""

    __slots__ = ("_inner", "_record")

    def __init__(self, inner: Any, record: Record) -> None:
        self._inner = inner
        self._record = record

    def __del__(self) -> None:
        record = self._record
        if record.is_open:
            emit.attendant.put(record.abandoned)


class SyncTap(_Tap):
    """An iterator over the chunks that reports each one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        record = self._record
        record.pull()
        while True:
            try:
                chunk = next(self._inner)
            except StopIteration:
                record.ran_dry()
                raise
            except BaseException as error:
                record.failed(error)
                raise
            if not record.arrived(chunk):
                return chunk


class AsyncTap(_Tap):
    """The same for an async stream."""

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        record = self._record
        record.pull()
        while True:
            try:
                chunk = await self._inner.__anext__()
            except StopAsyncIteration:
                record.ran_dry()
                raise
            except BaseException as error:
                record.failed(error)
                raise
            if not record.arrived(chunk):
                return chunk


def tap(stream: Any, record: Record) -> None:
    """Have ``record`` follow ``stream`` to its end; the object stays the library's own.

    Args:
        stream: has ``_iterator`` over its chunks and ``response``, the HTTP response.
        record: of the call that returned it.
    """
    inner, response = stream._iterator, stream.response
    on_close = _OnClose(inner, record)
    if hasattr(inner, "__anext__"):
        name = "aclose"
        response.aclose = on_close.around_async(response.aclose)
        stream._iterator = AsyncTap(inner, record)
    else:
        name = "close"
        response.close = on_close.around(response.close)
        stream._iterator = SyncTap(inner, record)
    record.watch(lambda: vars(response).pop(name, None))
    emit.attendant.start()


class _OnClose:
    """What happens when the HTTP response is closed.

    The library's own chunk generator closes it too, when it is garbage-collected before its end.
    By then a weak reference to it is dead: the stream was abandoned, and the end waits for our
    thread. The reference must be weak anyway, or the stream would never be collected.
    """

    def __init__(self, inner: Any, record: Record) -> None:
        self._inner = weakref.ref(inner)
        self._record = record

    def _closed(self) -> None:
        if self._inner() is None:
            emit.attendant.put(self._record.abandoned)
        else:
            self._record.closed()

    def around(self, close: Callable[[], None]) -> Callable[[], None]:
        """``close`` that tells the record."""

        def watched() -> None:
            try:
                close()
            finally:
                self._closed()

        return watched

    def around_async(self, close: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """The same, awaited."""

        async def watched() -> None:
            try:
                await close()
            finally:
                self._closed()

        return watched
