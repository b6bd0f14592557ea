import json

import pytest

from longpole.family import load
from longpole.vocab import Stage, keys
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, parse
from longpole_collector.dialects.base import Dialect, finish_reason
from longpole_collector.health import Health
from longpole_collector.normalise import Reader

CLIENT, SERVER, INTERNAL = 3, 2, 1
OPENAI_SCOPE = "opentelemetry.instrumentation.genai.openai"


def test_every_dialect_has_the_name_of_its_file():
    members = load("longpole_collector.dialects", "DIALECT", Dialect)
    assert members
    assert all(member.name == name for name, member in members.items())


def test_what_is_recognised_becomes_a_column_and_the_rest_stays_as_text(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            kind=CLIENT,
            attributes={
                keys.OPERATION: "chat",
                keys.PROVIDER: "openai",
                keys.REQUEST_MODEL: "m",
                keys.RESPONSE_MODEL: "m-1",
                keys.RESPONSE_ID: "r",
                keys.FINISH_REASONS: ["end_turn"],
                keys.REQUEST_STREAM: True,
                keys.INPUT_TOKENS: 100,
                keys.OUTPUT_TOKENS: 10,
                keys.CACHED_INPUT_TOKENS: 64,
                keys.CACHE_CREATION_TOKENS: 8,
                keys.REASONING_TOKENS: 3,
                keys.TIME_TO_FIRST_CHUNK: 0.1234567891,
                keys.RESEND_COUNT: 2,
                keys.SERVICE_TIER: "flex",
                "num": 5,
                "yes": True,
                "some": ["a", 1, 2.5],
                "map": {"x": {"y": "ü"}},
            },
        ),
        scope=OPENAI_SCOPE,
    )
    assert span.dialect == "otel_genai"
    assert span.operation == "chat"
    assert span.is_model_call
    assert not span.is_engine
    assert span.stage is None
    assert (span.provider, span.request_model, span.response_model) == ("openai", "m", "m-1")
    assert (span.finish_reason, span.service_tier) == ("stop", "flex")
    assert span.is_streamed is True
    assert (span.input_tokens, span.output_tokens) == (100, 10)
    assert (span.cached_input_tokens, span.cache_write_tokens, span.reasoning_tokens) == (64, 8, 3)
    assert span.first_chunk_ns == span.ttft_ns == 123_456_789
    assert span.flags == ["ttft_first_event"]
    assert span.num_attempts == 3
    assert span.attributes == {
        "num": "5",
        "yes": "true",
        "some": '["a",1,2.5]',
        "map": '{"x":{"y":"ü"}}',
    }


@pytest.mark.parametrize("order", [1, -1])
def test_the_current_name_wins_over_the_old_one_in_any_order(otlp, order):
    given = [
        (keys.PROVIDER_OLD, "old"),
        (keys.PROVIDER, "new"),
        (keys.INPUT_TOKENS_OLD, 1),
        (keys.INPUT_TOKENS, 2),
    ]
    (span,) = otlp.canonical(otlp.span(attributes=dict(given[::order])), scope=OPENAI_SCOPE)
    assert (span.provider, span.input_tokens) == ("new", 2)


def test_old_names_alone_are_read(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            kind=CLIENT,
            attributes={
                keys.OPERATION: "text_completion",
                keys.PROVIDER_OLD: "openai",
                keys.INPUT_TOKENS_OLD: 5,
                keys.OUTPUT_TOKENS_OLD: 6,
                keys.REASONING_TOKENS_OLD: 1,
                "gen_ai.usage.cache_read_input_tokens": 2,
            },
        ),
        scope="somebody.elses",
    )
    assert span.dialect == "otel_genai"
    assert (span.provider, span.input_tokens, span.output_tokens) == ("openai", 5, 6)
    assert (span.reasoning_tokens, span.cached_input_tokens) == (1, 2)


def test_a_value_of_the_wrong_kind_stays_an_attribute(otlp):
    given = {
        keys.OPERATION: "chat",
        keys.INPUT_TOKENS: "many",
        keys.OUTPUT_TOKENS: -1,
        keys.TIME_TO_FIRST_CHUNK: float("inf"),
        keys.STAGE: "no such stage",
        keys.OUTCOME: "great",
        keys.DETACHED: "perhaps",
    }
    (span,) = otlp.canonical(otlp.span(attributes=given))
    assert span.input_tokens is None
    assert span.output_tokens is None
    assert span.first_chunk_ns is None
    assert span.stage is None
    assert span.outcome is None
    assert span.is_detached is False
    assert span.attributes.keys() == given.keys() - {keys.OPERATION}


def test_numbers_sent_as_text_are_numbers(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            attributes={keys.OPERATION: "chat", keys.INPUT_TOKENS: "12", keys.OUTPUT_TOKENS: 3.0}
        )
    )
    assert (span.input_tokens, span.output_tokens) == (12, 3)


@pytest.mark.parametrize(
    ("operation", "stage"),
    [
        ("execute_tool", Stage.TOOL),
        ("retrieval", Stage.RETRIEVAL),
        ("chat", None),
        ("invoke_agent", None),
    ],
)
def test_the_operation_says_the_stage(otlp, operation, stage):
    (span,) = otlp.canonical(otlp.span(attributes={keys.OPERATION: operation}))
    assert span.stage == stage


def test_a_stated_stage_wins_over_the_operation(otlp):
    attributes = {keys.OPERATION: "execute_tool", keys.STAGE: "validation"}
    (span,) = otlp.canonical(otlp.span(attributes=attributes))
    assert span.stage == Stage.VALIDATION


@pytest.mark.parametrize(
    ("kind", "operation", "is_model_call", "is_engine"),
    [
        (CLIENT, "chat", True, False),
        (INTERNAL, "embeddings", True, False),
        (SERVER, "generate_content", True, True),
        (CLIENT, "execute_tool", False, False),
        (SERVER, "invoke_agent", False, False),
    ],
)
def test_kind_and_operation_say_who_saw_a_model_call(
    otlp, kind, operation, is_model_call, is_engine
):
    (span,) = otlp.canonical(otlp.span(kind=kind, attributes={keys.OPERATION: operation}))
    assert (span.is_model_call, span.is_engine) == (is_model_call, is_engine)


def test_facts_count_in_every_dialect_also_in_none(otlp):
    facts = {
        keys.STAGE: "human_wait",
        keys.DETACHED: True,
        keys.STREAM: True,
        keys.ROUTE: "r",
        keys.ROUTE_VERSION: "2",
        keys.PROMPT_VERSION: "p1",
        keys.SLO_CLASS: "interactive",
        keys.OUTCOME: "rejected",
        keys.FAILURE_CLASS: "timeout",
        keys.TIME_TO_USEFUL: 1.5,
        keys.TIME_TO_ACCEPTED: 2.5,
        keys.FLAGS: ["a", "b"],
    }
    for scope in ("somebody", keys.SCOPE_SDK, OPENAI_SCOPE):
        (span,) = otlp.canonical(otlp.span(attributes=facts), scope=scope)
        assert (span.stage, span.is_detached, span.is_streamed) == ("human_wait", True, True)
        assert (span.route, span.route_version, span.prompt_version) == ("r", "2", "p1")
        assert (span.slo_class, span.outcome, span.failure_class) == (
            "interactive",
            "rejected",
            "timeout",
        )
        assert (span.time_to_useful_ns, span.time_to_accepted_ns) == (1_500_000_000, 2_500_000_000)
        assert span.flags == ["a", "b"]
        assert span.attributes == {}


def test_a_stated_stream_flag_wins(otlp):
    attributes = {keys.STREAM: False, keys.REQUEST_STREAM: True, keys.OPERATION: "chat"}
    (span,) = otlp.canonical(otlp.span(attributes=attributes))
    assert span.is_streamed is False


def test_our_own_scopes_are_ours(otlp):
    for scope in (keys.SCOPE_SDK, keys.SCOPE_ENGINE):
        (span,) = otlp.canonical(otlp.span(), scope=scope)
        assert span.dialect == "longpole"


def test_our_engines_span_is_read_with_all_its_times(otlp):
    times = {
        keys.ENGINE_ADMISSION: "engine_admission_ns",
        keys.ENGINE_TOKENIZE: "tokenize_ns",
        keys.ENGINE_QUEUE: "queue_ns",
        keys.ENGINE_PREFILL: "prefill_ns",
        keys.ENGINE_FIRST_DECODE: "first_decode_ns",
        keys.ENGINE_DECODE: "engine_decode_ns",
        keys.ENGINE_STREAM: "engine_stream_ns",
        keys.ENGINE_TTFT: "engine_ttft_ns",
    }
    attributes = {key: 0.001 * i for i, key in enumerate(times, start=1)}
    attributes |= {keys.OPERATION: "chat", keys.CACHE_STATE: "partial", keys.COLD_START: True}
    (span,) = otlp.canonical(
        otlp.span(name=keys.ENGINE_SPAN_NAME, kind=SERVER, attributes=attributes),
        scope=keys.SCOPE_ENGINE,
    )
    assert [getattr(span, column) for column in times.values()] == [
        1_000_000 * i for i in range(1, len(times) + 1)
    ]
    assert (span.is_engine, span.is_model_call) == (True, True)
    assert (span.cache_state, span.is_cold_start) == ("partial", True)


def test_a_vllm_span_is_an_engines_account_of_a_call(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            name=keys.ENGINE_SPAN_NAME,
            kind=SERVER,
            attributes={
                keys.ENGINE_QUEUE: 0.5,
                keys.ENGINE_PREFILL: 0.25,
                keys.ENGINE_DECODE: 0.9,
                keys.ENGINE_TTFT: 0.8,
                keys.ENGINE_E2E: 1.7,
                keys.INPUT_TOKENS_OLD: 7,
                keys.OUTPUT_TOKENS_OLD: 10,
                keys.REQUEST_ID: "cmpl-1",
            },
        ),
        scope="vllm.llm_engine",
    )
    assert span.dialect == "vllm"
    assert (span.is_engine, span.is_model_call, span.operation) == (True, True, None)
    assert (span.queue_ns, span.prefill_ns) == (500_000_000, 250_000_000)
    assert (span.engine_decode_ns, span.engine_ttft_ns) == (900_000_000, 800_000_000)
    assert span.tpot_ms == pytest.approx(100)
    assert (span.input_tokens, span.output_tokens, span.response_id) == (7, 10, "cmpl-1")


def test_a_forks_nanoseconds_are_told_from_seconds(otlp):
    (span,) = otlp.canonical(
        otlp.span(kind=SERVER, attributes={keys.ENGINE_QUEUE: 1_500_000, keys.ENGINE_TTFT: 2}),
        scope="fork",
    )
    assert (span.queue_ns, span.engine_ttft_ns) == (1_500_000, 2_000_000_000)


def test_sglangs_cached_tokens_are_read(otlp):
    attributes = {keys.ENGINE_E2E: 1.0, "gen_ai.usage.cached_tokens": 4}
    (span,) = otlp.canonical(otlp.span(kind=SERVER, attributes=attributes), scope="sglang")
    assert (span.dialect, span.cached_input_tokens) == ("sglang", 4)


def test_input_tokens_hold_the_cached_ones_even_if_the_sender_left_them_out(otlp):
    attributes = {
        keys.OPERATION: "chat",
        keys.INPUT_TOKENS: 10,
        keys.CACHED_INPUT_TOKENS: 90,
        keys.CACHE_WRITE_TOKENS: 5,
    }
    (span,) = otlp.canonical(otlp.span(attributes=attributes), scope=OPENAI_SCOPE)
    assert span.input_tokens == 105
    assert span.flags == ["input_excluded_cache"]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (["tool_calls"], "tool_call"),
        (["end_turn", "length"], "stop"),
        ('["MAX_TOKENS"]', "length"),
        ("SAFETY", "content_filter"),
        ("stop", "stop"),
        (["error"], "error"),
        (["a new word"], "a new word"),
        ([], None),
        ("[broken", None),
        (5, None),
    ],
)
def test_finish_reasons_have_one_set_of_words(sent, read):
    assert finish_reason(sent) == read


def test_a_span_nobody_knows_is_kept_whole(otlp):
    (span,) = otlp.canonical(
        otlp.span(
            kind=CLIENT,
            name="GET /",
            status=(2, "boom"),
            attributes={"http.request.method": "GET", "http.response.status_code": 500},
            events=[("exception", 5, {"exception.type": "ValueError"})],
            links=[(b"t" * 16, b"s" * 8, {"why": "retry"})],
        ),
        scope="http.lib",
    )
    assert (span.dialect, span.status, span.status_message) == ("unknown", "error", "boom")
    assert span.error_type == "ValueError"
    assert not span.is_model_call
    assert span.attributes == {"http.request.method": "GET", "http.response.status_code": "500"}
    assert json.loads(span.events) == [
        {"name": "exception", "time_ns": 5, "attributes": {"exception.type": "ValueError"}}
    ]
    assert json.loads(span.links) == [
        {"trace_id": "74" * 16, "span_id": "73" * 8, "attributes": {"why": "retry"}}
    ]


def test_an_unfinished_span_has_no_end_and_a_broken_time_is_flagged(otlp):
    spans = otlp.canonical(
        otlp.span(end_time_unix_nano=0),
        otlp.span(start_time_unix_nano=0, end_time_unix_nano=77),
        otlp.span(start_time_unix_nano=9, end_time_unix_nano=5),
    )
    assert [(span.start_ns > 0, span.end_ns) for span in spans] == [
        (True, None),
        (True, 77),
        (True, 5),
    ]
    assert [span.flags for span in spans] == [[], ["no_start_time"], ["negative_duration"]]


def test_the_instance_is_the_clock(otlp):
    (span,) = otlp.canonical(otlp.span(), service="shop")
    assert (span.service, span.instance_id) == ("shop", "shop")


def test_a_dialect_that_fails_loses_no_span(otlp, monkeypatch):
    def fail(raw):
        raise RuntimeError("bug")

    broken = Dialect("broken", lambda scope, attributes: True, fail, order=0)
    monkeypatch.setattr("longpole_collector.normalise.load", lambda *a: {"broken": broken})
    health = Health()
    normaliser = Reader(health, Scrubber(Policy(), health))
    body = otlp.body([otlp.span(attributes={"a": "b"})])
    (span,) = (normaliser.span(raw) for raw in parse(body, Format.PROTOBUF).spans(1))
    assert (span.dialect, span.attributes) == ("unknown", {"a": "b"})
    assert health.total("dialect_errors", "broken") == 1
