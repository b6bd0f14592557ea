"""OpenLLMetry, Traceloop and the Anthropic SDK's own spans, beyond what the captures show."""

import pytest

from longpole.vocab import Stage, keys

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

CLIENT = 3
SCOPE = "opentelemetry.instrumentation.openai.v1"
GOOGLE = "opentelemetry.instrumentation.google_generativeai"
NATIVE = "com.anthropic.sdk.python"
CHUNK = "gen_ai.content.completion.chunk"


def read(otlp, scope=SCOPE, **given):
    attributes = {keys.OPERATION: "chat", **given.pop("attributes", {})}
    (span,) = otlp.canonical(otlp.span(kind=CLIENT, attributes=attributes, **given), scope=scope)
    return span


@pytest.mark.parametrize(
    ("scope", "dialect"),
    [
        ("opentelemetry.instrumentation.anthropic", "openllmetry"),
        ("opentelemetry.instrumentation.openai.v0", "openllmetry"),
        ("traceloop.tracer", "openllmetry"),
        ("opentelemetry.instrumentation.openai_v2", "otel_genai"),
        ("opentelemetry.instrumentation.genai.openai", "otel_genai"),
        ("opentelemetry.instrumentation.google_genai", "otel_genai"),
        ("com.anthropic.sdk.python.messages", "anthropic_sdk"),
        ("opentelemetry.instrumentation.httpx", "unknown"),
    ],
)
def test_the_scope_tells_the_library(otlp, scope, dialect):
    (span,) = otlp.canonical(otlp.span(), scope=scope)
    assert span.dialect == dialect


def test_the_first_chunk_is_the_first_event_of_any_kind(otlp):
    start_ns = otlp.span()["start_time_unix_nano"]
    events = [(CHUNK, start_ns + at, {}) for at in (55_000_000, 215_000_000)]
    span = read(otlp, attributes={"gen_ai.is_streaming": True}, events=events)
    assert span.ttft_ns == span.first_chunk_ns == 55_000_000
    assert span.flags == ["ttft_first_event", "incomplete"]


def test_a_stream_of_which_nothing_was_seen_ended_at_the_headers(otlp):
    span = read(otlp, attributes={"gen_ai.is_streaming": True})
    assert span.flags == ["truncated", "incomplete"]
    failed = {"gen_ai.is_streaming": True, keys.ERROR_TYPE: "BadRequestError"}
    assert "truncated" not in read(otlp, attributes=failed).flags


@pytest.mark.parametrize(
    ("provider", "output", "reasoning"), [("gcp.gen_ai", 30, 12), ("openai", 18, None)]
)
def test_googles_thoughts_are_part_of_the_output(otlp, provider, output, reasoning):
    usage = {keys.INPUT_TOKENS: 1200, keys.OUTPUT_TOKENS: 18, "gen_ai.usage.total_tokens": 1230}
    span = read(otlp, GOOGLE, attributes={keys.PROVIDER: provider, **usage})
    assert (span.output_tokens, span.reasoning_tokens) == (output, reasoning)


def test_an_old_span_says_its_operation_by_the_request_type(otlp):
    attributes = {"llm.request.type": "chat", "llm.is_streaming": "true", "gen_ai.system": "Ollama"}
    (span,) = otlp.canonical(
        otlp.span(kind=CLIENT, attributes=attributes),
        scope="opentelemetry.instrumentation.ollama",
    )
    assert (span.operation, span.is_model_call, span.is_streamed) == ("chat", True, True)
    assert span.provider == "ollama"


@pytest.mark.parametrize(
    ("kind", "operation", "stage"),
    [
        ("workflow", "invoke_workflow", None),
        ("agent", "invoke_agent", None),
        ("tool", "execute_tool", Stage.TOOL),
        ("task", None, None),
        ("whatever", None, None),
    ],
)
def test_kinds_of_traceloop(otlp, kind, operation, stage):
    attributes = {
        "traceloop.span.kind": kind,
        "traceloop.association.properties.session_id": SESSION,
    }
    (span,) = otlp.canonical(otlp.span(attributes=attributes), scope="somebody.elses")
    assert (span.dialect, span.operation, span.stage) == ("openllmetry", operation, stage)
    assert (span.is_model_call, span.conversation_id) == (False, SESSION)


def test_the_anthropic_sdks_clock_stops_at_the_first_content(otlp):
    span = read(
        otlp,
        NATIVE,
        attributes={
            keys.REQUEST_STREAM: True,
            keys.TIME_TO_FIRST_CHUNK: 0.2,
            keys.RESEND_COUNT: 2,
            "anthropic.message.stop_reason": "tool_use",
            "anthropic.response.service_tier": "standard",
        },
    )
    assert (span.ttft_ns, span.flags) == (200_000_000, ["ttft_first_content"])
    assert (span.finish_reason, span.service_tier, span.num_attempts) == (
        "tool_call",
        "standard",
        3,
    )


def test_what_was_not_marked_as_streamed_and_was_answered_was_not_streamed(otlp):
    answered = {keys.RESPONSE_ID: "x", keys.OUTPUT_TOKENS: 3}
    assert read(otlp, NATIVE, attributes=answered).is_streamed is False
    assert read(otlp, NATIVE).is_streamed is None
    assert read(otlp, "somebody.elses", attributes=answered).is_streamed is None
