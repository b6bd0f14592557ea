import json
from datetime import UTC, datetime

import pytest

from longpole.vocab import Stage

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

SCOPE = "langfuse-sdk"
TYPE = "langfuse.observation.type"
USAGE = "langfuse.observation.usage_details"
STARTED = "langfuse.observation.completion_start_time"


@pytest.fixture
def read(otlp):
    """The canonical form of one observation of that type."""

    def canonical(kind, attributes=None, *, scope=SCOPE, **fields):
        attributes = {TYPE: kind} | (attributes or {})
        (span,) = otlp.canonical(otlp.span(attributes=attributes, **fields), scope=scope)
        assert span.dialect == "langfuse"
        return span

    return canonical


@pytest.mark.parametrize(
    ("kind", "operation", "stage", "is_model_call"),
    [
        ("generation", "chat", None, True),
        ("embedding", "embeddings", None, True),
        ("tool", "execute_tool", Stage.TOOL, False),
        ("retriever", "retrieval", Stage.RETRIEVAL, False),
        ("guardrail", None, Stage.VALIDATION, False),
        ("evaluator", None, Stage.VALIDATION, False),
        ("agent", "invoke_agent", None, False),
        ("chain", "invoke_workflow", None, False),
        ("span", None, None, False),
        ("event", None, None, False),
    ],
)
def test_the_type_says_what_a_span_is_in_any_scope(read, kind, operation, stage, is_model_call):
    span = read(kind, scope="somebody.elses.exporter")
    assert (span.operation, span.stage, span.is_model_call) == (operation, stage, is_model_call)


def test_session_and_prompt_version_are_known(read):
    span = read("generation", {"session.id": SESSION, "langfuse.observation.prompt.version": 4})
    assert (span.conversation_id, span.prompt_version) == (SESSION, "4")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (  # OpenAI's chat record as it is
            {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            (100, 64, None, 9, 4),
        ),
        (  # OpenAI's Responses
            {
                "input_tokens": 100,
                "output_tokens": 9,
                "input_tokens_details": {"cached_tokens": 64},
            },
            (100, 64, None, 9, None),
        ),
        (  # Anthropic's, which counts cached input beside
            {
                "input_tokens": 6,
                "cache_read_input_tokens": 64,
                "cache_creation_input_tokens": 30,
                "output_tokens": 9,
            },
            (100, 64, 30, 9, None),
        ),
        # Langfuse's own types leave out what has a type of its own
        (
            {"input": 6, "input_cache_read": 64, "input_cache_creation": 30, "output": 9},
            (100, 64, 30, 9, None),
        ),
        (
            {"input": 36, "input_cached_tokens": 64, "output": 5, "output_reasoning": 4},
            (100, 64, None, 9, 4),
        ),
        (
            {"input": 36, "input_cached_tokens": 64, "output": 9, "total": 109},
            (100, 64, None, 9, None),
        ),
        # unless the total says that they are inside
        (
            {"input": 100, "input_cached_tokens": 64, "output": 9, "total": 109},
            (100, 64, None, 9, None),
        ),
        ({"input": 2**62, "input_cached_tokens": 2**62, "output": 1}, (None, 2**62, None, 1, None)),
        ({"input": 8}, (8, None, None, None, None)),
        ({"input": "many", "output": -1}, (None,) * 5),
    ],
)
def test_every_shape_of_usage_becomes_the_same_columns(read, usage, tokens):
    span = read("generation", {USAGE: json.dumps(usage)})
    assert (
        span.input_tokens,
        span.cached_input_tokens,
        span.cache_write_tokens,
        span.output_tokens,
        span.reasoning_tokens,
    ) == tokens


def test_the_completion_start_is_a_time_since_the_span_started(read, otlp):
    start_s = otlp.span()["start_time_unix_nano"] / 1e9
    at = datetime.fromtimestamp(start_s + 0.25, UTC).isoformat()
    for text in (json.dumps(at), at, at.replace("+00:00", "Z")):
        span = read("generation", {STARTED: text})
        assert span.ttft_ns == span.first_chunk_ns == 250_000_000
        assert span.is_streamed is True
        assert "ttft_first_event" in span.flags


@pytest.mark.parametrize(
    "text", ['"yesterday"', "", "2026-01-01T00:00:00", '"9999-01-01T00:00:00Z"', "[1]"]
)
def test_a_start_that_is_no_moment_of_the_call_is_no_time(read, text):
    assert read("generation", {STARTED: text}).ttft_ns is None


def test_only_the_openai_integration_tells_that_a_call_was_not_streamed(read):
    usage = {USAGE: '{"prompt_tokens": 5}'}
    assert read("generation", usage, name="OpenAI-generation").is_streamed is False
    assert read("generation", usage, name="mine").is_streamed is None
    assert read("generation", name="OpenAI-generation").is_streamed is None


def test_the_one_model_name_is_the_answers_once_there_is_an_answer(read):
    model = {"langfuse.observation.model.name": "m"}
    asked, answered = read("generation", model), read("generation", model | {USAGE: '{"input": 1}'})
    assert (asked.request_model, asked.response_model) == ("m", None)
    assert (answered.request_model, answered.response_model) == (None, "m")


def test_a_level_of_error_is_an_error_even_if_the_status_is_unset(read):
    span = read(
        "generation",
        {"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "no"},
    )
    assert (span.status, span.error_type, span.status_message) == ("error", "_OTHER", "no")


@pytest.mark.parametrize(
    ("output", "finish"),
    [
        ({"type": "message", "status": "completed"}, "stop"),
        ([{"type": "reasoning"}, {"type": "message", "status": "incomplete"}], "length"),
        ({"type": "function_call", "status": "completed"}, "tool_call"),
        ({"role": "assistant", "content": "status: completed"}, None),
        ([], None),
        ("completed", None),
    ],
)
def test_how_a_response_ended_is_told_by_its_last_item(read, output, finish):
    given = {"langfuse.observation.output": json.dumps(output)}
    assert read("generation", given).finish_reason == finish


def test_a_finish_reason_comes_in_quotes(read):
    given = {"langfuse.observation.metadata.finish_reason": '"tool_calls"'}
    assert read("generation", given).finish_reason == "tool_call"
