"""Where spans go: the tracer, the exporter behind it, and the end of the process.

Nothing is set up until the first span or :func:`init`. A ``TracerProvider`` that the application
set is used and never replaced; without one, longpole keeps its own, and only :func:`init` makes
it the application's. The exporter is built and runs on background threads; no call of the
application waits for it.
"""

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, Span, SpanKind, Tracer
from opentelemetry.trace import TracerProvider as AnyProvider

from longpole import health, settings
from longpole.attendant import Attendant
from longpole.call import AttributeValue
from longpole.forks import loading
from longpole.vocab import keys

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

    from longpole.config import Scalar
    from longpole.export import Exporter, Processor

EXIT_TIMEOUT_S = 2.0
FLUSH_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Stats:
    """What became of the spans so far.

    Attributes:
        num_sent: spans the collector accepted.
        num_queued: finished spans that wait for export.
        num_open: model calls whose stream has not ended, guesses without a verdict.
        num_dropped: spans lost, by cause: ``queue_full``, ``export_failed``, ``closed``.
        num_internal_errors: failures of longpole itself, by place; the application saw none.
    """

    num_sent: int
    num_queued: int
    num_open: int
    num_dropped: dict[str, int]
    num_internal_errors: dict[str, int]


attendant = Attendant()
open_calls: set[Callable[[], None]] = set()
"""How to end each model call that is still running, for the end of the process."""

process: object = object()
"""Another one in the child of a fork."""

_lock = threading.RLock()
_own: "TracerProvider | NoOpTracerProvider | None" = None
_own_processor: "Processor | None" = None
_exporter: "Exporter | None" = None
_forced: AnyProvider | None = None
_is_initialised = False
_tracer_of: tuple[AnyProvider, Tracer] | None = None
_headers: Mapping[str, str] | None = None


def init(
    service: str | None = None,
    *,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    redact: Callable[[str], str] | None = None,
    **options: "Scalar",
) -> None:
    """Set up where spans go. Optional: the first span does it with the defaults.

    A ``TracerProvider`` the application already set is used; it gets longpole's exporter beside
    its own only when an endpoint was chosen for longpole (argument, ``LONGPOLE_SDK_ENDPOINT`` or
    ``longpole.toml``). Without one, longpole's provider becomes the application's. A second call
    changes nothing and says so in the log. Spans that ended before went where the defaults say;
    one that is still open, such as the workflow around this call, goes the new way from its real
    start.

    Args:
        service: ``service.name``.
        endpoint: OTLP/HTTP base URL of the collector.
        headers: sent with each export, for instance a key.
        redact: gets each captured text after longpole's own rules, returns what may be sent.
        **options: any other key of table ``[sdk]``, see :class:`longpole.settings.Settings`.

    Raises:
        UsageError: an unknown option, a wrong value, or a broken ``longpole.toml``.
    """
    global _own, _own_processor, _headers, _is_initialised  # noqa: PLW0603 - one set-up a process
    chosen = settings.load(redact=redact, service=service, endpoint=endpoint, **options)
    with _lock:
        if _is_initialised:
            health.warn_once("init", "longpole.init() ran before: this call changes nothing")
            return
        _is_initialised = True
        _headers = headers
        settings.put(chosen)
        if _own is not None:  # spans came before init(): the set-up they used retires
            if _exporter is not None:
                _exporter.hurry()
            attendant.start()
            if _own_processor is not None:
                _own_processor.heir = _inherit
            attendant.put(getattr(_own, "shutdown", _nothing))
            _own = _own_processor = None
        provider = trace.get_tracer_provider()
        if isinstance(provider, ProxyTracerProvider):
            own = _own_provider()
            if not isinstance(own, NoOpTracerProvider):
                trace.set_tracer_provider(own)
        elif chosen.is_endpoint_stated:
            _join(provider)


def tracer() -> Tracer:
    """The tracer in force: the application's provider's, else our own. Never raises."""
    global _tracer_of  # noqa: PLW0603 - a cache: asking a provider for a tracer is slow
    provider = _forced or trace.get_tracer_provider()
    known = _tracer_of
    if known is not None and known[0] is provider:
        return known[1]
    if isinstance(provider, ProxyTracerProvider):
        provider = _own if _own is not None else _own_provider()
        if known is not None and known[0] is provider:
            return known[1]
    found = provider.get_tracer(keys.SCOPE_SDK)
    _tracer_of = (provider, found)
    if _own_processor is not None and provider is not _forced:  # the application may have set one
        _own_processor.heir = _inherit if provider is not _own and _takes_ended(found) else None
    return found


def start_span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    context: Context,
    start_ns: int,
) -> Span:
    """A started span, child of the one in ``context``; current nowhere.

    Args:
        name: span name.
        kind: OpenTelemetry's span kind.
        attributes: known at the start, so that samplers see them.
        context: the parent's.
        start_ns: Unix epoch nanoseconds.
    """
    made_by = tracer()
    if not _is_told_later(made_by):
        return made_by.start_span(name, context, kind, attributes, start_time=start_ns)
    span = made_by.start_span(name, context, kind, start_time=start_ns)
    complete(
        span,
        {key: tuple(each) if type(each) is list else each for key, each in attributes.items()},
    )
    return span


def complete(span: Span, attributes: Mapping[str, AttributeValue]) -> None:
    """Add strings, numbers and tuples of them to a span that records.

    OpenTelemetry's own way cleans each value and locks for it, which was a fifth of what a call
    costs. Values of ours are clean, so where nothing has to be shortened or dropped they go in at
    once; anywhere else they take the official way.
    """
    held: Any = getattr(span, "_attributes", None)
    if (
        type(held) is BoundedAttributes
        and held.max_value_len is None
        and (held.maxlen is None or len(held._dict) + len(attributes) <= held.maxlen)
    ):
        held._dict.update(attributes)
    else:
        span.set_attributes(attributes)


_looked_at: tuple[object, object, bool] | None = None


def _is_told_later(made_by: Any) -> bool:
    """Nobody looks at a span's attributes when it starts, so they may go in at once after that.

    So it is with OpenTelemetry's own samplers and exporting processors.
    """
    global _looked_at  # noqa: PLW0603 - a cache
    sampler = getattr(made_by, "sampler", None)
    processors = getattr(getattr(made_by, "span_processor", None), "_span_processors", None)
    known = _looked_at
    if known is not None and known[0] is sampler and known[1] is processors:
        return known[2]
    is_blind = False
    if sampler is not None and isinstance(processors, tuple):
        from opentelemetry.sdk.trace import export, sampling

        is_blind = sampler in (sampling.DEFAULT_ON, sampling.ALWAYS_ON) and all(
            type(processor).on_start
            in (export.BatchSpanProcessor.on_start, export.SimpleSpanProcessor.on_start)
            for processor in processors
        )
    _looked_at = (sampler, processors, is_blind)
    return is_blind


def flush(timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
    """Send what is queued; ``True`` when all of it arrived within ``timeout_s`` seconds.

    Streams that were garbage-collected are ended first. A dead collector costs the time, never
    an exception.
    """
    provider = _forced or trace.get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider):
        provider = _own or NoOpTracerProvider()
    force = getattr(provider, "force_flush", _nothing)
    lost = health.dropped["export_failed"]
    is_done = attendant.run(force, timeout_s) and stats().num_queued == 0
    return is_done and health.dropped["export_failed"] == lost


def stats() -> Stats:
    """What was sent, dropped (by cause) and is queued, in this process so far."""
    return Stats(
        num_sent=health.sent["spans"],
        num_queued=_exporter.num_pending if _exporter is not None else 0,
        num_open=len(open_calls),
        num_dropped=dict(health.dropped),
        num_internal_errors=dict(health.internal_errors),
    )


def close(timeout_s: float = EXIT_TIMEOUT_S) -> None:
    """End open calls, send what is queued and stop, within ``timeout_s`` seconds."""
    for end in list(open_calls):
        end()
    if _exporter is None:
        return
    _exporter.hurry()
    if _exporter.num_pending and not flush(timeout_s * 0.9):
        _exporter.give_up()
        return
    if _own is not None and not isinstance(_own, NoOpTracerProvider):
        _own.shutdown()


def warm() -> None:
    """Load what the first span needs, so that the first model call does not pay for it."""
    settings.current()
    with loading():
        import_module("opentelemetry.sdk.trace.export")


def force(provider: AnyProvider | None) -> AnyProvider | None:
    """Send spans to ``provider`` whatever is set up, ``None`` to stop; returns the one before.

    For tests.
    """
    global _forced
    before, _forced = _forced, provider
    return before


def _own_provider() -> "TracerProvider | NoOpTracerProvider":
    global _own  # noqa: PLW0603 - built once
    with _lock:
        if _own is None:
            try:
                with loading():
                    _own = _build()
            except Exception as error:  # noqa: BLE001 - counted; the application goes on untraced
                health.swallow("set-up", error)
                _own = NoOpTracerProvider()
        return _own


def _inherit(span: "ReadableSpan") -> None:
    """An ended span of a set-up that retired goes the way of the one in force."""
    made_by: Any = tracer()
    if not _takes_ended(made_by):
        health.count(health.dropped, "closed")
        health.warn_once(
            "inherit",
            f"longpole.init() came inside '{span.name}', which is lost: call it before the first "
            "workflow",
        )
        return
    span._resource = made_by.resource
    made_by.span_processor.on_end(span)


def _takes_ended(made_by: Tracer) -> bool:
    """The tracer is OpenTelemetry's SDK's, whose processors take a span that began elsewhere."""
    return hasattr(made_by, "span_processor") and hasattr(made_by, "resource")


def _build() -> "TracerProvider":
    global _own_processor  # noqa: PLW0603 - the provider's
    import platform

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from longpole.ids import Ids

    service = settings.current().service
    host = Resource({keys.HOST_NAME: platform.node()})  # tells whose clock the spans show
    named = Resource.create({keys.SERVICE_NAME: service} if service else {})
    provider = TracerProvider(
        resource=host.merge(named), id_generator=Ids(), shutdown_on_exit=False
    )
    _own_processor = _processor()
    provider.add_span_processor(_own_processor)
    return provider


def _join(provider: AnyProvider) -> None:
    """Our exporter beside the application's own, on its provider."""
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        health.warn_once("join", f"{type(provider).__name__} takes no exporter: spans go its way")
        return
    add(_processor())


def _processor() -> "Processor":
    global _exporter  # noqa: PLW0603 - one per process
    from longpole.export import Exporter, Processor

    _exporter = Exporter(settings.current(), _headers)
    attendant.start()
    atexit.unregister(close)
    atexit.register(close)
    return Processor(_exporter, settings.current())


def _nothing() -> bool:
    return True


def _after_fork() -> None:
    """The child has none of our threads, and its parent ends what was running."""
    global attendant, process, _lock  # noqa: PLW0603 - threads of the parent may be using them
    attendant, process = Attendant(), object()
    _lock = threading.RLock()
    open_calls.clear()
    health.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
