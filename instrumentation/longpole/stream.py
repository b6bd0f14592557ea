"""The tap on a provider's own stream.

The application keeps the object its library returned, of the same type. Its inner iterator is
replaced in place by one that tells the record of each chunk, and closing its HTTP response (what
every close, context exit and helper of the libraries comes down to) ends the record. A stream
that nobody reads or closes ends when it is garbage-collected, on a thread of ours.
"""

import weakref
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
)
from functools import lru_cache, wraps
from typing import Any

from longpole import emit, health
from longpole.providers.base import Chunks
from longpole.record import Record, current


class Steps:
    """What the sync and the async form share.

    ``record`` is a record, or whatever else takes ``pull``, ``arrived``, ``ran_dry``, ``failed``.
    """

    __slots__ = ("_inner", "_record")

    def __init__(self, inner: Any, record: Any) -> None:
        self._inner = inner
        self._record = record


class SyncSteps(Steps):
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


class AsyncSteps(Steps):
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


class Abandons:
    """Ends the record when it is garbage-collected."""

    __slots__ = ()
    _record: Any

    def closed(self) -> None:
        """The application closed the stream."""
        self._record.closed()

    def __del__(self) -> None:
        record = self._record
        if record.is_open:
            emit.attendant.put(record.abandoned)


class SyncTap(SyncSteps, Abandons):
    """Steps that stand for the stream: with them gone, nobody reads it any more."""

    __slots__ = ()


class AsyncTap(AsyncSteps, Abandons):
    """The same for an async stream."""

    __slots__ = ()


def tap(chunks: Chunks, record: Record) -> None:
    """Have ``record`` follow a stream to its end.

    Args:
        chunks: where the chunks are in what the library's method returned.
        record: of the call that returned it.
    """
    if not emit.attendant.is_running:
        emit.attendant.start()
    if chunks.name in ("__next__", "__anext__"):
        _exchange_class(chunks.holder, chunks.name, record)
        record.watch(_nothing)
        return
    inner = getattr(chunks.holder, chunks.name)
    is_async = hasattr(inner, "__anext__")
    setattr(chunks.holder, chunks.name, (AsyncTap if is_async else SyncTap)(inner, record))
    record.watch(watch_close(chunks.response, inner, record, is_async=is_async))


# --- closing the HTTP response -----------------------------------------------------------------


def watch_close(response: Any, inner: Any, record: Any, *, is_async: bool) -> Any:
    """Shadow the response's close; returns how to undo that.

    Args:
        response: has ``close`` or ``aclose``.
        inner: what is collected together with the stream, by which its end is told from a close.
        record: gets ``closed`` or ``abandoned``.
        is_async: ``aclose`` where there is one.
    """
    if response is None:
        return _nothing
    if is_async and hasattr(response, "aclose"):
        response.aclose = _around_async(response.aclose, weakref.ref(inner), record)
        return lambda: vars(response).pop("aclose", None)
    response.close = _around(response.close, weakref.ref(inner), record)
    return lambda: vars(response).pop("close", None)


def _nothing() -> None:
    return None


# The library's own chunk generator closes the response too, when it is garbage-collected before
# its end. By then a weak reference to it is dead: the stream was abandoned, and the end waits for
# our thread. The reference must be weak anyway, or the stream would never be collected.


def _around(close: Callable[[], None], inner: Any, record: Any) -> Callable[[], None]:
    """``close`` that tells the record."""

    def watched() -> None:
        try:
            close()
        finally:
            if inner() is None:
                emit.attendant.put(record.abandoned)
            else:
                record.closed()

    return watched


def _around_async(
    close: Callable[[], Awaitable[None]], inner: Any, record: Any
) -> Callable[[], Awaitable[None]]:
    """The same, awaited."""

    async def watched() -> None:
        try:
            await close()
        finally:
            if inner() is None:
                emit.attendant.put(record.abandoned)
            else:
                record.closed()

    return watched


class Sending:
    """Around each step of a stream that may send its request only when it is first read.

    The HTTP hooks find the record, and nothing of ours stays current while the application works.
    """

    __slots__ = ("_record", "_token")

    def __init__(self, record: Record) -> None:
        self._record = record

    def __enter__(self) -> None:
        self._record.is_being_made = self._record.call.first_event_ns is None
        self._token = current.set(self._record)

    def __exit__(self, *error: object) -> None:
        self._record.is_being_made = False
        try:
            current.reset(self._token)
        except ValueError:  # closed from another context, where there is nothing to put back
            health.count(health.internal_errors, "context left elsewhere")


# --- streams that are their own iterator --------------------------------------------------------

_OWN_TAP = "_longpole_tap"


def _exchange_class(stream: Any, name: str, record: Record) -> None:
    """Give a stream object a subclass of its class whose ``name`` goes through a tap."""
    cls: Any = type(stream)
    inner = _Own(cls, weakref.ref(stream), record)
    vars(stream)[_OWN_TAP] = (AsyncTap if name == "__anext__" else SyncTap)(inner, record)
    stream.__class__ = _reporting(cls, name)


class _Own:
    """What a stream object's own class would yield next.

    The object holds its tap, so the reference back is weak: dropped, it goes at once.
    """

    __slots__ = ("_cls", "_record", "_stream")

    def __init__(self, cls: Any, stream: Any, record: Record) -> None:
        self._cls = cls
        self._stream = stream
        self._record = record

    def __next__(self) -> Any:
        with Sending(self._record):
            return self._cls.__next__(self._stream())

    async def __anext__(self) -> Any:
        with Sending(self._record):
            return await self._cls.__anext__(self._stream())


@lru_cache(maxsize=64)
def _reporting(cls: type, name: str) -> type:
    def step(self: Any) -> Any:
        return getattr(vars(self)[_OWN_TAP], name)()

    members = {name: step, "__module__": cls.__module__}
    closes = {"close": _telling, "aclose": _telling_async}
    for close, telling in closes.items():
        if hasattr(cls, close):
            members[close] = telling(getattr(cls, close))
    return type(cls.__name__, (cls,), members)


def _telling(close: Callable[..., Any]) -> Callable[..., Any]:
    """A stream's ``close`` that tells the record."""

    @wraps(close)
    def telling(self: Any) -> Any:
        try:
            return close(self)
        finally:
            vars(self)[_OWN_TAP].closed()

    return telling


def _telling_async(close: Callable[..., Any]) -> Callable[..., Any]:
    """The same, awaited."""

    @wraps(close)
    async def telling(self: Any) -> Any:
        try:
            return await close(self)
        finally:
            vars(self)[_OWN_TAP].closed()

    return telling
