import stat
import threading
import time
from itertools import count

import duckdb
import pyarrow as pa
import pytest

from longpole.errors import BadInput, StoreBusy, Unreachable, UsageError
from longpole.vocab import Span, columns, keys
from longpole_collector.app import background
from longpole_collector.settings import Settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.remote import RemoteReader
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.wal import Position

from .clickhouse.extra import IS_THERE

SECOND = 1_000_000_000
LOCAL = ("file", "memory", "remote")
STORES = (*LOCAL, "clickhouse") if IS_THERE else LOCAL
_numbers = count()


def open_clickhouse():
    """A store in a database that nobody has used, of the engine in this process."""
    from longpole_collector.stores.clickhouse.opening import open_store

    return open_store(f"chdb://?database=contract{next(_numbers)}")


@pytest.fixture(params=STORES)
def pair(request, tmp_path, settings):
    """(append, reader): the store's two halves, wherever it lives."""
    if request.param == "clickhouse":
        store = open_clickhouse()
        yield store.append, store
        store.close()
        return
    if request.param == "remote":
        with request.getfixturevalue("collecting")(settings) as collector:
            reader = RemoteReader(collector.url)
            yield collector.store.append, reader
            reader.close()
        return
    store = DuckStore(tmp_path / "db" if request.param == "file" else None)
    yield store.append, store
    store.close()


@pytest.fixture(params=STORES, scope="module")
def reader(request, tmp_path_factory):
    """An empty store to read from, for tests that change nothing."""
    if request.param == "clickhouse":
        store = open_clickhouse()
        yield store
        store.close()
        return
    folder = tmp_path_factory.mktemp("reader") / "db"
    if request.param == "remote":
        places = Settings(db=folder, http="127.0.0.1:0", grpc="127.0.0.1:0")
        with background(places) as collector:
            reader = RemoteReader(collector.url)
            yield reader
            reader.close()
        return
    store = DuckStore(folder if request.param == "file" else None)
    yield store
    store.close()


def rows_of(reader, query, params=()):
    return [tuple(row.values()) for row in reader.sql(query, params).to_pylist()]


# --- the contract, for every store -----------------------------------------------------------
def test_what_is_appended_is_read_back_field_by_field(otlp, pair):
    append, reader = pair
    spans = otlp.canonical(
        otlp.span(
            kind=3,
            parent_span_id=b"\xff" * 8,
            attributes={keys.OPERATION: "chat", keys.FLAGS: ["a"], "x": "y\0ü😀", "z": ""},
            events=[("e", 1, {})],
            links=[(b"t" * 16, b"s" * 8, {})],
        ),
        otlp.span(),
    )
    assert append(spans) == 2
    table = reader.sql("SELECT * FROM spans ORDER BY parent_id IS NULL")
    assert table.column_names == [column.name for column in columns(Span)]
    found = [Span(**row) for row in table.to_pylist(maps_as_pydicts="strict")]
    assert found == spans


def test_append_is_idempotent_within_a_batch_and_over_batches(otlp, pair):
    append, reader = pair
    one, two, three = otlp.canonical(*(otlp.span(name=name) for name in "abc"))
    assert append([one, two, one]) == 2
    assert append([two, three, one]) == 1
    assert append([]) == 0
    assert rows_of(reader, "SELECT name FROM spans ORDER BY name") == [("a",), ("b",), ("c",)]


def test_one_span_id_in_two_traces_is_two_spans(otlp, pair):
    append, _ = pair
    assert append(otlp.canonical(otlp.span(span_id=b"s" * 8), otlp.span(span_id=b"s" * 8))) == 2


def test_an_unknown_trace_is_an_empty_table(reader):
    for view in ("spans", "calls", "traces", "trace_stages"):
        table = reader.sql(f"SELECT * FROM {view} WHERE trace_id = $1", ["0" * 32])
        assert table.num_rows == 0
        assert table.num_columns > 4


def test_parameters_go_by_place_and_by_name(reader):
    assert rows_of(reader, "SELECT $1 + $2", [1, 2]) == [(3,)]
    assert rows_of(reader, "SELECT $a || $b", {"a": "x", "b": "y"}) == [("xy",)]
    assert rows_of(reader, "SELECT ?", ["'; DROP TABLE spans"]) == [("'; DROP TABLE spans",)]


@pytest.mark.parametrize("reader", LOCAL, indirect=True)
def test_sums_of_integers_are_integers(reader):
    table = reader.sql("SELECT sum(i) AS s FROM range(3) t(i)")
    assert table.schema.field("s").type == pa.int64()


ALLOWED = [
    "SELECT 1",
    "  select count(*) from spans;",
    "-- note\nFROM calls",
    "WITH a AS (SELECT * FROM traces) SELECT * FROM a",
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) FROM r",
    "EXPLAIN SELECT * FROM calls",
    "explain analyze select 1",
    "DESCRIBE spans",
    "SHOW TABLES",
    "SUMMARIZE traces",
    "SELECT * FROM main.spans",
    "SELECT comment FROM duckdb_columns() WHERE table_name = 'calls'",
    "SELECT table_name FROM information_schema.tables",
    "SELECT unnest([1, 2]) UNION ALL SELECT * FROM generate_series(1, 3)",
    "VALUES (1)",
]


@pytest.mark.parametrize("reader", LOCAL, indirect=True)
@pytest.mark.parametrize("query", ALLOWED)
def test_reading_is_allowed(reader, query):
    assert reader.sql(query).num_columns > 0


REFUSED = [
    "INSERT INTO span_rows SELECT * FROM span_rows",
    "DELETE FROM span_rows",
    "UPDATE meta SET value = ''",
    "DROP VIEW spans",
    "CREATE TABLE x (i INT)",
    "CREATE OR REPLACE VIEW spans AS SELECT 1",
    "ALTER TABLE span_rows DROP COLUMN name",
    "WITH x AS (DELETE FROM span_rows RETURNING *) SELECT * FROM x",
    "EXPLAIN ANALYZE DELETE FROM span_rows",
    "EXPLAIN EXPLAIN ANALYZE DELETE FROM span_rows",
    "SELECT 1; DROP VIEW spans",
    "BEGIN TRANSACTION",
    "COMMIT",
    "COPY spans TO '/tmp/x.csv'",
    "COPY span_rows FROM '/etc/passwd'",
    "EXPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "DETACH spans",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET memory_limit = '1TB'",
    "RESET memory_limit",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "PREPARE p AS SELECT 1",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM query('DROP VIEW spans')",
    "SELECT * FROM query_table('meta')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('/tmp/x')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM glob('/*')",
    "SELECT (SELECT max(file) FROM glob('/*'))",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd.csv"',
    "FROM 'https://example.com/x.parquet'",
    "SELECT * FROM span_rows",
    "SELECT * FROM meta",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_size()",
    "SELECT * FROM other.main.spans",
    "",
    ";",
    "selekt 1",
    "SELECT nope FROM spans",
    "SELECT 1 FROM nowhere",
    "(" * 5000,
]


@pytest.mark.parametrize("query", REFUSED)
def test_everything_else_is_refused_with_a_sentence(reader, query):
    with pytest.raises(BadInput) as caught:
        reader.sql(query)
    assert str(caught.value).strip()
    assert "\n" not in str(caught.value)
    assert reader.sql("SELECT count(*) FROM spans").num_rows == 1


def test_after_close_the_store_is_out_of_reach(pair):
    pair[1].close()
    pair[1].close()
    with pytest.raises(Unreachable):
        pair[1].sql("SELECT 1")


# --- limits ----------------------------------------------------------------------------------
@pytest.fixture
def tight():
    store = DuckStore(limits=Limits(max_rows=1000, timeout_s=0.3))
    yield store
    store.close()


def test_too_many_rows_are_an_error_that_names_the_limit(tight):
    assert tight.sql("SELECT * FROM range(1000)").num_rows == 1000
    with pytest.raises(BadInput, match="1000 rows"):
        tight.sql("SELECT * FROM range(1001)")


def test_a_query_is_stopped_at_its_time_limit_and_the_next_one_runs(tight):
    endless = "SELECT sum(a.i * b.i) FROM range(10000000) a(i), range(10000000) b(i)"
    started = time.monotonic()
    with pytest.raises(BadInput, match=r"0\.3 s"):
        tight.sql(endless)
    assert time.monotonic() - started < 10
    assert tight.sql("SELECT 1").num_rows == 1


def test_readers_see_whole_batches_while_a_writer_writes(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    batches = [otlp.canonical(*(otlp.span() for _ in range(10))) for _ in range(20)]
    seen: list[int] = []
    failures: list[BaseException] = []

    def read():
        try:
            while not seen or seen[-1] < 200:
                seen.append(rows_of(store, "SELECT count(*) FROM spans")[0][0])
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for batch in batches:
        store.append(batch)
    for reader in readers:
        reader.join()
    store.close()
    assert not failures
    assert all(num % 10 == 0 for num in seen)


# --- the files -------------------------------------------------------------------------------
def test_spans_and_place_in_the_log_survive_a_reopening(otlp, tmp_path):
    folder = tmp_path / "db"
    spans = otlp.canonical(otlp.span(), otlp.span(start_time_unix_nano=5))
    store = DuckStore(folder)
    assert store.stored() == Position(0, 0)
    store.insert(to_arrow(SPANS, spans), Position(3, 77))
    store.close()
    assert (folder.stat().st_mode & 0o777) == 0o700
    store = DuckStore(folder)
    assert store.stored() == Position(3, 77)
    assert store.append(spans) == 0
    store.close()


def test_a_failed_insert_leaves_neither_spans_nor_place(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    rows = to_arrow(SPANS, otlp.canonical(otlp.span()))
    with pytest.raises(duckdb.Error):
        store.insert(rows.append_column("no_such_column", pa.array([1])), Position(1, 1))
    assert rows_of(store, "SELECT count(*) FROM spans") == [(0,)]
    assert store.stored() == Position(0, 0)
    assert store.insert(rows, Position(1, 1)).num_rows == 1
    store.close()


def test_spans_far_apart_in_time_are_still_recognised(otlp):
    store = DuckStore()
    days = otlp.canonical(
        *(otlp.span(start_time_unix_nano=1 + i * 86_400 * SECOND) for i in range(200))
    )
    assert store.append(days) == 200
    assert store.append(days[::3] + otlp.canonical(otlp.span())) == 1
    store.close()


def test_every_column_of_every_view_says_what_it_means():
    store = DuckStore()
    found = rows_of(
        store,
        "SELECT table_name, column_name FROM duckdb_columns() WHERE comment IS NULL "
        "AND table_name IN ('spans', 'calls', 'traces', 'trace_stages', 'quality')",
    )
    store.close()
    assert found == []


# --- open_reader -----------------------------------------------------------------------------
def test_a_reader_needs_exactly_one_place(tmp_path):
    for places in ({}, {"db": tmp_path, "url": "http://127.0.0.1:1"}):
        with pytest.raises(UsageError):
            open_reader(**places)


def test_an_empty_folder_and_a_dead_address_are_out_of_reach(tmp_path):
    with pytest.raises(Unreachable, match="no data"):
        open_reader(db=tmp_path)
    with pytest.raises(Unreachable, match="no collector answers"):
        open_reader(url="http://127.0.0.1:1").sql("SELECT 1")


def test_a_folder_is_read_directly_or_through_its_collector(otlp, settings, collecting):
    with collecting(settings) as collector:
        collector.store.append(otlp.canonical(otlp.span(name="here")))
        reader = open_reader(db=settings.db)
        assert isinstance(reader, RemoteReader)
        assert rows_of(reader, "SELECT name FROM spans") == [("here",)]
        reader.close()
    readers = [open_reader(db=settings.db), open_reader(db=settings.db)]
    for reader in readers:
        assert rows_of(reader, "SELECT name FROM spans") == [("here",)]
        reader.close()


def test_a_second_collector_on_a_folder_is_refused_by_name(settings, collecting):
    import subprocess
    import sys

    with collecting(settings) as collector:
        code = (
            "from longpole_collector.app import Collector\n"
            "from longpole_collector.settings import Settings\n"
            "from pathlib import Path\n"
            f"Collector(Settings(db=Path({str(settings.db)!r}), http='127.0.0.1:0'), None)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert StoreBusy.__name__ in done.stderr
        assert collector.url in done.stderr


def test_a_data_file_is_its_owners_alone(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    store = DuckStore(shared)
    store.latest_day()
    store.close()
    (file,) = shared.glob("spans-*.duckdb")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
