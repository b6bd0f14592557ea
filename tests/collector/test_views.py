import pytest

from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector.health import Health
from longpole_collector.rollup import Settler
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.views import views

CALLS = [
    "trace_id",
    "span_id",
    "parent_id",
    "start_ns",
    "end_ns",
    "service",
    "dialect",
    "operation",
    "provider",
    "request_model",
    "response_model",
    "response_id",
    "is_streamed",
    "finish_reason",
    "service_tier_requested",
    "service_tier",
    "input_tokens",
    "uncached_input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "first_chunk_ms",
    "ttft_ms",
    "ttfv_ms",
    "tpot_ms",
    "e2e_ms",
    "decode_ms",
    "tail_ms",
    "num_chunks",
    "tokens_per_chunk",
    "chunk_gap_p50_ms",
    "chunk_gap_p99_ms",
    "chunk_gap_max_ms",
    "num_stalls",
    "stall_ms",
    "num_attempts",
    "retry_ms",
    "queue_ms",
    "tokenize_ms",
    "prefill_ms",
    "first_decode_ms",
    "engine_decode_ms",
    "network_ms",
    "route",
    "route_version",
    "prompt_version",
    "prefix_hash",
    "cache_state",
    "is_cold_start",
    "conversation_id",
    "outcome",
    "failure_class",
    "error_type",
    "stream_state",
    "cost_usd",
    "price_version",
    "reported_cost_usd",
    "reported_currency",
    "flags",
    "weight",
]
TRACES = [
    "trace_id",
    "start_ns",
    "end_ns",
    "wall_ms",
    "root_name",
    "service",
    "route",
    "route_version",
    "slo_class",
    "outcome",
    "failure_class",
    "time_to_useful_ms",
    "time_to_accepted_ms",
    "num_spans",
    "num_calls",
    "num_tools",
    "num_retries",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "cost_usd",
    "long_pole",
    "long_pole_ms",
    "shape",
    "flags",
    "weight",
    "wall_ns",
    "long_pole_ns",
    "prompt_version",
]
STAGES = ["trace_id", "stage", "critical_ms", "total_ms", "critical_ns", "total_ns"]
CLIENT, SERVER = 3, 2
TRACE = b"t" * 16


@pytest.fixture
def store():
    store = DuckStore()
    yield store
    store.close()


def calls(store):
    Settler(store, ROLLUP, Health()).settle(everything=True)
    return store.sql("SELECT * FROM calls ORDER BY start_ns, span_id").to_pylist()


def client(otlp, span_id, **given):
    attributes = {keys.OPERATION: "chat"} | given.pop("attributes", {})
    return otlp.span(trace_id=TRACE, span_id=span_id, kind=CLIENT, attributes=attributes, **given)


def engine(otlp, span_id, parent, **given):
    attributes = {keys.OPERATION: "chat"} | given.pop("attributes", {})
    return otlp.span(
        trace_id=TRACE, span_id=span_id, parent_span_id=parent, kind=SERVER, attributes=attributes,
        **given,
    )  # fmt: skip


def test_the_views_have_the_columns_scripts_rely_on(store):
    assert store.sql("SELECT * FROM calls").column_names == CALLS
    assert set(store.sql("SELECT * FROM traces").column_names) == set(TRACES)
    assert set(store.sql("SELECT * FROM trace_stages").column_names) == set(STAGES)


@pytest.mark.parametrize(
    "view", ["calls", "traces", "trace_stages", "stage_minutes", "stage_hours"]
)
def test_every_column_of_a_view_says_what_it_means(store, view):
    names = store.sql(f"SELECT * FROM {view}").column_names
    assert [name for name in names if not views()[view].columns.get(name)] == []


@pytest.mark.parametrize(
    ("hi", "lo"), [(0, 0), (1, 2), (2**60 - 1, 2**64 - 1), (2**60, 3), (2**64 - 1, 2**64 - 1)]
)
def test_an_id_has_all_its_digits(store, hi, lo):
    asked = "SELECT trace_hex($1::UBIGINT, $2::UBIGINT) AS trace, span_hex($2::UBIGINT) AS span"
    (row,) = store.sql(asked, [str(hi), str(lo)]).to_pylist()
    assert row == {"trace": f"{hi:016x}{lo:016x}", "span": f"{lo:016x}"}


def test_a_time_window_reaches_spans_and_merged_calls_and_only_asked_columns_are_read(otlp, store):
    start_ns = otlp.span()["start_time_unix_nano"]
    for i in range(4):
        times = {"start_time_unix_nano": start_ns + i, "trace_id": bytes([65 + i] * 16)}
        store.append(otlp.canonical(client(otlp, b"aaaaaaaa") | times))
        if i % 2:
            store.append(otlp.canonical(engine(otlp, b"eeeeeeee", b"aaaaaaaa") | times))
    assert len(calls(store)) == 4
    query = f"SELECT sum(output_tokens) FROM calls WHERE start_ns >= {start_ns + 2}"
    plan = str(store.sql(f"EXPLAIN {query}").to_pylist())
    assert plan.count("start_ns >= ") == 2
    assert "call_role = 1" in plan
    assert "prompt_version" not in plan


def test_a_call_is_derived_from_its_span(otlp, store):
    span = client(
        otlp,
        b"aaaaaaaa",
        attributes={
            keys.INPUT_TOKENS: 100,
            keys.CACHED_INPUT_TOKENS: 64,
            keys.CACHE_WRITE_TOKENS: 16,
            keys.OUTPUT_TOKENS: 11,
            keys.TIME_TO_FIRST_CONTENT: 0.25,
            keys.TIME_TO_LAST_CONTENT: 0.75,
            keys.TIME_PER_OUTPUT_TOKEN: 0.05,
            keys.CHUNK_GAP_MAX: 0.125,
            keys.STREAM_STATE: "completed",
            keys.ROUTE: "r",
        },
    )
    store.append(otlp.canonical(span))
    (call,) = calls(store)
    assert call["uncached_input_tokens"] == 20
    assert (call["e2e_ms"], call["ttft_ms"]) == (1000, 250)
    assert (call["decode_ms"], call["tail_ms"]) == (500, 250)
    assert (call["tpot_ms"], call["chunk_gap_max_ms"]) == (50, 125)
    assert (call["stream_state"], call["route"], call["dialect"]) == ("completed", "r", "longpole")
    assert call["queue_ms"] is call["network_ms"] is call["cost_usd"] is None


def test_unknown_cached_tokens_leave_the_uncached_unknown(otlp, store):
    store.append(otlp.canonical(client(otlp, b"aaaaaaaa", attributes={keys.INPUT_TOKENS: 5})))
    assert calls(store)[0]["uncached_input_tokens"] is None


def test_an_engine_span_under_a_call_is_no_call_of_its_own(otlp, store):
    store.append(
        otlp.canonical(
            client(otlp, b"aaaaaaaa", attributes={keys.TIME_TO_FIRST_CONTENT: 0.5}),
            engine(
                otlp,
                b"bbbbbbbb",
                b"aaaaaaaa",
                attributes={
                    keys.ENGINE_QUEUE: 0.1,
                    keys.ENGINE_TOKENIZE: 0.02,
                    keys.ENGINE_PREFILL: 0.2,
                    keys.ENGINE_FIRST_DECODE: 0.03,
                    keys.ENGINE_DECODE: 0.4,
                    keys.ENGINE_TTFT: 0.35,
                    keys.CACHED_INPUT_TOKENS: 7,
                    keys.INPUT_TOKENS: 20,
                    keys.CACHE_STATE: "hit",
                    keys.COLD_START: True,
                },
            ),
        )
    )
    (call,) = calls(store)
    assert (call["queue_ms"], call["tokenize_ms"], call["prefill_ms"]) == (100, 20, 200)
    assert (call["first_decode_ms"], call["engine_decode_ms"]) == (30, 400)
    assert call["network_ms"] == 150
    assert (call["cached_input_tokens"], call["uncached_input_tokens"]) == (7, 13)
    assert (call["cache_state"], call["is_cold_start"]) == ("hit", True)
    assert call["flags"] == []


def test_of_several_attempts_the_last_engine_span_counts(otlp, store):
    def attempt(span_id, end, queue):
        return engine(
            otlp, span_id, b"aaaaaaaa", end_time_unix_nano=end,
            attributes={keys.ENGINE_QUEUE: queue, keys.ENGINE_TTFT: 9.0},
        )  # fmt: skip

    end = otlp.span()["end_time_unix_nano"]
    store.append(
        otlp.canonical(
            attempt(b"bbbbbbbb", end - 5, 0.5),
            attempt(b"cccccccc", end, 0.25),
            client(
                otlp,
                b"aaaaaaaa",
                attributes={keys.TIME_TO_FIRST_CONTENT: 0.9, keys.RESEND_COUNT: 1},
            ),
            attempt(b"dddddddd", end - 7, 0.75),
        )
    )
    (call,) = calls(store)
    assert (call["queue_ms"], call["num_attempts"]) == (250, 2)
    assert call["network_ms"] == 0, "never negative"


def test_an_engine_span_behind_an_http_client_span_still_belongs_to_the_call(otlp, store):
    store.append(otlp.canonical(client(otlp, b"aaaaaaaa")))
    store.append(
        otlp.canonical(
            otlp.span(trace_id=TRACE, span_id=b"hhhhhhhh", parent_span_id=b"aaaaaaaa", kind=CLIENT),
            scope="httpx",
        )
    )
    store.append(
        otlp.canonical(engine(otlp, b"bbbbbbbb", b"hhhhhhhh", attributes={keys.ENGINE_QUEUE: 0.5}))
    )
    (call,) = calls(store)
    assert call["queue_ms"] == 500


def test_an_engine_span_alone_is_the_call(otlp, store):
    attributes = {keys.ENGINE_TTFT: 0.5, keys.ENGINE_QUEUE: 0.25, keys.OUTPUT_TOKENS_OLD: 3}
    store.append(
        otlp.canonical(
            otlp.span(trace_id=TRACE, span_id=b"wwwwwwww"),
            engine(otlp, b"bbbbbbbb", b"wwwwwwww", attributes=attributes),
            scope="vllm",
        )
    )
    (call,) = calls(store)
    assert (call["ttft_ms"], call["queue_ms"], call["output_tokens"]) == (500, 250, 3)
    assert call["flags"] == ["engine_side"]


def test_calls_inside_a_tool_of_a_call_count_for_themselves(otlp, store):
    tool = otlp.span(
        trace_id=TRACE, span_id=b"tttttttt", parent_span_id=b"aaaaaaaa",
        attributes={keys.OPERATION: "execute_tool"},
    )  # fmt: skip
    inner = client(otlp, b"bbbbbbbb", parent_span_id=b"tttttttt")
    store.append(otlp.canonical(client(otlp, b"aaaaaaaa"), tool, inner))
    assert len(calls(store)) == 2


def test_a_span_that_is_its_own_parent_is_still_a_call(otlp, store):
    store.append(otlp.canonical(client(otlp, b"aaaaaaaa", parent_span_id=b"aaaaaaaa")))
    assert len(calls(store)) == 1


def test_a_negative_duration_shows_as_zero(otlp, store):
    store.append(otlp.canonical(client(otlp, b"aaaaaaaa", end_time_unix_nano=5)))
    (call,) = calls(store)
    assert (call["e2e_ms"], call["flags"]) == (0, ["negative_duration"])
