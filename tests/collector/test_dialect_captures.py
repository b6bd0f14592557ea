"""Real captures read one span at a time: nothing read is untrue, and all that was sent is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from longpole.family import load
from longpole.vocab import Span
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, parse
from longpole_collector.dialects.base import Dialect, finish_reason
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.otlp_out import to_raw

CORPUS = Path(__file__).parent / "corpus"
DIALECTS = ("openinference", "langfuse", "logfire", "openlit", "mlflow", "vercel")
PATHS = sorted(path for name in DIALECTS for path in CORPUS.glob(f"{name}-*.otlp.pb"))
CASES = [path.name.removesuffix(".otlp.pb") for path in PATHS]
AGENTS = [case for case in CASES if case.endswith("agent")]
CALLS = [case for case in CASES if case not in AGENTS]
TOKENS = {
    "input_total": "input_tokens",
    "input_cached": "cached_input_tokens",
    "input_cache_write": "cache_write_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}
MEMBERS = sorted(
    load("longpole_collector.dialects", "DIALECT", Dialect).values(), key=lambda d: d.order
)

# What the library of a case did not send, so that it has to stay unknown.
NOT_SENT: dict[str, set[str]] = {
    "openinference-oai-wsr-stream": {"response_model", "finish_reason", *TOKENS.values(), "ttft"},
    "openinference-gemini-stream": {"ttft"},
    "langfuse-oai-bad": {"is_streamed"},
    "langfuse-oai-chat": {"finish_reason"},
    "langfuse-oai-parse": {"finish_reason"},
    "logfire-oai-bad": {"is_streamed"},
    "logfire-oai-wsr-stream": {"response_model", "finish_reason", *TOKENS.values()},
    "mlflow-oai-wsr-stream": {"response_model", "finish_reason", *TOKENS.values(), "ttft"},
    "vercel-ai5-oai-chat": {"cached_input_tokens", "reasoning_tokens"},
    "vercel-ai7-oai-bad": {"is_streamed"},
    **{
        f"mlflow-ant-{case}": {"response_model", "finish_reason", *TOKENS.values(), "ttft"}
        for case in ("stream", "lateheaders", "break", "sseerr")
    },
    **{
        f"openlit-{api}-{case}": {"no call"}
        for api, kinds in {
            "oai": ("abandon", "sseerr", "raw-stream", "wsr-stream"),
            "ant": ("break", "sseerr"),
        }.items()
        for case in kinds
    },
}


def not_sent(case: str) -> set[str]:
    """The facts a case may leave unknown, those that a whole library never sends included."""
    missing = set(NOT_SENT.get(case, ()))
    if case.startswith(("openlit", "vercel-ai7")) and case != "openlit-oai-responses":
        missing.add("reasoning_tokens")
    if case.startswith(("openlit", "logfire")):
        missing.add("ttft")
    if case.startswith("vercel") and case.endswith("embeddings"):
        missing.add("response_model")
    if case.startswith("logfire-oai-abandon"):
        missing.add("response_model")
    return missing


def read(case: str) -> tuple[list[Span], dict[str, Any]]:
    """The spans of a case, each read by the dialect that claims it, and the truth."""
    body = (CORPUS / f"{case}.otlp.pb").read_bytes()
    spans = []
    for raw in parse(body, Format.PROTOBUF).spans(1):
        by_scope = [d for d in MEMBERS if d.claims(raw.scope, {})]
        dialect = next(
            iter(by_scope + [d for d in MEMBERS if d.claims(raw.scope, raw.attributes)]), None
        )
        if dialect is not None:
            spans.append(dialect.read(raw))
    return spans, json.loads((CORPUS / f"{case}.expected.json").read_text())


def outermost(spans: list[Span]) -> list[Span]:
    """Model calls that are no inner account of another one."""
    calls = {span.span_id: span for span in spans if span.is_model_call}
    return [span for span in calls.values() if span.parent_id not in calls]


def known(spans: list[Span], fact: str) -> set[Any]:
    return {value for span in spans if (value := getattr(span, fact)) is not None}


@pytest.mark.parametrize("case", CALLS)
def test_what_was_sent_is_read_as_it_was(case):
    spans, truth = read(case)
    calls = [span for span in spans if span.is_model_call]
    missing = not_sent(case)
    if "no call" in missing:
        assert calls == []
        return
    is_embedding = case.endswith("embeddings")
    assert {span.operation for span in calls} == {"embeddings" if is_embedding else "chat"}
    expected: dict[str, Any] = {"is_streamed": truth["streamed"]}
    if truth["error"] != "bad_request":
        expected["response_model"] = truth["response_model"]
    if truth["finish_reason"] is not None and not is_embedding:
        expected["finish_reason"] = finish_reason(truth["finish_reason"])
    is_estimated = any("tokens_estimated" in span.flags for span in calls)
    for name, column in TOKENS.items():
        num = (truth["tokens"] or {}).get(name)
        if num != 0 and not is_estimated:  # zero cache writes are mostly left unsaid
            expected[column] = num
    for fact, value in expected.items():
        values = known(calls, fact)
        wanted = set() if fact in missing or value is None else {value}
        assert values == wanted, fact
    assert (truth["tokens"] is None) or not is_estimated


@pytest.mark.parametrize("case", CALLS)
def test_a_failed_call_is_an_error_or_at_least_incomplete(case):
    spans, truth = read(case)
    calls = outermost(spans)
    missing = not_sent(case)
    if "no call" in missing:
        return
    is_error = any(span.status == "error" and span.error_type for span in calls)
    if truth["error"] is None and "retry" not in case:
        assert not is_error
    elif truth["error"] == "bad_request":
        assert is_error
    elif truth["error"] in ("stream_broken", "provider_error_in_stream") and not is_error:
        assert any("incomplete" in span.flags for span in calls)
    elif truth["error"] == "client_abandoned":
        marks = {flag for span in calls for flag in span.flags}
        assert marks & {"incomplete", "stream_head"}


@pytest.mark.parametrize("case", CALLS)
def test_a_time_to_first_token_is_the_librarys_and_says_what_it_means(case):
    spans, truth = read(case)
    calls = [span for span in spans if span.is_model_call and span.ttft_ns is not None]
    if not truth["streamed"] or "ttft" in not_sent(case):
        ours = [span for span in calls if span.dialect in DIALECTS]
        assert ours == []
        return
    for span in calls:
        sources = {"ttft_first_event", "ttft_first_content"} & set(span.flags)
        if span.dialect not in DIALECTS or (span.dialect == "vercel" and "retry" in case):
            continue  # another reader's; or the time of one attempt out of several
        assert len(sources) == 1
        timing = truth["timing_ms"]
        moment = truth["ttft_true_ms"]
        if sources == {"ttft_first_event"}:
            moment = timing["app_first_event"] or moment
        if moment is not None:
            assert span.ttft_ns / 1e6 == pytest.approx(moment, abs=20 + 0.05 * moment)


@pytest.mark.parametrize("case", AGENTS)
def test_an_agents_work_is_told_by_its_kind(case):
    spans, truth = read(case)
    agent = truth["agent_truth"]
    calls = [span for span in outermost(spans) if span.operation != "embeddings"]
    assert len(calls) == agent["model_calls"]
    assert sum(span.stage == "tool" for span in spans) == agent["tool_calls"]
    assert sum(span.stage == "retrieval" for span in spans) == agent.get("retrievals", 0)
    assert sum(span.operation == "embeddings" for span in spans) == agent.get("embeddings", 0)
    for name, column in (
        ("input", "input_tokens"),
        ("input_cached", "cached_input_tokens"),
        ("output", "output_tokens"),
    ):
        assert sum(getattr(span, column) for span in calls) == truth["tokens_total"][name]
        assert known([span for span in spans if not span.is_model_call], column) == set()
    roots = [span for span in spans if span.parent_id is None]
    assert [span.operation in ("invoke_workflow", "invoke_agent") for span in roots] == [True]
    if "session_id" in agent:
        assert known(spans, "conversation_id") == {agent["session_id"]}
    else:
        assert len(known(spans, "conversation_id")) <= 1


def test_every_capture_of_these_libraries_is_here():
    assert {path.name.split("-")[0] for path in PATHS} == set(DIALECTS)


@pytest.mark.parametrize("case", CASES)
def test_what_is_exported_is_read_again_as_the_same(case):
    body = (CORPUS / f"{case}.otlp.pb").read_bytes()
    health = Health()
    normaliser = Reader(health, Scrubber(Policy(), health))
    for raw in parse(body, Format.PROTOBUF).spans(1):
        span = normaliser.span(raw)
        assert normaliser.span(to_raw(span)) == span
