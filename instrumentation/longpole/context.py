"""Context: what every span inside a block inherits, and how it crosses processes.

Facts travel in OpenTelemetry's own context beside the current span, so whatever carries the one
carries the other. A context is attached only around running code of the block, never across a
``yield`` of ours.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from time import perf_counter_ns

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from longpole import health
from longpole.call import AttributeValue
from longpole.vocab import keys

Facts = Mapping[str, AttributeValue]
"""Attributes by vocabulary key."""

W3C = TraceContextTextMapPropagator()
_SPAN_FACTS = otel.create_key("longpole.facts")
_CALL_FACTS = otel.create_key("longpole.call_facts")
_DEADLINE = otel.create_key("longpole.deadline_ns")
_NONE: Facts = {}
_NS_PER_S = 1e9


def is_cancel(error: BaseException) -> bool:
    """The application stopped its own work; that is no failure of what was running.

    Told by name for asyncio and trio, so that neither is imported for it.
    """
    if isinstance(error, GeneratorExit | KeyboardInterrupt):
        return True
    return any(cls.__name__ in ("CancelledError", "Cancelled") for cls in type(error).__mro__)


def span_facts(context: Context | None = None) -> Facts:
    """What a span that starts now inherits: route, versions, task class, time left."""
    left_s = remaining_s(context)
    facts = _inherited(context)
    return facts if left_s is None else {**facts, keys.DEADLINE_REMAINING: left_s}


def call_facts(context: Context | None = None) -> Facts:
    """What only model calls inside inherit: prompt segments, routing inputs."""
    found = otel.get_value(_CALL_FACTS, context)
    return found if isinstance(found, Mapping) else _NONE


def facts_of_call(context: Context) -> Facts:
    """What a model call that starts now inherits: as a span, and as a call."""
    if _SPAN_FACTS in context or _CALL_FACTS in context or _DEADLINE in context:
        return {**span_facts(context), **call_facts(context)}
    return _NONE


def with_facts(context: Context, *, spans: Facts = _NONE, calls: Facts = _NONE) -> Context:
    """``context`` with more facts; a later fact of the same key wins."""
    if spans:
        context = otel.set_value(_SPAN_FACTS, {**_inherited(context), **spans}, context)
    if calls:
        context = otel.set_value(_CALL_FACTS, {**call_facts(context), **calls}, context)
    return context


def with_deadline(context: Context, at_ns: int) -> Context:
    """``context`` with a deadline (``perf_counter_ns``); an earlier one around it stays."""
    found = otel.get_value(_DEADLINE, context)
    if isinstance(found, int) and found <= at_ns:
        return context
    return otel.set_value(_DEADLINE, at_ns, context)


def remaining_s(context: Context | None = None) -> float | None:
    """Seconds until the tightest deadline around the caller; ``None`` if there is none.

    Below 0 when it has passed. Deadlines do not cross processes.
    """
    found = otel.get_value(_DEADLINE, context)
    return (found - perf_counter_ns()) / _NS_PER_S if isinstance(found, int) else None


def _inherited(context: Context | None) -> Facts:
    found = otel.get_value(_SPAN_FACTS, context)
    return found if isinstance(found, Mapping) else _NONE


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


def _is_continued(here: Context, there: Context) -> bool:
    """A span of this process in ``here`` belongs to the trace of ``there``."""
    current, caller = (get_current_span(c).get_span_context() for c in (here, there))
    return current.is_valid and not current.is_remote and current.trace_id == caller.trace_id


@contextmanager
def carry(headers: Mapping[str, str]) -> Iterator[None]:
    """Spans inside belong to the trace that ``headers`` name (W3C ``traceparent``).

    Header names may have any case. Without a valid ``traceparent`` the block changes nothing, nor
    where a span of this process that belongs to the named trace is current already: a web
    framework's own, which stands between the caller and the block.
    """
    context = here = otel.get_current()
    try:
        lower = {name.lower(): value for name, value in headers.items()}
        context = W3C.extract(lower, here)
        if _is_continued(here, context):
            context = here
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
