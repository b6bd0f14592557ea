"""The API: what it says of itself, and answers that stream."""

import errno
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from tempfile import SpooledTemporaryFile

import duckdb
import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from longpole.errors import BadInput, StoreBusy, Unreachable
from longpole_collector import query_http
from longpole_collector.stores.base import Stream
from longpole_collector.stores.readers import Readers
from longpole_collector.stores.remote import ARROW, RemoteReader

JSON = {"content-type": "application/json"}
QUERY = "/api/v1/query"
ENDLESS = "SELECT sum(a.i * b.i) FROM range(10000000) a(i), range(10000000) b(i)"
WIDE = "SELECT i, repeat('x', 100) AS x FROM range({}) t(i)"
NUM_LARGE = 20_000
LARGE = f"SELECT repeat('x', 3000) AS x FROM range({NUM_LARGE})"


@pytest.fixture
def reader(collector):
    reader = RemoteReader(collector.url)
    yield reader
    reader.close()


def ask(client, sql, **headers):
    return client.post(QUERY, json={"sql": sql}, headers=headers)


def unread(client):
    """An answer of which no more is fetched than fits between the two ends."""
    return client.stream("POST", QUERY, json={"sql": LARGE}, headers={"accept": ARROW})


# --- what it says of itself ----------------------------------------------------------------------
def test_the_api_is_described_and_serves_no_page(client):
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    paths = document["paths"]
    assert paths.keys() == {
        *(QUERY, "/api/v1/status", "/api/v1/backup", "/api/v1/prune"),
        *("/api/v1/settings", "/api/v1/watched/{asked}"),
        *("/metrics", "/healthz", "/readyz"),
    }
    query = paths[QUERY]["post"]
    assert query["requestBody"]["content"]["application/json"]["schema"]["required"] == ["sql"]
    assert query["responses"].keys() == {
        "200", "400", "401", "403", "408", "413", "429", "503",
    }  # fmt: skip
    assert query["responses"]["200"]["content"].keys() == {"application/json", ARROW}
    assert document["components"]["securitySchemes"]
    for path in ("/docs", "/redoc", "/"):
        assert client.get(path).status_code == 404


def test_a_request_it_does_not_know_is_said_in_one_form(client):
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("GET", QUERY, 405),
        ("DELETE", "/healthz", 405),
        ("GET", "/api/v1/status/", 404),
        ("POST", "/metrics", 405),
    ):
        answer = client.request(method, path)
        assert answer.status_code == status
        assert answer.json().keys() == {"error"}


def test_status_tells_what_a_project_holds(otlp, client, names, collector):
    client.post("/v1/traces", content=otlp.body([otlp.span(), otlp.span()]),
                headers={"content-type": "application/x-protobuf"})  # fmt: skip
    names(2)
    status = client.get("/api/v1/status").json()
    assert (status["project"], status["is_ready"], status["num_spans"]) == ("default", True, 2)
    assert status["num_files"] == 1
    assert status["num_bytes"] > 0
    assert status["versions"].keys() == {"longpole", "duckdb"}


# --- answers -------------------------------------------------------------------------------------
def test_an_answer_of_any_size_arrives_whole(reader):
    for num_rows in (0, 1, 9_999, 10_001, 100_000):
        table = reader.sql(WIDE.format(num_rows))
        assert table.num_rows == num_rows
        assert table["i"].to_pylist() == list(range(num_rows))
        assert table["x"].type == pa.string()
    nested = reader.sql("SELECT map {'a': [1, 2]} AS m, NULL::INTEGER AS n, 'é\0' AS t")
    assert nested.to_pylist() == [{"m": [("a", [1, 2])], "n": None, "t": "é\0"}]


def test_an_answer_is_sent_in_pieces_and_says_its_type(client):
    with client.stream("POST", QUERY, json={"sql": WIDE.format(90_000)},
                       headers={"accept": ARROW}) as answer:  # fmt: skip
        assert answer.status_code == 200
        assert answer.headers["content-type"] == ARROW
        assert "content-length" not in answer.headers
        body = answer.read()
    with pa.ipc.open_stream(io.BytesIO(body)) as stream:
        assert sum(1 for _ in stream) > 1


@pytest.mark.parametrize("accept", [ARROW, "application/json"])
@pytest.mark.parametrize(
    "sql", ["SELECT nope", "DROP VIEW spans", "SELECT 'x'::INTEGER", "SELECT * FROM range(100001)"]
)
def test_a_statement_that_fails_is_a_clean_400(client, accept, sql):
    answer = ask(client, sql, accept=accept)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_an_error_in_mid_answer_is_a_clean_400(client, reader, collector, monkeypatch):
    @contextmanager
    def breaking(query, params=(), timeout_s=None):
        batch = pa.record_batch({"x": [["y" * 1000] * 1000]})

        def batches():
            for _ in range(20):
                yield batch
            raise BadInput("the query took longer than it may")

        yield Stream(batch.schema, batches())

    with monkeypatch.context() as patch:
        patch.setattr(collector.store, "stream", breaking)
        assert ask(client, "SELECT 1", accept=ARROW).status_code == 400
        with pytest.raises(BadInput, match="longer than it may"):
            reader.sql("SELECT 1")
    assert reader.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    assert collector._queries.num_running == 0


def test_an_answer_cut_short_on_its_way_is_not_taken(monkeypatch):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"x": pa.int64()})) as stream:
        for i in range(3):
            stream.write_batch(pa.record_batch({"x": [i]}))
    whole = sink.getvalue().to_pybytes()
    cut = [len(whole)]
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=whole[: cut[0]]))
    reader = RemoteReader("http://nowhere")
    monkeypatch.setattr(reader, "_client", httpx.Client(transport=transport))
    assert reader.sql("SELECT 1").num_rows == 3
    for cut[0] in (len(whole) - 8, len(whole) - 9, len(whole) // 2, 0):
        with pytest.raises(Unreachable, match="broke its answer off"):
            reader.sql("SELECT 1")
    reader.close()


def test_a_reader_that_does_not_fetch_its_answer_is_let_go(
    client, collector, monkeypatch, eventually
):
    monkeypatch.setattr(collector._queries, "_fetch_timeout_s", 0.5)
    with unread(client) as answer:
        assert answer.status_code == 200
        eventually(lambda: collector._queries.num_running == 0)
        with pytest.raises(httpx.HTTPError):
            answer.read()
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("is_lone", [False, True])
def test_a_reader_that_fetches_slowly_holds_up_no_other(
    client, reader, collector, monkeypatch, eventually, is_lone
):
    store = collector.store
    monkeypatch.setattr(store, "_readers", Readers(30.0, num_at_once=1))
    asked, shortages = store._asked, iter([is_lone])

    def short(*args):
        if next(shortages, False):
            raise duckdb.OutOfMemoryException("failed to allocate")
        return asked(*args)

    monkeypatch.setattr(store, "_asked", short)
    with unread(client) as answer:
        assert reader.sql("SELECT 7 AS n").to_pylist() == [{"n": 7}]
        eventually(lambda: collector._queries.num_running == 1)  # it still is being sent
        with pa.ipc.open_stream(answer.read()) as stream:
            assert stream.read_all().num_rows == NUM_LARGE
    eventually(lambda: collector._queries.num_running == 0)


def test_what_waits_to_be_fetched_is_bounded(settings, collecting, monkeypatch, eventually):
    monkeypatch.setattr(query_http, "_MAX_UNSENT_BYTES", 80 << 20)
    with (
        collecting(settings) as collector,
        httpx.Client(base_url=collector.url, trust_env=False, timeout=30) as client,
    ):
        with unread(client) as answer:
            refused = ask(client, LARGE, accept=ARROW)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert ask(client, "SELECT 1", accept=ARROW).status_code == 200
            assert len(answer.read()) > NUM_LARGE * 3000
        eventually(lambda: collector._queries.num_running == 0)
        assert collector._queries._unsent.used_bytes() == 0
        assert ask(client, LARGE, accept=ARROW).status_code == 200


def test_an_answer_for_which_the_disk_has_no_room_says_come_again(client, reader, monkeypatch):
    class NoRoom(SpooledTemporaryFile):
        def rollover(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(query_http, "SpooledTemporaryFile", NoRoom)
    refused = ask(client, LARGE, accept=ARROW)
    assert refused.status_code == 429
    assert "No space left" in refused.json()["error"]
    assert reader.sql("SELECT 7 AS n").to_pylist() == [{"n": 7}]


def test_statements_beyond_the_bound_are_told_to_come_again(
    settings, collecting, monkeypatch, eventually
):
    monkeypatch.setattr(query_http, "_MAX_QUERIES", 1)
    with (
        ThreadPoolExecutor(1) as threads,
        collecting(replace(settings, query_timeout_s=3.0)) as collector,
        httpx.Client(base_url=collector.url, trust_env=False, timeout=30) as client,
    ):
        first = threads.submit(ask, client, ENDLESS)
        eventually(lambda: collector._queries.num_running == 1)
        for accept in (ARROW, "application/json"):
            answer = ask(client, "SELECT 1", accept=accept)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        reader = RemoteReader(collector.url)
        with pytest.raises(StoreBusy):
            reader.sql("SELECT 1")
        assert "longpole_open_queries 1" in client.get("/metrics").text
        assert first.result().status_code == 400
        assert "longer than 3 s" in first.result().json()["error"]
        assert reader.sql("SELECT 1 AS one").num_rows == 1
        reader.close()


def test_writing_goes_on_while_answers_are_fetched(otlp, client, names, reader):
    started = time.monotonic()
    with client.stream("POST", QUERY, json={"sql": WIDE.format(90_000)},
                       headers={"accept": ARROW}) as answer:  # fmt: skip
        body = otlp.body([otlp.span(name="new")])
        headers = {"content-type": "application/x-protobuf"}
        sent = httpx.post(f"{client.base_url}/v1/traces", content=body, headers=headers)
        assert sent.status_code == 200
        assert names(1) == ["new"]
        answer.read()
    assert time.monotonic() - started < 30


# --- whatever is sent ----------------------------------------------------------------------------
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip
STATEMENTS = st.sampled_from(
    ["SELECT $1", "SELECT $a", "SELECT ?, ?", "SELECT name FROM spans WHERE name = $1",
     "SELECT '\0'", "SELECT $1::BIGINT", "SELECT 1", "SELECT [$1]", "SELECT $1 + 1",
     "DESCRIBE spans", "EXPLAIN SELECT 1", "SHOW TABLES"]
) | st.text(max_size=40)  # fmt: skip


@given(st.fixed_dictionaries({"sql": STATEMENTS}, optional={"params": ANY}) | ANY, st.booleans())
@settings_of(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_body_of_a_query_is_a_fault_of_ours(client, body, is_arrow):
    headers = JSON | ({"accept": ARROW} if is_arrow else {})
    answer = client.post(QUERY, content=json.dumps(body), headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"]),
    st.sampled_from(["/", QUERY, "/api/v1/status", "/metrics", "/v1/traces", "/v1/logs"]),
    st.binary(max_size=100),
    st.sampled_from(["", "application/json", "application/x-protobuf", "application/json; x=\xe9"]),
    st.sampled_from(["", "gzip", "deflate", "br"]),
    st.text(max_size=30),
)
@settings_of(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_request_is_a_fault_of_ours(client, method, path, body, kind, encoding, authorization):
    headers = {"content-type": kind.encode("latin-1"), "content-encoding": encoding}
    try:
        shown = authorization.encode("latin-1").strip()
    except UnicodeEncodeError:
        shown = b""
    if shown.isalnum():
        headers["authorization"] = shown
    answer = client.request(method, path, content=body, headers=headers)
    assert answer.status_code < 500
