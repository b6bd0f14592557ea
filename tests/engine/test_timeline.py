import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from longpole.vocab import Stage, keys
from longpole_engine.telemetry.events import RequestRecord, Timeline
from longpole_engine.telemetry.otel import SpanWriter, otlp_processor

ORDER = [
    Stage.TOKENIZE,
    Stage.QUEUE,
    Stage.PREFILL,
    Stage.FIRST_DECODE,
    Stage.LATER_DECODE,
    Stage.STREAM,
]
T0 = 1_700_000_000_000_000_000
MS = 1_000_000


def timeline(gaps_ns: list[int], closed_ns: int) -> Timeline:
    made, at = Timeline(T0), T0
    for stage, gap in zip(ORDER, gaps_ns, strict=False):
        at += gap
        made.begin(stage, at)
    made.close(closed_ns)
    return made


def written(record: RequestRecord) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    SpanWriter(SimpleSpanProcessor(exporter)).emit(record)
    return list(exporter.get_finished_spans())


@given(st.lists(st.integers(0, 10**9), max_size=6), st.integers(0, 7 * 10**9))
def test_the_stages_tile_the_time_from_door_to_close(gaps: list[int], wall: int) -> None:
    phases = timeline(gaps, T0 + wall).phases()
    assert phases[0].start_ns == T0
    assert phases[-1].end_ns == T0 + wall
    assert all(a.end_ns == b.start_ns for a, b in pairwise(phases))
    assert all(phase.end_ns >= phase.start_ns for phase in phases)
    assert [phase.stage for phase in phases] == [Stage.ADMISSION, *ORDER][: len(phases)]


def test_an_open_timeline_has_no_phases_and_writes_no_span() -> None:
    assert Timeline(T0).phases() == []
    assert written(RequestRecord(Timeline(T0))) == []


def test_the_first_close_counts() -> None:
    made = timeline([], T0 + 5)
    made.close(T0 + 9)
    assert made.closed_ns == T0 + 5


def test_a_finished_request_is_one_server_span_with_its_stages_end_to_end() -> None:
    made = timeline([1 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS, 6 * MS], T0 + 28 * MS)
    record = RequestRecord(
        made,
        {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"},
        request_model="tiny",
        response_model="tiny",
        response_id="chatcmpl-1",
        is_streamed=True,
        input_tokens=33,
        cached_tokens=16,
        output_tokens=5,
        cache_state="partial",
        finish_reason="stop",
        stream_state="completed",
        num_steps=5,
        num_decode_steps=4,
        decode_rows=10,
    )
    *children, server = written(record)
    assert (server.name, server.kind) == (keys.ENGINE_SPAN_NAME, SpanKind.SERVER)
    assert server.parent is not None
    assert server.parent.trace_id == int("ab" * 16, 16)
    assert server.parent.span_id == int("cd" * 8, 16)
    assert [child.name for child in children] == [
        "admission",
        "tokenize",
        "queue",
        "prefill",
        "first_decode",
        "decode",
        "stream",
    ]
    assert [(child.attributes or {})[keys.STAGE] for child in children][5] == "later_decode"
    edges = [child.start_time for child in children] + [children[-1].end_time]
    assert edges == [server.start_time, *(child.end_time for child in children)]
    assert edges[-1] == server.end_time == T0 + 28 * MS
    facts = dict(server.attributes or {})
    assert facts[keys.FINISH_REASONS] == ("stop",)
    assert facts[keys.ENGINE_BATCH_SIZE] == 2.5
    assert keys.COLD_START not in facts
    seconds = {
        keys.ENGINE_ADMISSION: 0.001,
        keys.ENGINE_TOKENIZE: 0.002,
        keys.ENGINE_QUEUE: 0.003,
        keys.ENGINE_PREFILL: 0.004,
        keys.ENGINE_FIRST_DECODE: 0.005,
        keys.ENGINE_DECODE: 0.006,
        keys.ENGINE_STREAM: 0.007,
        keys.ENGINE_TTFT: 0.015,
        keys.ENGINE_INFERENCE: 0.015,
        keys.ENGINE_E2E: 0.028,
    }
    assert {key: facts[key] for key in seconds} == pytest.approx(seconds)


def test_a_span_names_at_most_five_that_it_waited_for_and_the_time_of_all() -> None:
    exporter = InMemorySpanExporter()
    writer = SpanWriter(SimpleSpanProcessor(exporter))
    delayed_by = {f"cmpl-{number}": (9 - number) * MS for number in range(8)}
    writer.emit(RequestRecord(timeline([MS], T0 + 3 * MS)), delayed_by)
    writer.emit(RequestRecord(timeline([MS], T0 + 3 * MS)), {})
    some, none = (
        dict(span.attributes or {})
        for span in exporter.get_finished_spans()
        if span.kind is SpanKind.SERVER
    )
    assert some[keys.ENGINE_DELAYED_BY] == tuple(delayed_by)[:5]
    assert some[keys.ENGINE_DELAYED_BY_TIME] == pytest.approx([0.009, 0.008, 0.007, 0.006, 0.005])
    assert some[keys.ENGINE_DELAYED_TIME] == pytest.approx(0.044)
    assert not {keys.ENGINE_DELAYED_BY, keys.ENGINE_DELAYED_TIME} & none.keys()


def test_a_request_that_ended_early_says_no_more_than_it_reached() -> None:
    record = RequestRecord(
        timeline([MS], T0 + 3 * MS), error_type="queue_full", http_status=429, stream_state="error"
    )
    *children, server = written(record)
    assert [child.name for child in children] == ["admission", "tokenize"]
    assert server.status.status_code is StatusCode.ERROR
    facts = dict(server.attributes or {})
    assert facts[keys.ERROR_TYPE] == "queue_full"
    for key in (keys.ENGINE_QUEUE, keys.ENGINE_TTFT, keys.ENGINE_INFERENCE, keys.OUTPUT_TOKENS):
        assert key not in facts


def test_the_service_is_named_and_its_instance_told_apart() -> None:
    (_, one), (_, two) = (written(RequestRecord(timeline([], T0 + 1))) for _ in range(2))
    assert one.resource.attributes[keys.SERVICE_NAME] == "longpole-engine"
    instances = {span.resource.attributes[keys.SERVICE_INSTANCE_ID] for span in (one, two)}
    assert len(instances) == 2
    assert one.instrumentation_scope is not None
    assert one.instrumentation_scope.name == keys.SCOPE_ENGINE


def test_a_dead_collector_is_worth_one_warning(
    caplog: pytest.LogCaptureFixture, free_port: Callable[[], int], monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    spans = SpanWriter(otlp_processor(f"http://127.0.0.1:{free_port()}"))
    with caplog.at_level(logging.WARNING):
        for _ in range(600):  # more than one batch
            spans.emit(RequestRecord(timeline([], T0 + 1)))
        spans.close(timeout_s=5)
    assert len(caplog.records) == 1
    assert "do not reach the collector" in caplog.text
