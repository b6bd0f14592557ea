"""Prometheus metrics under vLLM's names, counted from the very facts the spans carry.

Names and meanings: vLLM, docs/design/metrics.md. Every counter is a sum over the spans' attributes
and every histogram holds one of them, so the two never disagree.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from longpole.vocab import keys
from longpole_engine.telemetry.events import RequestRecord
from longpole_engine.telemetry.otel import attributes
from longpole_engine.telemetry.resources import Sample

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_LABELS: Final = ("model_name", "engine")
_SECONDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
_TIMES: Final = {
    "vllm:time_to_first_token_seconds": (keys.ENGINE_TTFT, "Door to first token."),
    "vllm:e2e_request_latency_seconds": (keys.ENGINE_E2E, "Door to closed response."),
    "vllm:request_queue_time_seconds": (keys.ENGINE_QUEUE, "In line, every time it was."),
    "vllm:request_prefill_time_seconds": (keys.ENGINE_PREFILL, "Scheduled to prompt done."),
    "vllm:request_decode_time_seconds": (keys.ENGINE_DECODE, "First to last token."),
}


class Metrics:
    """One engine's metrics, in a registry of its own.

    Args:
        model: the served name, a label of all.
        gauges: what is read when the metrics are: name to reader.
    """

    def __init__(self, model: str) -> None:
        self._registry = CollectorRegistry()
        self._values = (model, "0")
        self._times = {key: self._histogram(name, text) for name, (key, text) in _TIMES.items()}
        self._gaps = self._histogram(
            "vllm:inter_token_latency_seconds", "Between tokens of one answer."
        )
        self._prompt = self._counter("vllm:prompt_tokens", "Tokens of prompts.")
        self._output = self._counter("vllm:generation_tokens", "Tokens of answers.")
        self._queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up.")
        self._hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found.")
        self._done = Counter(
            "vllm:request_success",
            "Requests that ended as asked, by reason.",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        )
        self._gauges: dict[str, Gauge] = {}

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when the metrics are."""
        gauge = Gauge(name, text, _LABELS, registry=self._registry)
        gauge.labels(*self._values).set_function(read)

    def started(self, phases: Mapping[str, float]) -> None:
        """How long each phase of the start took, in seconds."""
        gauge = Gauge(
            "longpole:engine_start_seconds",
            "Phases of the start.",
            (*_LABELS, "phase"),
            registry=self._registry,
        )
        for phase, seconds in phases.items():
            gauge.labels(*self._values, phase).set(seconds)

    def observe(self, record: RequestRecord) -> None:
        """Count a closed request."""
        phases = record.timeline.phases()
        if not phases:
            return
        said = attributes(record, phases)
        for key, histogram in self._times.items():
            value = said.get(key)
            if isinstance(value, float):
                histogram.observe(value)
        for before, after in pairwise(record.token_ns):
            self._gaps.observe((after - before) / 1e9)
        for counter, number in (
            (self._prompt, record.input_tokens),
            (self._output, record.output_tokens),
            (self._hits, record.cached_tokens),
            (self._queries, record.input_tokens if record.cached_tokens is not None else None),
        ):
            counter.inc(number or 0)
        if record.finish_reason and record.error_type is None:
            self._done.labels(*self._values, record.finish_reason).inc()

    def sampled(self, sample: Sample) -> None:
        """What the machine gave lately."""
        for name, value in (
            ("longpole:engine_cpu_cores", sample.cpu_share),
            ("longpole:engine_resident_bytes", sample.rss_bytes),
            ("longpole:engine_gpu_share", sample.gpu_share),
            ("longpole:engine_gpu_bytes", sample.gpu_bytes),
            ("longpole:engine_busy_share", sample.busy_share),
            ("longpole:engine_read_bytes_per_second", sample.read_bytes_s),
        ):
            if value is None:
                continue
            if name not in self._gauges:
                text = "Over the last interval."
                self._gauges[name] = Gauge(name, text, _LABELS, registry=self._registry)
            self._gauges[name].labels(*self._values).set(value)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, _LABELS, registry=self._registry).labels(*self._values)

    def _histogram(self, name: str, text: str) -> Histogram:
        made = Histogram(name, text, _LABELS, buckets=_SECONDS, registry=self._registry)
        return made.labels(*self._values)
