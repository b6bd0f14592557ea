"""A query over a part of the store gives what it gives over the whole, and reads only that part."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.extent import Extent
from longpole_collector.stores.keeping import rewrite
from longpole_collector.writer import Writer

DAY_NS = 86_400 * 1_000_000_000
FIRST_NS = 1_790_000_000_000_000_000 // DAY_NS * DAY_NS
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
VIEWS = ("spans", "calls", "traces", "minutes", "hours", "stage_minutes", "stage_hours")


@pytest.fixture(scope="module")
def days(tmp_path_factory, otlp):
    """Four days with a trace each, one trace over midnight, one span of long before; two sealed."""
    store = DuckStore(tmp_path_factory.mktemp("days") / "data")
    writer = Writer(store, load_rollup())
    midnight = otlp.random.randbytes(16)
    for day in range(4):
        noon_ns = FIRST_NS + day * DAY_NS + DAY_NS // 2
        starts = {otlp.random.randbytes(16): noon_ns}
        if day in (1, 2):
            starts[midnight] = noon_ns + (DAY_NS // 2 - 10**9 if day == 1 else -DAY_NS // 2 + 10**9)
        if day == 3:
            starts[otlp.random.randbytes(16)] = FIRST_NS + DAY_NS // 3
        given = [
            otlp.span(
                trace_id=trace, name=f"day {day}", kind=3, attributes=CALL,
                start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + 10**9,
            )
            for trace, start_ns in starts.items()
        ]  # fmt: skip
        spans = [span._replace(received_ns=noon_ns) for span in otlp.canonical(*given)]
        writer.write_spans(spans)
        writer.settle(everything=True)
    store.save()
    for day in list(store.days)[:2]:
        assert rewrite(store, day)
    yield store
    store.close()


def whole(store, query, params):
    """The answer over all files."""
    cursor = store.cursor()
    try:
        return sorted(map(str, cursor.execute(query, list(params)).fetchall()))
    finally:
        cursor.close()


def asked(store, query, params=()):
    return sorted(str(tuple(row.values())) for row in store.sql(query, params).to_pylist())


HOURS = st.integers(-30, 4 * 24 + 30).map(lambda hour: FIRST_NS + hour * DAY_NS // 24)


@given(view=st.sampled_from(VIEWS), one=HOURS, other=HOURS)
@settings(max_examples=60, deadline=None)
def test_any_stretch_of_time_gives_what_the_whole_store_gives(days, view, one, other):
    query = f"SELECT * FROM {view} WHERE start_ns >= ? AND start_ns < ?"
    assert asked(days, query.replace("*", "start_ns"), (one, other)) == whole(
        days, query.replace("*", "start_ns"), (one, other)
    )


@pytest.mark.parametrize("view", ["spans", "calls", "traces", "trace_stages"])
def test_any_trace_gives_what_the_whole_store_gives(days, view):
    query = f"SELECT trace_id FROM {view} WHERE trace_id = ?"
    traces = days.sql("SELECT DISTINCT trace_id FROM spans")["trace_id"].to_pylist()
    assert len(traces) == 6
    for trace in [*traces, "0" * 31 + "1"]:
        assert asked(days, query, (trace,)) == whole(days, query, (trace,))
    assert sum(len(asked(days, query, (trace,))) for trace in traces) >= 6


@pytest.mark.parametrize("view", ["spans", "calls", "traces", "trace_stages"])
def test_a_list_of_traces_gives_what_the_whole_store_gives(days, view):
    traces = sorted(set(days.sql("SELECT trace_id FROM spans")["trace_id"].to_pylist()))
    ids = ",".join([*traces[::2], "0" * 32, "f" * 32])
    query = f"SELECT trace_id FROM {view}"
    found = asked(
        days, f"{query} WHERE trace_id IN (SELECT unnest(string_split($ids, ',')))", {"ids": ids}
    )
    every = whole(days, query, ())
    assert found == [row for row in every if row[2:34] in ids.split(",")]
    assert 0 < len(found) < len(every)


@given(one=HOURS, other=HOURS)
@settings(max_examples=20, deadline=None)
def test_stages_of_the_traces_of_a_stretch_of_time_are_all_there(days, one, other):
    inside = "SELECT trace_id FROM traces WHERE start_ns >= ? AND start_ns < ?"
    query = f"SELECT trace_id FROM trace_stages WHERE trace_id IN ({inside})"
    assert asked(days, query, (one, other)) == whole(days, query, (one, other))


def test_stages_joined_with_traces_of_a_stretch_of_time_are_all_there(days):
    query = (
        "SELECT trace_id, stage FROM trace_stages JOIN traces USING (trace_id) WHERE start_ns >= ?"
    )
    for hour in range(0, 96, 8):
        since = (FIRST_NS + hour * DAY_NS // 24,)
        assert asked(days, query, since) == whole(days, query, since)


def test_only_the_files_of_the_stretch_are_read(days):
    names = [day.catalog for day in days.days]
    since = FIRST_NS + 2 * DAY_NS + DAY_NS // 4
    plan = str(
        days.sql(
            "EXPLAIN SELECT name FROM spans WHERE start_ns BETWEEN ? AND ?",
            (since, since + DAY_NS // 2),
        ).to_pylist()
    )
    assert [name for name in names if f"{name}." in plan] == [names[2]]


def test_a_file_that_goes_between_looking_and_asking_does_no_harm(tmp_path, otlp, monkeypatch):
    store = DuckStore(tmp_path / "data")
    for day in range(3):
        (span,) = otlp.canonical(otlp.span(start_time_unix_nano=FIRST_NS + day * DAY_NS))
        store.append([span._replace(received_ns=FIRST_NS + day * DAY_NS)])
    first, *_ = store.days
    real = store._parts.narrowed

    def late(*given):
        text = real(*given)
        if first in list(store.days):
            store.days.detach(first, unlink=True)
        return text

    monkeypatch.setattr(store._parts, "narrowed", late)
    query = "SELECT count(*) AS n FROM spans WHERE start_ns < ?"
    assert store.sql(query, (FIRST_NS + 2 * DAY_NS,)).to_pylist() == [{"n": 1}]
    store.close()


@given(
    st.lists(st.integers(-(2**62), 2**62), max_size=8),
    st.integers(-(2**62), 2**62),
    st.integers(0, 2**60),
)
def test_an_extent_meets_every_stretch_with_a_start_in_it(starts, since_ns, length_ns):
    extent = Extent()
    for half in (starts[::2], starts[1::2]):
        extent.widen([pa.chunked_array([pa.array([*half, None], pa.int64())])])
    is_there = any(since_ns <= start <= since_ns + length_ns for start in starts)
    assert extent.meets(since_ns, since_ns + length_ns) or not is_there


@given(st.sets(st.integers(0, 2**64 - 1), max_size=300))
def test_a_filter_knows_every_trace_and_few_others(traces):
    extent = Extent((), np.array(sorted(traces), np.uint64))
    assert all(extent.may_be_home(trace) for trace in traces)
    others = [(number * 0x9E3779B97F4A7C15) % 2**64 for number in range(1, 1001)]
    assert sum(extent.may_be_home(other) for other in others if other not in traces) < 200
