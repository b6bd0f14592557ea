"""The folder of day files: midnight, late spans, damage, retention, rewriting, backup."""

import shutil
from datetime import UTC, datetime

import duckdb
import pytest

from longpole.errors import BadInput, Unreachable
from longpole_collector.stores import keeping
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention
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
    from longpole_collector.stores.schema import SPANS, to_arrow

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
            connection.execute("ALTER TABLE span_rows DROP COLUMN tpot_ms")
    reader = DuckStore(folder, is_read_only=True)
    assert reader.sql("SELECT tpot_ms FROM spans")["tpot_ms"].to_pylist() == [None] * 7
    reader.close()
    store = DuckStore(folder)
    store.append(received(0, "new"))
    assert store.sql("SELECT tpot_ms FROM spans").num_rows == 8
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
