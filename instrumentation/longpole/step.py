"""One piece of work as a span: the mechanism under ``workflow`` and every kind of step.

A step is a ``with`` block, an ``async with`` block or a decorator for functions, coroutine
functions and (async) generator functions. In a generator the context is attached only while the
generator's own code runs, never while it waits for its consumer.
"""

import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Token
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast, overload

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, set_span_in_context

from longpole import emit, health
from longpole.call import AttributeValue
from longpole.context import Facts, is_cancel, release, span_facts, with_deadline, with_facts
from longpole.generators import drive, drive_async
from longpole.vocab import Stage, keys

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Step")

_NS_PER_S = 1e9


class Step:
    """A span around a block or a function.

    It yields itself; :meth:`set` adds facts to its span. One step object runs once at a time; a
    decorator makes a fresh one for each call. An exception leaves the span with status
    error and ``error.type``, and goes on unchanged. Failures of longpole itself are counted and
    never reach the block.
    """

    def __init__(
        self,
        name: str,
        attributes: Facts,
        inherited: Facts | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        self._name = name
        self._attributes = attributes
        self._inherited = inherited or {}
        self._deadline_s = deadline_s
        self._after: Callable[[str], Step] | None = None
        self._span: Span = INVALID_SPAN
        self._is_over = False
        self.context: Context | None = None
        self._token: Token[Context] | None = None
        self._start_ns = 0
        self._epoch_ns = 0
        self._process = emit.process

    @property
    def span_id(self) -> str:
        """Span id, 16 hex digits; all zeros before the step began."""
        return f"{self._span.get_span_context().span_id:016x}"

    def set(self, key: str, value: AttributeValue) -> None:
        """Add one attribute to the span, by vocabulary key or your own, while it runs."""
        if not self.is_late():
            self._span.set_attribute(key, value)

    def __enter__(self) -> Self:
        self.begin()
        if self.context is not None:
            self._token = otel.attach(self.context)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            release(self._token)
        self.finish(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, error, traceback)

    def __call__(self, function: F) -> F:
        """Decorate: each call of ``function`` is a step of its own.

        A step that was made without a name takes the function's.
        """
        step = self if self._after is None else self._after(function.__name__)
        return cast("F", _decorated(step, function))

    def again(self) -> Self:
        """An unstarted copy."""
        return copy.copy(self)

    def begin(self) -> None:
        """Start the span and make :attr:`context`, the one for the code inside."""
        try:
            self._is_over, self._process = False, emit.process
            self._start_ns, self._epoch_ns = perf_counter_ns(), time_ns()
            parent = with_facts(self._around(), spans=self._inherited)
            attributes = {**span_facts(parent), **self._attributes}
            if self._deadline_s is not None:
                attributes[keys.DEADLINE] = self._deadline_s
                at_ns = self._start_ns + int(self._deadline_s * _NS_PER_S)
                parent = with_deadline(parent, at_ns)
            self._span = emit.start_span(
                self._name, SpanKind.INTERNAL, attributes, parent, self._epoch_ns
            )
            self.context = set_span_in_context(self._span, parent)
        except Exception as error:  # noqa: BLE001 - counted; the code inside runs untraced
            health.swallow("step", error)

    def finish(self, error: BaseException | None) -> None:
        """End the span; ``error`` is what left the code inside."""
        if self._process is not emit.process:  # a fork inside: its parent ends the span
            self._is_over = True
            return
        try:
            self._conclude(error)
            if self._deadline_s is not None:
                taken_s = self.elapsed_ns() / _NS_PER_S
                self._span.set_attribute(keys.DEADLINE_MISSED, taken_s > self._deadline_s)
        except Exception as failure:  # noqa: BLE001 - counted; the span ends without these facts
            health.swallow("step", failure)
        self._is_over = True
        try:
            self._end(self._epoch_ns + self.elapsed_ns())
        except Exception as failure:  # noqa: BLE001 - counted; the code's own error goes on
            health.swallow("step", failure)

    # --- what a kind of step may do otherwise ----------------------------------------------------

    def _around(self) -> Context:
        """The context the step begins in."""
        return otel.get_current()

    def _took(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """The decorated function was called so."""

    def _gave(self, result: object) -> None:
        """The decorated function returned that."""

    def _conclude(self, error: BaseException | None) -> None:
        """Say how it ended; ``error`` left the code inside."""
        if error is not None and not isinstance(error, GeneratorExit):
            self._span.set_attribute(keys.ERROR_TYPE, type(error).__name__)
            if not is_cancel(error):
                self._span.set_status(StatusCode.ERROR)

    def _end(self, at_ns: int) -> None:
        """End the span at ``at_ns``, Unix epoch."""
        self._span.end(at_ns)

    # --- while it runs ---------------------------------------------------------------------------

    def is_late(self) -> bool:
        """The step has ended: what is said about it now is lost, and the log says so once."""
        if self._is_over:
            health.warn_once("late", f"longpole: '{self._name}' has ended, late facts are lost")
        return self._is_over

    def elapsed_ns(self) -> int:
        """Nanoseconds since the step began."""
        return perf_counter_ns() - self._start_ns


class StepKind(Generic[S]):
    """A kind of step; a call makes one: ``with tool("search"):``, ``@tool`` or ``@tool("x")``."""

    def __init__(
        self,
        step: Callable[[str, Facts], S],
        word: str,
        stage: Stage,
        *,
        operation: str | None = None,
        name_key: str | None = None,
    ) -> None:
        self._step = step
        self._word = word
        self._name_key = name_key
        self._attributes: dict[str, AttributeValue] = {keys.STAGE: stage.value}
        if operation is not None:
            self._attributes[keys.OPERATION] = operation

    @overload
    def __call__(self, name: F) -> F: ...
    @overload
    def __call__(self, name: str | None = None) -> S: ...
    def __call__(self, name: F | str | None = None) -> F | S:
        """A step of this kind.

        Args:
            name: what it is called; default for a decorator is the function's name. A function
                here is decorated at once.
        """
        if callable(name):
            return self.make(name.__name__, {})(name)
        return self.make(name, {})

    def make(self, name: str | None, options: dict[str, Any]) -> S:
        """A step with further arguments for its class; without a name it waits for a function's."""
        if name is not None:
            named = {} if self._name_key is None else {self._name_key: name}
            attributes = {**self._attributes, **named}
            return self._step(f"{self._word} {name}", attributes, **options)
        step = self._step(self._word, self._attributes, **options)
        step._after = lambda found: self.make(found, options)
        return step


def _decorated(step: Step, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` inside a fresh step at each call, whatever kind of function it is."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def in_async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            return drive_async(step.again(), function(*args, **kwargs))

        return in_async_generator
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def in_generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            return drive(step.again(), function(*args, **kwargs))

        return in_generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def in_coroutine(*args: Any, **kwargs: Any) -> Any:
            with step.again() as made:
                made._took(function, args, kwargs)
                result = await function(*args, **kwargs)
                made._gave(result)
                return result

        return in_coroutine

    @functools.wraps(function)
    def in_function(*args: Any, **kwargs: Any) -> Any:
        with step.again() as made:
            made._took(function, args, kwargs)
            result = function(*args, **kwargs)
            made._gave(result)
            return result

    return in_function
