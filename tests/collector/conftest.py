"""Builders of OTLP requests, stores and running collectors for the collector's tests."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.vocab import Rollup, Span, Trace, TraceStage, keys
from longpole_collector.app import Collector, background
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, parse
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.settings import Settings
from longpole_collector.stores.remote import RemoteReader

START_NS = 1_790_000_000_000_000_000
DATA = Path(__file__).parent / "data"


class Otlp:
    """Builds protobuf requests from plain values."""

    def __init__(self) -> None:
        self.random = random.Random(7)

    def span(self, **given: Any) -> dict[str, Any]:
        """One span as a dict of OTLP fields; ids are made up where not given."""
        return {
            "trace_id": self.random.randbytes(16),
            "span_id": self.random.randbytes(8),
            "name": "work",
            "kind": 1,
            "start_time_unix_nano": START_NS,
            "end_time_unix_nano": START_NS + 1_000_000_000,
            "attributes": {},
        } | given

    def request(
        self, spans: Sequence[dict[str, Any]], *, scope: str = keys.SCOPE_SDK, service: str = "app"
    ) -> ExportTraceServiceRequest:
        """A request that holds these spans."""
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        fill(resource_spans.resource.attributes, {keys.SERVICE_NAME: service})
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name = scope
        for given in spans:
            fields = dict(given)
            attributes = fields.pop("attributes", {})
            events = fields.pop("events", [])
            links = fields.pop("links", [])
            status = fields.pop("status", None)
            span = scope_spans.spans.add(**fields)
            fill(span.attributes, attributes)
            if status is not None:
                span.status.code, span.status.message = status
            for name, time_ns, values in events:
                fill(span.events.add(name=name, time_unix_nano=time_ns).attributes, values)
            for trace_id, span_id, values in links:
                fill(span.links.add(trace_id=trace_id, span_id=span_id).attributes, values)
        return request

    def body(self, spans: Sequence[dict[str, Any]], **where: str) -> bytes:
        """The same, serialized."""
        return self.request(spans, **where).SerializeToString()

    def spans(self, body: bytes, form: Format = Format.PROTOBUF, **how: Any) -> list[Span]:
        """The canonical spans of a body."""
        health = Health()
        reader = Reader(health, Scrubber(Policy(**how), health))
        return reader.spans(parse(body, form).spans(START_NS))

    def canonical(self, *given: dict[str, Any], **where: str) -> list[Span]:
        """Canonical spans of plain ones."""
        return self.spans(self.body(given, **where))


def fill(pairs: Any, values: dict[str, Any]) -> None:
    """Fill repeated key-values from a dict."""
    for key, value in values.items():
        pair = pairs.add(key=key)
        fill_value(pair.value, value)


def fill_value(target: Any, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for item in value:
            fill_value(target.array_value.values.add(), item)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        fill(target.kvlist_value.values, value)
    elif value is not None:
        target.string_value = value


def compute(spans: Sequence[Span]) -> tuple[Trace, tuple[TraceStage, ...]]:
    """The simplest roll-up there is: all time is ``other``."""
    root = next((span for span in spans if span.parent_id is None), spans[0])
    end_ns = max(span.end_ns or span.start_ns for span in spans)
    wall_ns = end_ns - root.start_ns
    given: dict[str, Any] = dict.fromkeys(Trace._fields) | {
        "trace_id": root.trace_id,
        "start_ns": root.start_ns,
        "end_ns": end_ns,
        "wall_ns": wall_ns,
        "root_name": root.name,
        "num_spans": len(spans),
        "num_calls": sum(span.is_model_call for span in spans),
        "num_tools": 0,
        "num_retries": 0,
        "long_pole": "other",
        "long_pole_ns": wall_ns,
        "flags": [],
    }
    return Trace(**given), (TraceStage(root.trace_id, "other", wall_ns, wall_ns),)


@pytest.fixture(scope="session")
def otlp() -> Otlp:
    return Otlp()


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def rollup() -> Rollup:
    return Rollup(1, compute)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(db=tmp_path / "data", http="127.0.0.1:0", grpc="127.0.0.1:0")


@pytest.fixture
def collecting(rollup: Rollup) -> Callable[[Settings], AbstractContextManager[Collector]]:
    """Starts collectors; each is ready when the ``with`` begins."""
    return lambda settings: ready(settings, rollup)


class ready:  # noqa: N801 - used as a function
    def __init__(self, settings: Settings, rollup: Rollup) -> None:
        self._inner = background(settings, rollup)

    def __enter__(self) -> Collector:
        collector = self._inner.__enter__()
        eventually(lambda: collector.ingest.is_ready)
        return collector

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)


@pytest.fixture
def collector(settings: Settings, collecting: Any) -> Iterator[Collector]:
    with collecting(settings) as running:
        yield running


def eventually(check: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """The first true value of ``check``."""
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        if time.monotonic() > deadline:
            raise TimeoutError("it never came true")
        time.sleep(0.02)
    return value


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    return eventually


@pytest.fixture
def client(collector):
    with httpx.Client(base_url=collector.url, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def names(collector, eventually):
    """Waits until that many spans are visible and gives their names."""
    reader = RemoteReader(collector.url)

    def wait(num):
        query = "SELECT name FROM spans ORDER BY name"
        eventually(lambda: reader.sql(query).num_rows >= num)
        return reader.sql(query).column("name").to_pylist()

    yield wait
    reader.close()
