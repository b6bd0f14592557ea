"""The spans of a finished request, over OTLP/HTTP.

One server span a request, and under it one child a stage, end to end. They are written when the
response is closed, with the times taken along the way, and leave on a thread of their own.
"""

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from longpole.vocab import Stage, keys
from longpole_engine.telemetry.events import Phase, RequestRecord
from longpole_engine.telemetry.start import StartPhase

SERVICE: Final = "longpole-engine"
PROVIDER: Final = "longpole"
START: Final = "engine_start"
"""Name of the span of the engine's start."""

_SPAN_NAMES: Final = {Stage.LATER_DECODE: "decode"}
"""Names that differ from their stage's."""

_STAGE_KEYS: Final = {
    Stage.ADMISSION: keys.ENGINE_ADMISSION,
    Stage.TOKENIZE: keys.ENGINE_TOKENIZE,
    Stage.QUEUE: keys.ENGINE_QUEUE,
    Stage.PREFILL: keys.ENGINE_PREFILL,
    Stage.FIRST_DECODE: keys.ENGINE_FIRST_DECODE,
    Stage.LATER_DECODE: keys.ENGINE_DECODE,
    Stage.STREAM: keys.ENGINE_STREAM,
}

_INFERENCE: Final = (Stage.PREFILL, Stage.FIRST_DECODE, Stage.LATER_DECODE)

NUM_DELAYERS: Final = 5
"""Requests that a span names as those it waited for."""

Attribute = str | bool | int | float | list[str] | list[float]


class SpanWriter:
    """Writes requests as spans.

    Args:
        processor: where ended spans go; :func:`otlp_processor` for production.
        instance_id: tells this process's clock from others'; random by default.
    """

    def __init__(self, processor: SpanProcessor, instance_id: str | None = None) -> None:
        own = {
            keys.SERVICE_NAME: SERVICE,
            keys.SERVICE_INSTANCE_ID: instance_id or str(uuid.uuid4()),
        }
        resource = Resource(own).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(keys.SCOPE_ENGINE)
        self._propagator = TraceContextTextMapPropagator()

    def emit(self, record: RequestRecord, delayed_by: Mapping[str, int] | None = None) -> None:
        """Write one closed request; a record that is not closed writes nothing.

        The server span is a child of the caller's ``traceparent``, the stages are its children.

        Args:
            record: the request's.
            delayed_by: nanoseconds by the request that was served while it waited, the longest
                first; the span names :data:`NUM_DELAYERS` of them.
        """
        phases = record.timeline.phases()
        if not phases:
            return
        span = self._tracer.start_span(
            keys.ENGINE_SPAN_NAME,
            context=self._propagator.extract(dict(record.headers)),
            kind=SpanKind.SERVER,
            attributes=attributes(record, phases) | _waits(delayed_by or {}),
            start_time=phases[0].start_ns,
        )
        inside = trace.set_span_in_context(span)
        for phase in phases:
            child = self._tracer.start_span(
                _SPAN_NAMES.get(phase.stage, phase.stage.value),
                context=inside,
                attributes={keys.STAGE: phase.stage.value},
                start_time=phase.start_ns,
            )
            child.end(phase.end_ns)
        if record.error_type is not None:
            span.set_status(StatusCode.ERROR)
        span.end(phases[-1].end_ns)

    def emit_start(self, phases: Sequence[StartPhase]) -> None:
        """Write the engine's start: one span, its phases end to end under it."""
        span = self._tracer.start_span(
            START, attributes={keys.STAGE: Stage.COLD_START.value}, start_time=phases[0].start_ns
        )
        inside = trace.set_span_in_context(span)
        for phase in phases:
            child = self._tracer.start_span(
                phase.name,
                context=inside,
                attributes={keys.STAGE: Stage.COLD_START.value},
                start_time=phase.start_ns,
            )
            child.end(phase.end_ns)
        span.end(phases[-1].end_ns)

    def close(self, timeout_s: float) -> None:
        """Send what is left, for at most so long."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(timeout_s)


def attributes(record: RequestRecord, phases: list[Phase]) -> dict[str, Attribute]:
    """What the server span says: the conventions' keys, vLLM's and SGLang's times in seconds.

    A time is there only when its stage was entered, and counts every time it was: a request that
    was put back in line queues and runs its prompt again. One that spans stages is there when all
    were entered.
    """
    nanoseconds: dict[Stage, int] = {}
    starts: dict[Stage, int] = {}
    for phase in phases:
        spent_ns = phase.end_ns - phase.start_ns
        nanoseconds[phase.stage] = nanoseconds.get(phase.stage, 0) + spent_ns
        starts.setdefault(phase.stage, phase.start_ns)
    seconds = {stage: spent_ns / 1e9 for stage, spent_ns in nanoseconds.items()}
    start_ns, end_ns = phases[0].start_ns, phases[-1].end_ns
    found: dict[str, Attribute | None] = {
        keys.OPERATION: record.operation,
        keys.PROVIDER: PROVIDER,
        keys.REQUEST_MODEL: record.request_model,
        keys.RESPONSE_MODEL: record.response_model,
        keys.RESPONSE_ID: record.response_id,
        keys.REQUEST_ID: record.response_id,
        keys.REQUEST_STREAM: record.is_streamed,
        keys.REQUEST_MAX_TOKENS: record.max_tokens,
        keys.REQUEST_TEMPERATURE: record.temperature,
        keys.INPUT_TOKENS: record.input_tokens,
        keys.CACHED_INPUT_TOKENS: record.cached_tokens,
        keys.OUTPUT_TOKENS: record.output_tokens,
        keys.CACHE_STATE: record.cache_state,
        keys.COLD_START: True if record.is_cold_start else None,
        keys.FINISH_REASONS: [record.finish_reason] if record.finish_reason else None,
        keys.ERROR_TYPE: record.error_type,
        keys.HTTP_STATUS: record.http_status,
        keys.STREAM_STATE: record.stream_state,
        keys.ENGINE_E2E: (end_ns - start_ns) / 1e9,
        keys.ENGINE_NUM_STEPS: record.num_steps or None,
        keys.ENGINE_NUM_PREEMPTIONS: record.num_preempted or None,
        keys.ENGINE_NUM_DRAFTED: record.num_drafted or None,
        keys.ENGINE_NUM_ACCEPTED: record.num_accepted if record.num_drafted else None,
    }
    found.update((_STAGE_KEYS[stage], value) for stage, value in seconds.items())
    if Stage.LATER_DECODE in starts:
        found[keys.ENGINE_TTFT] = (starts[Stage.LATER_DECODE] - start_ns) / 1e9
    if Stage.STREAM in starts:
        found[keys.ENGINE_INFERENCE] = sum(seconds[stage] for stage in _INFERENCE)
    if record.num_decode_steps:
        found[keys.ENGINE_BATCH_SIZE] = record.decode_rows / record.num_decode_steps
    return {key: value for key, value in found.items() if value is not None}


def _waits(delayed_by: Mapping[str, int]) -> dict[str, Attribute]:
    """Whom the request waited for, by id alone; nothing where it waited for nobody."""
    if not delayed_by:
        return {}
    first = list(delayed_by.items())[:NUM_DELAYERS]
    return {
        keys.ENGINE_DELAYED_BY: [name for name, _ in first],
        keys.ENGINE_DELAYED_BY_TIME: [spent_ns / 1e9 for _, spent_ns in first],
        keys.ENGINE_DELAYED_TIME: sum(delayed_by.values()) / 1e9,
    }


def otlp_processor(endpoint: str | None) -> SpanProcessor:
    """Batches spans to an OTLP/HTTP collector on a thread of its own; says once if it is down.

    Args:
        endpoint: base address without ``/v1/traces``; ``None`` leaves it to
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` and OpenTelemetry's default, port 4318 here.
    """
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logger = logging.getLogger(trace_exporter.__name__)
    if not any(isinstance(known, _Once) for known in logger.filters):
        logger.addFilter(_Once())
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    return BatchSpanProcessor(trace_exporter.OTLPSpanExporter(endpoint=url))


class _Once(logging.Filter):
    """Lets one record through: a collector that is down is worth one line, not one a batch."""

    def __init__(self) -> None:
        super().__init__()
        self._has_spoken = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged: the first is, shortened to a line."""
        if self._has_spoken:
            return False
        self._has_spoken = True
        reason = record.getMessage()[:160]
        record.msg, record.args = "spans do not reach the collector (said once): %s", (reason,)
        return True
