"""Engines of others: SGLang's threads, Text Generation Inference's printed durations."""

import pytest

from longpole.vocab import keys
from longpole_collector.dialects.tgi import duration_ns

SERVER, INTERNAL = 2, 1
TIMES = {
    "total_time": "1.25s",
    "validation_time": "1.5ms",
    "queue_time": "45.25µs",
    "inference_time": "1.2s",
    "time_per_token": "12.345678ms",
}


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1.234567ms", 1_234_567),
        ("45µs", 45_000),
        ("300ns", 300),
        ("2s", 2_000_000_000),
        ("1.5", None),
        ("ms", None),
        ("-1ms", None),
        (5, None),
        ("1" * 40 + "s", None),
    ],
)
def test_durations_as_rust_prints_them(text, ns):
    assert duration_ns(text) == ns


def test_the_routers_span_is_the_engines_account(otlp):
    (span,) = otlp.canonical(
        otlp.span(name="generate_stream", kind=INTERNAL, attributes=TIMES), scope="router"
    )
    assert (span.dialect, span.is_model_call, span.is_engine) == ("tgi", True, True)
    assert (span.queue_ns, span.tokenize_ns, span.tpot_ms) == (45_250, 1_500_000, 12.345678)
    assert span.is_streamed is True
    assert span.attributes["inference_time"] == "1.2s"


def test_a_time_alone_makes_no_engine(otlp):
    (span,) = otlp.canonical(otlp.span(attributes={"queue_time": "1ms"}), scope="some.job")
    assert (span.dialect, span.is_model_call) == ("unknown", False)


def test_sglangs_request_and_its_threads(otlp):
    request = {
        keys.ENGINE_E2E: 1.0,
        keys.ENGINE_TTFT: 0.25,
        keys.ENGINE_QUEUE: 0.125,
        keys.ENGINE_DECODE: 0.5,
        keys.OUTPUT_TOKENS_OLD: 11,
        "gen_ai.usage.cached_tokens": 64,
    }
    thread = {"host_id": "h", "pid": 5, "thread_label": "Scheduler"}
    served, slice_ = otlp.canonical(
        otlp.span(name="Req", kind=SERVER, attributes=request),
        otlp.span(name="prefill_forward", attributes=thread),
        scope="anything",
    )
    assert (served.dialect, served.is_engine, served.cached_input_tokens) == ("sglang", True, 64)
    assert (served.engine_ttft_ns, served.tpot_ms) == (250_000_000, 50)
    assert (slice_.dialect, slice_.is_model_call) == ("sglang", False)
