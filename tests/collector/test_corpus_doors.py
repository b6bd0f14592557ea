"""The captures come out the same whichever way they came in."""

from pathlib import Path

import grpc
import httpx
import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from longpole_collector.app import background
from longpole_collector.commands import import_files
from longpole_collector.content import KEY_FILE
from longpole_collector.rollup import load_rollup
from longpole_collector.settings import Settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader

from .conftest import eventually

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.otlp.pb"))
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
KEY = b"k" * 32  # pseudonyms and hashes are the same in both
VIEWS = ("calls", "traces", "trace_stages")


def table(reader, view):
    columns = "* EXCLUDE (received_ns)" if view == "spans" else "*"
    return reader.sql(f"SELECT {columns} FROM {view} ORDER BY ALL").to_pylist()


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """All captures brought in by the command, read back from its folder."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / KEY_FILE).write_bytes(KEY)
    given = [str(path) for path in CORPUS]
    done = CliRunner().invoke(import_files, [*given, "--db", str(folder)])
    assert done.exit_code == 0, done.output
    reader = open_reader(db=folder)
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("running")
    (folder / KEY_FILE).write_bytes(KEY)
    settings = Settings(db=folder, http="127.0.0.1:0", grpc="127.0.0.1:0")
    with background(settings, load_rollup()) as collector:
        eventually(lambda: collector.ingest.is_ready)
        yield collector


@pytest.fixture(scope="module")
def posted(running):
    """Every second capture by HTTP, the others by gRPC, then all again by the other door."""
    reader = RemoteReader(running.url)
    bodies = [path.read_bytes() for path in CORPUS]
    with (
        httpx.Client(base_url=running.url, trust_env=False, timeout=30) as client,
        grpc.insecure_channel(str(running.grpc)) as channel,
    ):
        export = channel.unary_unary(
            EXPORT, response_deserializer=ExportTraceServiceResponse.FromString
        )

        def post(body):
            headers = {"content-type": "application/x-protobuf"}
            assert client.post("/v1/traces", content=body, headers=headers).status_code == 200

        def call(body):
            assert not export(body, timeout=30).HasField("partial_success")

        for first, second in ((post, call), (call, post)):
            for i, body in enumerate(bodies):
                (second if i % 2 else first)(body)
    yield reader
    reader.close()


def test_both_doors_and_an_import_give_the_same_spans(imported, posted):
    num = imported.sql("SELECT count(*) AS num FROM spans").to_pylist()
    eventually(lambda: posted.sql("SELECT count(*) AS num FROM spans").to_pylist() == num)
    spans = table(imported, "spans")  # settled: some are told how often they were tried
    assert eventually(lambda: table(posted, "spans") == spans, timeout_s=30)


@pytest.mark.parametrize("view", VIEWS)
def test_and_the_same_rows_of_every_view(imported, posted, view):
    expected = table(imported, view)
    assert expected
    eventually(lambda: table(posted, view) == expected, timeout_s=60)
