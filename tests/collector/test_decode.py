import gzip
import json
import zlib

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from longpole.errors import BadInput
from longpole_collector.decode import Compression, Format, TooLarge, check, inflate, parse

LIMIT = 20 << 20


def as_json(request):
    """OTLP/JSON of a protobuf request: ids are hex there, not base64."""
    document = MessageToDict(request)
    for resource_spans in document.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span, sent in zip(
                scope_spans.get("spans", ()), request.resource_spans[0].scope_spans[0].spans,
                strict=True,
            ):  # fmt: skip
                span["traceId"], span["spanId"] = sent.trace_id.hex(), sent.span_id.hex()
                if sent.parent_span_id:
                    span["parentSpanId"] = sent.parent_span_id.hex()
                for link, sent_link in zip(span.get("links", ()), sent.links, strict=True):
                    link["traceId"] = sent_link.trace_id.hex()
                    link["spanId"] = sent_link.span_id.hex()
    return json.dumps(document).encode()


scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3
        )
    ),
    max_leaves=6,
)
attributes = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), values, max_size=6
)
spans = st.fixed_dictionaries(
    {
        "trace_id": st.binary(min_size=16, max_size=16).filter(any),
        "span_id": st.binary(min_size=8, max_size=8).filter(any),
        "parent_span_id": st.sampled_from([b"", b"\0" * 8, b"12345678"]),
        "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        "kind": st.integers(0, 6),
        "start_time_unix_nano": st.integers(0, 2**63 - 1),
        "end_time_unix_nano": st.integers(0, 2**63 - 1),
        "status": st.tuples(st.integers(0, 2), st.text("ab", max_size=3)),
        "attributes": attributes,
        "events": st.lists(st.tuples(st.text("xy"), st.integers(0, 2**60), attributes), max_size=2),
        "links": st.lists(
            st.tuples(
                st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), attributes
            ),
            max_size=2,
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(given_spans=st.lists(spans, max_size=4))
def test_protobuf_and_json_of_one_request_give_equal_rows(otlp, given_spans):
    request = otlp.request(given_spans)
    by_protobuf = list(parse(request.SerializeToString(), Format.PROTOBUF).spans(1))
    by_json = list(parse(as_json(request), Format.JSON).spans(1))
    assert by_protobuf == by_json


def ids(**given):
    return {"trace_id": b"t" * 16, "span_id": b"s" * 8} | given


def test_a_handwritten_json_request_is_read_as_the_mapping_says(data):
    body = (data / "request.json").read_bytes()
    root, call, tool = parse(body, Format.JSON).spans(5)
    assert root.trace_id == "5b8efff798038103d269b633813fc60c"
    assert root.kind == "unspecified"
    assert root.parent_id is None
    assert root.end_ns - root.start_ns == 1_000_000_000
    assert root.attributes["a.map"] == {"x": 7, "y": [True, 1.5]}
    assert root.attributes["bytes"] == b"\0\1\2"
    assert not {"no.value", "empty.value", "null.value"} & root.attributes.keys()
    assert (call.kind, call.status) == ("client", "ok")
    assert call.attributes["gen_ai.usage.input_tokens"] == 100
    assert call.events[0].attributes == {"n": 1}
    assert tool.kind == "internal"
    assert {span.trace_id for span in (root, call, tool)} == {root.trace_id}
    assert root.resource.attributes == {"resource.deployment.environment.name": "test"}


@pytest.mark.parametrize(
    "bad",
    [
        ids(trace_id=b"123"),
        ids(trace_id=b"\0" * 16),
        ids(trace_id=b"t" * 17),
        ids(span_id=b"123"),
        ids(span_id=b""),
        ids(parent_span_id=b"123"),
        ids(start_time_unix_nano=2**63),
        ids(end_time_unix_nano=2**64 - 1),
    ],
)
@pytest.mark.parametrize("form", Format)
def test_a_bad_span_is_rejected_alone_and_the_reason_is_given(otlp, bad, form):
    good = ids(span_id=b"87654321", name="good")
    request = otlp.request([bad, good, bad])
    body = as_json(request) if form is Format.JSON else request.SerializeToString()
    parsed = parse(body, form)
    assert (parsed.num_spans, parsed.num_rejected) == (1, 2)
    assert parsed.reason
    assert [span.name for span in parsed.spans(1)] == ["good"]


@pytest.mark.parametrize("form", Format)
def test_an_empty_body_is_an_empty_request(form):
    assert parse(b"", form)[1:] == (0, 0, "")


@pytest.mark.parametrize(
    "body",
    [b"hello", b"\xff" * 40, b'{"resourceSpans":[]}', b"<html>", b"\x0a\x05ab", b"\x08\x01"],
)
def test_bytes_that_are_no_protobuf_request_are_refused(body):
    with pytest.raises(BadInput, match="not an OTLP"):
        parse(body, Format.PROTOBUF)


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"[]",
        b'"x"',
        b"\xff\xfe\xff",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [5]}',
        b'{"resourceSpans": [{"scopeSpans": {}}]}',
        b"[" * 100_000,
        b'{"resourceSpans":[{"resource":7}]}',
    ],
)
def test_text_that_is_no_json_request_is_refused(body):
    with pytest.raises(BadInput):
        parse(body, Format.JSON)


def json_span(**given):
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8} | given
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    return parse(json.dumps(document).encode(), Format.JSON)


@pytest.mark.parametrize(
    "value",
    [
        {"intValue": "x"},
        {"intValue": 2**63},
        {"intValue": 1.5},
        {"boolValue": "maybe"},
        {"doubleValue": "fast"},
        {"doubleValue": True},
        {"bytesValue": "?"},
        {"stringValue": 5},
        {"arrayValue": {"values": 5}},
    ],
)
def test_a_value_that_is_none_rejects_its_span_only(value):
    parsed = json_span(attributes=[{"key": "k", "value": value}])
    assert (parsed.num_spans, parsed.num_rejected) == (0, 1)


def test_an_attribute_nested_beyond_the_limit_rejects_its_span():
    value = {"intValue": 1}
    for _ in range(70):
        value = {"arrayValue": {"values": [value]}}
    assert json_span(attributes=[{"key": "k", "value": value}]).num_rejected == 1


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (3, "client"),
        ("3", "client"),
        ("SPAN_KIND_SERVER", "server"),
        ("X", "unspecified"),
        (99, "unspecified"),
        (None, "unspecified"),
    ],
)
def test_an_enum_is_read_by_number_and_by_name(kind, read):
    (span,) = json_span(kind=kind).spans(1)
    assert span.kind == read


def test_lone_surrogates_become_something_that_can_be_stored():
    (span,) = json_span(
        name="a\ud800b", attributes=[{"key": "smile", "value": {"stringValue": "\U0001f600"}}]
    ).spans(1)
    assert span.name == "a?b"
    assert span.attributes["smile"] == "\U0001f600"


BAD = b"abc\xff\xfef"
MENDED = "abc\ufffd\ufffdf"


@pytest.mark.parametrize(
    "given",
    [
        {"name": "abcdef"},
        {"attributes": {"k": "abcdef"}},
        {"attributes": {"abcdef": ["x", {"y": 1}]}},
        {"attributes": {"k": {"abcdef": ["abcdef"]}}},
        {"status": (1, "abcdef")},
        {"events": [("abcdef", 1, {"k": "abcdef"})]},
        {"links": [(b"t" * 16, b"s" * 8, {"abcdef": 1})]},
    ],
)
def test_text_that_is_no_utf8_is_repaired_and_only_its_span_is_flagged(otlp, given):
    body = otlp.body([otlp.span(**given), otlp.span(name="good")]).replace(b"abcdef", BAD)
    mended, good = otlp.spans(body)
    assert MENDED in repr(mended).replace("\\ufffd", "\ufffd")
    assert (mended.flags, good.flags) == (["invalid_utf8"], [])
    assert check(body, Format.PROTOBUF) == (2, 0, "")


def test_a_resource_that_is_no_utf8_flags_its_spans(otlp):
    body = otlp.body([otlp.span(), otlp.span()], service="abcdef").replace(b"abcdef", BAD)
    assert [(span.service, span.flags) for span in otlp.spans(body)] == (
        [(MENDED, ["invalid_utf8"])] * 2
    )


def test_text_may_hold_a_zero(otlp):
    (span,) = otlp.canonical(ids(name="a\0b", attributes={"k": "c\0d"}))
    assert (span.name, span.attributes["k"]) == ("a\0b", "c\0d")


def test_the_first_bad_span_gives_the_reason(otlp):
    body = otlp.body([ids(), ids(trace_id=b"x"), ids(span_id=bytes(8))])
    checked = check(body, Format.PROTOBUF)
    assert checked[:2] == (1, 2)
    assert "trace id of 1 bytes" in checked.reason


def test_logs_and_metrics_at_the_door_of_traces_are_told_so():
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5)
    record.body.string_value = "hello"
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="latency")
    metric.gauge.data_points.add(as_int=1, time_unix_nano=5)
    with pytest.raises(BadInput, match="log records, not spans"):
        check(logs.SerializeToString(), Format.PROTOBUF)
    with pytest.raises(BadInput, match="metrics, not spans"):
        check(metrics.SerializeToString(), Format.PROTOBUF)


@pytest.mark.parametrize("form", Format)
def test_an_empty_body_is_an_empty_request_at_the_door(form):
    assert check(b"", form) == (0, 0, "")


def raw_deflate(data):
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("compress", "compression"),
    [
        (gzip.compress, Compression.GZIP),
        (lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]), Compression.GZIP),
        (zlib.compress, Compression.DEFLATE),
        (raw_deflate, Compression.DEFLATE),
        (bytes, Compression.IDENTITY),
    ],
)
def test_compression_is_undone(compress, compression):
    data = b"some text " * 1000
    assert inflate(compress(data), compression, LIMIT) == data


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.DEFLATE])
def test_a_cut_off_or_broken_body_is_refused(compression):
    whole = {Compression.GZIP: gzip.compress, Compression.DEFLATE: zlib.compress}[compression](
        bytes(range(256)) * 50
    )
    for body in (whole[:-3], whole[: len(whole) // 2], whole[:3], b"\x78\x9cgarbage"):
        with pytest.raises(BadInput):
            inflate(body, compression, LIMIT)


def test_a_decompression_bomb_is_refused_in_bounded_memory():
    import tracemalloc

    stream = zlib.compressobj(wbits=31)
    zeros = bytes(1 << 20)
    bomb = b"".join(stream.compress(zeros) for _ in range(1024)) + stream.flush()
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            inflate(bomb, Compression.GZIP, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT
    finally:
        tracemalloc.stop()


def test_a_body_over_the_limit_is_refused():
    with pytest.raises(TooLarge):
        inflate(bytes(LIMIT + 1), Compression.IDENTITY, LIMIT)
