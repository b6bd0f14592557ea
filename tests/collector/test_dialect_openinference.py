import json

import pytest

from longpole.vocab import Stage

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

SCOPE = "openinference.instrumentation.openai"
KIND = "openinference.span.kind"
FIRST_TOKEN = "First Token Stream Event"


@pytest.fixture
def read(otlp):
    """The canonical form of one span of that kind."""

    def canonical(kind, attributes=None, *, scope=SCOPE, **fields):
        attributes = {KIND: kind} | (attributes or {})
        (span,) = otlp.canonical(otlp.span(attributes=attributes, **fields), scope=scope)
        assert span.dialect == "openinference"
        return span

    return canonical


@pytest.mark.parametrize(
    ("kind", "operation", "stage", "is_model_call"),
    [
        ("LLM", "chat", None, True),
        ("EMBEDDING", "embeddings", None, True),
        ("TOOL", "execute_tool", Stage.TOOL, False),
        ("RETRIEVER", "retrieval", Stage.RETRIEVAL, False),
        ("RERANKER", None, Stage.RETRIEVAL, False),
        ("GUARDRAIL", None, Stage.VALIDATION, False),
        ("EVALUATOR", None, Stage.VALIDATION, False),
        ("AGENT", "invoke_agent", None, False),
        ("CHAIN", "invoke_workflow", None, False),
        ("UNKNOWN", None, None, False),
        ("a new kind", None, None, False),
    ],
)
def test_the_kind_says_what_a_span_is_in_any_scope(read, kind, operation, stage, is_model_call):
    span = read(kind, scope="the.application")
    assert (span.operation, span.stage, span.is_model_call) == (operation, stage, is_model_call)


def test_a_stated_stage_wins_over_the_kind(read):
    assert read("TOOL", {"longpole.stage": "human_wait"}).stage == Stage.HUMAN_WAIT


def test_session_and_prompt_version_are_known_on_every_span(read):
    facts = {"session.id": SESSION, "llm.prompt_template.version": "v3", "user.id": SESSION}
    for kind in ("CHAIN", "TOOL", "LLM"):
        span = read(kind, facts)
        assert (span.conversation_id, span.prompt_version) == (SESSION, "v3")
        assert span.attributes["user.id"] == SESSION


def test_the_first_event_is_the_time_to_first_token_and_is_called_so(read, otlp):
    start_ns = otlp.span()["start_time_unix_nano"]
    span = read("LLM", events=[(FIRST_TOKEN, start_ns + 250_000_000, {})])
    assert (span.ttft_ns, span.first_chunk_ns) == (250_000_000, 250_000_000)
    assert (span.is_streamed, span.flags) == (True, ["ttft_first_event", "incomplete"])


def test_an_event_before_the_start_or_without_a_start_is_no_time(read, otlp):
    start_ns = otlp.span()["start_time_unix_nano"]
    assert read("LLM", events=[(FIRST_TOKEN, start_ns - 1, {})]).ttft_ns is None
    span = read("LLM", events=[(FIRST_TOKEN, start_ns, {})], start_time_unix_nano=0)
    assert span.ttft_ns is None


@pytest.mark.parametrize(
    ("scope", "name", "settings", "is_streamed"),
    [
        (SCOPE, "ChatCompletion", {"stream": True}, True),
        (SCOPE, "ChatCompletion", {"stream": False}, False),
        (SCOPE, "ChatCompletion", {}, False),
        ("openinference.instrumentation.google_genai", "GenerateContentStream", {}, True),
        ("openinference.instrumentation.google_genai", "GenerateContent", {}, False),
        ("openinference.instrumentation.langchain", "ChatOpenAI", {}, None),
        ("the.application", "by hand", {}, None),
    ],
)
def test_whether_a_call_was_streamed_is_told_only_by_who_knows(
    read, scope, name, settings, is_streamed
):
    given = {"llm.invocation_parameters": json.dumps(settings)}
    assert read("LLM", given, scope=scope, name=name).is_streamed is is_streamed


def test_settings_keep_numbers_and_lose_instructions(read):
    settings = {"model": "m", "temperature": 0.5, "instructions": "secret plan", "tools": [{}]}
    span = read("LLM", {"llm.invocation_parameters": json.dumps(settings)})
    assert span.request_model == "m"
    assert span.attributes == {
        KIND: "LLM",
        "llm.invocation_parameters.model": "m",
        "llm.invocation_parameters.temperature": "0.5",
    }


def test_the_answers_body_fills_what_no_key_says(read):
    body = {
        "id": "resp_1",
        "model": "m-1",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [],
        "service_tier": "flex",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    span = read("LLM", {"output.value": json.dumps(body), "llm.token_count.prompt": 7})
    assert (span.response_id, span.response_model) == ("resp_1", "m-1")
    assert (span.finish_reason, span.service_tier) == ("length", "flex")
    assert (span.input_tokens, span.output_tokens) == (7, 2)


@pytest.mark.parametrize(
    "value", ["__REDACTED__", "[1]", "7", '{"choices": 3, "usage": [], "id": {}}']
)
def test_an_output_that_is_no_answer_is_left_alone(read, value):
    span = read("LLM", {"output.value": value})
    assert (span.response_id, span.finish_reason, span.input_tokens) == (None, None, None)


def test_cached_tokens_left_out_by_an_older_sender_are_added(read):
    span = read(
        "LLM",
        {"llm.token_count.prompt": 10, "llm.token_count.prompt_details.cache_read": 90},
    )
    assert span.input_tokens == 100
    assert "input_excluded_cache" in span.flags


def test_an_agent_that_repeats_the_usage_has_none(read):
    span = read("AGENT", {"output.value": '{"usage": {"prompt_tokens": 5}}'})
    assert span.input_tokens is None


def test_an_exception_makes_a_call_an_error_but_not_work_that_says_it_went_well(read):
    events = [("exception", 5, {"exception.type": "ValueError"})]
    for kind, code, status, error in (
        ("LLM", 1, "error", "ValueError"),
        ("CHAIN", 0, "error", "ValueError"),
        ("CHAIN", 1, "ok", None),
    ):
        span = read(kind, events=events, status=(code, ""))
        assert (span.status, span.error_type) == (status, error)
