import threading
from dataclasses import replace

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

BAD_IDS = {"trace_id": b"abc"}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def export(channel, body, compression=None):
    call = channel.unary_unary(
        EXPORT,
        response_deserializer=ExportTraceServiceResponse.FromString,
    )
    return call(body, timeout=20, compression=compression)


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
def test_grpc_takes_spans_and_tells_partial_success(otlp, collector, names, compression):
    request = otlp.request([otlp.span(name="by grpc"), otlp.span(**BAD_IDS)])
    with grpc.insecure_channel(str(collector.grpc)) as channel:
        answer = TraceServiceStub(channel).Export(request, timeout=20, compression=compression)
        assert answer.partial_success.rejected_spans == 1
        assert not export(channel, b"").HasField("partial_success")
    assert names(1) == ["by grpc"]


def test_grpc_refuses_what_is_bad_and_goes_on(otlp, collector, names):
    unlimited = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(str(collector.grpc), options=unlimited) as channel:
        for body, compression, code in (
            (b"hello", None, grpc.StatusCode.INVALID_ARGUMENT),
            (bytes((20 << 20) + 1), None, grpc.StatusCode.RESOURCE_EXHAUSTED),
            (bytes(200 << 20), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                export(channel, body, compression)
            assert caught.value.code() is code
            assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata())
        export(channel, otlp.body([otlp.span(name="good")]))
    assert names(1) == ["good"]


def test_a_request_that_never_comes_is_given_up(otlp, settings, collecting):
    def never():
        held.wait(20)
        yield b""

    held = threading.Event()
    with (
        collecting(replace(settings, body_timeout_s=0.5)) as collector,
        grpc.insecure_channel(str(collector.grpc)) as channel,
    ):
        calls = [channel.stream_unary(EXPORT).future(never(), timeout=20) for _ in range(5)]
        for call in calls:
            assert call.exception().code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "did not arrive within 0.5 s" in call.details()
        held.set()
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary(EXPORT)(iter(()), timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        export(channel, otlp.body([otlp.span()]))
        assert collector.ingest.health.total("requests_refused", "too_slow") == 5


def test_grpc_takes_and_drops_the_other_signals(collector):
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add()
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.gauge.data_points.add()
    with grpc.insecure_channel(str(collector.grpc)) as channel:
        assert LogsServiceStub(channel).Export(logs).partial_success.rejected_log_records == 1
        answer = MetricsServiceStub(channel).Export(metrics)
        assert answer.partial_success.rejected_data_points == 1
