"""The run as traces: what was due, when it was sent, and the call, by the SDK's own exporter."""

import time
from copy import copy
from typing import Final, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from longpole import emit
from longpole.vocab import Stage, keys
from longpole_engine.load.client import Answer, now_ns

SERVICE: Final = "longpole-load"
_MIN_LAG_NS: Final = 1_000_000
"""A request sent within a millisecond was not held up."""
BLOCK: Final = "block"
"""The fact of a trace's outcome that :attr:`Part.block` is told as."""


class Part(NamedTuple):
    """What of a longer piece of work a run is, as its traces tell.

    Attributes:
        release: what was asked (the route's version); ``None`` where nobody names it.
        block: the stretch of load that was played to each release; ``None`` outside of any.
        is_by_session: each session of a stretch has a name of its own in it.
    """

    release: str | None = None
    block: int | None = None
    is_by_session: bool = False

    def named(self, session: int) -> str:
        """The stretch's name, or a session's in it."""
        return f"{self.block}.{session}" if self.is_by_session else str(self.block)


class Traces:
    """Spans of a run: the request from the time it was due, below it its wait and the call.

    Args:
        endpoint: OTLP/HTTP base address.
        model: asked for.
        route: of all requests.
        part: what the run is a part of.
    """

    def __init__(self, endpoint: str, model: str, route: str, part: Part | None = None) -> None:
        emit.init(SERVICE, endpoint=endpoint)
        self._model, self._route, self._part = model, route, part or Part()
        self._epoch_ns = time.time_ns() - now_ns()

    def of(self, model: str, part: Part) -> "Traces":
        """The same for a part of the run."""
        made = copy(self)
        made._model, made._part = model, part
        return made

    def epoch_ns(self, at_ns: int) -> int:
        """Unix epoch nanoseconds of a moment of :data:`now_ns`."""
        return at_ns + self._epoch_ns

    def begin(self, due_ns: int, sent_ns: int, session: int) -> tuple[tuple[Span, Span], str]:
        """Start the spans; both, and the call's ``traceparent``."""
        due_ns, sent_ns = self.epoch_ns(due_ns), self.epoch_ns(sent_ns)
        part = self._part
        inherited = {keys.ROUTE: self._route, keys.CONVERSATION_ID: f"load-{session}"}
        if part.release is not None:
            inherited[keys.ROUTE_VERSION] = part.release
        attributes = {keys.OPERATION: "invoke_workflow", **inherited}
        if part.block is not None:
            attributes[f"{keys.OUTCOME_FACT_PREFIX}{BLOCK}"] = part.named(session)
        root = emit.start_span("load request", SpanKind.INTERNAL, attributes, Context(), due_ns)
        below = trace.set_span_in_context(root, Context())
        if sent_ns - due_ns >= _MIN_LAG_NS:
            waited = {keys.STAGE: str(Stage.ADMISSION), **inherited}
            wait = emit.start_span("wait to be sent", SpanKind.INTERNAL, waited, below, due_ns)
            wait.end(sent_ns)
        asked = {keys.OPERATION: "chat", keys.REQUEST_MODEL: self._model, **inherited}
        call = emit.start_span(f"chat {self._model}", SpanKind.CLIENT, asked, below, sent_ns)
        at = call.get_span_context()
        return (root, call), f"00-{at.trace_id:032x}-{at.span_id:016x}-01"

    def end(self, spans: tuple[Span, Span], answer: Answer) -> None:
        """End them with what came."""
        root, call = spans
        end_ns = self.epoch_ns(answer.call.end_ns or now_ns())
        emit.complete(call, answer.call.attributes())
        call.set_attribute(keys.STREAM, answer.call.is_streamed)
        if answer.status is not None:
            call.set_attribute(keys.HTTP_STATUS, answer.status)
        if answer.failure is not None:
            call.set_attribute(keys.ERROR_TYPE, str(answer.failure))
            call.set_status(Status(StatusCode.ERROR))
            root.set_status(Status(StatusCode.ERROR))
        outcome = "accepted" if answer.is_whole else "failed" if answer.failure else "rejected"
        root.set_attribute(keys.OUTCOME, outcome)
        call.end(end_ns)
        root.end(end_ns)

    @staticmethod
    def flush() -> bool:
        """Whether all of them arrived."""
        return emit.flush()
