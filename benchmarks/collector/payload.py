"""Bodies as applications send them, made fast enough that the sender is never what is measured.

Half the spans are model calls by OpenTelemetry's GenAI conventions (26 attributes, every second
one with an event), half are tools, retrievals and HTTP requests (4 or 5 attributes); 2 % fail,
a trace has 8 spans, the resource has 9 attributes. A pool of spans is built once with protobuf;
a body that goes out is a part of the pool with ids, times and answer ids written over. The same
seed gives the same bodies.
"""

from __future__ import annotations

import random
import string
import struct
import uuid
from collections.abc import Iterator
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS_PER_TRACE = 8
POOL_SPANS = 131_072
_BLOCK_SPANS = 5_120
_SECOND_NS = 1_000_000_000
_ID = b"chatcmpl-"
_ID_CHARS = 29
_LETTERS = string.digits + string.ascii_letters
_LETTER_BYTES = np.frombuffer(_LETTERS.encode(), np.uint8)
_MODELS = {"gpt-5": 0.4, "gpt-5-mini": 0.9, "claude-sonnet-5": 0.6, "llama-4-70b": 1.4}
_RESOURCE: dict[str, Any] = {
    "service.name": "shop-assistant",
    "service.version": "1.4.2",
    "service.instance.id": "pod-7f9c6d5b8-x2x9q",
    "deployment.environment.name": "production",
    "host.name": "node-3",
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.version": "1.45.0",
    "process.pid": 4242,
}


class Block(NamedTuple):
    """Some bodies of the pool, one behind the other, and where in them is what changes."""

    data: np.ndarray  # uint8
    ends: list[int]  # of each body
    trace: np.ndarray  # [num_spans] number of the trace within the block
    parent: np.ndarray  # [num_spans] number of the parent span; -1 for a root
    trace_at: np.ndarray  # [num_spans] offsets in data
    span_at: np.ndarray
    parent_at: np.ndarray
    start_at: np.ndarray
    event_at: np.ndarray
    answer_at: np.ndarray
    offset_ns: np.ndarray  # [num_spans] start, since its trace's start
    length_ns: np.ndarray
    event_ns: np.ndarray  # since the span's start
    eventful: np.ndarray  # numbers of the spans that have an event


class Payload:
    """Bodies of ``per_body`` spans."""

    def __init__(self, per_body: int, seed: int = 0, num_pool: int = POOL_SPANS) -> None:
        """Build the pool; about 30 us a span."""
        rng = random.Random(seed)  # noqa: S311 - not for secrets
        step = lcm(per_body, SPANS_PER_TRACE)
        self.per_body = per_body
        self._size = step * max(1, min(_BLOCK_SPANS, num_pool) // step)
        self._blocks = [
            _block(self._size, per_body, rng) for _ in range(max(1, num_pool // self._size))
        ]

    def bodies(
        self, num_spans: int, seed: int, first_ns: int, window_ns: int = _SECOND_NS
    ) -> Iterator[bytes]:
        """Bodies with ``num_spans`` spans or a few more, whole bodies.

        Args:
            num_spans: how many.
            seed: ids and order; spans of two seeds have no id in common.
            first_ns: start of the first trace.
            window_ns: traces start evenly spread over this long.
        """
        random_ = np.random.default_rng([seed, 1])
        num_bodies = -(-num_spans // self.per_body)
        num_blocks = -(-num_bodies * self.per_body // self._size)
        for number in range(num_blocks):
            block = self._blocks[number % len(self._blocks)]
            begin = first_ns + window_ns * number // num_blocks
            data = _stamped(block, random_, begin, window_ns // num_blocks)
            last = 0
            for end in block.ends[:num_bodies]:
                yield data[last:end]
                last = end
            num_bodies -= len(block.ends)


def _stamped(block: Block, rng: np.random.Generator, begin_ns: int, window_ns: int) -> bytes:
    """The block with new ids and times."""
    num_spans = len(block.trace)
    num_traces = int(block.trace[-1]) + 1
    data = block.data.copy()
    traces = rng.bytes(16 * num_traces)
    spans = np.frombuffer(rng.bytes(8 * num_spans), np.uint8).reshape(-1, 8)
    begins = begin_ns + np.sort(rng.integers(0, max(1, window_ns), num_traces))
    starts = begins[block.trace] + block.offset_ns
    _write(data, block.trace_at, np.frombuffer(traces, np.uint8).reshape(-1, 16)[block.trace])
    _write(data, block.span_at, spans)
    _write(data, block.parent_at, spans[block.parent[block.parent >= 0]])
    _write(data, block.start_at, _fixed64(starts))
    _write(data, block.start_at + 9, _fixed64(starts + block.length_ns))
    _write(data, block.event_at, _fixed64(starts[block.eventful] + block.event_ns))
    letters = rng.integers(0, len(_LETTERS), (len(block.answer_at), _ID_CHARS))
    _write(data, block.answer_at, _LETTER_BYTES[letters])
    return data.tobytes()


def _write(data: np.ndarray, at: np.ndarray, rows: np.ndarray) -> None:
    data[at[:, None] + np.arange(rows.shape[1])] = rows


def _fixed64(values: np.ndarray) -> np.ndarray:
    return values.astype("<i8").view(np.uint8).reshape(-1, 8)


def _block(num_spans: int, per_body: int, rng: random.Random) -> Block:
    """Build spans with protobuf and find where the things that change lie."""
    sessions = [_session(rng) for _ in range(num_spans // SPANS_PER_TRACE)]
    spans = [
        _Draft(number, sessions[number // SPANS_PER_TRACE], rng) for number in range(num_spans)
    ]
    for first in range(0, num_spans, SPANS_PER_TRACE):
        _arrange(spans[first : first + SPANS_PER_TRACE], rng)
    pieces, ends, at = [], [], 0
    for begin in range(0, num_spans, per_body):
        body = _body(spans[begin : begin + per_body])
        for span in spans[begin : begin + per_body]:
            span.locate(body, at)
        pieces.append(body)
        at += len(body)
        ends.append(at)
    parents = [span for span in spans if span.parent >= 0]
    eventful = [span for span in spans if span.event_ns]
    return Block(
        np.frombuffer(b"".join(pieces), np.uint8),
        ends,
        np.array([span.number // SPANS_PER_TRACE for span in spans]),
        np.array([span.parent for span in spans]),
        np.array([span.at for span in spans]),
        np.array([span.at + 18 for span in spans]),
        np.array([span.at + 28 for span in parents]),
        np.array([span.start_at for span in spans]),
        np.array([span.event_at for span in eventful], np.int64),
        np.array([span.answer_at for span in spans if span.answer_at]),
        np.array([span.offset_ns for span in spans]),
        np.array([span.length_ns for span in spans]),
        np.array([span.event_ns for span in eventful], np.int64),
        np.array([span.number for span in eventful], np.int64),
    )


class _Session(NamedTuple):
    """What the model calls of one trace have in common."""

    conversation: str
    user: str
    route: str
    prompt: str


def _session(rng: random.Random) -> _Session:
    return _Session(
        str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        f"user-{rng.randrange(20_000):05d}",
        rng.choice(("shop.question", "shop.order", "rag.search")),
        rng.choice(("v41", "v42")),
    )


def _arrange(trace: list[_Draft], rng: random.Random) -> None:
    """Place a trace's spans one after the other below the first; requests below the last step."""
    root, step, at_ns = trace[0], trace[0], 0
    for span in trace:
        span.trace_id = root.id + root.id[::-1]
    for span in trace[1:]:
        at_ns += rng.randrange(1_000, 20_000_000)
        span.offset_ns = at_ns
        span.parent = step.number if span.is_request else root.number
        if not span.is_call and not span.is_request:
            step = span
        at_ns += span.length_ns
    root.length_ns = at_ns + rng.randrange(1_000, 5_000_000)


def _text(num_letters: int, rng: random.Random) -> str:
    return "".join(rng.choices(_LETTERS, k=num_letters))


class _Draft:
    """A span of the pool while it is built."""

    def __init__(self, number: int, session: _Session, rng: random.Random) -> None:
        self.number = number
        self.id = rng.randbytes(8)
        self.is_call = bool(number % 2)
        self.parent = -1
        self.has_failed = rng.random() < 0.02
        self.model = rng.choice(list(_MODELS))
        self.ttft_s = rng.lognormvariate(0, 0.5) * _MODELS[self.model]
        self.num_output = rng.randint(1, 900)
        length_s = (
            self.ttft_s + 0.012 * self.num_output if self.is_call else rng.expovariate(8) + 0.001
        )
        self.length_ns = int(length_s * _SECOND_NS)
        self.offset_ns = 0
        self.event_ns = int(self.ttft_s * 1e9) if self.is_call and rng.random() < 0.5 else 0
        self.details = _call(self, session, rng) if self.is_call else {}
        self.name = f"chat {self.model}"
        self.kind = 3
        if number % SPANS_PER_TRACE == 0:
            self.name, self.kind, self.details = "POST /v1/ask", 2, _door(rng)
        elif not self.is_call:
            self.name, self.kind, self.details = _step(rng)
        self.is_request = self.name == "GET"
        self.trace_id = b""
        self.at = self.start_at = self.event_at = self.answer_at = 0

    def put(self, spans: Any) -> None:
        """Add it to the repeated field of a request."""
        span = spans.add(
            trace_id=self.trace_id,
            span_id=self.id,
            parent_span_id=bytes(8) if self.parent >= 0 else b"",
            name=self.name,
            kind=self.kind,
            start_time_unix_nano=self._mark,
            end_time_unix_nano=self._mark + 1,
        )
        _put(span.attributes, self.details)
        if self.event_ns:
            event = span.events.add(name="gen_ai.first_token", time_unix_nano=self._mark + 2)
            _put(event.attributes, {"index": 0})
        if self.has_failed:
            span.status.code = 2
            span.status.message = "upstream timed out"

    def locate(self, body: bytes, at: int) -> None:
        """Find its changing parts in the serialised body, which begins at ``at``."""
        here = body.index(b"\x0a\x10" + self.trace_id + b"\x12\x08" + self.id)
        self.at = at + here + 2
        # keys of start and end are one byte each, their values eight
        start = body.index(b"\x39" + struct.pack("<Q", self._mark) + b"\x41", here) + 1
        self.start_at = at + start
        if self.is_call:
            self.answer_at = at + body.index(_ID, start) + len(_ID)
        if self.event_ns:
            self.event_at = at + body.index(struct.pack("<Q", self._mark + 2), start)

    @property
    def _mark(self) -> int:
        return (1 << 60) + 16 * self.number


def _body(spans: list[_Draft]) -> bytes:
    """One request: one resource, a scope for the model calls and one for the rest."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _put(resource.resource.attributes, _RESOURCE)
    for name, version, is_call in (
        ("opentelemetry.instrumentation.openai_v2", "2.1", True),
        ("shop.assistant", "1.4.2", False),
    ):
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = name, version
        for span in spans:
            if span.is_call is is_call:
                span.put(scope.spans)
    data: bytes = request.SerializeToString()
    return data


def _call(span: _Draft, session: _Session, rng: random.Random) -> dict[str, Any]:
    """The 26 attributes of a model call."""
    num_input = int(rng.lognormvariate(7, 0.9)) + 20
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": span.model,
        "gen_ai.response.model": f"{span.model}-2026-08-06",
        "gen_ai.response.id": _ID.decode() + _text(_ID_CHARS, rng),
        "gen_ai.usage.input_tokens": num_input,
        "gen_ai.usage.output_tokens": span.num_output,
        "gen_ai.usage.cache_read.input_tokens": num_input * rng.choice((0, 0, 50, 90)) // 100,
        "gen_ai.request.temperature": rng.choice((0.0, 0.2, 0.7, 1.0)),
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.max_tokens": rng.choice((512, 1024, 4096)),
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": [rng.choice(("stop", "stop", "length", "tool_calls"))],
        "gen_ai.response.time_to_first_chunk": span.ttft_s,
        "gen_ai.request.seed": rng.getrandbits(16),
        "gen_ai.output.type": "text",
        "gen_ai.conversation.id": session.conversation,
        "server.address": "api.openai.com",
        "server.port": 443,
        "openai.request.service_tier": "auto",
        "openai.response.service_tier": rng.choice(("default", "default", "priority")),
        "openai.response.system_fingerprint": f"fp_{rng.randrange(40) * 26339063:010x}",
        "longpole.route": session.route,
        "longpole.prompt.version": session.prompt,
        "user.id": session.user,
        "app.feature": rng.choice(("assist", "search", "returns")),
    }


def _door(rng: random.Random) -> dict[str, Any]:
    """Attributes of the root, the application's own HTTP server."""
    return {
        "http.request.method": "POST",
        "http.response.status_code": rng.choice((200, 200, 200, 500)),
        "http.route": "/v1/ask",
        "url.path": "/v1/ask",
        "network.protocol.version": "1.1",
    }


def _step(rng: random.Random) -> tuple[str, int, dict[str, Any]]:
    """Name, kind and attributes of a tool, a retrieval or an HTTP request."""
    which = rng.randrange(3)
    if which == 0:
        tool = rng.choice(("stock", "orders", "prices"))
        return (
            f"execute_tool {tool}",
            1,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": "call_" + _text(24, rng),
                "tool.attempt": rng.randint(1, 3),
            },
        )
    if which == 1:
        return (
            "retrieval products",
            1,
            {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.data_source.id": "products",
                "retrieval.num_documents": rng.randint(0, 20),
                "retrieval.top_score": rng.random(),
            },
        )
    return (
        "GET",
        3,
        {
            "http.request.method": "GET",
            "http.response.status_code": rng.choice((200, 200, 200, 404, 503)),
            "url.full": f"https://shop.example.com/v1/items/{rng.randrange(50_000)}",
            "server.address": "shop.example.com",
            "network.protocol.version": "1.1",
        },
    )


def _put(target: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        found = target.add(key=key).value
        match value:
            case bool():
                found.bool_value = value
            case int():
                found.int_value = value
            case float():
                found.double_value = value
            case list():
                for item in value:
                    found.array_value.values.add(string_value=item)
            case _:
                found.string_value = value
