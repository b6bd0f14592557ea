"""The ways out of a stream, for any client: each form of a call goes through each of them."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from longpole.testing import Spans


class Form(NamedTuple):
    """One form of a streamed call.

    ``make`` takes client and model; ``then`` what that returned or its coroutine gave, and returns
    the context manager that holds the stream; ``read`` says what to iterate inside.
    """

    name: str
    make: Callable[[Any, str], Any]
    then: Callable[[Any], Any] = lambda made: made
    read: Callable[[Any], Any] = lambda entered: entered


class Exit(NamedTuple):
    """A way out, on which scenario, and the state of the span that it must give."""

    name: str
    model: str
    state: str


EXITS = (
    Exit("end", "plain", "completed"),
    Exit("leave", "slow", "closed_early"),
    Exit("close", "slow", "closed_early"),
    Exit("fail", "slow", "closed_early"),
    Exit("drop", "slow", "abandoned"),
    Exit("end", "cut", "error"),
    Exit("end", "error-event", "error"),
    Exit("end", "no-finish", "error"),
)
ASYNC_EXITS = (*EXITS, Exit("cancel", "slow", "closed_early"))


def names(rows: Any) -> list[str]:
    """Test ids."""
    return [f"{row.name}-{row.model}" if isinstance(row, Exit) else row.name for row in rows]


# --- sync --------------------------------------------------------------------------------------


def leave_by(way: Exit, form: Form, client: Any, spans: Spans) -> None:
    """Make the call and leave its stream that way; the library's own exceptions pass."""
    _SYNC[way.name](lambda: form.then(form.make(client, way.model)), form.read, spans)


def _end(opened: Any, read: Any, spans: Spans) -> None:
    with suppress(Exception), opened() as entered:
        for _ in read(entered):
            pass


def _leave(opened: Any, read: Any, spans: Spans) -> None:
    with opened() as entered:
        for _ in read(entered):
            break


def _close(opened: Any, read: Any, spans: Spans) -> None:
    entered = opened().__enter__()
    next(iter(read(entered)))
    entered.close()


def _fail(opened: Any, read: Any, spans: Spans) -> None:
    error = ValueError("mine")

    def take_one() -> None:
        with opened() as entered:
            for _ in read(entered):
                raise error

    with pytest.raises(ValueError, match="mine") as caught:
        take_one()
    assert caught.value is error


def _drop(opened: Any, read: Any, spans: Spans) -> None:
    def take_one() -> None:
        next(iter(read(opened().__enter__())))

    take_one()
    for _ in _until_one(spans):
        pass


def _until_one(spans: Spans) -> Iterator[None]:
    for _ in range(10):
        gc.collect()
        if len(spans):
            return
        yield


_SYNC = {"end": _end, "leave": _leave, "close": _close, "fail": _fail, "drop": _drop}


# --- async -------------------------------------------------------------------------------------


async def leave_by_async(way: Exit, form: Form, client: Any, spans: Spans) -> None:
    """The same for an async client."""

    async def opened() -> Any:
        return await _value(form.then(await _value(form.make(client, way.model))))

    await _ASYNC[way.name](opened, form.read, spans)


async def _value(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def _aend(opened: Any, read: Any, spans: Spans) -> None:
    with suppress(Exception):
        async with await opened() as entered:
            async for _ in read(entered):
                pass


async def _aleave(opened: Any, read: Any, spans: Spans) -> None:
    async with await opened() as entered:
        async for _ in read(entered):
            break


async def _aclose(opened: Any, read: Any, spans: Spans) -> None:
    entered = await (await opened()).__aenter__()
    await anext(aiter(read(entered)))
    await entered.close()


async def _afail(opened: Any, read: Any, spans: Spans) -> None:
    async def take_one() -> None:
        async with await opened() as entered:
            async for _ in read(entered):
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await take_one()


async def _acancel(opened: Any, read: Any, spans: Spans) -> None:
    async def take_all() -> None:
        async with await opened() as entered:
            async for _ in read(entered):
                pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take_all(), 0.2)


async def _adrop(opened: Any, read: Any, spans: Spans) -> None:
    async def take_one() -> None:
        await anext(aiter(read(await (await opened()).__aenter__())))

    await take_one()
    for _ in _until_one(spans):
        await asyncio.sleep(0.01)  # the loop closes the library's generators, one inside the other


_ASYNC = {
    "end": _aend,
    "leave": _aleave,
    "close": _aclose,
    "fail": _afail,
    "drop": _adrop,
    "cancel": _acancel,
}
