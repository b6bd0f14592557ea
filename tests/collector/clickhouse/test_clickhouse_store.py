"""What ClickHouse does when spans come twice, late or mixed up; the contract is in test_stores."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from longpole.errors import BadInput, Unreachable
from longpole.vocab import Rollup, keys
from longpole_collector.stores.clickhouse import schema
from longpole_collector.stores.clickhouse.address import Address, parse
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickReader, ClickStore
from longpole_collector.stores.schema import SPANS, hex_ids, to_arrow
from longpole_collector.stores.views import views

from .both import compare
from .conftest import Pair, spans_of

SECOND = 1_000_000_000


def rows_of(store: ClickReader, query: str, params: object = ()) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in store.sql(query, params).to_pylist()]  # type: ignore[arg-type]


# --- the contract --------------------------------------------------------------------------------
def test_a_block_that_is_sent_again_is_stored_once(otlp, store: ClickStore, settle) -> None:
    rows = to_arrow(SPANS, otlp.canonical(*(otlp.span() for _ in range(5))))
    for _ in range(3):
        store.insert(rows, token="the same")
        store.insert(rows)
    assert store.num_spans() == 5
    settle()
    assert rows_of(store, "SELECT count(*), sum(num_spans) FROM traces") == [(5, 5)]


@pytest.mark.parametrize("view", sorted(views()))
def test_every_view_has_the_columns_types_and_rows_of_the_local_store(
    pair: Pair, view: str
) -> None:
    wanted, found = (store.sql(f"SELECT * FROM {view}") for store in pair)
    assert wanted.num_rows > 0
    assert not compare(wanted, found)
    assert set(schema.VIEWS) == {*views(), schema.LEAN}


REFUSED = [
    "INSERT INTO spans SELECT * FROM spans",
    "DROP TABLE spans",
    "SELECT * FROM span_rows",
    "SELECT * FROM system.tables",
    "SELECT * FROM url('http://127.0.0.1')",
    "SELECT * FROM file('/etc/passwd')",
    "SELECT 1; SELECT 2",
    "SELEC 1",
    "SELECT getSetting('max_threads')",
]


@pytest.mark.parametrize("query", REFUSED)
def test_only_reading_the_views_is_allowed(pair: Pair, query: str) -> None:
    with pytest.raises(BadInput) as caught:
        pair.click.sql(query)
    assert "\n" not in str(caught.value)


def test_too_many_rows_are_refused(pair: Pair) -> None:
    many = "SELECT a.span_id FROM spans AS a, spans AS b"
    with pytest.raises(BadInput, match="rows"):
        pair.click.sql(many)
    assert rows_of(pair.click, "SELECT 1 AS one") == [(1,)]


def test_a_slow_query_is_stopped(pair: Pair, engine: Client) -> None:
    place = replace(pair.click.client.address, timeout_s=1.0)  # opening takes less
    reader = ClickReader(Client(place))
    with pytest.raises(BadInput, match="longer than"):
        reader.sql("SELECT count(*) FROM spans AS a, spans AS b, spans AS c, calls AS d")
    reader.close()


# --- settling ------------------------------------------------------------------------------------
def call(otlp, trace: bytes, **given: object) -> dict[str, object]:
    told = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m"}
    return otlp.span(trace_id=trace, attributes=told, **given)


def test_a_late_span_is_settled_anew_and_no_call_counts_twice(
    otlp, store: ClickStore, settle: Callable[[], int]
) -> None:
    inner = call(otlp, b"t" * 16, span_id=b"i" * 8, parent_span_id=b"o" * 8, name="inner")
    outer = call(otlp, b"t" * 16, span_id=b"o" * 8, name="outer")
    store.append(otlp.canonical(inner))
    assert settle() == 1
    assert rows_of(store, "SELECT span_id FROM calls") == [((b"i" * 8).hex(),)]
    store.append(otlp.canonical(outer))
    assert settle() == 1
    assert settle() == 0
    assert rows_of(store, "SELECT span_id FROM calls") == [((b"o" * 8).hex(),)]
    assert rows_of(store, "SELECT num_spans, num_calls FROM traces") == [(2, 1)]


def test_a_root_that_comes_last_and_began_first_replaces_the_row(
    otlp, store: ClickStore, settle: Callable[[], int]
) -> None:
    start = 1_790_000_000 * SECOND
    child = otlp.span(trace_id=b"t" * 16, parent_span_id=b"r" * 8, start_time_unix_nano=start)
    root = otlp.span(
        trace_id=b"t" * 16,
        span_id=b"r" * 8,
        start_time_unix_nano=start - 3_600 * SECOND,
        end_time_unix_nano=start + SECOND,
    )
    store.append(otlp.canonical(child))
    settle()
    store.append(otlp.canonical(root))
    settle()
    assert rows_of(store, "SELECT wall_ns, num_spans FROM traces") == [(3_601 * SECOND, 2)]
    sums = rows_of(store, "SELECT sum(critical_ns) FROM trace_stages")
    assert sums == [(3_601 * SECOND,)]


def test_two_who_settle_side_by_side_leave_the_same_as_one(
    pair: Pair, store: ClickStore, rollup
) -> None:
    rows = spans_of(pair.duck).sort_by([("trace_hi", "ascending"), ("trace_lo", "ascending")])
    last = hex_ids(rows.slice(60, 1))[0]
    store.insert(rows.slice(0, 30))
    workers = [Settling(store.client, rollup) for _ in range(2)]
    workers[0].settle()
    store.insert(rows.slice(30, 120))
    workers[1].settle(max_traces=2)
    for worker in workers:
        worker.settle()
    for view in ("traces", "trace_stages"):
        query = f"SELECT * FROM {view} WHERE trace_id < ?"
        wanted, found = (each.sql(query, [last]) for each in (pair.duck, store))
        assert wanted.num_rows > 0
        assert not compare(wanted, found)


def test_a_condition_sees_what_replaced_a_row_and_not_the_row(otlp, store: ClickStore) -> None:
    (span,) = otlp.canonical(otlp.span(name="old"))
    for name in ("old", "new"):
        store.insert(to_arrow(SPANS, [span._replace(name=name)]))
    ours = f"trace_id = '{span.trace_id}' AND start_ns = {span.start_ns}"
    for name, num in (("old", 0), ("new", 1)):
        asked = f"SELECT count(*) FROM spans WHERE {ours} AND name = '{name}'"
        assert rows_of(store, asked) == [(num,)]


@pytest.mark.parametrize("view", ["minutes", "stage_hours"])
def test_what_shards_count_adds_up_to_what_one_server_counts(
    pair: Pair, engine: Client, rollup: Rollup, view: str
) -> None:
    asked_of = "service <> 'corpus-app'"  # there traces of two shards tell of one call
    rows = spans_of(pair.duck)
    rows = rows.filter(pc.not_equal(rows["service"], "corpus-app"))
    is_first = pa.array(rows["trace_lo"].to_numpy() % 2 == 0)
    slices = {"minutes": "start_ns, service, route, request_model, metric, bucket",
              "stage_hours": "start_ns, service, route, stage"}[view]  # fmt: skip
    what = {"minutes": "round(sum_ms * 1e6)", "stage_hours": "critical_ns"}[view]
    asked = f"SELECT {slices}, num, {what} AS ns FROM {view} WHERE {asked_of}"
    told: Counter[tuple[object, ...]] = Counter()
    for number, part in enumerate((is_first, pc.invert(is_first))):
        shard = ClickStore(Client(parse(f"chdb://?database=shard_{view}_{number}")))
        shard.insert(rows.filter(part))
        Settling(shard.client, rollup).settle()
        told += counted(shard, asked)
        shard.close()
    assert told == counted(pair.click, asked)
    assert len(told) > 20


def counted(store: ClickStore, asked: str) -> Counter[tuple[object, ...]]:
    """What each slice counts: how many, and nanoseconds."""
    found: Counter[tuple[object, ...]] = Counter()
    for *place, num, ns in rows_of(store, asked):
        found[(*place, "num")] += num  # type: ignore[call-overload]
        found[(*place, "ns")] += int(ns)  # type: ignore[call-overload]
    return found


# --- the schema ----------------------------------------------------------------------------------
def test_opening_again_changes_nothing(otlp, address: Address, fresh: ClickStore) -> None:
    fresh.append(otlp.canonical(otlp.span()))
    again = ClickStore(Client(address))
    assert again.num_spans() == 1
    again.close()


def test_a_reader_says_that_there_is_nothing(address: Address, engine: Client) -> None:
    with pytest.raises(Unreachable, match="no data"):
        ClickReader(Client(address))


@pytest.mark.parametrize("opened", [ClickReader, ClickStore])
def test_a_newer_schema_is_left_alone(address: Address, fresh: ClickStore, opened) -> None:
    schema.note(fresh.client, "schema_version", "99")
    with pytest.raises(Unreachable, match=r"99.*upgrade"):
        opened(Client(address))


def test_an_older_schema_is_read_by_nobody_and_brought_up_by_a_writer(
    address: Address, fresh: ClickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    step = ("ALTER TABLE {database}.meta{on} ADD COLUMN IF NOT EXISTS extra String",)
    monkeypatch.setitem(schema._STEPS, schema.SCHEMA_VERSION, step)
    with pytest.raises(Unreachable, match="open it once"):
        ClickReader(Client(address))
    ClickStore(Client(address)).close()
    ClickReader(Client(address)).close()
    assert fresh.client.ask("SELECT extra FROM meta").num_rows


def test_a_column_that_is_missing_is_added(otlp, address: Address, fresh: ClickStore) -> None:
    client = fresh.client
    client.tell("DROP VIEW spans")
    client.tell("ALTER TABLE span_rows DROP COLUMN conversation_id")
    again = ClickStore(Client(address))
    again.append(otlp.canonical(otlp.span()))
    assert rows_of(again, "SELECT conversation_id FROM spans") == [(None,)]
    again.close()


def test_tables_of_a_cluster_are_sharded_by_trace_and_keep_copies() -> None:
    place = parse("clickhouse://h/lp?cluster=main&replicated=1&ttl_days=30")
    made = "\n".join(schema.statements(place))
    assert made.count("ON CLUSTER 'main'") == 2 * len(schema.TABLES)
    assert "Distributed('main', 'lp', 'span_rows_local', cityHash64(trace_id))" in made
    assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/lp/call_rows_local'" in made
    assert made.count("INTERVAL 30 DAY DELETE") == 4
    plain = "\n".join(schema.statements(parse("clickhouse://h/lp")))
    assert "ReplacingMergeTree(version, is_gone)" in plain
    assert "TTL" not in plain
    assert "Replicated" not in plain


def test_answers_come_batch_by_batch_too(pair: Pair) -> None:
    with pair.click.stream("SELECT trace_id FROM spans") as stream:
        table = pa.Table.from_batches(stream.batches, stream.schema)
    assert table.num_rows == pair.duck.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py()


def test_attributes_keep_what_json_keeps(otlp, store: ClickStore) -> None:
    told = {f"k{number}": json.dumps({"a": [number]}) for number in range(50)}
    store.append(otlp.canonical(otlp.span(attributes=told)))
    ((found,),) = rows_of(store, "SELECT attributes FROM spans")
    assert dict(found) == told  # type: ignore[call-overload]
