import json

import pytest

from longpole.vocab import Stage

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

SCOPE = "mlflow.tracing.provider"
TYPE = "mlflow.spanType"
USAGE = {"input_tokens": 100, "output_tokens": 19, "cache_read_input_tokens": 64}
MS = 1_000_000


@pytest.fixture
def read(otlp):
    """The canonical form of one span; attributes are written as MLflow writes them, in JSON."""

    def canonical(kind, attributes=None, *, chunks=(), scope=SCOPE, **fields):
        given = {TYPE: kind} | (attributes or {})
        start_ns = otlp.span()["start_time_unix_nano"]
        events = [
            (
                f"mlflow.chunk.item.{i}",
                start_ns + at_ms * MS,
                {"mlflow.chunk.value": json.dumps(body)},
            )
            for i, at_ms, body in chunks
        ]
        quoted = {key: json.dumps(value) for key, value in given.items()}
        span = otlp.span(attributes=quoted, **({"events": events} | fields))
        (read,) = otlp.canonical(span, scope=scope)
        assert read.dialect == "mlflow"
        return read

    return canonical


def delta(**fields):
    return {"choices": [{"delta": fields, "index": 0}], "id": "r", "model": "m-1"}


def stream(*bodies, every_ms=20):
    return [(i, 200 + every_ms * i, body) for i, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("kind", "operation", "stage", "is_model_call"),
    [
        ("CHAT_MODEL", "chat", None, True),
        ("LLM", "chat", None, True),
        ("EMBEDDING", "embeddings", None, True),
        ("TOOL", "execute_tool", Stage.TOOL, False),
        ("RETRIEVER", "retrieval", Stage.RETRIEVAL, False),
        ("RERANKER", None, Stage.RETRIEVAL, False),
        ("GUARDRAIL", None, Stage.VALIDATION, False),
        ("AGENT", "invoke_agent", None, False),
        ("CHAIN", "invoke_workflow", None, False),
        ("WORKFLOW", "invoke_workflow", None, False),
        ("PARSER", None, None, False),
        ("UNKNOWN", None, None, False),
    ],
)
def test_the_type_says_what_a_span_is_in_any_scope(read, kind, operation, stage, is_model_call):
    span = read(kind, scope="elsewhere")
    assert (span.operation, span.stage, span.is_model_call) == (operation, stage, is_model_call)


def test_values_in_quotes_are_unwrapped(read):
    span = read(
        "CHAT_MODEL",
        {
            "model": "m",
            "mlflow.llm.model": "m-1",
            "mlflow.llm.provider": "Anthropic",
            "mlflow.chat.tokenUsage": USAGE | {"cache_creation_input_tokens": 8},
            "mlflow.trace.session": SESSION,
            "mlflow.linkedPrompts": [{"name": "p", "version": "4"}],
        },
    )
    assert (span.request_model, span.response_model, span.provider) == ("m", "m-1", "anthropic")
    assert (span.input_tokens, span.cached_input_tokens, span.cache_write_tokens) == (100, 64, 8)
    assert (span.output_tokens, span.conversation_id, span.prompt_version) == (19, SESSION, "4")


def test_two_linked_prompts_have_no_one_version(read):
    assert (
        read("CHAIN", {"mlflow.linkedPrompts": [{"version": "1"}, {"version": "2"}]}).prompt_version
        is None
    )


def test_model_and_stream_are_found_in_the_inputs_too(read):
    inputs = {"model": "m", "messages": [], "stream": True}
    span = read("CHAT_MODEL", {"mlflow.spanInputs": inputs, "mlflow.message.format": "anthropic"})
    assert (span.request_model, span.is_streamed, span.provider) == ("m", True, "anthropic")
    del inputs["stream"]
    assert read("CHAT_MODEL", {"mlflow.spanInputs": inputs}).is_streamed is False
    assert read("CHAT_MODEL", {"mlflow.spanInputs": {"prompt": "x"}}).is_streamed is None


def test_a_framework_is_no_provider(read):
    assert read("CHAT_MODEL", {"mlflow.message.format": "langchain"}).provider is None


def test_the_requests_arguments_are_content_unless_they_are_numbers(read):
    given = {"temperature": 0.5, "tools": [{"name": "secret"}], "instructions": "secret"}
    span = read("CHAT_MODEL", given)
    assert span.attributes["mlflow.request.temperature"] == "0.5"
    assert "secret" not in json.dumps(span.attributes)
    assert span.attributes["mlflow.spanInputs.instructions.length"] == "8"


def test_a_stream_is_measured_by_its_chunks(read):
    span = read(
        "CHAT_MODEL",
        {"mlflow.chat.tokenUsage": USAGE},
        chunks=stream(
            delta(role="assistant", content=""),
            delta(content="a"),
            delta(content="b"),
            delta(content="c"),
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 1}, "service_tier": "flex"},
        ),
    )
    assert (span.first_chunk_ns, span.ttft_ns) == (200 * MS, 220 * MS)
    assert (span.ttfv_ns, span.last_content_ns) == (220 * MS, 260 * MS)
    assert (span.num_chunks, span.chunk_gap_p50_ns) == (3, 20 * MS)
    assert span.tpot_ms == pytest.approx(40 / 18)
    assert (span.is_streamed, span.finish_reason, span.service_tier) == (True, "stop", "flex")
    assert (span.response_id, span.response_model) == ("r", "m-1")
    assert span.input_tokens == 100
    assert span.flags == ["ttft_first_content"]


def test_the_chunks_finish_reason_wins_over_the_outputs(read):
    output = {"choices": [{"finish_reason": "stop"}]}
    calls = [{"function": {"name": "f", "arguments": ""}}]
    span = read(
        "CHAT_MODEL",
        {"mlflow.spanOutputs": output},
        chunks=stream(
            delta(role="assistant", content=None),
            delta(tool_calls=calls),
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        ),
    )
    assert span.finish_reason == "tool_call"
    assert (span.ttft_ns, span.ttfv_ns) == (220 * MS, None)


def test_responses_and_anthropic_events_are_understood(read):
    responses = read(
        "CHAT_MODEL",
        chunks=stream(
            {"type": "response.created", "response": {"id": "resp", "status": "in_progress"}},
            {"type": "response.output_text.delta", "delta": "a"},
            {
                "type": "response.completed",
                "response": {
                    "id": "resp",
                    "model": "m-1",
                    "status": "completed",
                    "output": [],
                    "usage": {"input_tokens": 5, "output_tokens": 2},
                },
            },
        ),
    )
    assert (responses.ttft_ns, responses.finish_reason) == (220 * MS, "stop")
    assert (responses.response_id, responses.input_tokens) == ("resp", 5)
    anthropic = read(
        "CHAT_MODEL",
        chunks=stream(
            {"type": "message_start", "message": {"id": "msg", "model": "c"}},
            {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        ),
    )
    assert (anthropic.first_chunk_ns, anthropic.ttft_ns) == (200 * MS, 260 * MS)
    assert (anthropic.response_id, anthropic.response_model) == ("msg", "c")


def test_chunks_of_an_unknown_shape_only_time_the_first_event(read):
    span = read("CHAT_MODEL", chunks=stream({"what": 1}, {"what": 2}))
    assert span.ttft_ns == span.first_chunk_ns == 200 * MS
    assert (span.num_chunks, "ttft_first_event" in span.flags) == (None, True)


def test_when_the_first_chunks_were_dropped_no_time_is_known(read):
    for chunks in (stream(*[delta(content="a")] * 4)[2:], stream(*[delta(content="a")] * 4)[::3]):
        span = read("CHAT_MODEL", chunks=chunks)
        assert (span.ttft_ns, span.first_chunk_ns, span.num_chunks) == (None, None, None)
        assert (span.is_streamed, span.response_id) == (True, "r")
        assert "chunks_dropped" in span.flags


def test_a_clock_set_back_makes_no_negative_gap(read):
    first, second, third = stream(*[delta(content="a")] * 3)
    span = read("CHAT_MODEL", chunks=[first, (1, 10, second[2]), third])
    assert (span.ttft_ns, span.last_content_ns) == (200 * MS, 240 * MS)
    assert (span.chunk_gap_p50_ns, span.chunk_gap_max_ns) == (0, 40 * MS)


def test_chunks_without_a_start_have_no_times(read):
    assert (
        read("CHAT_MODEL", chunks=stream(delta(content="a")), start_time_unix_nano=0).ttft_ns
        is None
    )


@pytest.mark.parametrize(
    ("output", "is_truncated"),
    [
        ("<anthropic.Stream object at 0x7f00>", True),
        ("<async_generator object f.<locals>.g at 0x0>", True),
        ("<APIResponse [200 OK] type=<class 'ChatCompletion'>>", True),
        ("<html>an answer</html>", False),
        ("an object at 0x0", False),
    ],
)
def test_a_stream_logged_at_its_headers_is_truncated_and_knows_no_answer(
    read, output, is_truncated
):
    given = {"stream": True, "mlflow.llm.model": "m", "mlflow.spanOutputs": output}
    span = read("CHAT_MODEL", given)
    assert span.ttft_ns is None
    assert span.response_model == (None if is_truncated else "m")
    assert span.flags == ["truncated"] * is_truncated + ["incomplete"]


def test_an_embeddings_tokens_are_in_its_output(read):
    span = read("EMBEDDING", {"mlflow.spanOutputs": {"usage": {"prompt_tokens": 8}}})
    assert (span.input_tokens, span.is_streamed) == (8, False)


@pytest.mark.parametrize("value", ["{", '"', "nul", "[" * 100_000])
def test_values_that_are_no_json_are_left_alone(otlp, value):
    given = {TYPE: '"CHAT_MODEL"', "mlflow.chat.tokenUsage": value, "mlflow.spanOutputs": value}
    (span,) = otlp.canonical(otlp.span(attributes=given), scope=SCOPE)
    assert (span.dialect, span.is_model_call, span.input_tokens) == ("mlflow", True, None)
