"""Metrics under vLLM's names agree with the spans; the timeline of a request is served."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from longpole.vocab import Stage, keys
from longpole_engine.telemetry.events import RequestRecord, Timeline
from longpole_engine.telemetry.otel import SpanWriter
from longpole_engine.telemetry.reporter import Reporter
from longpole_engine.telemetry.resources import Sampler, gpu, rss_bytes
from longpole_engine.telemetry.steps import Part, StepLog

Serve = Callable[..., Any]


def numbers(text: str) -> dict[str, float]:
    """Sums over labels, by sample name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_counters_are_sums_over_the_spans(serve: Serve) -> None:
    served = serve(max_num_seqs=2)
    prompt = "the same words at the start of every prompt, long enough for pages " * 2
    names = []
    for number in range(5):
        body = {
            "model": "tiny",
            "prompt": f"{prompt}{number}",
            "max_tokens": 3 + number,
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=30)
        names.append(answer.json()["id"])
    assert httpx.post(f"{served.url}/v1/completions", json={"model": "no"}).status_code == 400
    spans = [dict(span.attributes) for span in served.server_spans(6)]

    def total(key: str) -> float:
        return sum(span.get(key, 0) for span in spans)

    deadline = time.monotonic() + 20
    while True:  # the last span is written just before it is counted
        found = numbers(httpx.get(f"{served.url}/metrics").text)
        if found["vllm:e2e_request_latency_seconds_count"] == len(spans):
            break
        assert time.monotonic() < deadline
    assert found["vllm:prompt_tokens_total"] == total(keys.INPUT_TOKENS) > 0
    assert found["vllm:generation_tokens_total"] == total(keys.OUTPUT_TOKENS) == 3 + 4 + 5 + 6 + 7
    assert found["vllm:prefix_cache_hits_total"] == total(keys.CACHED_INPUT_TOKENS) > 0
    assert found["vllm:prefix_cache_queries_total"] == total(keys.INPUT_TOKENS)
    assert found["vllm:request_success_total"] == 5
    for name, key in (
        ("time_to_first_token", keys.ENGINE_TTFT),
        ("e2e_request_latency", keys.ENGINE_E2E),
        ("request_queue_time", keys.ENGINE_QUEUE),
        ("request_prefill_time", keys.ENGINE_PREFILL),
        ("request_decode_time", keys.ENGINE_DECODE),
    ):
        assert found[f"vllm:{name}_seconds_sum"] == pytest.approx(total(key))
        assert found[f"vllm:{name}_seconds_count"] == sum(key in span for span in spans)
    assert found["vllm:inter_token_latency_seconds_count"] == 2 + 3 + 4 + 5 + 6
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert found[f"vllm:{gauge}"] == 0
    assert found["longpole:engine_start_seconds"] > 0

    shown = httpx.get(f"{served.url}/v1/requests/{names[-1]}/timeline").json()
    assert sum(m["ms"] for m in shown["moments"]) == pytest.approx(shown["wall_ms"], abs=1e-3)
    assert [m["what"] for m in shown["moments"]].count("decode") == 6
    assert httpx.get(f"{served.url}/v1/requests/nobody/timeline").status_code == 404


def test_the_start_is_a_span_whose_phases_lie_end_to_end(serve: Serve) -> None:
    served = serve()
    spans = served.exporter.get_finished_spans()
    start = next(span for span in spans if span.name == "engine_start")
    phases = served.stages(start)
    assert [span.name for span in phases] == ["load_weights", "build", "warm_up"]
    assert phases[0].start_time == start.start_time
    assert phases[-1].end_time == start.end_time
    assert all(a.end_time == b.start_time for a, b in pairwise(phases))
    assert start.attributes[keys.STAGE] == Stage.COLD_START.value


def closed(number: int) -> RequestRecord:
    record = RequestRecord(Timeline(1_000), response_id=f"r{number}")
    record.timeline.close(2_000)
    return record


def test_a_broken_exporter_and_a_full_queue_are_counted_and_stop_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    spans = SpanWriter(SimpleSpanProcessor(exporter))
    reporter = Reporter(spans, "tiny")
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            raise RuntimeError("planted")

        patch.setattr(spans, "emit", broken)
        reporter.emit(closed(0))
        deadline = time.monotonic() + 20
        while not reporter.num_dropped:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    reporter.emit(closed(1))
    reporter.close(5)
    assert [span.name for span in exporter.get_finished_spans()] == ["admission", "llm_request"]
    assert "planted" in caplog.text
    assert reporter.timeline("r1") is None  # no engine: no steps


def test_a_sample_joins_the_machine_to_the_steps_of_its_time(drive: Callable[..., Any]) -> None:
    driver = drive()
    sampler = Sampler(driver.engine.steps, driver.engine.read_bytes)
    driver.answer([5, 6, 7], max_tokens=6, is_eos_ignored=True)
    sample = sampler.take()
    assert sample.rss_bytes == pytest.approx(rss_bytes(), rel=0.5)
    assert (sample.first_step, sample.last_step) == (1, driver.engine.num_steps)
    assert 0 < sample.busy_share <= 1
    assert sample.read_bytes_s is not None
    assert sample.read_bytes_s > 0
    assert (sample.gpu_share, sample.gpu_bytes) == gpu()
    empty = Sampler(StepLog(), driver.engine.read_bytes).take()
    assert (empty.first_step, empty.busy_share, empty.read_bytes_s) == (None, 0.0, None)
    assert Part("plan") is Part.PLAN
