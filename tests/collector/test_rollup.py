import time
from dataclasses import replace

import pytest

from longpole.errors import UsageError
from longpole.vocab import Rollup
from longpole_collector import rollup as module
from longpole_collector.health import Health
from longpole_collector.rollup import Settler, load_rollup
from longpole_collector.stores.duckdb import FILE_NAME, DuckStore
from longpole_collector.writer import Writer

TRACE = b"t" * 16


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path / FILE_NAME)
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
    writer.write(otlp.canonical(root, otlp.span()))
    assert writer.settle(everything=True) == 0
    assert sorted(num for _, num, _ in traces(store)) == [1, 1]
    writer.write(otlp.canonical(late))
    writer.settle(everything=True)
    assert (TRACE.hex(), 2, 1000.0) in traces(store)
    assert len(traces(store)) == 2
    stages = store.sql("SELECT sum(critical_ms) AS s FROM trace_stages GROUP BY trace_id")
    assert stages.column("s").to_pylist() == [1000, 1000]


def test_a_duplicate_span_is_counted_once(otlp, store, rollup):
    writer = Writer(store, rollup)
    spans = otlp.canonical(otlp.span(trace_id=TRACE))
    writer.write(spans)
    writer.write(spans)
    writer.settle(everything=True)
    writer.write(spans)
    writer.settle(everything=True)
    assert [num for _, num, _ in traces(store)] == [1]


def test_a_trace_waits_until_it_is_quiet_but_not_for_ever(otlp, store, rollup, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    settler = Settler(store, rollup, Health())
    spans = otlp.canonical(otlp.span(trace_id=TRACE))
    store.append(spans)
    computed = []
    for _ in range(15):
        settler.mark(spans)
        settler.settle()
        computed.append(bool(traces(store)))
        now[0] += 0.1
    assert computed.index(True) in (8, 9), "patience under steady traffic"
    assert settler.num_dirty() == 1
    now[0] += 0.25
    assert settler.settle() == 0


def test_spans_stored_before_a_crash_are_rolled_up_after_it(otlp, tmp_path, rollup):
    path = tmp_path / FILE_NAME
    store = DuckStore(path)
    writer = Writer(store, rollup)
    writer.write(otlp.canonical(otlp.span(trace_id=TRACE)))
    store.close()  # nothing was settled
    store = DuckStore(path)
    writer = Writer(store, rollup)
    assert writer.settle(everything=True) == 0
    assert [num for _, num, _ in traces(store)] == [1]
    store.close()


def test_a_settled_store_starts_clean_and_a_new_version_starts_over(
    otlp, tmp_path, rollup, monkeypatch
):
    monkeypatch.setattr(module, "_RECEIVED_MARGIN_NS", 0)
    path = tmp_path / FILE_NAME
    store = DuckStore(path)
    writer = Writer(store, rollup)
    writer.write(otlp.canonical(*(otlp.span() for _ in range(5))))
    writer.settle(everything=True)
    store.close()
    store = DuckStore(path)
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
    assert writer.write(spans) == 2
    assert writer.settle(everything=True) == 0
    assert len(traces(store)) == 1
    assert writer.health.total("rollup_errors") == 1
    assert TRACE.hex() in caplog.text


def test_more_spans_than_memory_holds_are_read_back(otlp, store, rollup, monkeypatch):
    monkeypatch.setattr(module, "_MAX_HELD", 3)
    writer = Writer(store, rollup)
    for _ in range(5):
        writer.write(otlp.canonical(otlp.span(trace_id=TRACE), otlp.span()))
    writer.settle(everything=True)
    assert sorted(num for _, num, _ in traces(store)) == [1, 1, 1, 1, 1, 5]


def test_without_a_rollup_traces_stay_empty_and_are_made_later(otlp, store, rollup):
    writer = Writer(store, None)
    writer.write(otlp.canonical(otlp.span()))
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


def test_settling_many_traces_at_once_is_bounded_in_steps(otlp, store, rollup, monkeypatch):
    monkeypatch.setattr(module, "_MAX_TRACES", 10)
    writer = Writer(store, rollup)
    writer.write(otlp.canonical(*(otlp.span() for _ in range(25))))
    time.sleep(module.QUIET_S)
    assert [writer.settle() for _ in range(3)] == [15, 5, 0]
    assert len(traces(store)) == 25
