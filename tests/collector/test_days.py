"""The folder of day files: midnight, late spans, damage, retention, rewriting, backup."""

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product

import duckdb
import pytest

from longpole.errors import BadInput, Unreachable
from longpole.vocab import Trace, TraceStage
from longpole_collector.stores import keeping
from longpole_collector.stores.duckdb import DuckStore, add_rows
from longpole_collector.stores.keeping import Retention
from longpole_collector.stores.rollups import Rollups
from longpole_collector.stores.schema import SPANS, STAGES, TRACES, to_arrow
from longpole_collector.wal import Position

DAY_NS = 86_400 * 1_000_000_000
FIRST_NS = 1_790_000_000_000_000_000  # 2026-09-21


def names(store):
    return sorted(store.sql("SELECT name FROM spans")["name"].to_pylist())


def days(folder):
    return sorted(path.name for path in folder.glob("spans-*.duckdb"))


@pytest.fixture
def received(otlp):
    """Spans received so many days after the first."""

    def make(day, *spans_names, **given):
        at_ns = FIRST_NS + day * DAY_NS
        spans = otlp.canonical(
            *(otlp.span(name=name, start_time_unix_nano=at_ns, **given) for name in spans_names)
        )
        return [span._replace(received_ns=at_ns) for span in spans]

    return make


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def week(folder, received):
    """A store with one span a day."""
    store = DuckStore(folder)
    for day in range(7):
        store.append(received(day, f"day{day}"))
    yield store
    store.close()


def test_each_day_of_receipt_is_one_file_and_all_are_one_view(week, folder):
    assert len(days(folder)) == 7
    assert names(week) == [f"day{day}" for day in range(7)]


def test_a_span_sent_again_another_day_is_not_stored_twice(week, received):
    again = [span._replace(received_ns=FIRST_NS + 6 * DAY_NS) for span in received(2, "x")]
    assert week.append(again) == 1
    assert week.append([again[0]._replace(received_ns=FIRST_NS + 9 * DAY_NS)]) == 0


def test_the_place_in_the_log_is_the_latest_of_all_files(folder, received):
    store = DuckStore(folder)
    store.insert(to_arrow(SPANS, received(0, "a")), Position(1, 9))
    store.insert(to_arrow(SPANS, received(1, "b")), Position(2, 5))
    store.close()
    store = DuckStore(folder)
    assert store.stored() == Position(2, 5)
    store.close()


# --- retention ---------------------------------------------------------------------------------
def test_retention_by_age_removes_files_and_never_the_day_being_filled(week, folder):
    now = datetime.fromtimestamp((FIRST_NS + 6 * DAY_NS) / 1e9, UTC)
    dropped = keeping.prune(week, Retention(days=3), now)
    assert len(dropped) == 3
    assert len(days(folder)) == 4
    assert names(week) == ["day3", "day4", "day5", "day6"]
    keeping.prune(week, Retention(days=0), now.replace(year=2030))
    assert names(week) == ["day6"]


def test_retention_by_size_drops_the_oldest_and_gives_the_disk_back_at_once(week, folder):
    def num_bytes():
        return sum(path.stat().st_size for path in folder.glob("spans-*"))

    whole = num_bytes()
    keeping.prune(week, Retention(days=None, max_bytes=whole // 2))
    assert num_bytes() <= whole // 2
    assert names(week)[-1] == "day6"
    assert len(names(week)) < 7


def test_a_query_that_runs_while_its_day_is_dropped_ends_with_all_its_rows(week, received):
    for part in range(4):
        week.append(received(0, *(f"more{part}{i}" for i in range(9000))))
    with week.stream("SELECT name FROM spans") as stream:
        first = next(stream.batches)
        keeping.prune(week, Retention(days=0), datetime(2030, 1, 1, tzinfo=UTC))
        num_rows = first.num_rows + sum(batch.num_rows for batch in stream.batches)
    assert num_rows == 36_007
    assert names(week) == ["day6"]


# --- rewriting ---------------------------------------------------------------------------------
def test_a_rewritten_day_has_the_same_rows_in_one_file(week, folder):
    before = week.sql("SELECT * FROM spans ORDER BY ALL")
    for day in list(week.days):
        assert keeping.rewrite(week, day)
    assert week.sql("SELECT * FROM spans ORDER BY ALL") == before
    assert [name[-8] for name in days(folder)] == ["s"] * 7
    assert not keeping.rewrite(week, next(iter(week.days)))
    week.close()
    store = DuckStore(folder)
    assert store.sql("SELECT * FROM spans ORDER BY ALL") == before
    store.close()


def test_what_a_rewritten_file_leaves_out_reads_as_it_was(folder, otlp):
    (span,) = otlp.canonical(otlp.span())
    texts = (None, "", "[]", '[{"name":"\\u001e"}]')
    times = (None, 0, 1, 7)
    spans = [
        span._replace(
            span_id=f"{number + 1:016x}",
            is_model_call=number % 3 == 0,
            first_chunk_ns=first,
            ttft_ns=ttft,
            attributes={"a": "\x1e"} if number % 2 else {},
            events=None if events == "" else events,
            links=None if links == "" else links,
        )
        for number, (first, ttft, events, links) in enumerate(product(times, times, texts, texts))
    ]
    store = DuckStore(folder)
    store.append(spans)
    (day,) = store.days
    asked = (
        "SELECT * FROM spans ORDER BY ALL",
        "SELECT span_id FROM spans WHERE first_chunk_ns = ttft_ns ORDER BY ALL",
        "SELECT span_id FROM spans WHERE events IS NULL AND links IS NOT NULL ORDER BY ALL",
    )
    before = [store.sql(query) for query in asked]
    assert keeping.rewrite(store, day)
    assert [store.sql(query) for query in asked] == before
    store.close()


def test_roll_ups_in_a_rewritten_file_read_as_they_were_and_may_be_replaced(folder, otlp):
    spans = otlp.canonical(otlp.span(), otlp.span(), otlp.span())
    ids = sorted({span.trace_id for span in spans})
    assert len(ids) == 3
    store = DuckStore(folder)
    store.append(spans)
    trace = dict.fromkeys(Trace._fields) | {"root_name": "r", "long_pole": "tool", "flags": []}
    walls = ((5, 9, 4), (5, 9, 3), (5, 5, 0))  # the second as no roll-up would have it
    traces = [
        Trace(**trace | {"trace_id": i, "start_ns": s, "end_ns": e, "wall_ns": w})
        for i, (s, e, w) in zip(ids, walls, strict=True)
    ]
    stages = [TraceStage(i, "tool", 4, total) for i, total in zip(ids, (4, 6, 0), strict=True)]
    rollups = Rollups(store)
    rollups.replace(rows_of(traces), to_arrow(STAGES, stages), {})
    (day,) = store.days
    asked = ("SELECT * FROM traces ORDER BY ALL", "SELECT * FROM trace_stages ORDER BY ALL")
    before = [store.sql(query) for query in asked]
    assert keeping.rewrite(store, day)
    assert [store.sql(query) for query in asked] == before
    again = [row._replace(total_ns=4) for row in stages]
    rollups.replace(rows_of(traces), to_arrow(STAGES, again), rollups.places(ids))
    (day,) = [day for day in store.days if day.is_sorted]
    assert store.sql(asked[0]) == before[0]
    assert store.sql("SELECT DISTINCT total_ns AS n FROM trace_stages")["n"].to_pylist() == [4]
    store.close()


def rows_of(traces):
    rows = to_arrow(TRACES, traces)
    for name in TRACES.computed:
        rows = rows.append_column(name, rows["start_ns"])
    return rows


def test_a_file_gets_the_columns_that_its_spans_have(folder, received):
    plain, full = received(0, "plain", "full")
    full = full._replace(num_stalls=2, cache_state="hit", is_cold_start=True)
    store = DuckStore(folder)
    (day,) = [store.days.of(FIRST_NS)]
    columns = lambda: {  # noqa: E731
        row[0] for row in store.cursor().execute(f"DESCRIBE {day.catalog}.span_rows").fetchall()
    }
    store.append([plain])
    assert not {"num_stalls", "cache_state", "is_cold_start"} & columns()
    asked = "SELECT name, num_stalls, cache_state, is_cold_start FROM spans ORDER BY name DESC"
    with store.stream(asked) as stream:  # begun before, it ends undisturbed
        store.append([full])
        assert sum(batch.num_rows for batch in stream.batches) == 1
    assert {"num_stalls", "cache_state", "is_cold_start"} <= columns()
    assert "outcome" not in columns()
    truth = [("plain", None, None, None), ("full", 2, "hit", True)]
    assert [tuple(row.values()) for row in store.sql(asked).to_pylist()] == truth
    store.close()
    store = DuckStore(folder)
    assert "outcome" not in columns()
    assert store.append([full._replace(span_id="ab" * 8, outcome="failed")]) == 1
    assert store.sql("SELECT outcome FROM spans WHERE outcome IS NOT NULL").num_rows == 1
    assert keeping.rewrite(store, store.latest_day())
    assert [tuple(row.values()) for row in store.sql(asked).to_pylist()] == [*truth, truth[1]]
    store.close()


def test_a_column_whose_spans_were_taken_back_comes_with_the_next_ones(folder, received):
    (span,) = received(0, "a")
    rows = to_arrow(SPANS, [span._replace(num_stalls=1)])
    store = DuckStore(folder)
    day = store.days.of(FIRST_NS)
    with suppress(KeyError), store.transaction(day) as writer:
        add_rows(writer, day, rows)
        raise KeyError
    assert names(store) == []
    assert store.insert(rows).num_rows == 1
    store.close()
    store = DuckStore(folder)
    assert store.sql("SELECT num_stalls FROM spans")["num_stalls"].to_pylist() == [1]
    store.close()


def test_spans_for_a_day_that_was_rewritten_go_to_a_second_file_and_stay(week, folder, received):
    for day in list(week.days):
        keeping.rewrite(week, day)
    week.append(received(6, "late"))
    week.close()
    store = DuckStore(folder)
    assert names(store) == sorted([*(f"day{day}" for day in range(7)), "late"])
    assert keeping.rewrite(store, store.latest_day())
    assert len(days(folder)) == 8
    store.append(received(6, "later"))
    assert "later" in names(store)
    store.close()


def test_a_crash_between_the_new_file_and_the_old_ones_removal_counts_nothing_twice(
    week, folder, tmp_path
):
    first = next(iter(week.days))
    kept = tmp_path / "kept"
    week.close()
    shutil.copy(first.path, kept)
    store = DuckStore(folder)
    keeping.rewrite(store, next(iter(store.days)))
    store.close()
    shutil.copy(kept, first.path)  # as if it had not been removed
    store = DuckStore(folder)
    assert names(store) == [f"day{day}" for day in range(7)]
    assert not first.path.exists()
    store.close()


def test_a_day_written_to_while_it_is_rewritten_is_left_as_it_is(week, received, monkeypatch):
    first = next(iter(week.days))
    copy = keeping._copy_ordered

    def copy_and_write(cursor, catalog):
        copy(cursor, catalog)
        week.append(received(0, "meanwhile"))

    monkeypatch.setattr(keeping, "_copy_ordered", copy_and_write)
    assert not keeping.rewrite(week, first)
    assert "meanwhile" in names(week)


# --- damage ------------------------------------------------------------------------------------
def test_a_file_that_is_no_database_is_named_and_the_rest_still_serves(week, folder):
    week.close()
    broken = folder / days(folder)[2]
    broken.write_bytes(b"\0" * 5000)
    store = DuckStore(folder)
    assert list(store.days.broken) == [broken.name]
    assert names(store) == ["day0", "day1", "day3", "day4", "day5", "day6"]
    store.close()
    assert broken.read_bytes() == b"\0" * 5000


def test_damage_inside_a_file_is_found_by_the_query_that_meets_it(folder, received):
    store = DuckStore(folder)
    store.append(received(0, *(f"a{i}" for i in range(5000))))
    store.append(received(1, "b"))
    store.close()
    path = folder / days(folder)[0]
    data = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(data), 4096):  # past the headers
        data[at : at + 64] = bytes(byte ^ 0xFF for byte in data[at : at + 64])
    path.write_bytes(data)
    store = DuckStore(folder)
    if not store.days.broken:
        with pytest.raises(BadInput, match=path.name):
            store.sql("SELECT * FROM spans")
    assert list(store.days.broken) == [path.name]
    assert names(store) == ["b"]
    store.append(received(0, "again"))  # the day gets a second file
    assert names(store) == ["again", "b"]
    store.close()


def test_a_file_of_a_newer_longpole_is_refused(week, folder):
    week.close()
    with duckdb.connect(str(folder / days(folder)[0])) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(Unreachable, match="schema 99"):
        DuckStore(folder)


def test_a_new_column_of_a_record_is_added_to_old_files(week, folder, received):
    week.close()
    for name in days(folder)[:2]:
        with duckdb.connect(str(folder / name)) as connection:
            connection.execute("ALTER TABLE span_rows DROP COLUMN links")
    reader = DuckStore(folder, is_read_only=True)
    assert reader.sql("SELECT links FROM spans")["links"].to_pylist() == [None] * 7
    reader.close()
    store = DuckStore(folder)
    store.append(received(0, "new"))
    assert store.sql("SELECT links FROM spans").num_rows == 8
    store.close()


# --- backup ------------------------------------------------------------------------------------
def test_a_backup_is_a_data_folder_of_its_own(week, received, tmp_path):
    target = tmp_path / "copy"
    assert len(keeping.backup(week, target)) == 7
    week.append(received(6, "after"))
    store = DuckStore(target, is_read_only=True)
    assert names(store) == [f"day{day}" for day in range(7)]
    store.close()
    with pytest.raises(BadInput, match="there already"):
        keeping.backup(week, target)


def test_a_person_is_forgotten_with_every_trace_of_theirs(week, received):
    mine = received(3, "mine", attributes={"user.id": "ann"})
    week.append(mine)
    pseudonym = mine[0].attributes["user.id"]
    assert pseudonym != "ann"
    assert keeping.forget_person(week, pseudonym) == 1
    assert "mine" not in names(week)
    assert len(names(week)) == 7
