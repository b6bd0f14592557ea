"""The collector's own table is read as it is, and says what the same spans say by the wire."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from longpole.errors import BadInput, Unreachable, UsageError
from longpole_collector.decode import Format, parse
from longpole_collector.decode.raw import RawSpan, text
from longpole_collector.otlp_out import resource_attributes
from longpole_collector.stores.clickhouse.address import parse as parse_address
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.opening import Follower, catch_up, open_reader
from longpole_collector.stores.clickhouse.otel import Following
from longpole_collector.stores.clickhouse.store import ClickStore

from .both import compare
from .conftest import CORPUS, Pair

DDL = (Path(__file__).parent / "otel_traces.sql").read_text()
MAP = pa.map_(pa.string(), pa.string())
CASES = ("langfuse-agent", "logfire-oai-chat-stream", "litellm-oai-chat", "openllmetry-oai-chat-*")


def pairs(attributes: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, text(value)) for key, value in attributes.items()]


def rows(raws: list[RawSpan]) -> pa.Table:
    """Spans as the exporter writes them."""
    columns: dict[str, pa.Array] = {
        "Timestamp": pa.array([r.start_ns for r in raws], pa.timestamp("ns")),
        "TraceId": pa.array([r.trace_id for r in raws]),
        "SpanId": pa.array([r.span_id for r in raws]),
        "ParentSpanId": pa.array([r.parent_id or "" for r in raws]),
        "SpanName": pa.array([r.name for r in raws]),
        "SpanKind": pa.array([r.kind.capitalize() for r in raws]),
        "ServiceName": pa.array([r.resource.service or "" for r in raws]),
        "ResourceAttributes": pa.array([pairs(resource_attributes(r.resource)) for r in raws], MAP),
        "ScopeName": pa.array([r.scope for r in raws]),
        "SpanAttributes": pa.array([pairs(r.attributes) for r in raws], MAP),
        "Duration": pa.array([(r.end_ns - r.start_ns) % 2**64 for r in raws], pa.uint64()),
        "StatusCode": pa.array([r.status.capitalize() for r in raws]),
        "StatusMessage": pa.array([r.status_message for r in raws]),
    }
    for name, kind, of in (
        ("Events.Timestamp", pa.timestamp("ns"), lambda r: [e.time_ns for e in r.events]),
        ("Events.Name", pa.string(), lambda r: [e.name for e in r.events]),
        ("Events.Attributes", MAP, lambda r: [pairs(e.attributes) for e in r.events]),
        ("Links.TraceId", pa.string(), lambda r: [e.trace_id for e in r.links]),
        ("Links.SpanId", pa.string(), lambda r: [e.span_id for e in r.links]),
        ("Links.TraceState", pa.string(), lambda r: ["" for _ in r.links]),
        ("Links.Attributes", MAP, lambda r: [pairs(e.attributes) for e in r.links]),
    ):
        columns[name] = pa.array([of(r) for r in raws], pa.list_(kind))
    return pa.table(columns)


def captured(*cases: str) -> list[RawSpan]:
    paths = [path for case in cases for path in sorted(CORPUS.glob(f"{case}.otlp.pb"))]
    return [r for p in paths for r in parse(p.read_bytes(), Format.PROTOBUF, None).spans(1)]


class Table:
    """A collector's table in a database of its own."""

    def __init__(self, engine: Client, name: str) -> None:
        self._engine = engine
        self.name = name
        engine.tell(f"CREATE DATABASE {name}")
        engine.tell(DDL.replace("otel_traces", f"{name}.otel_traces"))

    @property
    def address(self) -> str:
        return f"chdb://?database={self.name}&schema=otel&own={self.name}_own"

    def add(self, raws: list[RawSpan]) -> None:
        self._engine._client.insert_arrow(f"{self.name}.otel_traces", rows(raws))

    def content(self) -> list[Any]:
        found = self._engine.ask(
            f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {self.name}.otel_traces"
        )
        return found.to_pylist()


@pytest.fixture
def table(engine: Client, request: pytest.FixtureRequest) -> Iterator[Table]:
    made = Table(engine, f"otel{abs(hash(request.node.name)) % 10**9}")
    yield made
    engine.tell(f"DROP DATABASE {made.name}")


def test_the_table_says_what_the_wire_says_and_is_not_written_to(
    table: Table, pair: Pair, engine: Client
) -> None:
    cases = [path.name.removesuffix(".otlp.pb") for path in sorted(CORPUS.glob("*.otlp.pb"))[::6]]
    raws = captured(*cases)
    table.add(raws)
    before = table.content()
    reader = open_reader(table.address)
    ids = ",".join({raw.trace_id for raw in raws})
    # whose word is hashed with another key, and when they came, differ by themselves
    but = {"spans": "* EXCLUDE (attributes, received_ns, conversation_id, events)"}
    but["calls"] = "* EXCLUDE (conversation_id)"
    for view in ("spans", "calls", "traces", "trace_stages"):
        query = (
            f"SELECT {but.get(view, '*')} FROM {view} "
            "WHERE trace_id IN (SELECT unnest(string_split(?, ',')))"
        )
        wanted, found = pair.duck.sql(query, [ids]), reader.sql(query, [ids])
        assert wanted.num_rows > 0
        assert not compare(wanted, found), view
    assert table.content() == before
    reader.close()


def test_only_what_is_new_is_taken_over_however_late_it_began(table: Table) -> None:
    raws = captured("langfuse-agent", "logfire-oai-chat-stream")
    first, rest = raws[: len(raws) // 2], raws[len(raws) // 2 :]
    table.add(first)
    store = ClickStore(Client(parse_address(table.address)))
    following = Following(store)
    assert following.follow() == len(first)
    assert following.follow() == 0
    table.add(rest[:1])
    assert following.follow() == 1
    table.add(rest[1:])
    table.add(first)  # the exporter sent a batch again
    assert following.follow() == len(rest) - 1
    assert store.num_spans() == len(raws)
    store.close()


def test_an_id_has_one_pseudonym_however_often_it_is_read(table: Table) -> None:
    (raw, *_) = captured("langfuse-agent")
    told = {"session.id": "the same", "gen_ai.conversation.id": "the same"}
    for number in range(2):
        table.add([raw._replace(span_id=f"{number:016x}", attributes=raw.attributes | told)])
        store = ClickStore(Client(parse_address(table.address)))
        catch_up(store)
        store.close()
    reader = open_reader(table.address)
    found = reader.sql("SELECT DISTINCT conversation_id FROM spans")["conversation_id"].to_pylist()
    assert len(found) == 1
    assert "the same" not in str(found)
    reader.close()


def test_a_follower_takes_over_while_it_runs(table: Table) -> None:
    said: list[str] = []
    follower = Follower(table.address, poll_s=0.01, told=said.append)
    follower.start()
    table.add(captured("langfuse-agent"))
    reader = None
    for _ in range(500):
        reader = reader or open_reader(table.address)
        if reader.sql("SELECT 1 AS one FROM traces LIMIT 1").num_rows:
            break
    follower.stop()
    assert reader is not None
    assert reader.sql("SELECT 1 AS one FROM traces LIMIT 1").num_rows == 1
    assert said == []
    reader.close()


def test_a_table_that_is_not_there_or_another_is_named(table: Table, engine: Client) -> None:
    with pytest.raises(Unreachable, match="no table"):
        open_reader(table.address + "&table=nothing")
    engine.tell(f"CREATE TABLE {table.name}.other (a Int64) ENGINE = MergeTree ORDER BY a")
    with pytest.raises(BadInput, match="no column Timestamp"):
        open_reader(table.address + "&table=other")
    engine.tell(
        f"ALTER TABLE {table.name}.otel_traces MODIFY COLUMN ScopeName LowCardinality(String)"
    )
    with pytest.raises(BadInput, match="column ScopeName"):
        open_reader(table.address)


def test_the_collectors_database_is_never_ours() -> None:
    with pytest.raises(UsageError, match="give another"):
        open_reader("chdb://?database=a&schema=otel&own=a")
