"""One model call being recorded: its :class:`Call`, its span, and exactly one end.

Between the wrapped method, the transport hooks and the stream tap this is what they share. Every
entry point is guarded: a failure of ours is counted and the application's call goes on.
"""

from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter_ns, time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from longpole import emit, health, metrics, settings
from longpole.call import EMPTY, USAGE, AttributeValue, Call, Kind, StreamState
from longpole.context import facts_of_call, is_cancel
from longpole.exchange import Exchange
from longpole.prompts import prompt_facts
from longpole.providers.base import (
    Answer,
    Arguments,
    Prompt,
    Request,
    Server,
)
from longpole.site import Site, at
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
    soon as the method has returned: a connection that stays open remembers the context, and with
    it the record, of the call that opened it.
    """

    __slots__ = (
        "_attributes",
        "_epoch_ns",
        "_is_asked",
        "_read",
        "_server",
        "_site",
        "_unwatch",
        "answer",
        "call",
        "context",
        "exchange",
        "is_being_made",
        "is_pulling",
        "is_raw",
        "kwargs",
        "last_ns",
        "settings",
        "span",
    )

    def __init__(
        self,
        site: Site,
        request: Request,
        kwargs: Arguments,
        parent: Context,
    ) -> None:
        start_ns, self._epoch_ns = perf_counter_ns(), time_ns()
        self._site, self._read = site, site.method.chunk
        server, always = site.place()
        self._server = request.server or server
        self.call = Call(start_ns, is_streamed=request.is_streamed)
        self.answer = Answer(request.num_choices)
        self.exchange = Exchange()
        self.last_ns = start_ns
        self.is_raw, self.is_pulling, self.is_being_made = request.is_raw, False, True
        self._unwatch: Callable[[], None] | None = None
        self.settings = chosen = settings.current()
        asking = request.asking if chosen.ask_usage and self._server not in _no_usage else None
        self._is_asked = asking is not None
        self.kwargs = kwargs if asking is None else asking
        self._attributes: dict[str, AttributeValue] = {
            **facts_of_call(parent),
            **always,
            keys.REQUEST_STREAM: request.is_streamed,
            **request.facts,
        }
        if request.server is not None:
            self._attributes.update(at(request.server))
        if chosen.capture_content or chosen.prefix_hashes:
            self._read_prompt(request, parent)
        name = f"{site.method.operation} {request.facts.get(keys.REQUEST_MODEL, '')}".rstrip()
        self.span = emit.start_span(name, SpanKind.CLIENT, self._attributes, parent, self._epoch_ns)
        self.context = set_span_in_context(self.span, parent)
        emit.open_calls.add(self.abandoned)

    @property
    def is_open(self) -> bool:
        """The call has not ended."""
        return self.call.end_ns is None

    # --- the request ---------------------------------------------------------------------------

    def _read_prompt(self, request: Request, parent: Context) -> None:
        """What the application opted in to: the prompt's keyed hashes, its text, the answer's."""
        try:
            is_captured = self.settings.capture_content
            if is_captured:
                from longpole.said import Said

                self.answer.said = Said()
            if request.prompt is None:
                return
            prompt = request.prompt()
            model = str(request.facts.get(keys.REQUEST_MODEL, ""))
            found = prompt_facts(prompt.segments, model=model, context=parent)
            self._attributes.update(found)
            if is_captured:
                self._attributes.update(_told(prompt))
        except Exception as error:  # noqa: BLE001 - counted; the call goes on without
            health.swallow("prompt", error)

    def takes_back(self, error: BaseException) -> bool:
        """The server refused our wish for token counts: remember it and have the call go again."""
        try:
            if not (self._is_asked and self._site.provider.rejects_usage(error)):
                return False
            self._is_asked = False
            if self._server is not None and len(_no_usage) < MAX_SERVERS:
                _no_usage.add(self._server)
        except Exception as failure:  # noqa: BLE001 - counted
            health.swallow("usage", failure)
            return False
        return True

    # --- the stream ----------------------------------------------------------------------------

    def watch(self, unwatch: Callable[[], None]) -> None:
        """A stream tap is in place; ``unwatch`` takes it off when the call has ended."""
        self._unwatch = unwatch
        self.last_ns = perf_counter_ns()

    def pull(self) -> None:
        """The application asks for the next chunk; until now it held the stream."""
        self.is_pulling = True
        self.call.hold_ns += perf_counter_ns() - self.last_ns

    def arrived(self, chunk: Any) -> bool:
        """A chunk came; ``True`` if it exists only because we asked and must stay hidden."""
        self.last_ns = now_ns = perf_counter_ns()
        kind: Kind = EMPTY
        try:
            kind = self._read(chunk, self.answer)
            self.call.event(kind, now_ns)
        except Exception as error:  # noqa: BLE001 - counted; the application gets its chunk
            health.swallow("chunk", error)
        if self._is_asked and kind is USAGE:
            return True
        self.is_pulling = False
        return False

    def passed(self) -> None:
        """Bytes came that may hold no whole chunk."""
        self.last_ns, self.is_pulling = perf_counter_ns(), False

    def ran_dry(self) -> None:
        """The stream has no more chunks."""
        now_ns, answer = perf_counter_ns(), self.answer
        if answer.error_type is not None:
            self._end(now_ns, StreamState.ERROR)
        elif answer.is_finished:
            self._end(now_ns, StreamState.COMPLETED)
        else:
            self._end(now_ns, StreamState.ERROR, INCOMPLETE)

    def closed(self) -> None:
        """The HTTP response was closed; inside a pull that is the pull's own business."""
        if not self.is_pulling:
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
                self._site.method.response(result, self.answer)
        except Exception as error:  # noqa: BLE001 - counted; times are kept
            health.swallow("response", error)
        self._end(now_ns, StreamState.ERROR if self.answer.error_type is not None else None)

    def failed(self, error: BaseException) -> None:
        """The call or its stream raised; a cancel by the application is no failure of the call."""
        now_ns = perf_counter_ns()
        try:
            error_type = self._site.provider.error_type(error)
        except Exception as failure:  # noqa: BLE001 - counted
            health.swallow("error type", failure)
            error_type = type(error).__name__
        if is_cancel(error):
            self._end(now_ns, self._state_unless_finished(StreamState.CLOSED_EARLY), error_type)
        else:
            self._end(now_ns, StreamState.ERROR, error_type)

    def _state_unless_finished(self, state: StreamState) -> StreamState:
        if self.answer.error_type is not None:  # said inside the stream, and passed on as data
            return StreamState.ERROR
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
            call, span = self.call, self.span
            call.end(at_ns, state if call.is_streamed else None, self.answer.usage)
            is_counted, is_recording = metrics.are_wanted(), span.is_recording()
            if is_counted or is_recording:
                found = self._found(error_type)
                if is_recording:
                    emit.complete(span, found)
                if is_counted:
                    metrics.record(call, {**self._attributes, **found})
            if state is StreamState.ERROR:
                span.set_status(StatusCode.ERROR)
            span.end(self._epoch_ns + at_ns - call.start_ns)
        except Exception as error:  # noqa: BLE001 - counted
            health.swallow("end", error)

    def _found(self, error_type: str | None) -> dict[str, AttributeValue]:
        """What the end of the call adds to the span."""
        found = self.call.attributes(with_offsets=self.settings.chunk_offsets)
        self.answer.describe(found)
        if self.answer.said is not None:
            found.update(_answered(self.answer))
        if error_type is not None:
            found[keys.ERROR_TYPE] = error_type
        self.exchange.describe(found, self.call.start_ns)
        return found


# --- content, for who opted in to it; it loads what nobody else needs ---------------------------


def _told(prompt: Prompt) -> dict[str, str]:
    from longpole import content

    found = {
        keys.INPUT_MESSAGES: content.input_messages(prompt.messages),
        keys.SYSTEM_INSTRUCTIONS: content.system_instructions(prompt.system),
        keys.TOOL_DEFINITIONS: content.value(prompt.segments.get("tools") or None),
    }
    return {key: text for key, text in found.items() if text is not None}


def _answered(answer: Answer) -> dict[str, str]:
    from longpole import content

    said, answer.said = answer.said, None
    text = None if said is None else content.output_messages(said.messages(answer.finish_reasons))
    return {} if text is None else {keys.OUTPUT_MESSAGES: text}
