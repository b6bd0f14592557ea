"""Steps around generators: the context is attached only while the generator's own code runs.

A context attached across a ``yield`` would leak into the consumer, and could be detached in
another task than it was attached in. So each item is made inside the step and consumed outside
it; what the generator left current (a step of its own around a ``yield``) is put back when it
resumes.
"""

from collections.abc import AsyncGenerator, Generator
from contextvars import Token
from typing import Any, Protocol

from opentelemetry import context as otel
from opentelemetry.context import Context

from longpole.context import release


class Work(Protocol):
    """What is driven: a step that has not begun."""

    context: Context | None

    def begin(self) -> None:
        """Start it."""

    def finish(self, error: BaseException | None) -> None:
        """End it."""


class _Inside:
    """The context of the generator's code, attached while it runs."""

    def __init__(self, context: Context | None) -> None:
        self._context = context
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = otel.attach(self._context)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            self._context = otel.get_current()
            release(self._token)


def drive(work: Work, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """``inner``, with ``work`` around its running; passes on what is sent, thrown and returned."""
    work.begin()
    inside = _Inside(work.context)
    resume, value = inner.send, None
    try:
        while True:
            with inside:
                try:
                    item = resume(value)
                except StopIteration as done:
                    work.finish(None)
                    return done.value
            try:
                value, resume = (yield item), inner.send
            except GeneratorExit:
                with inside:
                    inner.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                value, resume = error, inner.throw
    except BaseException as error:
        work.finish(error)
        raise


async def drive_async(work: Work, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """As :func:`drive`, for an async generator."""
    work.begin()
    inside = _Inside(work.context)
    resume, value = inner.asend, None
    try:
        while True:
            with inside:
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    work.finish(None)
                    return
            try:
                value, resume = (yield item), inner.asend
            except GeneratorExit:
                with inside:
                    await inner.aclose()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                value, resume = error, inner.athrow
    except BaseException as error:
        work.finish(error)
        raise
