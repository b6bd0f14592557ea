"""Stores that earlier versions wrote.

``data/schema-1`` holds a store as longpole 0.1.0 wrote it (one file, schema 1; three captures of
the corpus received on two days) and what its views ``calls`` and ``traces`` answered then.
``data/schema-2`` and ``data/schema-4`` hold two day files of that schema each, the first rewritten
in order (seven and four captures), and what was asked of them then.
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


def known_then(reader, view, truth):
    """Rows of a view, with the columns it had; there were no prices, so without the costs."""
    for row in truth:
        assert row.pop("cost_usd", None) is None
    found = reader.sql(f"SELECT {', '.join(truth[0])} FROM {view} ORDER BY ALL").to_pylist()
    return json.loads(json.dumps(found, default=str))


@pytest.mark.parametrize("view", ["calls", "traces"])
def test_a_store_of_schema_1_opens_and_answers_as_it_did(old, data, view):
    truth = json.loads((data / "schema-1" / f"{view}.json").read_text())
    reader = open_reader(db=old)
    found = known_then(reader, view, truth)
    reader.close()
    assert found == truth
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


# --- later schemas -----------------------------------------------------------------------------
_TREES = {"calls": "*", "traces": "*", "trace_stages": "*"}
ASKED = {
    2: {
        "spans": "trace_id, span_id, first_chunk_ns, ttft_ns, "
        "attributes::JSON::VARCHAR AS attributes, events, links",
        **_TREES,
    },
    4: {
        "spans": "trace_id, span_id, parent_id, start_ns, end_ns, first_chunk_ns, ttft_ns, "
        "response_id",
        **_TREES,
        "minutes": "*",
        "hours": "*",
    },
}


@pytest.fixture(params=ASKED, ids=lambda number: f"schema-{number}")
def then(request, data, tmp_path):
    """Number of a schema, and a folder that it wrote."""
    folder = tmp_path / "db"
    folder.mkdir()
    for packed in (data / f"schema-{request.param}").glob("*.gz"):
        with gzip.open(packed) as source, (folder / packed.stem).open("wb") as file:
            shutil.copyfileobj(source, file)
    return request.param, folder


def assert_answers_as_then(store, data, schema):
    for view, columns in ASKED[schema].items():
        truth = json.loads((data / f"schema-{schema}" / f"{view}.json").read_text())
        if columns == "*":
            assert known_then(store, view, truth) == truth, view
            continue
        found = store.sql(f"SELECT {columns} FROM {view} ORDER BY ALL").to_pylist()
        assert json.loads(json.dumps(found, default=str)) == truth, view


def test_files_of_an_older_schema_open_and_answer_as_they_did(then, data):
    schema, folder = then
    for is_read_only in (True, False, True):  # before they are migrated, while, and after
        store = DuckStore(folder, is_read_only=is_read_only)
        assert [day.is_sorted for day in store.days] == [True, False]
        assert_answers_as_then(store, data, schema)
        store.close()


def test_a_file_of_an_older_schema_answers_the_same_once_it_is_rewritten(then, data):
    schema, folder = then
    store = DuckStore(folder)
    assert keeping.rewrite(store, store.latest_day())
    assert_answers_as_then(store, data, schema)
    store.close()
    store = DuckStore(folder)
    assert [day.is_sorted for day in store.days] == [True, True]
    assert_answers_as_then(store, data, schema)
    store.close()
