"""What the store cannot hold: one span is kept aside alone, and a store that fails loses none."""

import json

import duckdb
import pyarrow as pa
import pytest

from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received
from longpole_collector.health import Health
from longpole_collector.putting import REJECTED
from longpole_collector.stores.days import ROW_GROUP
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.wal import Position
from longpole_collector.writer import Writer

NOT_UTF8 = b"\xff\xfe"
START_NS = 1_790_000_000_000_000_000
PLACE = Position(1, 100)


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path / "data")
    yield store
    store.close()


@pytest.fixture
def rows_of(otlp, store):
    def make(names, **attributes):
        spans = [otlp.span(name=name, attributes=attributes) for name in names]
        body = otlp.body(spans)
        return Writer(store, None).read([Received(body, Format.PROTOBUF, START_NS)])

    return make


def garbled(rows, column, bad):
    """The rows with bytes that are no text in a column of those named ``bad``."""
    texts = [
        NOT_UTF8 if name in bad else (value or "").encode()
        for name, value in zip(rows["name"].to_pylist(), rows[column].to_pylist(), strict=True)
    ]
    array = pa.array(texts, pa.binary())
    text = pa.StringArray.from_buffers(len(texts), *array.buffers()[1:], array.buffers()[0])
    return rows.set_column(rows.column_names.index(column), column, text)


def names(store):
    return sorted(store.sql("SELECT name FROM spans")["name"].to_pylist())


def test_a_span_with_a_value_the_store_cannot_hold_is_kept_aside_alone(store, rows_of):
    health = Health()
    writer = Writer(store, None, health)
    bad = {"n7", "n20"}
    rows = garbled(rows_of([f"n{i}" for i in range(40)]), "service", bad)
    assert writer.write(rows, PLACE) == 38
    assert names(store) == sorted({f"n{i}" for i in range(40)} - bad)
    assert store.stored() == PLACE
    assert health.total("spans_dropped", "unstorable") == 2
    path = store.latest_day().path.with_name(REJECTED)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["span"]["name"] for line in lines} == bad
    assert {line["span"]["service"] for line in lines} == {"\\xff\\xfe"}
    assert all("nicode" in line["error"] for line in lines)
    assert path.stat().st_mode & 0o077 == 0


def test_the_last_span_alone_still_brings_the_place_in_the_log_forward(store, rows_of):
    writer = Writer(store, None)
    assert writer.write(garbled(rows_of(["only"]), "service", {"only"}), PLACE) == 0
    assert store.stored() == PLACE


def test_what_is_kept_aside_has_a_bound(store, rows_of, monkeypatch):
    monkeypatch.setattr("longpole_collector.putting._MAX_REJECTED_BYTES", 4000)
    health = Health()
    all_names = [f"n{i}" for i in range(30)]
    rows = garbled(rows_of(all_names), "service", set(all_names))
    Writer(store, None, health).write(rows)
    path = store.latest_day().path.with_name(REJECTED)
    assert 0 < path.stat().st_size <= 4000
    assert health.total("spans_dropped", "unstorable") == 30


def test_prompts_are_not_kept_aside(store, rows_of, otlp):
    health = Health()
    writer = Writer(store, None, health, scrubber=Scrubber(Policy("keep", b"k" * 32), health))
    rows = rows_of(["one"], **{"gen_ai.input.messages": "secret words"})
    writer.write(garbled(rows, "service", {"one"}))
    text = store.latest_day().path.with_name(REJECTED).read_text()
    assert "secret words" not in text
    assert health.total("spans_dropped", "unstorable") == 1


def test_a_fault_of_the_store_is_nobodys_span(store, rows_of):
    """The same class of error, but every span meets it: none is given up."""
    health = Health()
    writer = Writer(store, None, health)
    catalog = store.days.of(START_NS).catalog
    with store.exclusive() as connection:
        connection.execute(f"ALTER TABLE {catalog}.span_rows ALTER name TYPE INTEGER")
    with pytest.raises(duckdb.ConversionException):
        writer.write(rows_of(["a", "b", "c"]), PLACE)
    assert health.total("spans_dropped", "unstorable") == 0
    assert store.stored() == Position(0, 0)
    with store.exclusive() as connection:
        connection.execute(f"ALTER TABLE {catalog}.span_rows ALTER name TYPE VARCHAR")
    assert writer.write(rows_of(["a", "b", "c"]), PLACE) == 3


def test_a_broken_table_is_nobodys_span(store, rows_of):
    health = Health()
    writer = Writer(store, None, health)
    catalog = store.days.of(START_NS).catalog
    with store.exclusive() as connection:
        connection.execute(f"ALTER TABLE {catalog}.span_rows RENAME TO elsewhere")
    with pytest.raises(duckdb.Error):
        writer.write(rows_of(["a", "b"]), PLACE)
    assert health.total("spans_dropped", "unstorable") == 0


def test_a_save_falls_where_row_groups_are_full_and_each_is_written_once(store, rows_of):
    writer = Writer(store, None)
    one = rows_of(["x"])
    saved: list[int] = []

    def save():
        saved.append(writer.num_unsaved())
        writer.save()

    sizes = [ROW_GROUP // 3, ROW_GROUP, 3 * ROW_GROUP + 5, 1, ROW_GROUP - 6]
    first = 1
    for size in sizes:
        rows = pa.concat_tables([one] * size).combine_chunks()
        ids = pa.array(range(first, first + size), pa.uint64())
        rows = rows.set_column(rows.column_names.index("span_id"), "span_id", ids)
        first += size
        assert writer.write(rows, Position(1, first), save) == size
        assert writer.num_unsaved() < ROW_GROUP
    assert saved
    assert all(num % ROW_GROUP == 0 for num in saved)
    assert sum(saved) == sum(sizes) // ROW_GROUP * ROW_GROUP
    writer.save()
    catalog = store.days.of(START_NS).catalog
    with store.exclusive() as connection:
        counts = connection.execute(
            "SELECT sum(count) FROM pragma_storage_info(?) WHERE column_name = 'span_id' "
            "AND segment_type <> 'VALIDITY' GROUP BY row_group_id ORDER BY row_group_id",
            [f"{catalog}.span_rows"],
        ).fetchall()
    assert [count for (count,) in counts[:-1]] == [ROW_GROUP] * (len(counts) - 1)
    assert store.sql("SELECT count(DISTINCT span_id) AS n FROM spans")["n"][0].as_py() == sum(sizes)
