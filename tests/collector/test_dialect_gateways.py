"""LiteLLM and LangSmith, whose spans hold printed Python records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.vocab import Stage, keys
from longpole_collector.dialects._printed import printed_map

SESSION = "h:0123456789abcdef"
"""A session's pseudonym, which stays as it is."""

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def read(otlp, scope, name="span", **attributes):
    (span,) = otlp.canonical(otlp.span(name=name, attributes=attributes), scope=scope)
    return span


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text("abc _-"))


@given(st.dictionaries(st.text("abc_"), st.one_of(SCALARS, st.lists(SCALARS)), min_size=1))
def test_a_printed_record_is_read_back(record):
    assert printed_map(str(record)) == record


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "",
        "{",
        "{'a': 1",
        "{'a': __import__('os')}",
        "{'a': \"it's\"}",
        "['a']",
        "{" * 99_999,
    ],
)
def test_anything_else_is_no_record(value):
    assert printed_map(value) == {}


def test_litellms_call_knows_its_cached_and_reasoning_tokens(otlp):
    span = read(
        otlp,
        "litellm",
        "litellm_request",
        **{
            keys.OPERATION: "chat",
            keys.PROVIDER_OLD: "openai",
            keys.INPUT_TOKENS: 100,
            keys.OUTPUT_TOKENS: 30,
            "llm.is_streaming": "True",
            "metadata.usage_object": str(USAGE),
            keys.REQUEST_MODEL: "m",
            keys.RESPONSE_MODEL: "m",
            keys.FINISH_REASONS: '["stop"]',
        },
    )
    assert (span.dialect, span.is_model_call, span.is_streamed) == ("litellm", True, True)
    assert (span.cached_input_tokens, span.reasoning_tokens) == (64, 12)
    assert (span.response_model, span.finish_reason) == (None, "stop")
    assert span.attributes[keys.RESPONSE_MODEL] == "m"


def test_litellms_raw_request_and_plumbing_are_no_calls(otlp):
    raw = read(otlp, "litellm", "raw_gen_ai_request", **{keys.OPERATION: "chat"})
    plumbing = read(otlp, "litellm", "redis", service="redis", call_type="get")
    assert (raw.is_model_call, raw.operation) == (False, None)
    assert (plumbing.dialect, plumbing.is_model_call) == ("litellm", False)


def test_langsmiths_call(otlp):
    span = read(
        otlp,
        "langsmith",
        "ChatOpenAI",
        **{
            "langsmith.span.kind": "llm",
            "langsmith.metadata.ls_provider": "openai",
            "langsmith.request.streaming": True,
            "langsmith.metadata.session_id": SESSION,
            keys.OPERATION: "chat",
            keys.INPUT_TOKENS: 100,
            keys.OUTPUT_TOKENS: 30,
            "gen_ai.usage.input_token_details": "{'cache_read': 64, 'audio': 0}",
            "gen_ai.usage.output_token_details": "{'reasoning': 0, 'audio': 0}",
            "gen_ai.response.service_tier": "default",
            keys.FINISH_REASONS: ["tool_calls"],
        },
    )
    assert (span.dialect, span.is_model_call, span.is_streamed) == ("langsmith", True, True)
    assert (span.cached_input_tokens, span.reasoning_tokens) == (64, 0)
    assert (span.provider, span.conversation_id) == ("openai", SESSION)
    assert (span.service_tier, span.finish_reason) == ("default", "tool_call")
    assert span.ttft_ns is None


def test_langsmiths_error_in_a_stream_is_an_exception_event(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            attributes={"langsmith.span.kind": "llm", keys.OPERATION: "chat"},
            status=(1, ""),
            events=[("exception", 1, {"exception.type": "APIError"})],
        ),
        scope="langsmith",
    )
    assert (span.status, span.error_type) == ("error", "APIError")


@pytest.mark.parametrize(
    ("kind", "operation", "stage"),
    [
        ("tool", "execute_tool", Stage.TOOL),
        ("retriever", "retrieval", Stage.RETRIEVAL),
        ("chain", "invoke_workflow", None),
        ("parser", None, None),
    ],
)
def test_langsmiths_other_kinds_repeat_usage_and_are_no_calls(otlp, kind, operation, stage):
    given = {"langsmith.span.kind": kind, keys.INPUT_TOKENS: 100}
    span = read(otlp, "somebody.elses", **given)
    assert (span.dialect, span.operation, span.stage) == ("langsmith", operation, stage)
    assert (span.is_model_call, span.input_tokens) == (False, None)
    assert span.attributes[keys.INPUT_TOKENS] == "100"
