"""A small trace request that takes every compiled loop through its paces."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.vocab import keys


def sample_body() -> bytes:
    """One model call with an event, as protobuf."""
    request = ExportTraceServiceRequest()
    scope_spans = request.resource_spans.add().scope_spans.add()
    span = scope_spans.spans.add(
        trace_id=bytes(15) + b"\1",
        span_id=bytes(7) + b"\1",
        name="chat",
        kind=3,
        start_time_unix_nano=1,
        end_time_unix_nano=2,
    )
    span.attributes.add(key=keys.OPERATION).value.string_value = "chat"
    span.attributes.add(key=keys.INPUT_TOKENS).value.int_value = 1
    span.attributes.add(key="temperature").value.double_value = 0.5
    span.events.add(name="first", time_unix_nano=1)
    body: bytes = request.SerializeToString()
    return body
