import json

import pytest

from longpole.vocab import Stage, keys

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

ID = "ai.operationId"
METADATA = "ai.response.providerMetadata"
ASKED = {"ai.model.provider": "openai.chat", "ai.model.id": "m"}
ANSWERED = {
    "ai.response.model": "m-1",
    "ai.response.id": "r",
    "ai.response.finishReason": "tool-calls",
    "ai.usage.inputTokens": 100,
    "ai.usage.outputTokens": 9,
}


@pytest.fixture
def read(otlp):
    """The canonical form of one span of the SDK, version 6 or before."""

    def canonical(name, attributes=None, *, scope="ai", **fields):
        attributes = {ID: name} | (attributes or {})
        (span,) = otlp.canonical(otlp.span(attributes=attributes, **fields), scope=scope)
        assert span.dialect == "vercel"
        return span

    return canonical


@pytest.fixture
def read_7(otlp):
    """The canonical form of one span of version 7."""

    def canonical(operation, attributes=None, **fields):
        attributes = {keys.OPERATION: operation} | (attributes or {})
        (span,) = otlp.canonical(otlp.span(attributes=attributes, **fields), scope="gen_ai")
        assert span.dialect == "vercel"
        return span

    return canonical


@pytest.mark.parametrize(
    ("name", "operation", "stage", "is_streamed"),
    [
        ("ai.streamText.doStream", "chat", None, True),
        ("ai.generateText.doGenerate", "chat", None, False),
        ("ai.streamObject.doStream", "chat", None, True),
        ("ai.embedMany.doEmbed", "embeddings", None, False),
        ("ai.toolCall", "execute_tool", Stage.TOOL, None),
        ("ai.streamText", "invoke_workflow", None, None),
        ("ai.generateObject", "invoke_workflow", None, None),
        ("ai.embed", None, None, None),
        ("ai.rerank.doRerank", None, Stage.RETRIEVAL, None),
        ("ai.something.new", None, None, None),
    ],
)
def test_the_operation_id_says_what_a_span_is_with_any_tracer(
    read, name, operation, stage, is_streamed
):
    span = read(name, ASKED, scope="the.users.tracer")
    assert (span.operation, span.stage, span.is_streamed) == (operation, stage, is_streamed)
    assert span.is_model_call is (operation in ("chat", "embeddings"))


def test_a_call_is_read_whole(read):
    given = ASKED | ANSWERED
    given |= {
        "ai.usage.cachedInputTokens": 64,
        "ai.usage.reasoningTokens": 4,
        "ai.response.msToFirstChunk": 218.5,
        "ai.telemetry.metadata.sessionId": SESSION,
    }
    span = read("ai.streamText.doStream", given)
    assert (span.provider, span.request_model, span.response_model) == ("openai", "m", "m-1")
    assert (span.response_id, span.finish_reason) == ("r", "tool_call")
    assert (span.input_tokens, span.cached_input_tokens) == (100, 64)
    assert (span.output_tokens, span.reasoning_tokens) == (9, 4)
    assert span.ttft_ns == span.first_chunk_ns == 218_500_000
    assert (span.conversation_id, span.flags) == (SESSION, ["ttft_first_event"])


def test_the_loop_around_the_calls_repeats_the_usage_and_has_none(read):
    span = read("ai.streamText", ASKED | ANSWERED)
    assert (span.is_model_call, span.input_tokens, span.output_tokens) == (False, None, None)
    assert span.attributes["ai.usage.inputTokens"] == "100"


def test_older_names_are_read_too(read):
    given = {"ai.usage.promptTokens": 7, "ai.usage.completionTokens": 2, keys.PROVIDER_OLD: "x.y"}
    span = read("ai.generateText.doGenerate", given)
    assert (span.input_tokens, span.output_tokens, span.provider) == (7, 2, "x")
    span = read("ai.streamObject.doStream", {"ai.stream.msToFirstChunk": 5})
    assert span.ttft_ns == 5_000_000
    assert read("ai.embed.doEmbed", {"ai.usage.tokens": 8}).input_tokens == 8


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 176, "cache_read_input_tokens": 1024, "cache_creation_input_tokens": 256},
        None,
    ],
)
def test_anthropics_input_is_made_whole(read, usage):
    block = {"cacheCreationInputTokens": 256} | ({} if usage is None else {"usage": usage})
    span = read(
        "ai.streamText.doStream",
        {
            "ai.model.provider": "anthropic.messages",
            "ai.usage.inputTokens": 176,
            "ai.usage.outputTokens": 30,
            "ai.usage.cachedInputTokens": 1024,
            "ai.response.finishReason": "stop",
            METADATA: json.dumps({"anthropic": block}),
        },
    )
    assert span.input_tokens == 1456
    assert (span.cached_input_tokens, span.cache_write_tokens) == (1024, 256)
    assert span.flags == ["input_excluded_cache"]


def test_anthropics_input_stays_when_it_is_whole_already(read):
    usage = {"input_tokens": 1, "cache_read_input_tokens": 9}
    by_record = {METADATA: json.dumps({"anthropic": {"usage": usage}})}
    by_split = {"ai.usage.inputTokenDetails.noCacheTokens": 1}
    for proof in (by_record, by_split):
        span = read(
            "ai.generateText.doGenerate",
            {
                "ai.model.provider": "anthropic",
                "ai.usage.inputTokens": 10,
                "ai.usage.cachedInputTokens": 9,
            }
            | proof,
        )
        assert (span.input_tokens, span.flags) == (10, [])


@pytest.mark.parametrize("text", ["{", "[]", '{"anthropic": 5}', '{"a": {"usage": "b"}}'])
def test_strange_metadata_is_ignored(read, text):
    assert read("ai.generateText.doGenerate", ANSWERED | {METADATA: text}).input_tokens == 100


def test_a_failed_attempt_is_marked_and_a_broken_stream_is_not(read):
    failed = read(
        "ai.streamText.doStream",
        ASKED,
        status=(2, "Rate limit"),
        events=[("exception", 5, {"exception.type": "AI_APICallError"})],
    )
    assert (failed.status, failed.error_type) == ("error", "AI_APICallError")
    assert "failed_attempt" in failed.flags
    broken = read(
        "ai.streamText.doStream", ASKED | ANSWERED | {"ai.response.finishReason": "error"}
    )
    assert (broken.status, broken.error_type) == ("error", "_OTHER")
    assert (broken.finish_reason, broken.output_tokens) == ("error", 9)
    assert "failed_attempt" not in broken.flags


def test_a_loop_that_ended_in_an_error_is_one_by_its_finish_reason_alone(read):
    assert read("ai.streamText", {"ai.response.finishReason": "error"}).status == "error"


def test_an_unknown_finish_reason_is_unknown(read):
    given = {"ai.response.finishReason": "unknown", keys.FINISH_REASONS: ["unknown"]}
    assert read("ai.generateText.doGenerate", given).finish_reason is None


def test_version_7_times_the_first_content(read_7):
    span = read_7(
        "chat",
        {
            keys.PROVIDER: "anthropic",
            keys.INPUT_TOKENS: 1456,
            keys.CACHED_INPUT_TOKENS: 1024,
            keys.CACHE_CREATION_TOKENS: 256,
            keys.OUTPUT_TOKENS: 30,
            keys.FINISH_REASONS: ["stop"],
            "gen_ai.client.operation.duration": 0.5,
            "gen_ai.client.operation.time_to_first_chunk": 0.39,
        },
        kind=3,
    )
    assert (span.ttft_ns, span.first_chunk_ns, span.is_streamed) == (390_000_000, None, True)
    assert (span.input_tokens, span.cache_write_tokens) == (1456, 256)
    assert span.flags == ["ttft_first_content"]


def test_version_7_without_a_first_chunk_was_not_streamed_or_failed(read_7):
    assert read_7("chat", {"gen_ai.client.operation.duration": 0.5}).is_streamed is False
    assert read_7("chat").is_streamed is None


@pytest.mark.parametrize(
    ("operation", "stage"),
    [
        ("invoke_agent", None),
        ("agent_step", None),
        ("execute_tool", Stage.TOOL),
        ("rerank", Stage.RETRIEVAL),
    ],
)
def test_version_7s_other_spans_hold_no_usage(read_7, operation, stage):
    span = read_7(operation, {keys.INPUT_TOKENS: 5, keys.FINISH_REASONS: ["stop"]})
    assert (span.is_model_call, span.stage, span.input_tokens) == (False, stage, None)
