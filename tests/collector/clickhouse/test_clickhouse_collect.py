"""Collectors that write to a ClickHouse store: none waits for it, nothing is lost or doubled."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pyarrow as pa
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from longpole.errors import UsageError
from longpole.vocab import Rollup
from longpole_collector.app import Collector, background
from longpole_collector.content import Policy
from longpole_collector.doctor_probe import probe
from longpole_collector.far import FarWriter
from longpole_collector.health import Health
from longpole_collector.ingest import OUTBOX_FOLDER
from longpole_collector.settings import ProjectSettings, Settings, named_store
from longpole_collector.stores import open_reader
from longpole_collector.stores.clickhouse.address import Address, of_project, parse
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.far import FarStore
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.wal import Position

from .door import USER, WORD, Door
from .test_clickhouse_otel import Table, captured

PROTOBUF = {"content-type": "application/x-protobuf"}
BODY_BYTES = 40_000
LOG_BYTES = 60_000
START = "from longpole.cli import main; main()"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch, door: Door) -> Iterator[None]:
    monkeypatch.setattr("longpole_collector.ingest._RETRY_S", 0.05)
    monkeypatch.setattr("longpole_collector.ingest._MAX_FAR_RETRY_S", 0.1)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.far._PAUSE_S", 0.0)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.opening._RETRY_S", 0.1)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.opening._REST", 0)
    yield
    door.is_open, door.failure = True, None


@pytest.fixture
def begin(door: Door, tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a collector with a folder of its own, and a store of the test's."""

    def make(
        name: str = "one", word: str = WORD, *, settle: bool = False, **given: Any
    ) -> Settings:
        return Settings(
            db=tmp_path / name,
            http="127.0.0.1:0",
            grpc="127.0.0.1:0",
            store=f"clickhouse://{USER}:{word}@{door.address}/{database(tmp_path)}",
            max_body_bytes=BODY_BYTES,
            max_queue_bytes=BODY_BYTES,  # memory is full long before the log
            max_log_bytes=LOG_BYTES,
            settle=settle,
            **given,
        )

    return make


def database(folder: Path) -> str:
    return "db_" + "".join(char for char in folder.name if char.isalnum())


def post(collector: Collector, body: bytes, path: str = "/v1/traces") -> httpx.Response:
    return httpx.post(
        collector.url + path, content=body, headers=PROTOBUF, trust_env=False, timeout=30
    )


def healthz(collector: Collector) -> dict[str, str]:
    found: dict[str, str] = httpx.get(f"{collector.url}/healthz", trust_env=False).json()
    return found


def spans(engine: Client, folder: Path) -> Counter[str]:
    """How often each span is there, by its name."""
    name = database(folder)
    found = engine.ask(f"SELECT name, count() AS num FROM {name}.span_rows FINAL GROUP BY name")
    return Counter(dict(zip(*(found[c].to_pylist() for c in ("name", "num")), strict=True)))


def test_a_store_that_is_away_fills_the_log_then_senders_wait_and_all_goes_in_once(
    begin: Any, otlp: Any, eventually: Any, door: Door, engine: Client, tmp_path: Path, caplog: Any
) -> None:
    door.is_open = False
    acked: list[str] = []
    with background(begin()) as collector:
        assert httpx.get(f"{collector.url}/readyz", trust_env=False).status_code == 200
        for number in range(100):
            sent = [otlp.span(name=f"n{number}", attributes={"x": "y" * 5_000})]
            answer = post(collector, otlp.body(sent))
            if answer.status_code != 200:
                break
            acked.append(f"n{number}")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        channel = grpc.insecure_channel(str(collector.grpc))
        with channel, pytest.raises(grpc.RpcError) as caught:
            TraceServiceStub(channel).Export(otlp.request(sent))
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        retry = RetryInfo()
        assert RpcStatus.FromString(details).details[0].Unpack(retry)
        assert retry.retry_delay.seconds > 0
        assert sum(file.stat().st_size for file in (tmp_path / "one").rglob("*")) < 2 * LOG_BYTES
        said = eventually(lambda: healthz(collector).get("store"))
        assert "no ClickHouse answers" in said
        checks = list(probe(collector.url, str(collector.grpc)))
        assert (checks[-1].name, checks[-1].status) == ("store", "fail")
        assert "wait in the log" in checks[-1].detail
        door.is_open = True
        eventually(lambda: post(collector, otlp.body([otlp.span(name="later")])).is_success)
        eventually(lambda: healthz(collector) == {"status": "ok"})
        eventually(lambda: "later" in spans(engine, tmp_path))
        assert spans(engine, tmp_path) == Counter([*acked, "later"])
        told = httpx.get(f"{collector.url}/metrics", trust_env=False).text
        assert {"longpole_queue_bytes 0", "longpole_queue_spans 0"} <= {*told.splitlines()}
        assert post(collector, b"", "/v1/logs").is_success
        answer = httpx.post(f"{collector.url}/api/v1/backup", trust_env=False)
        assert (answer.status_code, "BACKUP" in answer.json()["error"]) == (400, True)
    assert not list((tmp_path / "one" / OUTBOX_FOLDER).glob("*.wal"))
    assert len(acked) > 5
    assert WORD not in caplog.text


def test_a_trace_over_two_collectors_is_one_and_what_comes_twice_is_there_once(
    begin: Any, otlp: Any, eventually: Any, rollup: Rollup
) -> None:
    # lately, so that they are found by every look, however long a thorough one takes here
    now_ns = time.time_ns()
    times = {"start_time_unix_nano": now_ns, "end_time_unix_nano": now_ns + 10**6}
    root = otlp.span(name="root", **times)
    trace = {"trace_id": root["trace_id"], "parent_span_id": root["span_id"]}
    child = otlp.body([otlp.span(name="child", **trace, **times)])
    asked = "SELECT num_spans FROM traces"
    with background(begin(settle=True), rollup) as one, background(begin("two")) as two:
        assert post(one, otlp.body([root])).is_success
        for collector in (one, two, two):
            assert post(collector, child).is_success
        for collector in (one, two):
            reader = open_reader(url=collector.url)
            eventually(lambda reader=reader: reader.sql(asked).to_pylist() == [{"num_spans": 2}])
            reader.close()


def test_the_other_collectors_table_is_taken_over_while_it_is_only_read(
    begin: Any, otlp: Any, eventually: Any, engine: Client, tmp_path: Path
) -> None:
    name = database(tmp_path)
    table = Table(engine, name)
    raws = captured("langfuse-agent")
    table.add(raws[:3])
    settings = begin(settle=True)
    store = named_store(f"{settings.store}?own={name}_own", "otel")
    with background(replace(settings, store=store)) as collector:
        table.add(raws[3:])
        assert post(collector, otlp.body([otlp.span(name="by our door")])).is_success
        reader = open_reader(url=collector.url)
        asked = "SELECT count(*) AS num FROM spans"
        wanted = [{"num": len(raws) + 1}]
        eventually(lambda: collector.far and reader.sql(asked).to_pylist() == wanted)
        reader.close()
    assert len(engine.ask(f"SELECT * FROM {name}.otel_traces")) == len(raws)


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ("Code: 242. DB::Exception: Table is in readonly mode. (X)", "busy"),
        ("Code: 243. DB::Exception: Cannot reserve 1 MiB. (X)", "disk"),
        (None, "refuses user or password"),
    ],
)
def test_a_store_that_refuses_from_the_start_on_is_told_and_the_doors_are_open(
    begin: Any, otlp: Any, eventually: Any, door: Door, caplog: Any, failure: str, says: str
) -> None:
    caplog.set_level(logging.DEBUG)
    door.failure = failure
    with background(begin(word=WORD if failure else "wrong-Word")) as collector:
        assert post(collector, otlp.body([otlp.span()])).is_success
        said = eventually(lambda: healthz(collector).get("store"))
        assert says in said
        asked = {"sql": "SELECT 1 AS one FROM spans"}
        answer = httpx.post(f"{collector.url}/api/v1/query", json=asked, trust_env=False)
        assert answer.status_code == 503
    assert not {WORD, "wrong-Word"} & {*said.split(), *caplog.text.split()}
    assert "wrong-Word" not in said + caplog.text


def test_a_killed_collectors_log_goes_in_when_it_starts_again(
    begin: Any, otlp: Any, eventually: Any, door: Door, engine: Client, tmp_path: Path
) -> None:
    door.is_open = False
    settings = begin()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "collect", "--no-settle", "--http", "127.0.0.1:0",
         "--grpc", "127.0.0.1:0", "--db", str(settings.db), "--store", settings.store],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "longpole collect:" in line)
        assert WORD not in line
        url = f"http://{line.split('http ')[1].split(',')[0]}"
        bodies = [otlp.body([otlp.span(name=f"n{number}")]) for number in range(5)]
        for body in bodies:
            answer = httpx.post(
                f"{url}/v1/traces", content=body, headers=PROTOBUF, trust_env=False, timeout=30
            )
            assert answer.is_success
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    door.is_open = True
    with background(settings) as collector:
        assert post(collector, bodies[0]).is_success  # its answer was lost, so it comes again
        eventually(lambda: healthz(collector) == {"status": "ok"})
        eventually(lambda: spans(engine, tmp_path).total() == len(bodies))
    assert set(spans(engine, tmp_path).values()) == {1}


def test_what_only_a_local_store_can_do_is_refused_by_name(begin: Any) -> None:
    with (
        pytest.raises(UsageError, match="keep"),
        background(begin(projects={"default": ProjectSettings("keep")})),
    ):
        pass


def test_a_span_that_no_table_can_hold_is_kept_aside_alone(
    address: Address, otlp: Any, tmp_path: Path
) -> None:
    rows = to_arrow(SPANS, otlp.canonical(*(otlp.span(name=f"n{i}") for i in range(5))))
    names = [name.encode() for name in rows["name"].to_pylist()]
    names[3] = b"\xff\xfe"
    broken = pa.array(names, pa.binary()).view(pa.string())
    rows = rows.set_column(rows.schema.get_field_index("name"), "name", broken)
    store = FarStore(address)
    writer = FarWriter(store, tmp_path, tmp_path, Health(), Policy())
    assert writer.write(rows, Position(1, 100)) == 4
    with store.reached() as reached:
        assert reached.num_spans() == 4
    store.close()
    assert (tmp_path / "rejected.jsonl").read_text().count("\n") == 1
    assert (writer.stored(), store.problem) == (Position(1, 100), None)


def test_the_schema_is_said_once_wherever_it_is_said() -> None:
    text = "clickhouse://db.example/otel"
    assert parse(str(named_store(text, "otel"))) == parse(f"{text}?schema=otel")
    assert named_store(None, None) is None
    same = str(named_store(f"{text}?schema=otel", "otel"))
    assert parse(same).source == "otel.otel_traces"
    for store, schema in ((f"{text}?schema=own", "otel"), (None, "otel"), ("http://host", None)):
        with pytest.raises(UsageError):
            named_store(store, schema)


def test_a_project_has_a_database_of_its_own() -> None:
    address = parse("clickhouse://db.example/otel?schema=otel")
    assert of_project(address, "default") == address
    other = of_project(address, "shop")
    assert (other.database, other.schema) == ("longpole__shop", "own")
    with pytest.raises(UsageError, match="plain name"):
        of_project(address, "a-b")
