"""Generators of ours that stand in for a library's, where its method returns a plain generator."""

import sys
import weakref
from collections.abc import AsyncGenerator, Generator
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from longpole import emit
from longpole.record import Record
from longpole.stream import AsyncTap, Sending, SyncTap


def is_generator(result: object) -> bool:
    """A result that a generator of ours can stand in for."""
    return isinstance(result, GeneratorType | AsyncGeneratorType)


def stand_in(inner: Any, record: Record) -> Any:
    """A generator of the kind of ``inner`` that passes on its chunks and tells ``record``.

    The request may go out only when it is first read.
    """
    emit.attendant.start()
    reference: list[Any] = []  # to itself, weak: dead while the garbage collector closes it
    if isinstance(inner, GeneratorType):
        made: Any = _sync(SyncTap(inner, record), reference, record)
    else:
        made = _async(AsyncTap(inner, record), reference, record)
    reference.append(weakref.ref(made))
    record.watch(_nothing)
    return made


def _sync(source: SyncTap, reference: list[Any], record: Record) -> Generator[Any, None, None]:
    sending, resume = Sending(record), source.__next__
    try:
        while True:
            try:
                with sending:
                    chunk = resume()
            except StopIteration:
                return
            try:
                yield chunk
                resume = source.__next__
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the library's to handle
                record.closed()
                resume = partial(source._inner.throw, error)
    except GeneratorExit:
        _end_of(reference, record)
        source._inner.close()
        raise


async def _async(
    source: AsyncTap, reference: list[Any], record: Record
) -> AsyncGenerator[Any, None]:
    sending, resume = Sending(record), source.__anext__
    try:
        while True:
            try:
                with sending:
                    chunk = await resume()
            except StopAsyncIteration:
                return
            try:
                yield chunk
                resume = source.__anext__
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the library's to handle
                record.closed()
                resume = partial(source._inner.athrow, error)
    except GeneratorExit:
        _end_of(reference, record)
        if not loop_closes(source._inner):
            await source._inner.aclose()
        raise


def loop_closes(inner: Any) -> bool:
    """The event loop ends and closes every generator by itself: one that closes twice complains."""
    asyncio = sys.modules.get("asyncio")
    if inner.ag_running or asyncio is None:
        return bool(inner.ag_running)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # another library's
        return False
    return getattr(loop, "_asyncgens_shutdown_called", False) is True


def _end_of(reference: list[Any], record: Record) -> None:
    """Closed by the application, or (its weak reference is dead) by the garbage collector."""
    if reference[0]() is None:
        emit.attendant.put(record.abandoned)
    else:
        record.closed()


def _nothing() -> None:
    return None
