"""What the fast way hands to the reference is a part of a body that the door let in."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import BadInput
from longpole_collector import bulk
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received, check
from longpole_collector.health import Health
from longpole_collector.normalise import Reader

LIKE_A_METRIC = "\n\0"
"""As a span's name; as a metric's data it is a gauge."""


def body(*, has_good: bool) -> bytes:
    """A span without ids and times, and perhaps a good one of another sender beside it."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name=LIKE_A_METRIC)
    if has_good:
        request.resource_spans.add().scope_spans.add().spans.add(
            trace_id=b"t" * 16, span_id=b"s" * 8, name="good", start_time_unix_nano=1
        )
    return request.SerializeToString()


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_bad_span_that_looks_like_a_metric_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    assert bulk.start(wait=True)
    monkeypatch.setattr(bulk, "MIN_BYTES", 0 if is_fast else 1 << 30)
    mixed = body(has_good=True)
    assert check(mixed, Format.PROTOBUF)[:2] == (1, 1)
    with pytest.raises(BadInput, match="these are metrics"):
        check(body(has_good=False), Format.PROTOBUF)
    health = Health()
    table = Reader(health, Scrubber(Policy(), health)).table([Received(mixed, Format.PROTOBUF, 1)])
    assert table["name"].to_pylist() == ["good"]
    assert "longpole_log_frames_damaged_total 0" in health.prometheus()
