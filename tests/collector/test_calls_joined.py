"""Spans that tell of one call beside, below and above one another become one row of ``calls``."""

import pytest

from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector.health import Health
from longpole_collector.rollup import Settler
from longpole_collector.stores.duckdb import DuckStore

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


def engine(otlp, span_id, parent, **given):
    attributes = {keys.OPERATION: "chat"} | given.pop("attributes", {})
    return otlp.span(
        trace_id=TRACE, span_id=span_id, parent_span_id=parent, kind=SERVER, attributes=attributes,
        **given,
    )  # fmt: skip


def call_span(otlp, span_id, start_ms, end_ms, scope="lib", trace_id=TRACE, **given):
    """A client's span of a model call and the body that brings it."""
    start_ns = otlp.span()["start_time_unix_nano"]
    attributes = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m"} | given.pop("attributes", {})
    span = otlp.span(
        trace_id=trace_id,
        span_id=span_id,
        kind=CLIENT,
        start_time_unix_nano=start_ns + int(start_ms * 1e6),
        end_time_unix_nano=start_ns + int(end_ms * 1e6),
        attributes=attributes,
        **given,
    )
    return otlp.canonical(span, scope=scope)


NATIVE = "com.anthropic.sdk.python"
LIBRARY = {
    keys.RESPONSE_ID: "msg_1",
    keys.INPUT_TOKENS: 100,
    keys.OUTPUT_TOKENS: 31,
    keys.TIME_TO_FIRST_CHUNK: 0.03,
    keys.REQUEST_STREAM: True,
    keys.FINISH_REASONS: ["stop"],
}
OWN = LIBRARY | {keys.OUTPUT_TOKENS: 30, keys.TIME_TO_FIRST_CHUNK: 0.2, keys.RESEND_COUNT: 2}


@pytest.mark.parametrize("where", ["below", "beside", "in another trace"])
def test_an_sdks_own_span_is_the_same_call_and_is_believed_first(otlp, store, where):
    place = {
        "below": ({"parent_span_id": b"wwwwwwww"}, {"parent_span_id": b"aaaaaaaa"}),
        "beside": ({"parent_span_id": b"wwwwwwww"}, {"parent_span_id": b"wwwwwwww"}),
        "in another trace": ({}, {"trace_id": b"u" * 16}),
    }[where]
    store.append(call_span(otlp, b"aaaaaaaa", 0, 400, attributes=LIBRARY, **place[0]))
    store.append(call_span(otlp, b"bbbbbbbb", 10, 401, NATIVE, attributes=OWN, **place[1]))
    (call,) = calls(store)
    assert call["span_id"] == b"aaaaaaaa".hex()
    assert (call["input_tokens"], call["output_tokens"], call["num_attempts"]) == (100, 30, 3)
    assert call["ttft_ms"] == 210, "from the start of the call, to the first content"
    assert call["first_chunk_ms"] == 210
    assert call["flags"] == ["ttft_first_content"]
    assert call["e2e_ms"] == (400 if where == "below" else 401)


def test_spans_with_one_response_id_at_other_times_or_of_one_library_are_calls_each(otlp, store):
    for i, (scope, start_ms) in enumerate([("a", 0), ("b", 500), ("a", 1000), ("a", 1100)]):
        span_id = bytes([65 + i] * 8)
        store.append(call_span(otlp, span_id, start_ms, start_ms + 300, scope, attributes=LIBRARY))
    assert len(calls(store)) == 4


def halves(otlp, number, head_ends_ms, ends_ms, **where):
    """A stream in two spans, each a root of its own trace unless told otherwise."""
    head = {"trace_id": bytes([number] * 16)} | where
    rest = {"trace_id": bytes([number + 100] * 16)} | where
    return [
        *call_span(
            otlp, bytes([number] * 8), 0, head_ends_ms,
            attributes={keys.FLAGS: ["stream_head"], keys.REQUEST_STREAM: True}, **head,
        ),
        *call_span(
            otlp, bytes([number + 100] * 8), head_ends_ms + 2, ends_ms,
            attributes={
                keys.FLAGS: ["stream_summary"], keys.OUTPUT_TOKENS: number,
                keys.RESPONSE_ID: str(number), keys.REQUEST_STREAM: True,
            }, **rest,
        ),
    ]  # fmt: skip


def test_two_halves_of_a_stream_are_one_call_as_long_as_both(otlp, store):
    store.append(halves(otlp, 1, 12, 400))
    (call,) = calls(store)
    assert (call["span_id"], call["e2e_ms"], call["output_tokens"]) == ("01" * 8, 400, 1)
    assert call["flags"] == []


def test_streams_at_the_same_time_are_told_apart_and_an_abandoned_one_counts(otlp, store):
    for number in range(1, 9):
        store.append(halves(otlp, number, 10 + number / 4, 400 + number)[: 1 if number == 3 else 2])
    found = calls(store)
    assert len(found) == 8
    assert sum(call["output_tokens"] or 0 for call in found) == sum(range(1, 9)) - 3
    (abandoned,) = [call for call in found if call["output_tokens"] is None]
    assert abandoned["flags"] == ["stream_head", "truncated", "incomplete"]


def test_attempts_in_spans_of_their_own_are_one_call(otlp, store):
    parent = {"parent_span_id": b"wwwwwwww"}
    failed = {"attributes": {keys.FLAGS: ["failed_attempt"], keys.ERROR_TYPE: "429"}, **parent}
    answered = {"attributes": {keys.TIME_TO_FIRST_CONTENT: 0.2, keys.OUTPUT_TOKENS: 3}, **parent}
    store.append(call_span(otlp, b"aaaaaaaa", 0, 50, **failed))
    store.append(call_span(otlp, b"bbbbbbbb", 150, 200, **failed))
    store.append(call_span(otlp, b"cccccccc", 300, 700, **answered))
    store.append(call_span(otlp, b"dddddddd", 800, 900, **answered))  # the next step of an agent
    first, second = calls(store)
    assert (first["num_attempts"], first["retry_ms"], first["ttft_ms"]) == (3, 300, 500)
    assert (first["e2e_ms"], first["error_type"], first["output_tokens"]) == (700, None, 3)
    assert (second["num_attempts"], second["e2e_ms"]) == (None, 100)


def test_attempts_that_all_fail_are_one_failed_call(otlp, store):
    for i, start_ms in enumerate((0, 100, 200)):
        attributes = {keys.FLAGS: ["failed_attempt"], keys.ERROR_TYPE: f"error {i}"}
        given = {"attributes": attributes, "parent_span_id": b"wwwwwwww"}
        store.append(call_span(otlp, bytes([65 + i] * 8), start_ms, start_ms + 50, **given))
    (call,) = calls(store)
    assert (call["num_attempts"], call["error_type"], call["e2e_ms"]) == (3, "error 2", 250)


def test_a_span_around_several_calls_is_no_call(otlp, store):
    store.append(call_span(otlp, b"aaaaaaaa", 0, 900, attributes={keys.INPUT_TOKENS: 30}))
    for span_id, start_ms in ((b"bbbbbbbb", 10), (b"cccccccc", 500)):
        given = {"attributes": {keys.INPUT_TOKENS: 15}, "parent_span_id": b"aaaaaaaa"}
        store.append(call_span(otlp, span_id, start_ms, start_ms + 300, **given))
    assert [call["input_tokens"] for call in calls(store)] == [15, 15]


def test_a_gateways_server_span_is_neither_call_nor_engine(otlp, store):
    gateway = otlp.span(
        trace_id=TRACE, span_id=b"gggggggg", parent_span_id=b"aaaaaaaa", kind=SERVER,
        attributes={keys.OPERATION: "chat"},
    )  # fmt: skip
    store.append(call_span(otlp, b"aaaaaaaa", 0, 1000))
    store.append(otlp.canonical(gateway, scope="gateway"))
    store.append(call_span(otlp, b"bbbbbbbb", 10, 900, parent_span_id=b"gggggggg"))
    store.append(
        otlp.canonical(engine(otlp, b"eeeeeeee", b"bbbbbbbb", attributes={keys.ENGINE_QUEUE: 0.5}))
    )
    (call,) = calls(store)
    assert (call["span_id"], call["queue_ms"]) == (b"aaaaaaaa".hex(), 500)


def test_plain_spans_between_two_accounts_are_looked_through(otlp, store):
    store.append(call_span(otlp, b"aaaaaaaa", 0, 1000))
    store.append(
        otlp.canonical(
            otlp.span(trace_id=TRACE, span_id=b"11111111", parent_span_id=b"aaaaaaaa"),
            otlp.span(trace_id=TRACE, span_id=b"22222222", parent_span_id=b"11111111"),
            otlp.span(trace_id=TRACE, span_id=b"33333333", parent_span_id=b"22222222"),
        )
    )
    store.append(call_span(otlp, b"bbbbbbbb", 10, 900, parent_span_id=b"33333333"))
    assert len(calls(store)) == 1
