"""Real captures through decode, dialect, store and views, against the truth measured elsewhere.

What a library does not send, or sends wrong, stands in ``KNOWN_GAPS`` with its reason, and must
then be null or flagged: a gap is asserted, not skipped.
"""

import json
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from longpole_collector.decode import Format, parse
from longpole_collector.dialects.base import finish_reason
from longpole_collector.stores import open_reader

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(path.name.removesuffix(".otlp.pb") for path in CORPUS.glob("*.otlp.pb"))
AGENTS = [case for case in CASES if case.endswith("agent")]
PROVIDERS = {
    "openai": {"openai"},
    "anthropic": {"anthropic"},
    "google": {"gcp.gemini", "gcp.gen_ai"},
    "ollama": {"ollama"},
}
TOKENS = {
    "input_tokens": "input_total",
    "uncached_input_tokens": "input_uncached",
    "cached_input_tokens": "input_cached",
    "cache_write_tokens": "input_cache_write",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
}
ANSWER = ("finish_reason", "response_model", "ttft_ms", *TOKENS)


def unknown(reason: str, *facts: str) -> dict[str, str]:
    """Facts that one thing keeps unknown."""
    return dict.fromkeys(facts, reason)


NO_ANSWER = unknown("the span ended with the headers or holds nothing of the answer", *ANSWER)
NO_SPAN = unknown("no span of the call was sent, only the HTTP client's", "num_calls")
NO_REASONING = unknown("left out of the usage of chat completions", "reasoning_tokens")
REFUSED = unknown("the request was refused, and only answers say it", "is_streamed")
STATUS_OK = unknown("the error inside the stream was not sent", "error_type")

# case pattern -> fact -> why the library does not say it
KNOWN_GAPS: dict[str, dict[str, str]] = {
    "otel-genai-oai-bad": REFUSED,
    "otel-genai-oai-wsr-stream": NO_ANSWER | unknown("never sent", "is_streamed"),
    "otel-openai-v2-*": unknown(
        "never sent",
        *("is_streamed", "ttft_ms", "cached_input_tokens", "uncached_input_tokens"),
        "reasoning_tokens",
    ),
    "otel-openai-v2-oai-wsr-stream": NO_ANSWER,
    "otel-openai-v2-oai-[!cbe]*": unknown("not sent of streams", "finish_reason"),
    "otel-openai-v2-oai-chat-*": unknown("not sent of streams", "finish_reason"),
    "openllmetry-oai-[rw]*-stream": NO_ANSWER,
    "openllmetry-oai-chat-*": NO_REASONING,
    "openllmetry-oai-lateheaders": NO_REASONING,
    "openllmetry-oai-retry": NO_REASONING,
    "traceloop-oai-chat-stream": NO_REASONING,
    "openllmetry-oai-sseerr": STATUS_OK,
    "openllmetry-gemini*": unknown("the request's model is sent again", "response_model"),
    "openllmetry-gemini-stream": unknown("never sent", "is_streamed", "ttft_ms"),
    "openllmetry-ollama-stream": unknown(
        "never sent", "finish_reason", "ttft_ms", "uncached_input_tokens"
    ),
    "openinference-oai-wsr-stream": NO_ANSWER,
    "openinference-gemini-stream": unknown("never sent", "request_model", "ttft_ms"),
    "langfuse-oai-[!b]*": unknown("only the model that answered is sent", "request_model"),
    "langfuse-oai-chat": unknown("sent of streams only", "finish_reason"),
    "langfuse-oai-parse": unknown("sent of streams only", "finish_reason"),
    "langfuse-oai-bad": REFUSED,
    "langfuse-oai-sseerr": STATUS_OK,
    "logfire-*": unknown("never sent", "ttft_ms"),
    "logfire-oai-bad": REFUSED,
    "logfire-oai-abandon": unknown("sent with the end of the stream only", "response_model"),
    "logfire-oai-wsr-stream": NO_ANSWER,
    "openlit-*": unknown("timed from the headers on, which is no time to first token", "ttft_ms"),
    "openlit-oai-[!r]*": NO_REASONING,
    "openlit-oai-retry": NO_REASONING,
    "openlit-ant-break": NO_SPAN,
    "openlit-ant-sseerr": NO_SPAN,
    "openlit-oai-abandon": NO_SPAN,
    "openlit-oai-sseerr": NO_SPAN,
    "openlit-oai-[rw]*-stream": NO_SPAN,
    "mlflow-oai-wsr-stream": NO_ANSWER,
    "mlflow-ant-*[!t]": NO_ANSWER,
    "mlflow-ant-break": STATUS_OK,
    "mlflow-ant-sseerr": STATUS_OK,
    "mlflow-oai-embeddings": unknown("sent of Anthropic's calls only", "provider"),
    "litellm-*": unknown("a metric only", "ttft_ms"),
    "litellm-*-stream": unknown("the request's model is sent again", "response_model"),
    "litellm-oai-onetok": unknown("the request's model is sent again", "response_model"),
    "vercel-ai5-oai-chat": unknown(
        "sent of streams only", "cached_input_tokens", "uncached_input_tokens", "reasoning_tokens"
    ),
    "vercel-*-embeddings": unknown("never sent", "response_model"),
    "vercel-ai7-*": unknown("never sent", "reasoning_tokens"),
}
# what a library says of less than the call
PARTIAL = {"vercel-ai7-oai-retry": "the span begins with the last attempt"}


def expected_of(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / f"{case}.expected.json").read_text())
    return found


def gaps_of(case: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern, gaps in KNOWN_GAPS.items():
        if fnmatch(case, pattern):
            found |= gaps
    return found


@cache
def case_of() -> dict[str, str]:
    """The case each trace belongs to."""
    found: dict[str, str] = {}
    for case in CASES:
        body = parse((CORPUS / f"{case}.otlp.pb").read_bytes(), Format.PROTOBUF)
        for raw in body.spans(1):
            assert found.setdefault(raw.trace_id, case) == case
    return found


@cache
def rows(view: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a view over all captures in one store, by case."""
    reader = open_reader(files=[CORPUS / f"{case}.otlp.pb" for case in CASES])
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for row in reader.sql(f"SELECT * FROM {view} ORDER BY start_ns").to_pylist():
        found[case_of()[row["trace_id"]]].append(row)
    reader.close()
    return found


def call_of(case: str) -> dict[str, Any]:
    """The one call of a case that is no agent."""
    (call,) = rows("calls")[case]
    return call


def is_close(ms: float, truth_ms: float) -> bool:
    return abs(ms - truth_ms) <= 15 + 0.05 * truth_ms


def test_every_pattern_of_gaps_is_of_use():
    for pattern in KNOWN_GAPS:
        assert any(fnmatch(case, pattern) for case in CASES), pattern


@pytest.fixture(params=[c for c in CASES if c not in AGENTS and "num_calls" not in gaps_of(c)])
def case(request) -> str:
    return str(request.param)


@pytest.mark.parametrize("case", [case for case in CASES if "num_calls" in gaps_of(case)])
def test_no_call_is_made_up_where_none_was_sent(case):
    assert rows("calls")[case] == []
    assert [trace["num_calls"] for trace in rows("traces")[case]] == [0]


def test_a_call_is_counted_once_with_the_facts_that_were_sent(case):
    truth, gaps = expected_of(case), gaps_of(case)
    call = call_of(case)
    is_embedding = case.endswith("embeddings")
    assert (call["operation"] == "embeddings") == is_embedding
    assert truth["true_model_calls"] == (0 if is_embedding else 1)
    is_error = truth["error"] not in (None, "client_abandoned")
    finish = None if is_embedding else finish_reason(truth["finish_reason"] or "")
    expected = {
        "is_streamed": truth["streamed"],
        "request_model": truth["request_model"],
        "response_model": None if truth["error"] == "bad_request" else truth["response_model"],
        "finish_reason": finish,
        **{fact: (truth["tokens"] or {}).get(name) for fact, name in TOKENS.items()},
    }
    for fact, value in expected.items():
        if value is None or (fact in gaps and not (is_embedding and fact == "is_streamed")):
            is_owned = fact in TOKENS and "tokens_estimated" in call["flags"]
            is_owned |= fact == "finish_reason" and is_error and call[fact] == "error"
            is_owned |= is_embedding and fact in ("cached_input_tokens", "uncached_input_tokens")
            assert call[fact] is None or is_owned, (fact, call[fact])
        else:
            assert call[fact] == value or (value == 0 and call[fact] is None), fact
    providers = {None} if "provider" in gaps else PROVIDERS[truth["provider"]]
    assert call["provider"] in providers


def test_a_failed_call_has_an_error_or_is_marked_incomplete(case):
    truth, call = expected_of(case), call_of(case)
    if truth["error"] in (None, "client_abandoned") or "error_type" in gaps_of(case):
        assert call["error_type"] is None
    else:
        assert call["error_type"]
    is_ended = call["finish_reason"] is not None or call["output_tokens"] is not None
    if call["is_streamed"] and not is_ended and call["input_tokens"] is None:
        assert "incomplete" in call["flags"]


def test_a_time_to_first_token_is_true_or_says_what_it_is(case):
    truth, call = expected_of(case), call_of(case)
    ttft_ms, true_ms = call["ttft_ms"], truth["ttft_true_ms"]
    if not truth["streamed"] or "ttft_ms" in gaps_of(case):
        assert ttft_ms is None
        return
    if truth["error"] == "bad_request":
        assert ttft_ms is None
        return
    assert 0 < ttft_ms <= call["e2e_ms"]
    sources = {flag for flag in call["flags"] if flag.startswith("ttft_")}
    assert len(sources) == 1
    if true_ms is not None and sources == {"ttft_first_event"}:
        assert ttft_ms < true_ms or is_close(ttft_ms, true_ms)
        first_event_ms = truth["timing_ms"]["app_first_event"]
        assert first_event_ms is None or is_close(ttft_ms, first_event_ms)
    elif true_ms is not None:
        assert is_close(ttft_ms, true_ms) or case in PARTIAL


def test_a_span_shorter_than_its_call_says_so(case):
    truth, call = expected_of(case), call_of(case)
    total_ms = truth["timing_ms"]["app_total"]
    if total_ms is not None and truth["error"] is None and call["e2e_ms"] < total_ms / 3:
        assert "truncated" in call["flags"] or call["is_streamed"] is None


@pytest.mark.parametrize("case", CASES)
def test_the_roll_up_and_the_view_of_calls_agree(case):
    calls, traces = rows("calls")[case], rows("traces")[case]
    for trace in traces:
        own = [call for call in calls if call["trace_id"] == trace["trace_id"]]
        assert trace["num_calls"] == len(own)
        for fact in ("input_tokens", "cached_input_tokens", "output_tokens"):
            known = [call[fact] for call in own if call[fact] is not None]
            assert trace[fact] == (sum(known) if known else None), fact
        assert trace["num_retries"] == sum((call["num_attempts"] or 1) - 1 for call in own)
    assert {call["trace_id"] for call in calls} <= {trace["trace_id"] for trace in traces}


@pytest.mark.parametrize("case", AGENTS)
def test_an_agents_calls_tools_and_tokens_are_counted_once(case):
    truth = expected_of(case)
    calls = [call for call in rows("calls")[case] if call["operation"] != "embeddings"]
    assert len(calls) == truth["agent_truth"]["model_calls"] == truth["true_model_calls"]
    for fact, name in (
        ("input_tokens", "input"),
        ("cached_input_tokens", "input_cached"),
        ("output_tokens", "output"),
    ):
        assert sum(call[fact] for call in calls) == truth["tokens_total"][name]
    assert [call["finish_reason"] for call in calls] == ["tool_call", "stop"]
    (trace,) = rows("traces")[case]
    assert trace["num_tools"] == truth["agent_truth"]["tool_calls"]
