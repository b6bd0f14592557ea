import importlib.util
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FILE = Path(__file__).parents[2] / "benchmarks" / "collector" / "payload.py"
FIRST_NS, WINDOW_NS = 1_796_000_000_000_000_000, 60_000_000_000


@pytest.fixture(scope="module")
def payload():
    spec = importlib.util.spec_from_file_location("bench_payload", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_payload"] = module
    spec.loader.exec_module(module)
    return module


def spans_of(bodies):
    return [
        span
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.mark.parametrize("per_body", [10, 512])
def test_every_body_is_whole_and_no_id_comes_twice(payload, per_body):
    made = payload.Payload(per_body, num_pool=1_024)
    bodies = list(made.bodies(3_000, 1, FIRST_NS, WINDOW_NS))
    spans = spans_of(bodies)
    ids = {span.span_id for span in spans}
    assert len(bodies) == -(-3_000 // per_body)
    assert len(spans) == len(ids) == len(bodies) * per_body
    assert len({span.trace_id for span in spans}) == -(-len(spans) // payload.SPANS_PER_TRACE)
    trace_of = {span.span_id: span.trace_id for span in spans}
    for span in spans:
        assert span.end_time_unix_nano > span.start_time_unix_nano >= FIRST_NS
        if span.parent_span_id in trace_of:
            assert trace_of[span.parent_span_id] == span.trace_id
        for event in span.events:
            assert span.start_time_unix_nano < event.time_unix_nano
    starts = [span.start_time_unix_nano for span in spans if not span.parent_span_id]
    assert max(starts) < FIRST_NS + WINDOW_NS


def test_a_seed_gives_the_same_bodies_and_another_seed_other_ids(payload):
    made = payload.Payload(16, num_pool=512)
    again = payload.Payload(16, num_pool=512)
    first = list(made.bodies(512, 1, FIRST_NS, WINDOW_NS))
    assert first == list(again.bodies(512, 1, FIRST_NS, WINDOW_NS))
    other = spans_of(made.bodies(512, 2, FIRST_NS, WINDOW_NS))
    assert not {span.span_id for span in spans_of(first)} & {span.span_id for span in other}


def test_half_the_spans_are_model_calls_with_26_attributes(payload):
    spans = spans_of(payload.Payload(512, num_pool=1_024).bodies(1_024, 1, FIRST_NS))
    calls = [span for span in spans if span.name.startswith("chat ")]
    assert len(calls) * 2 == len(spans)
    assert {len(span.attributes) for span in calls} == {26}
    assert {len(span.attributes) for span in spans if span not in calls} == {4, 5}
