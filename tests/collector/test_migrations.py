"""Stores that earlier versions wrote.

``data/schema-1`` holds a store as longpole 0.1.0 wrote it (one file, schema 1; three captures of
the corpus received on two days) and what its views ``calls`` and ``traces`` answered then.
``data/schema-2`` holds two day files of schema 2, the first rewritten in order (seven captures),
and what was asked of them then.
"""

import gzip
import json
import shutil

import pytest

from longpole_collector.stores import keeping, open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import SINGLE_FILE, adopt


@pytest.fixture
def old(data, tmp_path):
    folder = tmp_path / "db"
    folder.mkdir()
    packed = data / "schema-1" / "spans.duckdb.gz"
    with gzip.open(packed) as source, (folder / SINGLE_FILE).open("wb") as file:
        shutil.copyfileobj(source, file)
    return folder


@pytest.mark.parametrize("view", ["calls", "traces"])
def test_a_store_of_schema_1_opens_and_answers_as_it_did(old, data, view):
    truth = json.loads((data / "schema-1" / f"{view}.json").read_text())
    reader = open_reader(db=old)
    columns = ", ".join(truth[0])
    found = reader.sql(f"SELECT {columns} FROM {view} ORDER BY ALL").to_pylist()
    reader.close()
    assert json.loads(json.dumps(found, default=str)) == truth
    assert not (old / SINGLE_FILE).exists()


def test_attributes_are_the_same_map(old):
    reader = open_reader(db=old)
    maps = reader.sql("SELECT attributes FROM spans WHERE dialect = 'litellm'").to_pylist()
    reader.close()
    assert any(dict(row["attributes"]) for row in maps)


def test_a_crash_half_way_moves_every_span_once(old):
    class Crash(Exception):
        pass

    calls = []

    def crash_at_second(received_ns, days_of):
        calls.append(received_ns)
        if len(calls) == 2:
            raise Crash
        return days_of(received_ns)

    kept = (old / SINGLE_FILE).read_bytes()
    (old / SINGLE_FILE).unlink()
    store = DuckStore(old)
    (old / SINGLE_FILE).write_bytes(kept)
    days_of = store.days.of
    store.days.of = lambda received_ns: crash_at_second(received_ns, days_of)
    with store.exclusive() as writer, pytest.raises(Crash):
        adopt(writer, old, store.days)
    store.close()
    reader = open_reader(db=old)
    assert reader.sql("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [11]
    reader.close()


# --- schema 2 ----------------------------------------------------------------------------------
ASKED = {
    "spans": "trace_id, span_id, first_chunk_ns, ttft_ns, attributes::JSON::VARCHAR AS attributes, "
    "events, links",
    "calls": "*",
    "traces": "*",
    "trace_stages": "*",
}


@pytest.fixture
def days_of_schema_2(data, tmp_path):
    folder = tmp_path / "db"
    folder.mkdir()
    for packed in (data / "schema-2").glob("*.gz"):
        with gzip.open(packed) as source, (folder / packed.stem).open("wb") as file:
            shutil.copyfileobj(source, file)
    return folder


def assert_answers_as_then(store, data):
    for view, columns in ASKED.items():
        truth = json.loads((data / "schema-2" / f"{view}.json").read_text())
        found = store.sql(f"SELECT {columns} FROM {view} ORDER BY ALL").to_pylist()
        assert json.loads(json.dumps(found, default=str)) == truth, view


def test_files_of_schema_2_open_and_answer_as_they_did(days_of_schema_2, data):
    store = DuckStore(days_of_schema_2)
    assert [day.is_sorted for day in store.days] == [True, False]
    assert_answers_as_then(store, data)
    store.close()
    store = DuckStore(days_of_schema_2, is_read_only=True)
    assert_answers_as_then(store, data)
    store.close()


def test_files_of_schema_2_open_read_only_before_they_are_migrated(days_of_schema_2, data):
    store = DuckStore(days_of_schema_2, is_read_only=True)
    assert_answers_as_then(store, data)
    store.close()


def test_a_file_of_schema_2_answers_the_same_once_it_is_rewritten(days_of_schema_2, data):
    store = DuckStore(days_of_schema_2)
    assert keeping.rewrite(store, store.latest_day())
    assert_answers_as_then(store, data)
    store.close()
    store = DuckStore(days_of_schema_2)
    assert [day.is_sorted for day in store.days] == [True, True]
    assert_answers_as_then(store, data)
    store.close()
