import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from longpole.errors import StoreBusy, UsageError
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
BAD_IDS = {"trace_id": b"abc"}


def post(client, body):
    return client.post("/v1/traces", content=body, headers=PROTOBUF)


# --- queries and health ----------------------------------------------------------------------
def ask(client, body, **headers):
    return client.post("/api/v1/query", content=body, headers=JSON | headers)


def test_a_query_is_answered_as_json(otlp, client, names):
    post(client, otlp.body([otlp.span(name="x", attributes={"a": "b"})]))
    names(1)
    query = {
        "sql": "SELECT name, attributes, flags, 1.5 AS f FROM spans WHERE name = $1",
        "params": ["x"],
    }
    answer = ask(client, json.dumps(query))
    assert answer.json() == {
        "schema": "longpole.query/1",
        "columns": ["name", "attributes", "flags", "f"],
        "rows": [["x", {"a": "b"}, [], 1.5]],
    }


def test_a_bad_query_is_a_400_with_a_message(client):
    for body in ('{"sql": "DROP VIEW spans"}', "{}", "no", '{"sql": 5}', '{"sql": "SELECT nope"}'):
        answer = ask(client, body)
        assert answer.status_code == 400
        assert answer.json()["error"]
    assert client.post("/api/v1/query", content='{"sql": "SELECT 1"}').status_code == 400
    assert ask(client, '{"sql": "' + "x" * (5 << 20) + '"}').status_code == 413


def test_health_is_shown(otlp, client, names):
    post(client, otlp.body([otlp.span(), otlp.span(**BAD_IDS)]))
    post(client, b"rubbish")
    names(1)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    lines = client.get("/metrics").text.splitlines()
    for line in (
        "longpole_spans_received_total 1",
        "longpole_spans_rejected_total 1",
        "longpole_spans_stored_total 1",
        "longpole_spans_duplicate_total 0",
        'longpole_requests_refused_total{cause="bad_input"} 1',
        "longpole_queue_bytes 0",
        "longpole_rollup_errors_total 0",
    ):
        assert line in lines
    assert any(line.startswith("longpole_dirty_traces ") for line in lines)


def test_a_collector_that_replays_or_stops_is_not_ready(otlp, collector, client):
    collector.ingest._is_closing = True
    assert client.get("/readyz").status_code == 503
    answer = post(client, otlp.body([otlp.span()]))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    collector.ingest._is_closing = False


# --- starting and stopping -------------------------------------------------------------------
def test_the_folder_says_where_the_collector_is_while_it_runs(settings, collecting):
    where = settings.db / "collector.json"
    with collecting(settings) as collector:
        assert json.loads(where.read_text())["url"] == collector.url
        assert (where.stat().st_mode & 0o777) == 0o600
    assert not where.exists()
    assert not list((settings.db / "wal").iterdir()), "all of the log is stored"


def test_a_taken_port_is_said(settings, collecting, tmp_path):
    with collecting(settings) as first:
        for taken in (
            replace(settings, db=tmp_path / "other", http=str(first.http)),
            replace(settings, db=tmp_path / "other", grpc=str(first.grpc)),
        ):
            with pytest.raises(UsageError, match="cannot listen"):
                collecting(taken).__enter__()


def test_stopping_brings_everything_taken_into_the_store(otlp, settings, collecting):
    with collecting(settings) as collector:
        with httpx.Client(base_url=collector.url, trust_env=False) as client:
            for _ in range(20):
                assert post(client, otlp.body([otlp.span() for _ in range(10)])).status_code == 200
        started = time.monotonic()
    assert time.monotonic() - started < 15
    reader = open_reader(db=settings.db)
    assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": 200}]
    assert reader.sql("SELECT count(*) AS n FROM traces").to_pylist() == [{"n": 200}]
    reader.close()


def test_a_long_query_does_not_hold_up_the_stop(settings, collecting):
    started = time.monotonic()
    with (
        ThreadPoolExecutor(1) as threads,
        collecting(replace(settings, query_timeout_s=300.0)) as collector,
    ):
        reader = RemoteReader(collector.url)
        endless = "SELECT sum(a.i * b.i) FROM range(10000000) a(i), range(10000000) b(i)"
        asked = threads.submit(reader.sql, endless)
        time.sleep(0.5)
        assert not asked.done()
    assert time.monotonic() - started < 60
    assert asked.exception() is not None
    reader.close()


def test_a_busy_collector_tells_its_readers(settings, collecting, monkeypatch):
    monkeypatch.setattr("longpole_collector.query_http._MAX_QUERIES", 0)
    with collecting(settings) as collector:
        reader = RemoteReader(collector.url)
        with pytest.raises(StoreBusy):
            reader.sql("SELECT 1")
        reader.close()
