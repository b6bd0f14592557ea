"""Context: what every span inside a block inherits, and how it crosses processes.

Facts travel in OpenTelemetry's own context beside the current span, so whatever carries the one
carries the other. A context is attached only around running code of the block, never across a
``yield`` of ours.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from longpole import health
from longpole.call import AttributeValue

Facts = Mapping[str, AttributeValue]
"""Attributes by vocabulary key."""

W3C = TraceContextTextMapPropagator()
_SPAN_FACTS = otel.create_key("longpole.facts")
_CALL_FACTS = otel.create_key("longpole.call_facts")
_NONE: Facts = {}


def is_cancel(error: BaseException) -> bool:
    """The application stopped its own work; that is no failure of what was running.

    Told by name for asyncio and trio, so that neither is imported for it.
    """
    if isinstance(error, GeneratorExit | KeyboardInterrupt):
        return True
    return any(cls.__name__ in ("CancelledError", "Cancelled") for cls in type(error).__mro__)


def span_facts(context: Context | None = None) -> Facts:
    """What every span inside inherits: route, versions, task class."""
    found = otel.get_value(_SPAN_FACTS, context)
    return found if isinstance(found, Mapping) else _NONE


def call_facts(context: Context | None = None) -> Facts:
    """What only model calls inside inherit: prompt segments, routing inputs."""
    found = otel.get_value(_CALL_FACTS, context)
    return found if isinstance(found, Mapping) else _NONE


def with_facts(context: Context, *, spans: Facts = _NONE, calls: Facts = _NONE) -> Context:
    """``context`` with more facts; a later fact of the same key wins."""
    if spans:
        context = otel.set_value(_SPAN_FACTS, {**span_facts(context), **spans}, context)
    if calls:
        context = otel.set_value(_CALL_FACTS, {**call_facts(context), **calls}, context)
    return context


def release(token: Token[Context]) -> None:
    """Undo an attach.

    A block that ends in another context than it began in has nothing to undo there; a generator
    that another task closes does that.
    """
    try:
        token.var.reset(token)
    except ValueError:
        health.count(health.internal_errors, "context left elsewhere")


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """``context`` is current inside."""
    token = otel.attach(context)
    try:
        yield
    finally:
        release(token)


@contextmanager
def carry(headers: Mapping[str, str]) -> Iterator[None]:
    """Spans inside belong to the trace that ``headers`` name (W3C ``traceparent``).

    Header names may have any case. Without a valid ``traceparent`` the block changes nothing.
    """
    context = otel.get_current()
    try:
        lower = {name.lower(): value for name, value in headers.items()}
        context = W3C.extract(lower, context)
    except Exception as error:  # noqa: BLE001 - counted; the block runs in the context it had
        health.swallow("carry", error)
    with attached(context):
        yield


def context_headers() -> dict[str, str]:
    """The current trace as headers for another process (``traceparent``, ``tracestate``).

    Empty outside any span.
    """
    headers: dict[str, str] = {}
    W3C.inject(headers)
    return headers
