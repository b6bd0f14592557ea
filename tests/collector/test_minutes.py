"""The store's counts by minute equal the calls and workflows that they count, whatever happens."""

from datetime import UTC, datetime, timedelta
from operator import itemgetter

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, lists, one_of, sampled_from
from tests.collector.minute_counts import (
    LATER_NS,
    MINUTE_NS,
    assert_stages_are_counted,
    by_hour,
    captured,
    counted,
    expected,
)

from longpole_collector.housekeeping import tidy
from longpole_collector.stores import minutes as module
from longpole_collector.stores import sealed
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention, forget_person, rewrite
from longpole_collector.stores.migrations import schema_of
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.schema import MINUTES
from longpole_collector.writer import Writer


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path / "db")
    yield store
    store.close()


@pytest.fixture
def writer(store, rollup):
    return Writer(store, rollup)


def test_minutes_are_what_a_roll_up_of_the_views_gives(store, writer):
    writer.write_spans(captured())
    writer.settle(everything=True)
    assert counted(store) == []
    assert refresh(store, LATER_NS) > 0
    assert counted(store) == expected(store) != []
    assert by_hour(store, "hours") == by_hour(store, "minutes")
    assert_stages_are_counted(store)
    assert refresh(store, LATER_NS) == 0


def test_a_merged_call_is_counted_once(store, writer):
    writer.write_spans(captured())
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    calls = store.sql("SELECT count(*) AS n FROM calls WHERE e2e_ms IS NOT NULL")
    found = store.sql("SELECT sum(num) AS n FROM minutes WHERE metric = 'e2e_ms'")
    assert found["n"].to_pylist() == calls["n"].to_pylist()


def test_spans_in_any_order_and_counts_in_between_come_to_the_same(store, writer, monkeypatch):
    spans = captured()
    for k in range(7):
        writer.write_spans(spans[k::7])
        writer.settle(everything=k % 2 == 0)
        refresh(store, LATER_NS)
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)
    assert_stages_are_counted(store)


def test_the_minute_that_runs_waits_until_it_is_over(store, writer):
    spans = captured()
    writer.write_spans(spans)
    writer.settle(everything=True)
    starts = {row["start_ns"] for row in store.sql("SELECT start_ns FROM calls").to_pylist()}
    running = max(starts) // MINUTE_NS
    refresh(store, running * MINUTE_NS + 59_000_000_000)
    assert counted(store) == [row for row in expected(store) if row[0] != running * MINUTE_NS]
    refresh(store, (running + 1) * MINUTE_NS)
    assert counted(store) == expected(store)


def test_what_comes_while_a_minute_is_counted_is_counted_next_time(store, writer, monkeypatch):
    spans = captured()
    writer.write_spans(spans[::2])
    writer.settle(everything=True)
    count = module._counted

    def count_and_write(*given):
        rows = count(*given)
        monkeypatch.setattr(module, "_counted", count)
        writer.write_spans(spans[1::2])
        writer.settle(everything=True)
        return rows

    monkeypatch.setattr(module, "_counted", count_and_write)
    refresh(store, LATER_NS)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)


def test_marks_outlive_the_process(tmp_path, rollup):
    store = DuckStore(tmp_path)
    writer = Writer(store, rollup)
    writer.write_spans(captured())
    writer.settle(everything=True)
    store.close()
    store = DuckStore(tmp_path)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)
    store.close()
    reader = DuckStore(tmp_path, is_read_only=True)
    assert counted(reader) == expected(reader)
    reader.close()


def test_a_count_that_was_cut_short_is_done_again(store, writer, monkeypatch):
    writer.write_spans(captured())
    writer.settle(everything=True)

    def fail(*_given):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(module, "_counted", fail)
        with pytest.raises(RuntimeError):
            refresh(store, LATER_NS)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)


def test_a_rewritten_day_keeps_its_counts_and_takes_late_ones(store, writer):
    spans = captured()
    writer.write_spans(spans[: len(spans) // 2])
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    for day in list(store.days):
        assert rewrite(store, day)
    assert counted(store) == expected(store)
    assert_stages_are_counted(store)
    writer.write_spans(spans[len(spans) // 2 :])
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)
    assert_stages_are_counted(store)


def made(writer, lengths_ns):
    """Calls of one slice with these lengths, in one minute."""
    (call,) = [span for span in captured() if span.is_model_call and span.end_ns is not None][:1]
    start_ns = call.start_ns // MINUTE_NS * MINUTE_NS
    writer.write_spans(
        [
            call._replace(
                trace_id=f"{number + 1:032x}",
                parent_id=None,
                response_id=None,
                start_ns=start_ns + number,
                end_ns=start_ns + number + length_ns,
            )
            for number, length_ns in enumerate(lengths_ns)
        ]
    )
    writer.settle(everything=True)
    refresh(writer._store, LATER_NS)


LENGTHS_MS = one_of(
    integers(0, 3 * 10**9).map(lambda ns: ns / 1e6),
    integers(10**9, 10**9 + 10**7).map(lambda ns: ns / 1e6),  # near each other
    floats(-1e12, 1e12),
    sampled_from((0.0, -0.0, 1e-7, 2**52 / 1e6, (2**53 + 2) / 1e6, 1 / 3)),
)


@settings(deadline=None)
@given(lists(lists(LENGTHS_MS, min_size=1, max_size=5), min_size=1, max_size=20), integers(-9, 9))
def test_a_rewritten_day_tells_the_very_counts(counted_ms, off_ns):
    rows = [
        (
            *(number * MINUTE_NS, 1, "shop", None, None, None, "e2e_ms", number, len(values)),
            sum(round(value * 1e6) for value in values) + (off_ns if len(values) > 2 else 0),
            *(min(values), max(values), False, False),
        )
        for number, values in enumerate(counted_ms)
    ]
    with duckdb.connect() as connection:
        for name in (MINUTES.name, "packed"):
            connection.execute(f"CREATE TABLE {name} ({schema_of(MINUTES)})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {MINUTES.name} VALUES ({marks})", rows)
        written = sealed.written(connection, "memory", MINUTES)
        connection.execute(f"INSERT INTO packed BY NAME {written}")
        found = connection.execute(f"SELECT {sealed.read(MINUTES)} FROM packed").fetchall()
    assert sorted(found, key=itemgetter(0)) == rows


def test_a_sum_beyond_64_bits_is_as_large_as_can_be(store, writer):
    made(writer, [5 * 10**17 + number for number in range(30)])
    (row,) = store.sql("SELECT num, sum_ms FROM minutes WHERE metric = 'e2e_ms'").to_pylist()
    assert row == {"num": 30, "sum_ms": (2**63 - 1) / 1e6}


def test_a_forgotten_person_is_counted_no_more(store, writer):
    spans = captured()
    gone = spans[0].trace_id
    spans = [s._replace(conversation_id="who") if s.trace_id == gone else s for s in spans]
    writer.write_spans(spans)
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    before = counted(store)
    assert forget_person(store, "who") == 1
    refresh(store, LATER_NS)
    assert counted(store) == expected(store) != before
    assert_stages_are_counted(store)


def test_housekeeping_counts(store, writer):
    writer.write_spans(captured())
    writer.settle(everything=True)
    tidy(store, Retention(days=None), datetime.now(UTC) + timedelta(days=2))
    assert counted(store) == expected(store)


def test_absurd_times_stop_nothing(store, writer):
    spans = captured()
    call = next(span for span in spans if span.is_model_call)
    odd = [
        call._replace(trace_id="1" * 32, end_ns=2**63 - 1, start_ns=0, tpot_ms=float("nan")),
        call._replace(trace_id="2" * 32, end_ns=None, ttft_ns=None, tpot_ms=1e300),
        call._replace(trace_id="3" * 32, end_ns=call.start_ns, ttft_ns=0, tpot_ms=-1.0),
    ]
    writer.write_spans([*spans, *odd])
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    assert counted(store) == expected(store)


def test_the_bucket_of_a_call_is_the_same_in_sql(store, writer):
    writer.write_spans(captured())
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    rows = store.sql(
        "SELECT min_ms, max_ms, log_value(bucket) AS v FROM minutes WHERE bucket IS NOT NULL"
    ).to_pylist()
    for row in rows:
        assert row["v"] == pytest.approx(row["min_ms"], rel=0.0100001)
        assert row["v"] == pytest.approx(row["max_ms"], rel=0.0100001)
