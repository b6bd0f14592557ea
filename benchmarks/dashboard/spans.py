"""Spans of the small store: a planted fault, and traces large enough to be slow to draw."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from itertools import count

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from longpole.vocab import Stage, keys

NUM_SHORT = 200
"""Spans of a usual trace."""
NUM_LONG = 10_000
"""Spans of a large one."""
NUM_EACH = 4
"""Traces of either size: the first one is not counted."""
ROUTE, PLANTED, STAGE = "rag.search", "v2", Stage.RETRIEVAL
"""The planted fault: workflows of this route and prompt version are slow in this stage."""
NUM_WORKFLOWS = 700
"""So many that a tail of them can be compared with the rest."""
_MS = 1_000_000
_PER_BODY = 2_500


class _Trace:
    """Spans of one trace; times in ms since it began."""

    def __init__(self, number: int, at_ns: int) -> None:
        self.id = number.to_bytes(16, "big")
        self._at_ns = at_ns
        self._ids = count(1)
        self.spans: list[trace_pb2.Span] = []

    def add(
        self, name: str, start: float, end: float, parent: bytes = b"", /, **values: str | float
    ) -> bytes:
        """One span; returns its id. ``values`` are attributes by their name in ``keys``."""
        span = trace_pb2.Span(
            trace_id=self.id,
            span_id=next(self._ids).to_bytes(8, "big"),
            parent_span_id=parent,
            name=name,
            kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=self._at_ns + int(start * _MS),
            end_time_unix_nano=self._at_ns + int(end * _MS),
        )
        for key, value in values.items():
            found = span.attributes.add(key=getattr(keys, key)).value
            match value:
                case bool():
                    found.bool_value = value
                case float():
                    found.double_value = value
                case _:
                    found.string_value = str(value)
        self.spans.append(span)
        return bytes(span.span_id)


def bodies(num_long: int) -> Iterator[bytes]:
    """Requests of the last half hour, whole."""
    begin = time.time_ns() - 1_500_000 * _MS
    spans: list[trace_pb2.Span] = []
    for number in range(NUM_WORKFLOWS):
        is_planted = number >= 400 and number % 2 == 0
        spans += _workflow(1 + number, begin + number * 2_000 * _MS, is_planted=is_planted)
    for number in range(NUM_EACH):
        spans += _tree(short_id(number), begin + number * 60_000 * _MS, NUM_SHORT, "agent.short")
        spans += _tree(long_id(number), begin + number * 60_000 * _MS, num_long, "agent.long")
    for at in range(0, len(spans), _PER_BODY):
        yield _body(spans[at : at + _PER_BODY])


def short_id(number: int) -> int:
    """The number that is the id of one of the usual traces."""
    return 10_000 + number


def long_id(number: int) -> int:
    """The number that is the id of one of the large traces."""
    return 20_000 + number


def send(url: str, body: bytes) -> None:
    """Post a request to a collector; fails unless it is accepted."""
    call = urllib.request.Request(  # noqa: S310 - our own address
        f"{url}/v1/traces", data=body, headers={"content-type": "application/x-protobuf"}
    )
    with urllib.request.urlopen(call, timeout=60) as answer:  # noqa: S310 - likewise
        answer.read()


def _workflow(number: int, at_ns: int, *, is_planted: bool) -> list[trace_pb2.Span]:
    """Retrieval, then a model call."""
    made = _Trace(number, at_ns)
    version = PLANTED if is_planted else "v1"
    facts = {"ROUTE": ROUTE, "PROMPT_VERSION": version}
    found = 3_000.0 + number % 100 if is_planted else 80.0 + number % 40
    length = found + 900
    root = made.add(
        "invoke_workflow", 0, length, OPERATION="invoke_workflow", OUTCOME="accepted", **facts
    )
    made.add("retrieval docs", 0, found, root, STAGE=STAGE, **facts)
    _call(made, found, length, root, **facts)
    return made.spans


def _tree(number: int, at_ns: int, num_spans: int, route: str) -> list[trace_pb2.Span]:
    """Turns of an agent, one after the other: a step, in it a model call and eight tools."""
    made = _Trace(number, at_ns)
    num_turns, num_more = divmod(num_spans - 1, 10)
    facts = {"ROUTE": route, "PROMPT_VERSION": "v1"}
    length = (num_turns + 1) * 1_000.0
    root = made.add(
        f"invoke_workflow {route}", 0, length, OPERATION="invoke_workflow", OUTCOME="accepted",
        **facts,
    )  # fmt: skip
    for turn in range(num_turns):
        at = turn * 1_000.0
        step = made.add(f"turn {turn + 1}", at, at + 990, root, **facts)
        _call(made, at + 10, at + 600, step, **facts)
        for tool in range(8):
            made.add(
                f"execute_tool {'abcdefgh'[tool]}", at + 610, at + 650 + 40 * tool, step,
                STAGE=Stage.TOOL, **facts,
            )  # fmt: skip
    for rest in range(num_more):
        made.add("render", length - 990 + 100 * rest, length - 900 + 100 * rest, root, **facts)
    return made.spans


def _call(made: _Trace, start: float, end: float, parent: bytes, **facts: str) -> None:
    made.add(
        "chat tiny", start, end, parent,
        OPERATION="chat", REQUEST_MODEL="tiny", STREAM=True,
        TIME_TO_FIRST_CONTENT=0.3 * (end - start) / 1e3,
        TIME_TO_LAST_CONTENT=0.95 * (end - start) / 1e3,
        **facts,
    )  # fmt: skip
    made.spans[-1].kind = trace_pb2.Span.SPAN_KIND_CLIENT


def _body(spans: list[trace_pb2.Span]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key=keys.SERVICE_NAME).value.string_value = "shop"
    scope = resource.scope_spans.add()
    scope.scope.name = keys.SCOPE_SDK
    scope.spans.extend(spans)
    body: bytes = request.SerializeToString()
    return body
