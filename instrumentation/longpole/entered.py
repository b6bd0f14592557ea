"""Context managers that a library makes of a generator, which sends its request when entered."""

from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from types import GeneratorType
from typing import Any

from longpole import emit
from longpole.record import Record
from longpole.stand_in import is_generator, loop_closes
from longpole.stream import Abandons, Sending, Steps


def enters(result: Any, record: Record) -> Any:
    """Have a manager made of a generator (``contextlib``) send its request inside the record.

    It sends when it is entered; the body that it then holds is followed from its headers on.

    Returns:
        ``result``; what is no such manager is left alone.
    """
    inner = getattr(result, "gen", None)
    if is_generator(inner):
        emit.attendant.start()
        entered = _entered if isinstance(inner, GeneratorType) else _async_entered
        result.gen = entered(inner, record, _Unentered(inner, record))
    return result


class _Unentered(Steps, Abandons):
    """Ends the record of a manager that is dropped."""

    __slots__ = ()


def _entered(inner: Any, record: Record, held: _Unentered) -> Generator[Any, None, None]:
    try:
        with Sending(record):
            value = next(inner)
    except BaseException as error:
        record.failed(error)
        raise
    try:
        yield value
    except BaseException as error:  # noqa: BLE001 - it is the library's to handle
        with suppress(StopIteration):
            inner.throw(error)
    else:
        next(inner, None)


async def _async_entered(inner: Any, record: Record, held: _Unentered) -> AsyncGenerator[Any, None]:
    try:
        with Sending(record):
            value = await anext(inner)
    except BaseException as error:
        record.failed(error)
        raise
    try:
        yield value
    except BaseException as error:
        if isinstance(error, GeneratorExit) and loop_closes(inner):
            raise
        with suppress(StopAsyncIteration):
            await inner.athrow(error)
    else:
        await anext(inner, None)
