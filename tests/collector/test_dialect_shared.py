"""What the readers of foreign libraries share, and what holds for all of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.call import Kind
from longpole.vocab import Span
from longpole_collector.decode.raw import RawEvent, RawSpan, Resource
from longpole_collector.dialects import langfuse, logfire, mlflow, openinference, openlit, vercel
from longpole_collector.dialects._chunks import chunk_kind
from longpole_collector.dialects._foreign import provider_name
from longpole_collector.dialects._payloads import answer_columns, parse, usage_columns

MODULES = (langfuse, logfire, mlflow, openinference, openlit, vercel)
START_NS = 1_790_000_000_000_000_000


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("openai", "openai"),
        ("OpenAI.responses", "openai"),
        ("anthropic.messages", "anthropic"),
        ("gcp.gen_ai", "gcp.gen_ai"),
        ("google", "gcp.gen_ai"),
        ("google.generative-ai", "gcp.gen_ai"),
        ("gemini", "gcp.gemini"),
        ("azure.ai.openai", "azure.ai.openai"),
        ("amazon-bedrock", "aws.bedrock"),
        ("Ollama", "ollama"),
        ("", None),
    ],
)
def test_a_provider_has_one_name(sent, name):
    assert provider_name(sent) == name


@pytest.mark.parametrize(
    ("usage", "columns"),
    [
        ({}, {}),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            {"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 4},
        ),
        (  # a proxy that adds Anthropic's names to a whole count
            {"prompt_tokens": 10, "cache_read_input_tokens": 4},
            {"input_tokens": 10, "cached_input_tokens": 4},
        ),
        (
            {
                "prompt_token_count": 10,
                "candidates_token_count": 18,
                "thoughts_token_count": 12,
                "cached_content_token_count": 4,
            },
            {
                "input_tokens": 10,
                "cached_input_tokens": 4,
                "output_tokens": 30,
                "reasoning_tokens": 12,
            },
        ),
        (  # reasoning beside the output, by the total
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            {"input_tokens": 10, "output_tokens": 8, "reasoning_tokens": 3},
        ),
        (
            {"input_tokens": True, "output_tokens": -3, "input_tokens_details": None},
            {},
        ),
    ],
)
def test_a_usage_record_becomes_whole_counts(usage, columns):
    assert usage_columns(usage) == columns


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        ({"choices": [{"finish_reason": "tool_calls"}]}, "tool_call"),
        ({"choices": []}, None),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, "length"),
        ({"stop_reason": "end_turn"}, "stop"),
        ({"status": "completed", "output": []}, "stop"),
        ({"status": "completed", "output": [{"type": "function_call"}]}, "tool_call"),
        ({"status": "failed", "output": []}, "error"),
        ({"status": "completed"}, None),
        ({"status": ["completed"], "output": []}, None),
    ],
)
def test_an_answers_end_has_one_word_whoever_gave_it(body, finish):
    assert answer_columns(body).get("finish_reason") == finish


def test_langchains_wrapping_is_opened():
    metadata = {"finish_reason": "tool_calls", "model_name": "m-1", "id": "r", "service_tier": "t"}
    for message in ({"kwargs": {"response_metadata": metadata}}, {"response_metadata": metadata}):
        body = {
            "generations": [[{"text": "", "generation_info": None, "message": message}]],
            "llm_output": {"token_usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        }
        assert answer_columns(body) == {
            "response_id": "r",
            "response_model": "m-1",
            "service_tier": "t",
            "finish_reason": "tool_call",
            "input_tokens": 5,
            "output_tokens": 2,
        }
    for broken in ([], [[]], [["text"]], None, 5):
        assert answer_columns({"generations": broken}) == {}


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        ("a", Kind.TEXT),
        ("", Kind.EMPTY),
        (None, None),
        ({}, None),
        ({"choices": []}, Kind.EMPTY),
        ({"choices": [], "usage": {"prompt_tokens": 1}}, Kind.USAGE),
        ({"choices": [{"text": "a"}]}, Kind.TEXT),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, Kind.ROLE),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, Kind.REASONING),
        ({"choices": [{"delta": {"tool_calls": [{"function": {"name": "f"}}]}}]}, Kind.TOOL),
        ({"choices": [{"delta": {"tool_calls": 5, "function_call": "f"}}]}, Kind.EMPTY),
        ({"choices": [{"delta": {}}, {"delta": {"refusal": "no"}}]}, Kind.TEXT),
        ({"type": "response.function_call_arguments.delta", "delta": "{"}, Kind.TOOL),
        ({"type": "response.reasoning_summary_text.delta", "delta": "hm"}, Kind.REASONING),
        ({"type": "response.output_text.delta", "delta": ""}, Kind.EMPTY),
        ({"type": "content_block_start", "content_block": {"name": "f"}}, Kind.TOOL),
        ({"type": "content_block_delta", "delta": {"thinking": "hm"}}, Kind.REASONING),
        ({"type": "content_block_delta", "delta": {"partial_json": "{"}}, Kind.TOOL),
        ({"type": "ping"}, Kind.PING),
    ],
)
def test_a_chunk_carries_what_the_provider_says(chunk, kind):
    assert chunk_kind(chunk) == kind


def test_a_text_that_is_too_long_or_too_deep_is_not_parsed():
    assert parse("[" * 100_000) is None
    assert parse(json.dumps("a" * (1 << 20))) is None
    assert parse(b"{}") is None


def rule_keys(module):
    """Keys the module reads: those of its rules, and its own names."""
    constants = [value for name, value in vars(module).items() if not name.startswith("__")]
    names = [value for value in constants if isinstance(value, str) and "." in value]
    return sorted({*module.RULES, *names, "model", "stream"})


WORDS = ["choices", "usage", "delta", "type", "status", "output", "input", "id", "model", "stream"]
WORDS += ["version", "item", "prompt_tokens", "input_tokens", "output_tokens", "generations"]
JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
VALUES = (
    JSONISH.filter(lambda value: value is not None)
    | JSONISH.map(json.dumps)
    | st.sampled_from(
        ["LLM", "generation", '"CHAT_MODEL"', "chat", "ai.streamText.doStream", "log", "ERROR"]
    )
)
NAMES = st.sampled_from(
    ["exception", "First Token Stream Event", "mlflow.chunk.item.0", "mlflow.chunk.item.9"]
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.NAME)
@given(data=st.data())
def test_no_value_makes_a_reader_fail_or_invent(module, data):
    attributes = data.draw(st.dictionaries(st.sampled_from(rule_keys(module)), VALUES, max_size=8))
    events = [
        RawEvent(name, at_ns, {"mlflow.chunk.value": json.dumps(body), "exception.type": "E"})
        for name, at_ns, body in data.draw(
            st.lists(st.tuples(NAMES, st.integers(0, 2**63 - 1), JSONISH), max_size=3)
        )
    ]
    raw = RawSpan(
        trace_id="0" * 32,
        span_id="1" * 16,
        parent_id=None,
        name="span",
        kind="client",
        start_ns=data.draw(st.sampled_from([0, START_NS])),
        end_ns=data.draw(st.sampled_from([0, START_NS, START_NS + 10**9])),
        received_ns=START_NS,
        status=data.draw(st.sampled_from(["unset", "ok", "error"])),
        status_message="",
        attributes=attributes,
        events=events,
        links=[],
        scope=data.draw(st.sampled_from(["", "logfire.openai", "gen_ai", "langfuse-sdk"])),
        resource=Resource(None, None, {}),
    )
    span = module.DIALECT.read(raw)
    assert isinstance(span, Span)
    for column, value in span._asdict().items():
        if isinstance(value, int) and not isinstance(value, bool):
            assert 0 <= value < 2**63, column
    if span.is_streamed is False:
        assert span.ttft_ns is None
    if span.status == "error":
        assert span.error_type
    if not span.is_model_call:
        assert (span.input_tokens, span.output_tokens) == (None, None)
