import gzip
import json
import socket
import zlib
from dataclasses import replace

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import Compression, OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from longpole_collector.stores.remote import RemoteReader

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
BAD_IDS = {"trace_id": b"abc"}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def post(client, body, headers=PROTOBUF, path="/v1/traces"):
    return client.post(path, content=body, headers=headers)


# --- good requests ---------------------------------------------------------------------------
@pytest.mark.parametrize("compression", Compression)
def test_the_official_exporter_is_understood(collector, names, compression):
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource({"service.name": "app"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
        pass
    assert provider.force_flush()
    provider.shutdown()
    assert names(2) == ["inner", "outer"]


def test_every_encoding_is_taken_and_answered_in_kind(otlp, client, names, data):
    body = otlp.body([otlp.span(name="plain")])
    for name, encode in (("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)):
        packed = encode(otlp.body([otlp.span(name=name)]))
        answer = post(client, packed, PROTOBUF | {"content-encoding": name})
        assert (answer.status_code, answer.headers["content-type"]) == (
            200,
            PROTOBUF["content-type"],
        )
        assert not ExportTraceServiceResponse.FromString(answer.content).HasField("partial_success")
    assert post(client, body).status_code == 200
    answer = post(client, (data / "request.json").read_bytes(), JSON | {"accept": "*/*"})
    assert (answer.status_code, answer.json()) == (200, {})
    assert {"plain", "gzip", "deflate", "identity", "chat small"} <= set(names(7))


def test_empty_requests_are_fine(client):
    assert post(client, b"").status_code == 200
    assert post(client, b"{}", JSON).json() == {}
    assert post(client, b"", JSON).status_code == 200


def test_a_bad_span_is_told_as_partial_success_and_the_rest_stored(otlp, client, names):
    body = otlp.body([otlp.span(**BAD_IDS), otlp.span(name="good"), otlp.span(span_id=b"x")])
    answer = ExportTraceServiceResponse.FromString(post(client, body).content)
    assert answer.partial_success.rejected_spans == 2
    assert "trace id of 3 bytes" in answer.partial_success.error_message
    assert names(1) == ["good"]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "00", "spanId": "1"}]}]}]}
    partial = post(client, json.dumps(document), JSON).json()["partialSuccess"]
    assert partial["rejectedSpans"] == "1"
    assert "traceId" in partial["errorMessage"]


def test_a_span_sent_twice_is_stored_once(otlp, client, names, collector):
    body = otlp.body([otlp.span(name="once")])
    for _ in range(3):
        assert post(client, body).status_code == 200
    post(client, otlp.body([otlp.span(name="second")]))
    assert names(2) == ["once", "second"]
    assert collector.ingest.health.total("spans_duplicate") == 2


def test_traces_are_rolled_up_soon(otlp, client, collector, eventually):
    post(client, otlp.body([otlp.span(name="root")]))
    reader = RemoteReader(collector.url)
    eventually(lambda: reader.sql("SELECT * FROM traces").num_rows == 1, 10)
    assert reader.sql("SELECT root_name FROM traces").to_pylist() == [{"root_name": "root"}]
    reader.close()


def test_logs_and_metrics_are_counted_dropped_and_said(client, collector):
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add(severity_text="x")
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.data_points.add(as_int=1)
    metric.sum.data_points.add(as_int=2)
    answer = post(client, logs.SerializeToString(), path="/v1/logs")
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert (partial.rejected_log_records, bool(partial.error_message)) == (1, True)
    answer = post(client, metrics.SerializeToString(), path="/v1/metrics")
    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_data_points == 2
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}
    answer = post(client, json.dumps(document), JSON, "/v1/logs").json()
    assert answer["partialSuccess"]["rejectedLogRecords"] == "2"
    document = {
        "resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": {"dataPoints": [{}]}}]}]}]
    }
    answer = post(client, json.dumps(document), JSON, "/v1/metrics").json()
    assert answer["partialSuccess"]["rejectedDataPoints"] == "1"
    assert post(client, b"rubbish", path="/v1/logs").status_code == 400
    assert post(client, b'{"resourceLogs": 5}', JSON, "/v1/logs").status_code == 400
    assert post(client, b"", path="/v1/metrics").status_code == 200
    assert collector.ingest.health.total("signals_dropped") == 6


# --- bad requests ----------------------------------------------------------------------------
def bomb():
    stream = zlib.compressobj(wbits=31)
    return b"".join(stream.compress(bytes(1 << 20)) for _ in range(1024)) + stream.flush()


def deep(depth=50_000):
    value = '{"arrayValue":{"values":[' * depth + "]}}" * depth
    return (
        '{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":'
        + value
        + "}]}]}]}]}"
    )


BAD = {
    "not OTLP": (b"hello world", PROTOBUF, 400),
    "not JSON": (b"hello world", JSON, 400),
    "JSON of another shape": (b"[1, 2]", JSON, 400),
    "cut off gzip": (gzip.compress(b"x" * 1000)[:-5], PROTOBUF | {"content-encoding": "gzip"}, 400),
    "no gzip": (b"x", PROTOBUF | {"content-encoding": "gzip"}, 400),
    "unknown encoding": (b"x", PROTOBUF | {"content-encoding": "br"}, 400),
    "bomb": (bomb(), PROTOBUF | {"content-encoding": "gzip"}, 413),
    "too long": (b"x" * ((20 << 20) + 1), PROTOBUF, 413),
    "wrong type": (b"x", {"content-type": "text/plain"}, 415),
    "no type": (b"x", {}, 415),
    "deep JSON": (deep().encode(), JSON, 400),
    "JSON not UTF-8": (b'{"x": "\xff"}', JSON, 400),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_answered_and_the_next_good_one_taken(
    case, otlp, client, names, collector
):
    body, headers, status = BAD[case]
    answer = post(client, body, headers)
    assert answer.status_code == status
    assert "retry-after" not in answer.headers
    if headers == PROTOBUF:
        assert Status.FromString(answer.content).message
    elif headers == JSON:
        assert answer.json()["message"]
    assert post(client, otlp.body([otlp.span(name="good")])).status_code == 200
    assert names(1) == ["good"]
    assert collector.ingest.health.total("requests_refused") == 1
    assert collector.ingest.budget.used_bytes() == 0


def test_strings_with_nul_are_stored_and_invalid_utf8_is_repaired(otlp, client, names):
    for sent, stored in ((b"a\0b", b"a\0b"), (b"a\0c", b"a\xffc")):
        body = otlp.body([otlp.span(name=sent.decode(), attributes={"k\0": "v\0"})])
        assert post(client, body.replace(sent, stored)).status_code == 200
    assert names(2) == ["a\0b", "a\ufffdc"]


def test_other_methods_and_paths_are_refused(client):
    assert client.get("/v1/traces").status_code == 405
    assert client.get("/nowhere").status_code == 404
    assert client.get("/api/v1/query").status_code == 405


def test_only_known_hosts_are_served(client, collector):
    for host, status in (
        ("evil.example", 403),
        ("evil.example:4318", 403),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:9", 200),
    ):
        assert client.get("/healthz", headers={"host": host}).status_code == status


def test_a_body_that_never_ends_is_given_up(settings, collecting):
    with collecting(replace(settings, body_timeout_s=0.3)) as collector:
        with socket.create_connection((collector.http.host, collector.http.port)) as raw:
            raw.sendall(
                b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/x-protobuf\r\ncontent-length: 100\r\n\r\nx"
            )
            raw.settimeout(20)
            assert b" 408 " in raw.recv(4096).split(b"\r\n")[0]
        with socket.create_connection((collector.http.host, collector.http.port)) as raw:
            raw.sendall(
                b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/x-protobuf\r\ncontent-length: 100\r\n\r\nx"
            )
        assert collector.ingest.budget.used_bytes() < 2


def test_when_too_much_waits_senders_are_told_to_come_again(otlp, settings, collecting, eventually):
    body = otlp.body([otlp.span(attributes={"x": "y" * 50_000})])
    with collecting(
        replace(settings, max_body_bytes=100_000, max_queue_bytes=120_000)
    ) as collector:
        store = collector.store
        with store._write_lock, httpx.Client(base_url=collector.url, trust_env=False) as client:
            answers = [post(client, body) for _ in range(4)]
            refused = [answer for answer in answers if answer.status_code != 200]
            assert len(refused) >= 2
            assert {answer.status_code for answer in refused} == {429}
            assert all(answer.headers["retry-after"] for answer in refused)
            with (
                grpc.insecure_channel(str(collector.grpc)) as channel,
                pytest.raises(grpc.RpcError) as caught,
            ):
                channel.unary_unary(EXPORT)(body, timeout=20)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
            retry = RetryInfo()
            assert Status.FromString(details).details[0].Unpack(retry)
            assert retry.retry_delay.seconds >= 1
        eventually(lambda: collector.ingest.budget.used_bytes() == 0)
        with httpx.Client(base_url=collector.url, trust_env=False) as client:
            assert post(client, body).status_code == 200


def test_when_the_disk_refuses_senders_are_told_to_come_again(otlp, client, collector, monkeypatch):
    def refuse(frames):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collector.ingest._wal, "write", refuse)
    answer = post(client, otlp.body([otlp.span()]))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    monkeypatch.undo()
    assert post(client, otlp.body([otlp.span()])).status_code == 200
    assert collector.ingest.health.total("requests_refused", "not_ready") == 1


def test_a_store_that_fails_for_a_while_loses_nothing(otlp, client, names, collector, monkeypatch):
    import duckdb

    real = collector.store.insert
    left = [2]

    def flaky(rows, stored=None, full=None):
        if left[0]:
            left[0] -= 1
            raise duckdb.IOException("disk")
        return real(rows, stored, full)

    monkeypatch.setattr(collector.store, "insert", flaky)
    monkeypatch.setattr("longpole_collector.ingest._RETRY_S", 0.05)
    post(client, otlp.body([otlp.span(name="patient")]))
    assert names(1) == ["patient"]
