import gzip
import json
from copy import deepcopy

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.cli import main
from longpole.errors import BadInput
from longpole_collector.decode.raw import RawEvent, RawLink, RawSpan, Resource, text
from longpole_collector.importing import import_all
from longpole_collector.jaeger import parse_document
from longpole_collector.jaeger_out import to_jaeger
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader

START_US = 1_790_000_000_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OLD_TRACE = "0000000000000000a3ce929d0e0e4736"


@pytest.fixture
def document(data):
    return json.loads((data / "jaeger.json").read_text())


def read(document):
    return list(parse_document(document).spans(7))


def plain(**given):
    """One good span, with some fields given."""
    return {
        "traceID": TRACE,
        "spanID": "1",
        "operationName": "work",
        "startTime": START_US,
        "duration": 10,
    } | given


def one(**given):
    body = parse_document({"spans": [plain(**given)]})
    assert body.num_rejected == 0, body.reason
    return next(body.spans(7))


# --- in --------------------------------------------------------------------------------------
def test_tags_become_what_they_were_before_jaeger(document):
    root, call, old, after = read(document)
    assert (root.trace_id, root.span_id, root.parent_id) == (TRACE, "00f067aa0ba902b7", None)
    assert (root.kind, root.scope, root.status) == ("internal", "longpole", "unset")
    assert root.attributes.keys() == {
        "longpole.route",
        "longpole.outcome",
        "internal.span.format",
    }
    assert (call.kind, call.parent_id) == ("client", root.span_id)
    assert call.scope == "opentelemetry.instrumentation.openai_v2"
    assert call.attributes["gen_ai.usage.output_tokens"] == 20
    assert isinstance(call.attributes["gen_ai.response.time_to_first_chunk"], float)
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert call.attributes["blob"] == b"\0\1"
    assert call.attributes["jaeger.warnings"] == ["clock skew adjusted"]
    assert call.events == [RawEvent("first chunk", 1_790_000_001_100_000_000, {"size": 3})]
    assert (old.status, after.status, after.status_message) == ("error", "error", "no answer")
    assert "error" not in old.attributes | after.attributes


def test_times_are_exact(document):
    root, _, _, after = read(document)
    assert root.start_ns == 1_790_000_000_000_001_000
    assert root.end_ns == 1_790_000_002_000_004_000
    assert after.end_ns == after.start_ns


def test_the_process_is_the_resource(document):
    root, call, old, _ = read(document)
    environment = {"resource.deployment.environment.name": "test"}
    assert root.resource == Resource("shop", "shop-1", environment)
    assert call.resource == Resource("assistant", "node-7", {})
    assert old.resource == Resource("legacy", "legacy", {})


def test_short_ids_are_padded_and_references_told_apart(document):
    _, call, old, after = read(document)
    assert (old.trace_id, old.span_id, old.parent_id) == (OLD_TRACE, "0" * 14 + "51", None)
    assert call.links == [RawLink(OLD_TRACE, old.span_id, {})]
    # what only follows is no child, whatever the old field says; that may be made from references
    assert after.links == [RawLink(OLD_TRACE, old.span_id, {})]
    assert after.parent_id is None


def test_the_first_child_of_within_the_trace_is_the_parent():
    references = [
        {"refType": "CHILD_OF", "traceID": "9", "spanID": "2"},
        {"refType": "FOLLOWS_FROM", "traceID": TRACE, "spanID": "3"},
        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "4"},
        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "5"},
    ]
    span = one(references=references)
    assert span.parent_id == "4".zfill(16)
    assert [link.span_id[-1] for link in span.links] == ["2", "3", "5"]
    zero = {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "0000000000000000"}
    assert one(references=[zero]).parent_id is None
    only_follows = {"refType": "FOLLOWS_FROM", "traceID": TRACE, "spanID": "3"}
    assert one(references=[only_follows]).parent_id is None
    assert one(parentSpanID="51").parent_id == "51".zfill(16)
    assert one(parentSpanID="0", references=[]).parent_id is None


@pytest.mark.parametrize(
    ("tags", "status", "left"),
    [
        ({"error": "true"}, "error", set()),
        ({"error": "broken pipe"}, "unset", {"error"}),
        ({"error": False}, "unset", {"error"}),
        ({"error": 1}, "unset", {"error"}),
        ({"otel.status_code": "OK", "error": True}, "ok", {"error"}),
        ({"otel.status_code": "UNSET", "error": True}, "unset", {"error"}),
        ({"otel.status_code": "strange"}, "unset", {"otel.status_code"}),
    ],
)
def test_status_is_what_the_tags_say(tags, status, left):
    span = one(tags=[{"key": key, "value": value} for key, value in tags.items()])
    assert (span.status, span.attributes.keys()) == (status, left)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int64", "9223372036854775807", 2**63 - 1),
        ("int64", 2**63, str(2**63)),
        ("int64", "many", "many"),
        ("bool", "True", True),
        ("bool", "perhaps", "perhaps"),
        ("float64", "0.5", 0.5),
        ("float64", "fast", "fast"),
        ("binary", "no base64!", "no base64!"),
        ("string", '["a", "b"]', '["a", "b"]'),  # not as an exporter writes it: left alone
        ("string", '["a",1]', '["a",1]'),
        ("string", '["a"', '["a"'),
        ("string", {"a": [1]}, '{"a":[1]}'),
        (None, 5, 5),
    ],
)
def test_a_tag_has_its_declared_type_or_stays_as_it_stands(kind, value, expected):
    span = one(tags=[{"key": "x", "type": kind, "value": value}, {"key": "nothing"}])
    assert span.attributes == {"x": expected}
    assert type(span.attributes["x"]) is type(expected)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"traceID": "xyz"}, "traceID 'xyz': up to 32 hex digits"),
        ({"traceID": "0"}, "not all zero"),
        ({"spanID": None}, "spanID None"),
        ({"spanID": "1" * 17}, "up to 16 hex digits"),
        ({"startTime": 1.5}, "no whole number of microseconds"),
        ({"startTime": -1}, "no time in microseconds"),
        ({"startTime": 2**70}, "no time in microseconds"),
        ({"startTime": None}, "startTime None"),
        ({"duration": "long"}, "duration 'long'"),
        ({"duration": 2**70}, "ends at no time"),
        ({"tags": {"a": 1}}, "'tags' must be a list, not dict"),
        ({"tags": ["a"]}, "a tag must be an object"),
        ({"logs": [{"timestamp": "now"}]}, "log's timestamp 'now'"),
        ({"references": [{"refType": "CHILD_OF"}]}, "reference's spanID None"),
        ({"process": []}, "a process must be an object"),
    ],
)
def test_a_bad_span_is_rejected_alone_with_its_place(fields, reason):
    body = parse_document({"data": [{"spans": []}, {"spans": [plain(), plain(**fields), plain()]}]})
    assert (body.num_spans, body.num_rejected) == (2, 1)
    assert body.reason.startswith("trace 2, span 2: ")
    assert reason in body.reason


def test_a_span_that_is_no_object_is_rejected():
    assert parse_document([{"spans": [plain(), "span"]}]).reason.endswith("object, not str")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"data": None, "errors": [{"code": 404, "msg": "trace not found"}]}, "trace not found"),
        ({"data": ["service-a", "service-b"]}, "item 1 has no 'spans'"),
        ({"data": {"a": 1}}, "'data' must be a list"),
        ([{"spans": []}, {}], "item 2 has no 'spans'"),
        ({"data": [{"spans": 5}]}, "trace 1: 'spans' must be a list, not int"),
        ({"data": [{"spans": [], "processes": [1]}]}, "trace 1: 'processes' must be an object"),
        ({"spans": [], "processes": {"p1": {"tags": [1]}}}, "trace 1: a tag must be an object"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, broken, message):
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(broken))
    with pytest.raises(BadInput, match=r"traces\.json: ") as caught:
        open_reader(files=[path])
    assert message in str(caught.value)


def test_answers_lists_and_single_traces_are_told_by_content(document, tmp_path):
    traces = document["data"]
    lines = "\n".join(json.dumps(trace) for trace in traces)
    for num, content in (
        (4, json.dumps(document)),
        (4, json.dumps(document, indent=2)),
        (4, json.dumps(traces)),
        (2, json.dumps(traces[1])),
        (4, lines),
        (0, '{"data": []}'),
    ):
        for packed in (content.encode(), gzip.compress(content.encode())):
            path = tmp_path / "some.file"
            path.write_bytes(packed)
            reader = open_reader(files=[path])
            assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": num}]
            reader.close()


def test_dialects_read_jaegers_tags_and_its_secrets_are_not_stored(data):
    reader = open_reader(files=[data / "jaeger.json"])
    (call,) = reader.sql("SELECT * FROM calls").to_pylist()
    (trace,) = reader.sql("SELECT * FROM traces WHERE route IS NOT NULL").to_pylist()
    everything = str(reader.sql("SELECT * FROM spans").to_pylist())
    reader.close()
    assert (call["dialect"], call["request_model"]) == ("otel_genai", "small")
    assert (call["input_tokens"], call["output_tokens"]) == (100, 20)
    assert (call["e2e_ms"], call["first_chunk_ms"]) == (1500.0, 1000.0)
    assert call["finish_reason"] == "stop"
    assert (trace["trace_id"], trace["outcome"], trace["wall_ms"]) == (
        TRACE,
        "accepted",
        2000.003,
    )
    assert "hush" not in everything


def test_explain_reads_a_jaeger_file(data):
    done = CliRunner().invoke(main, ["explain", str(data / "jaeger.json"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["trace_id"] == TRACE


def test_a_jaeger_file_goes_to_a_running_collector(data, document, settings, collecting):
    with collecting(settings) as collector:
        done = import_all([data / "jaeger.json"], db=None, url=collector.url)
        assert done[:3] == (4, None, 0)
        reader = RemoteReader(collector.url)
        remote = reader.sql("SELECT * EXCLUDE (received_ns) FROM spans ORDER BY ALL").to_pylist()
        reader.close()
    local = open_reader(files=[data / "jaeger.json"])
    assert local.sql("SELECT * EXCLUDE (received_ns) FROM spans ORDER BY ALL").to_pylist() == remote
    local.close()


# --- out -------------------------------------------------------------------------------------
ids = st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}")
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times = st.integers(10**9, 2 * 10**18)
values = st.one_of(
    words,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(words, min_size=1, max_size=3),
)
attributes = st.dictionaries(st.text("xyz.", min_size=1, max_size=3), values, max_size=4)
raws = st.builds(
    RawSpan,
    st.just(TRACE),
    ids,
    st.none() | ids,
    words,
    st.sampled_from(["unspecified", "internal", "server", "client", "producer", "consumer"]),
    times,
    st.just(0),
    st.just(7),
    st.sampled_from(["unset", "ok", "error"]),
    words,
    attributes,
    st.lists(st.builds(RawEvent, words, times, attributes), max_size=2),
    st.lists(st.builds(RawLink, st.just(TRACE), ids, st.just({})), max_size=2),
    words,
    st.builds(
        Resource, st.just("app"), st.sampled_from(["app", "app-1"]), st.just({}), st.just(False)
    ),
    st.just(()),
)


def in_microseconds(span):
    """What Jaeger can hold of a span."""
    return span._replace(
        start_ns=span.start_ns // 1000 * 1000,
        end_ns=span.end_ns // 1000 * 1000,
        attributes={key: text(value) for key, value in span.attributes.items()},
        events=[
            (e.name, e.time_ns // 1000, {key: text(value) for key, value in e.attributes.items()})
            for e in span.events
        ],
    )


@settings(max_examples=200, deadline=None)
@given(given_spans=st.lists(raws, min_size=1, max_size=3), durations=st.lists(st.integers(1000)))
def test_what_is_written_is_read_as_itself_to_the_microsecond(given_spans, durations):
    ends = [min(duration, 10**15) for duration in durations] + [0, 0, 0]
    spans = [
        span._replace(end_ns=span.start_ns + duration if duration else 0)
        for span, duration in zip(given_spans, ends, strict=False)
    ]
    document = json.loads(json.dumps(to_jaeger(spans), allow_nan=False))
    body = parse_document(document)
    assert body.num_rejected == 0, body.reason
    assert [in_microseconds(span) for span in body.spans(7)] == [
        in_microseconds(span) for span in spans
    ]


def test_a_tag_named_error_and_an_unknown_sender_survive(document):
    odd = read(document)[0]._replace(
        resource=Resource(None, None, {}), attributes={"error": True, "boom": float("nan")}
    )
    for status in ("unset", "ok", "error"):
        span = odd._replace(status=status)
        (again,) = read(json.loads(json.dumps(to_jaeger([span]), allow_nan=False)))
        assert (again.status, again.resource) == (status, span.resource)
        assert text(again.attributes["boom"]) == "nan"
        assert ("error" in again.attributes) is (status != "error")
    noted = odd._replace(status="error", attributes={"error": "broken pipe"})
    assert read(to_jaeger([noted]))[0].attributes == {"error": "broken pipe"}


def test_an_export_has_everything_that_jaegers_ui_reads(data, tmp_path):
    out = tmp_path / "out.json"
    args = ["--format", "jaeger", "--out", str(out), "--file", str(data / "jaeger.json")]
    done = CliRunner().invoke(main, ["export", *args])
    assert (done.exit_code, done.stdout) == (0, "spans 4\n"), done.output
    traces = json.loads(out.read_text())["data"]
    assert {trace["traceID"] for trace in traces} == {TRACE, OLD_TRACE}
    for trace in traces:
        for span in trace["spans"]:
            assert span["traceID"] == trace["traceID"]
            assert trace["processes"][span["processID"]]["serviceName"]
            assert {type(span[key]) for key in ("startTime", "duration")} == {int}
            assert {type(span[key]) for key in ("tags", "logs", "references")} == {list}
            for tag in span["tags"]:
                assert tag["type"] in ("string", "bool", "int64", "float64")


def test_the_reader_leaves_its_document_alone(document):
    before = deepcopy(document)
    read(document)
    assert document == before
