import time
from dataclasses import replace

import pytest

from longpole.errors import UsageError
from longpole.vocab import Rollup, keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector import rollup as module
from longpole_collector.health import Health
from longpole_collector.rollup import Settler, load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.writer import Writer

TRACE = b"t" * 16


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path)
    yield store
    store.close()


def traces(store):
    found = store.sql("SELECT trace_id, num_spans, wall_ms FROM traces ORDER BY trace_id")
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_trace_is_rolled_up_and_again_when_a_late_span_comes(otlp, store, rollup):
    writer = Writer(store, rollup)
    root = otlp.span(trace_id=TRACE, span_id=b"rrrrrrrr")
    late = otlp.span(
        trace_id=TRACE, parent_span_id=b"rrrrrrrr",
        start_time_unix_nano=root["start_time_unix_nano"] - 3600 * 10**9,
    )  # fmt: skip
    writer.write_spans(otlp.canonical(root, otlp.span()))
    assert writer.settle(everything=True) == 0
    assert sorted(num for _, num, _ in traces(store)) == [1, 1]
    writer.write_spans(otlp.canonical(late))
    writer.settle(everything=True)
    assert (TRACE.hex(), 2, 1000.0) in traces(store)
    assert len(traces(store)) == 2
    stages = store.sql("SELECT sum(critical_ms) AS s FROM trace_stages GROUP BY trace_id")
    assert stages.column("s").to_pylist() == [1000, 1000]


def test_a_duplicate_span_is_counted_once(otlp, store, rollup):
    writer = Writer(store, rollup)
    spans = otlp.canonical(otlp.span(trace_id=TRACE))
    writer.write_spans(spans)
    writer.write_spans(spans)
    writer.settle(everything=True)
    writer.write_spans(spans)
    writer.settle(everything=True)
    assert [num for _, num, _ in traces(store)] == [1]


def test_what_there_is_no_time_for_at_the_end_is_due_at_the_next_start(otlp, tmp_path, rollup):
    store = DuckStore(tmp_path)
    writer = Writer(store, rollup)
    writer.write_spans(otlp.canonical(otlp.span(), otlp.span()))
    assert writer.settle(everything=True, for_s=-1) == 2
    writer.save()
    store.close()
    again = DuckStore(tmp_path)
    assert traces(again) == []
    assert Writer(again, rollup).settle(everything=True) == 0
    assert [num for _, num, _ in traces(again)] == [1, 1]
    again.close()


def test_a_trace_waits_until_it_is_quiet_but_not_for_ever(otlp, store, rollup, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    settler = Settler(store, rollup, Health())
    rows = to_arrow(SPANS, otlp.canonical(otlp.span(trace_id=TRACE)))
    store.insert(rows)
    computed = []
    for _ in range(15):
        settler.mark(rows)
        settler.settle()
        computed.append(bool(traces(store)))
        now[0] += 0.1
    assert computed.index(True) in (8, 9), "patience under steady traffic"
    assert settler.num_dirty() == 1
    now[0] += 0.25
    assert settler.settle() == 0


def test_spans_stored_before_a_crash_are_rolled_up_after_it(otlp, tmp_path, rollup):
    store = DuckStore(tmp_path)
    writer = Writer(store, rollup)
    writer.write_spans(otlp.canonical(otlp.span(trace_id=TRACE)))
    store.close()  # nothing was settled
    store = DuckStore(tmp_path)
    writer = Writer(store, rollup)
    assert writer.settle(everything=True) == 0
    assert [num for _, num, _ in traces(store)] == [1]
    store.close()


def test_a_settled_store_starts_clean_and_a_new_version_starts_over(
    otlp, tmp_path, rollup, monkeypatch
):
    monkeypatch.setattr(module, "_RECEIVED_MARGIN_NS", 0)
    store = DuckStore(tmp_path)
    writer = Writer(store, rollup)
    writer.write_spans(otlp.canonical(*(otlp.span() for _ in range(5))))
    writer.settle(everything=True)
    store.close()
    store = DuckStore(tmp_path)
    assert Settler(store, rollup, Health()).num_dirty() == 0
    assert Settler(store, replace(rollup, version=2), Health()).num_dirty() == 5
    store.close()


def test_a_rollup_that_raises_stops_nothing_and_is_counted(otlp, store, rollup, caplog):
    def fail_for_some(spans):
        if spans[0].name == "bad":
            raise ValueError("bug")
        return rollup.compute(spans)

    writer = Writer(store, Rollup(1, fail_for_some))
    spans = otlp.canonical(otlp.span(name="bad", trace_id=TRACE), otlp.span(name="good"))
    assert writer.write_spans(spans) == 2
    assert writer.settle(everything=True) == 0
    assert len(traces(store)) == 1
    assert writer.health.total("rollup_errors") == 1
    assert TRACE.hex() in caplog.text


def test_so_many_dirty_traces_that_ingest_must_wait_are_told(otlp, store, rollup, monkeypatch):
    monkeypatch.setattr(module, "MAX_DIRTY", 3)
    writer = Writer(store, rollup)
    writer.write_spans(otlp.canonical(*(otlp.span() for _ in range(4))))
    assert writer.is_behind()
    writer.settle(everything=True)
    assert not writer.is_behind()


def test_a_trace_is_unsettled_from_its_span_on_until_it_is_settled(otlp, store, rollup):
    settler = Settler(store, rollup, Health())
    rows = to_arrow(SPANS, otlp.canonical(otlp.span(trace_id=TRACE)))
    hi, lo = rows["trace_hi"][0].as_py(), rows["trace_lo"][0].as_py()
    assert settler.is_settled(hi, lo)
    settler.mark(store.insert(rows))
    assert not settler.is_settled(hi, lo)
    assert settler.is_settled(hi, lo + 1)
    settler.settle(everything=True)
    assert settler.is_settled(hi, lo)


def test_what_is_settled_after_a_start_is_not_settled_again_after_the_next(otlp, store, rollup):
    spans = otlp.canonical(*(otlp.span() for _ in range(5)))
    minutes = (span.received_ns + number * 60_000_000_000 for number, span in enumerate(spans))
    store.insert(
        to_arrow(
            SPANS,
            [span._replace(received_ns=ns) for span, ns in zip(spans, minutes, strict=True)],
        )
    )
    settler = Settler(store, rollup, Health())
    assert settler.num_dirty() == 5
    settler.settle(everything=True)
    assert Settler(store, rollup, Health()).num_dirty() == 1  # the newest, within the margin


def test_kin_that_come_one_after_the_other_are_one_call_of_the_first_trace(otlp, tmp_path):
    """Two libraries tell of one call, each as the root of a trace; a restart lies between."""

    def told(trace_id, scope, start_ms):
        start_ns = otlp.span()["start_time_unix_nano"] + start_ms * 1_000_000
        facts = {keys.OPERATION: "chat", keys.RESPONSE_ID: "one", keys.INPUT_TOKENS: 7 + start_ms}
        span = otlp.span(
            trace_id=trace_id, kind=3, attributes=facts, start_time_unix_nano=start_ns,
            end_time_unix_nano=start_ns + 1_000_000_000,
        )  # fmt: skip
        return otlp.canonical(span, scope=scope)

    for given in (told(b"v" * 16, "b", 20), told(b"u" * 16, "a", 10), told(TRACE, "b", 0)):
        store = DuckStore(tmp_path)
        writer = Writer(store, ROLLUP)
        writer.write_spans(given)
        writer.settle(everything=True)
        store.close()
    store = DuckStore(tmp_path)
    query = "SELECT trace_id, input_tokens FROM calls"
    assert store.sql(query).to_pylist() == [{"trace_id": TRACE.hex(), "input_tokens": 7}]
    found = store.sql("SELECT num_calls, input_tokens, flags FROM traces ORDER BY trace_id")
    assert [(row["num_calls"], row["input_tokens"]) for row in found.to_pylist()] == [
        (1, 7), (0, None), (0, None),
    ]  # fmt: skip
    is_elsewhere = ["call_elsewhere" in row["flags"] for row in found.to_pylist()]
    assert is_elsewhere == [False, True, True]
    store.close()


def test_an_engines_span_is_a_call_until_its_client_comes(otlp, store):
    engine = otlp.span(
        trace_id=TRACE, parent_span_id=b"cccccccc", kind=2,
        attributes={keys.OPERATION: "chat", keys.ENGINE_QUEUE: 0.5},
    )  # fmt: skip
    client = otlp.span(
        trace_id=TRACE, span_id=b"cccccccc", kind=3, attributes={keys.OPERATION: "chat"}
    )
    writer = Writer(store, ROLLUP)
    found = []
    for given in (engine, client):
        writer.write_spans(otlp.canonical(given))
        writer.settle(everything=True)
        (row,) = store.sql("SELECT span_id, queue_ms, flags FROM calls").to_pylist()
        found.append((row["span_id"] == b"cccccccc".hex(), row["queue_ms"], row["flags"]))
    assert found == [(False, 500, ["engine_side"]), (True, 500, [])]


def test_a_trace_without_roll_up_keeps_its_spans_as_calls(otlp, store, rollup):
    def fail(spans):
        raise ValueError("bug")

    writer = Writer(store, Rollup(1, fail))
    outer = otlp.span(
        trace_id=TRACE, span_id=b"aaaaaaaa", kind=3, attributes={keys.OPERATION: "chat"}
    )
    writer.write_spans(
        otlp.canonical(outer, outer | {"span_id": b"b" * 8, "parent_span_id": b"a" * 8})
    )
    writer.settle(everything=True)
    assert store.sql("SELECT * FROM calls").num_rows == 2


def test_without_a_rollup_traces_stay_empty_and_are_made_later(otlp, store, rollup):
    writer = Writer(store, None)
    writer.write_spans(otlp.canonical(otlp.span()))
    assert writer.settle(everything=True) == 0
    assert traces(store) == []
    Writer(store, rollup).settle(everything=True)
    assert len(traces(store)) == 1


@pytest.mark.parametrize("error", [ModuleNotFoundError("polars"), UsageError("wrong kind"), None])
def test_a_missing_rollup_is_said_and_is_no_error(monkeypatch, caplog, error):
    def load(*args):
        if error:
            raise error
        return {}

    monkeypatch.setattr(module, "load", load)
    assert load_rollup() is None
    assert "no roll-up" in caplog.text


def test_settling_many_traces_at_once_is_bounded_in_steps(otlp, store, rollup):
    writer = Writer(store, rollup)
    writer.write_spans(otlp.canonical(*(otlp.span() for _ in range(25))))
    time.sleep(module.QUIET_S)
    assert [writer.settle(10) for _ in range(3)] == [15, 5, 0]
    assert len(traces(store)) == 25
