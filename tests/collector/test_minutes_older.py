"""Files of older schemas are counted by minute as those of today's are."""

from contextlib import closing

import pyarrow as pa
import pytest
from tests.collector.minute_counts import (
    LATER_NS,
    MINUTE_NS,
    assert_stages_are_counted,
    by_hour,
    captured,
    counted,
    expected,
    expected_stages,
    staged,
)

from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import rewrite
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.sampled import Sampled
from longpole_collector.stores.schema import trace_numbers
from longpole_collector.stores.stale import mark_where
from longpole_collector.writer import Writer


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path / "db")
    yield store
    store.close()


@pytest.fixture
def writer(store, rollup):
    return Writer(store, rollup)


def older(store):
    """Make the files such as schema 5 has them: without a count of stages."""
    for day in store.days:
        with store.transaction(day) as cursor:
            cursor.execute(f"DELETE FROM {day.catalog}.minute_rows WHERE is_stage")
    coded(store, version=5)


def coded(store, version=6):
    """Make the files such as schema 6 has them: a number tells of minutes what they count."""
    width = "CASE WHEN is_gone THEN 2 ELSE width END * CASE WHEN is_stage THEN -1 ELSE 1 END"
    for day in store.days:
        with store.transaction(day) as cursor:
            cursor.execute(f"UPDATE {day.catalog}.minute_rows SET width = {width}")
            for name in ("is_stage", "is_gone"):
                cursor.execute(f"ALTER TABLE {day.catalog}.minute_rows DROP COLUMN {name}")
            cursor.execute(
                f"UPDATE {day.catalog}.meta SET value = '{version}' WHERE key = 'schema_version'"
            )
    store.close()


def all_counts(store):
    return [counted(store), by_hour(store, "hours"), staged(store), staged(store, "stage_hours")]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_files_whose_minutes_tell_by_a_number_what_they_count_say_the_same(
    store, writer, tmp_path, is_rewritten
):
    spans = captured()
    writer.write_spans(spans)
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    truth_rows = all_counts(store)
    one = trace_numbers([store.sql("SELECT min(trace_id) AS id FROM traces")["id"][0].as_py()])
    none = one.slice(0, 0)
    kept = none.append_column("weight", pa.array([], pa.float64()))
    starts = sorted(span.start_ns for span in spans)
    Sampled(store, ()).apply(kept, one, none, (starts[0], starts[-1]))
    refresh(store, LATER_NS)
    assert all_counts(store) == truth_rows
    for day in list(store.days) if is_rewritten else ():
        assert rewrite(store, day)
    coded(store)
    for is_read_only in (True, False, True):
        with closing(DuckStore(tmp_path / "db", is_read_only=is_read_only)) as again:
            assert all_counts(again) == truth_rows
            for day in () if is_read_only else again.days:
                with again.transaction(day) as cursor:
                    mark_where(cursor, day.catalog, "trace_rows")
            if not is_read_only:
                assert refresh(again, LATER_NS) > 0
                assert all_counts(again) == truth_rows


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_files_that_are_counted_without_stages_get_them(store, writer, tmp_path, is_rewritten):
    spans = captured()
    writer.write_spans(spans[: len(spans) // 2])
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    for day in list(store.days) if is_rewritten else ():
        assert rewrite(store, day)
    writer.write_spans(spans[len(spans) // 2 :])
    writer.settle(everything=True)  # marked, and not yet counted
    older(store)
    reader = DuckStore(tmp_path / "db", is_read_only=True)
    assert staged(reader).num_rows == 0
    reader.close()
    again = DuckStore(tmp_path / "db")
    refresh(again, LATER_NS)
    assert counted(again) == expected(again)
    assert_stages_are_counted(again)
    again.close()


def test_a_count_of_stages_that_was_cut_short_goes_on(store, writer, tmp_path):
    one = [span for span in captured() if span.trace_id == captured()[0].trace_id]
    for hour in range(3):
        on_ns = hour * 60 * MINUTE_NS
        writer.write_spans(
            [
                span._replace(
                    trace_id=f"{hour + 1:032x}",
                    start_ns=span.start_ns + on_ns,
                    end_ns=span.end_ns and span.end_ns + on_ns,
                )
                for span in one
            ]
        )
    writer.settle(everything=True)
    refresh(store, LATER_NS)
    older(store)
    again = DuckStore(tmp_path / "db")
    hours = iter([False])
    refresh(again, LATER_NS, lambda: next(hours, True))
    assert 0 < staged(again).num_rows < expected_stages(again).num_rows
    again.close()
    again = DuckStore(tmp_path / "db")
    refresh(again, LATER_NS)
    assert_stages_are_counted(again)
    again.close()


def test_files_of_an_older_schema_are_counted_without_being_rewritten(store, writer, tmp_path):
    writer.write_spans(captured())
    writer.settle(everything=True)
    truth_rows = expected(store)
    for day in store.days:
        with store.transaction(day) as cursor:
            cursor.execute(f"DROP TABLE {day.catalog}.minute_rows")
            cursor.execute(f"DROP TABLE {day.catalog}.stale_minute_rows")
            cursor.execute(
                f"UPDATE {day.catalog}.meta SET value = '3' WHERE key = 'schema_version'"
            )
    store.save()
    store.close()
    reader = DuckStore(tmp_path / "db", is_read_only=True)  # lacks the tables
    assert counted(reader) == []
    reader.close()
    again = DuckStore(tmp_path / "db")
    refresh(again, LATER_NS)
    assert counted(again) == truth_rows
    again.close()
