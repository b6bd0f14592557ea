"""The run as traces: what was due, when it was sent, and the call, by the SDK's own exporter."""

import time
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from longpole import emit
from longpole.vocab import Stage, keys
from longpole_engine.load.client import Answer, now_ns

SERVICE: Final = "longpole-load"
_MIN_LAG_NS: Final = 1_000_000
"""A request sent within a millisecond was not held up."""


class Traces:
    """Spans of a run: the request from the time it was due, below it its wait and the call.

    Args:
        endpoint: OTLP/HTTP base address.
        model: asked for.
        route: of all requests.
    """

    def __init__(self, endpoint: str, model: str, route: str) -> None:
        emit.init(SERVICE, endpoint=endpoint)
        self._model, self._route = model, route
        self._epoch_ns = time.time_ns() - now_ns()

    def begin(self, due_ns: int, sent_ns: int, session: int) -> tuple[tuple[Span, Span], str]:
        """Start the spans; both, and the call's ``traceparent``."""
        due_ns, sent_ns = due_ns + self._epoch_ns, sent_ns + self._epoch_ns
        inherited = {keys.ROUTE: self._route, keys.CONVERSATION_ID: f"load-{session}"}
        attributes = {keys.OPERATION: "invoke_workflow", **inherited}
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
        end_ns = (answer.call.end_ns or now_ns()) + self._epoch_ns
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
