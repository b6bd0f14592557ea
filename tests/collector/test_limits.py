"""How much a request may hold, at both doors, and what one that holds more costs."""

import json
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from longpole_collector.content import MAX_ATTRIBUTES
from longpole_collector.decode import Compression, Format
from longpole_collector.decode.raw import MAX_SPANS
from longpole_collector.ingest import WAL_FOLDER
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader
from longpole_collector.wal import Frame, Position, Wal
from longpole_collector.whereabouts import find

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def as_json(num_spans):
    span = '{"traceId":"' + "1" * 32 + '","spanId":"%016x","name":"many"}'
    spans = ",".join(span % (i + 1) for i in range(num_spans))
    return ('{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + "]}]}]}").encode()


@pytest.fixture(scope="module")
def too_many(otlp):
    return otlp.body([otlp.span(name="many") for _ in range(MAX_SPANS + 1)])


def test_more_spans_than_a_request_may_hold_are_refused_whole(
    otlp, too_many, client, names, collector
):
    answer = client.post("/v1/traces", content=as_json(MAX_SPANS + 1), headers=JSON)
    assert answer.status_code == 413
    assert "retry-after" not in answer.headers
    assert answer.json()["message"].startswith(f"request of {MAX_SPANS + 1} spans: at most")
    answer = client.post("/v1/traces", content=too_many, headers=PROTOBUF)
    assert answer.status_code == 413
    with grpc.insecure_channel(str(collector.grpc)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(EXPORT)(too_many, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at most 10000 are taken" in caught.value.details()
        channel.unary_unary(EXPORT)(otlp.body([otlp.span(name="good")]), timeout=20)
    assert names(1) == ["good"]
    assert collector.ingest.health.total("requests_refused", "too_large") == 3
    assert collector.ingest.budget.used_bytes() == 0


def test_as_many_spans_as_a_request_may_hold_are_taken(client, names):
    answer = client.post("/v1/traces", content=as_json(MAX_SPANS), headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {})
    assert len(names(MAX_SPANS)) == MAX_SPANS


def test_attributes_beyond_the_limit_are_cut_counted_and_flagged(otlp, client, names, collector):
    wide = {f"k{i:04d}": i for i in range(MAX_ATTRIBUTES + 44)}
    body = otlp.body([otlp.span(name="wide", attributes=wide), otlp.span(name="narrow")])
    assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    assert names(2) == ["narrow", "wide"]
    reader = RemoteReader(collector.url)
    sql = "SELECT name, cardinality(attributes) AS num, flags FROM spans ORDER BY name"
    assert reader.sql(sql).to_pylist() == [
        {"name": "narrow", "num": 0, "flags": []},
        {"name": "wide", "num": MAX_ATTRIBUTES, "flags": ["attributes_cut"]},
    ]
    reader.close()
    assert collector.ingest.health.total("values_dropped", "too_long") == 44


def test_an_event_keeps_no_more_attributes_than_a_span(otlp, client, names, collector):
    wide = {f"k{i}": i for i in range(MAX_ATTRIBUTES + 5)}
    body = otlp.body([otlp.span(name="wide", events=[("e", 7, wide)])])
    assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    assert names(1) == ["wide"]
    reader = RemoteReader(collector.url)
    (event,) = json.loads(reader.sql("SELECT events FROM spans").to_pylist()[0]["events"])
    reader.close()
    assert len(event["attributes"]) == MAX_ATTRIBUTES


def test_a_request_in_the_log_is_read_back_whatever_the_limit_is_by_then(tmp_path):
    wal = Wal(tmp_path / WAL_FOLDER, Position(0, 0))
    wal.write([Frame(Format.JSON, Compression.IDENTITY, 1, as_json(MAX_SPANS + 1))])
    wal.close(Position(0, 0))
    reader = open_reader(db=tmp_path)
    assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": MAX_SPANS + 1}]
    reader.close()


# --- hostile bodies ------------------------------------------------------------------------------
MAX_EXTRA_MB = 200


def bomb(num_mb):
    stream = zlib.compressobj(wbits=31)
    return b"".join(stream.compress(bytes(1 << 20)) for _ in range(num_mb)) + stream.flush()


@contextmanager
def collect(folder, eventually):
    """A collector in a process of its own: its pid and where it is."""
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from longpole.cli import main; main()", "collect",
            "--db", str(folder), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid, eventually(lambda: answering(folder), 60)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def answering(folder):
    running = find(folder)
    try:
        is_ready = running and httpx.get(f"{running.url}/readyz", trust_env=False).is_success
    except httpx.HTTPError:
        return None
    return running if is_ready else None


def memory_mb(pid, what):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) // 1024


def endless():
    for _ in range(1024):
        yield bytes(1 << 20)


def export(address, body, compression=None):
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(EXPORT)(body, timeout=60, compression=compression)
        return caught.value.code()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_hostile_bodies_cost_little_memory_and_the_next_good_one_is_taken(
    otlp, tmp_path, eventually
):
    deep = '{"resourceSpans":[' + '{"x":[' * 200_000
    packed = PROTOBUF | {"content-encoding": "gzip"}
    with collect(tmp_path / "data", eventually) as (pid, running):
        idle_mb = memory_mb(pid, "VmRSS")
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
            for body, headers, status in (
                (bomb(512), packed, 413),
                (endless(), PROTOBUF, 413),
                (deep.encode(), JSON, 400),
                (b"\xff" * (19 << 20), PROTOBUF, 400),
            ):
                assert (
                    client.post("/v1/traces", content=body, headers=headers).status_code == status
                )
            too_much = grpc.StatusCode.RESOURCE_EXHAUSTED
            assert export(running.grpc, bytes(200 << 20), grpc.Compression.Gzip) is too_much
            assert memory_mb(pid, "VmHWM") - idle_mb < MAX_EXTRA_MB
            body = otlp.body([otlp.span(name="good")])
            assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        reader = RemoteReader(running.url)
        eventually(lambda: reader.sql("SELECT name FROM spans").num_rows)
        reader.close()
