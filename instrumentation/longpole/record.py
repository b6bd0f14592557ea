"""One model call being recorded: its :class:`Call`, its span, and exactly one end.

Between the wrapped method, the transport hooks and the stream tap this is what they share. Every
entry point is guarded: a failure of ours is counted and the application's call goes on.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import perf_counter_ns, time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from longpole import emit, health, settings
from longpole.call import AttributeValue, Call, Kind, StreamState
from longpole.context import call_facts, is_cancel, span_facts
from longpole.providers.base import Answer, Method, Provider, Server
from longpole.vocab import keys

current: ContextVar["Record | None"] = ContextVar("longpole_record", default=None)
"""The call that is being made, for the hooks of its HTTP client."""

INCOMPLETE = "incomplete_stream"
"""``error.type`` of a stream that ran dry before the model said it was done."""

MAX_SERVERS = 1024
_no_usage: set[Server] = set()
"""Servers that refused to count tokens in streams."""


class Record:
    """One model call in flight.

    ``kwargs`` is what to call the client's method with. It holds the prompt, so it is let go as
    soon as the method has returned (see :meth:`is_being_made`): a connection that stays open
    remembers the context, and with it the record, of the call that opened it.
    """

    __slots__ = (
        "_epoch_ns",
        "_is_asked",
        "_is_pulling",
        "_provider",
        "_read",
        "_server",
        "_unwatch",
        "answer",
        "call",
        "context",
        "is_redirected",
        "kwargs",
        "last_ns",
        "span",
        "status_code",
    )

    def __init__(
        self,
        provider: Provider,
        method: Method,
        client: Any,
        kwargs: Mapping[str, Any],
        parent: Context,
    ) -> None:
        start_ns, self._epoch_ns = perf_counter_ns(), time_ns()
        self._provider, self._read, self._server = provider, provider.chunk, provider.server(client)
        request = provider.request(kwargs)
        self.call = Call(start_ns, is_streamed=request.get(keys.REQUEST_STREAM) is True)
        self.answer = Answer(provider.num_choices(kwargs))
        self.last_ns = start_ns
        self.status_code: int | None = None
        self.is_redirected = self._is_pulling = False
        self._unwatch: Callable[[], None] | None = None
        asking = None
        if settings.current().ask_usage and self._server not in _no_usage:
            asking = provider.with_usage(kwargs)
        self._is_asked = asking is not None
        self.kwargs = kwargs if asking is None else asking
        attributes: dict[str, AttributeValue] = {
            **span_facts(parent),
            **call_facts(parent),
            keys.OPERATION: method.operation,
            keys.PROVIDER: provider.name(client),
            keys.SERVER_ADDRESS: self._server.host,
            **request,
        }
        if self._server.port is not None:
            attributes[keys.SERVER_PORT] = self._server.port
        name = f"{method.operation} {request.get(keys.REQUEST_MODEL, '')}".rstrip()
        self.span = emit.start_span(name, SpanKind.CLIENT, attributes, parent, self._epoch_ns)
        self.context = set_span_in_context(self.span, parent)
        emit.open_calls.add(self.abandoned)

    @property
    def is_open(self) -> bool:
        """The call has not ended."""
        return self.call.end_ns is None

    @property
    def is_being_made(self) -> bool:
        """The method has not returned yet."""
        return bool(self.kwargs)

    def made(self) -> None:
        """The method has returned or raised."""
        self.kwargs = {}

    # --- the request ---------------------------------------------------------------------------

    def takes_back(self, error: BaseException) -> bool:
        """The server refused our wish for token counts: remember it and have the call go again."""
        try:
            if not (self._is_asked and self._provider.rejects_usage(error)):
                return False
            self._is_asked = False
            if len(_no_usage) < MAX_SERVERS:
                _no_usage.add(self._server)
        except Exception as failure:  # noqa: BLE001 - counted
            health.swallow("usage", failure)
            return False
        return True

    def stream_of(self, result: Any) -> Any:
        """The library's stream in what its method returned; ``None`` for a whole result."""
        return self._provider.stream(result) if self.call.is_streamed else None

    # --- the stream ----------------------------------------------------------------------------

    def watch(self, unwatch: Callable[[], None]) -> None:
        """A stream tap is in place; ``unwatch`` takes it off when the call has ended."""
        self._unwatch = unwatch
        self.last_ns = perf_counter_ns()

    def pull(self) -> None:
        """The application asks for the next chunk; until now it held the stream."""
        self._is_pulling = True
        self.call.hold_ns += perf_counter_ns() - self.last_ns

    def arrived(self, chunk: Any) -> bool:
        """A chunk came; ``True`` if it exists only because we asked and must stay hidden."""
        self.last_ns = now_ns = perf_counter_ns()
        kind = Kind.EMPTY
        try:
            kind = self._read(chunk, self.answer)
            self.call.event(kind, now_ns)
        except Exception as error:  # noqa: BLE001 - counted; the application gets its chunk
            health.swallow("chunk", error)
        if self._is_asked and kind is Kind.USAGE:
            return True
        self._is_pulling = False
        return False

    def ran_dry(self) -> None:
        """The stream has no more chunks."""
        if self.answer.is_finished:
            self._end(perf_counter_ns(), StreamState.COMPLETED)
        else:
            self._end(perf_counter_ns(), StreamState.ERROR, INCOMPLETE)

    def closed(self) -> None:
        """The HTTP response was closed; inside a pull that is the pull's own business."""
        if not self._is_pulling:
            self._end(perf_counter_ns(), self._state_unless_finished(StreamState.CLOSED_EARLY))

    def abandoned(self) -> None:
        """Nobody reads the stream any more: it ended when it was last read."""
        if self.is_being_made:  # the process ends in the middle of the call
            self._end(perf_counter_ns(), StreamState.ABANDONED, StreamState.ABANDONED)
        else:
            self._end(self.last_ns, self._state_unless_finished(StreamState.ABANDONED))

    # --- the end -------------------------------------------------------------------------------

    def returned(self, result: Any) -> None:
        """The method returned a whole result."""
        now_ns = perf_counter_ns()
        try:
            if not self.call.is_streamed:
                self._provider.response(result, self.answer)
        except Exception as error:  # noqa: BLE001 - counted; times are kept
            health.swallow("response", error)
        self._end(now_ns, None)

    def failed(self, error: BaseException) -> None:
        """The call or its stream raised; a cancel by the application is no failure of the call."""
        now_ns = perf_counter_ns()
        try:
            error_type = self._provider.error_type(error)
        except Exception as failure:  # noqa: BLE001 - counted
            health.swallow("error type", failure)
            error_type = type(error).__name__
        if is_cancel(error):
            self._end(now_ns, self._state_unless_finished(StreamState.CLOSED_EARLY), error_type)
        else:
            self._end(now_ns, StreamState.ERROR, error_type)

    def _state_unless_finished(self, state: StreamState) -> StreamState:
        return StreamState.COMPLETED if self.answer.is_finished else state

    def _end(self, at_ns: int, state: StreamState | None, error_type: str | None = None) -> None:
        """End the span; only the first of all ends counts."""
        try:
            emit.open_calls.remove(self.abandoned)
        except KeyError:
            return
        try:
            if self._unwatch is not None:
                self._unwatch()
            self.call.use(self.answer.usage)
            self.call.end(at_ns, state if self.call.is_streamed else None)
            found = self.call.attributes(with_offsets=settings.current().chunk_offsets)
            found.update(self.answer.attributes())
            if error_type is not None:
                found[keys.ERROR_TYPE] = error_type
            if self.status_code is not None:
                found[keys.HTTP_STATUS] = self.status_code
            self.span.set_attributes(found)
            if state is StreamState.ERROR:
                self.span.set_status(StatusCode.ERROR)
            self.span.end(self._epoch_ns + at_ns - self.call.start_ns)
        except Exception as error:  # noqa: BLE001 - counted
            health.swallow("end", error)
