import json

import pytest

from longpole.vocab import Stage, keys

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

LLM = "logfire.openai"
TYPE = "logfire.span_type"
ASKED = {
    keys.OPERATION: "chat",
    keys.PROVIDER: "openai",
    keys.REQUEST_MODEL: "m",
    keys.RESPONSE_MODEL: "m",
    "request_data": '{"model":"m"}',
}
ANSWERED = {
    keys.RESPONSE_MODEL: "m-1",
    keys.RESPONSE_ID: "r",
    keys.FINISH_REASONS: '["tool_calls"]',
    keys.INPUT_TOKENS: 100,
    keys.OUTPUT_TOKENS: 9,
}


@pytest.fixture
def read(otlp):
    """The canonical form of one span."""

    def canonical(attributes, *, scope=LLM, span_type="span", **fields):
        attributes = {TYPE: span_type} | attributes
        (span,) = otlp.canonical(otlp.span(attributes=attributes, **fields), scope=scope)
        assert span.dialect == "logfire"
        return span

    return canonical


def test_a_call_with_its_answer_on_it_was_not_streamed(read):
    span = read(ASKED | ANSWERED, kind=3)
    assert (span.is_model_call, span.is_streamed, span.flags) == (True, False, [])
    assert (span.response_model, span.finish_reason) == ("m-1", "tool_call")


def test_a_call_without_an_answer_is_the_head_of_a_stream(read):
    span = read(ASKED, kind=3)
    assert (span.is_model_call, span.is_streamed) == (True, True)
    assert span.flags == ["stream_head"]
    assert (span.request_model, span.response_model) == ("m", None)


def test_the_request_says_it_too_when_it_holds_the_flag(read):
    asked = ASKED | {"request_data": '{"model":"m","stream":false}'}
    span = read(asked)
    assert (span.is_streamed, span.flags) == (False, [])


def test_a_call_that_failed_is_no_head(read):
    span = read(
        ASKED, status=(2, "400"), events=[("exception", 5, {"exception.type": "openai.BadRequest"})]
    )
    assert (span.is_streamed, span.flags) == (None, [])
    assert (span.status, span.error_type, span.response_model) == (
        "error",
        "openai.BadRequest",
        None,
    )


def test_an_embedding_without_an_answer_is_no_head(read):
    span = read(ASKED | {keys.OPERATION: "embeddings"})
    assert (span.is_streamed, span.flags) == (False, [])


def test_the_summary_covers_the_time_it_tells_of(read):
    end_ns = 1_790_000_001_000_000_000
    fields = {"start_time_unix_nano": end_ns, "end_time_unix_nano": end_ns}
    span = read(ASKED | ANSWERED | {"duration": 0.25}, span_type="log", **fields)
    assert (span.is_model_call, span.is_streamed, span.flags) == (True, True, ["stream_summary"])
    assert (span.start_ns, span.end_ns) == (end_ns - 250_000_000, end_ns)
    assert (span.input_tokens, span.output_tokens) == (100, 9)
    for duration in ("long", -1.0, 9e9):
        assert read(ASKED | {"duration": duration}, span_type="log", **fields).start_ns == end_ns


def test_a_summary_of_a_broken_stream_has_no_count_of_output(read):
    answered = ANSWERED | {keys.OUTPUT_TOKENS: 1, "error.type": "APIStatusError"}
    del answered[keys.FINISH_REASONS]
    span = read(ASKED | answered, span_type="log", status=(2, ""))
    assert (span.input_tokens, span.output_tokens) == (100, None)
    assert span.flags == ["stream_summary", "output_tokens_partial"]
    assert span.attributes[keys.OUTPUT_TOKENS] == "1"


def test_the_raw_usage_fills_what_the_conventions_do_not_name(read):
    usage = {"completion_tokens_details": {"reasoning_tokens": 4}, "service_tier": "flex"}
    span = read(ASKED | ANSWERED | {"gen_ai.usage.raw": json.dumps(usage)})
    assert (span.reasoning_tokens, span.service_tier, span.output_tokens) == (4, "flex", 9)


def test_versions_before_the_conventions_are_read_from_the_data(read):
    response = {"message": {}, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    span = read({"request_data": '{"model":"m"}', "response_data": json.dumps(response)})
    assert (span.operation, span.is_model_call, span.is_streamed) == ("chat", True, False)
    assert (span.request_model, span.input_tokens, span.output_tokens) == ("m", 5, 2)


def test_a_pending_span_is_a_notice_and_counts_for_nothing(read):
    span = read(ASKED, span_type="pending_span")
    assert (span.is_model_call, span.is_detached, span.flags) == (False, True, ["pending"])


def test_pydantic_ai_says_how_long_the_first_chunk_took(read):
    span = read(
        ASKED
        | ANSWERED
        | {
            "gen_ai.client.operation.time_to_first_chunk": 0.2,
            "gen_ai.usage.details.reasoning_tokens": 4,
            keys.CONVERSATION_ID: SESSION,
        },
        scope="pydantic-ai",
        kind=3,
    )
    assert (span.ttft_ns, span.is_streamed) == (200_000_000, True)
    assert (span.reasoning_tokens, span.conversation_id) == (4, SESSION)
    assert span.flags == ["ttft_first_event"]


def test_pydantic_ai_without_a_first_chunk_leaves_open_whether_it_streamed(read):
    assert read(ASKED | ANSWERED, scope="pydantic-ai", kind=3).is_streamed is None


def test_an_agent_that_repeats_the_usage_has_none(read):
    span = read(ANSWERED | {keys.OPERATION: "invoke_agent"}, scope="pydantic-ai")
    assert (span.operation, span.is_model_call) == ("invoke_agent", False)
    assert (span.input_tokens, span.finish_reason, span.response_model) == (None, None, None)
    assert span.attributes[keys.INPUT_TOKENS] == "100"


def test_a_tool_is_a_tool_and_any_other_span_is_kept(read):
    assert read({keys.OPERATION: "execute_tool"}, scope="pydantic-ai").stage == Stage.TOOL
    plain = read({"x": 1}, scope="my.code")
    assert (plain.operation, plain.is_model_call, plain.attributes["x"]) == (None, False, "1")


def test_another_librarys_span_stays_its_own_though_logfire_exported_it(otlp):
    given = {TYPE: "span", "openinference.span.kind": "LLM"}
    (span,) = otlp.canonical(otlp.span(attributes=given), scope="somebody")
    assert span.dialect == "openinference"
