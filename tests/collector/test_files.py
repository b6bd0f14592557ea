import gzip
import json
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole.vocab import Span, Stage, keys
from longpole_collector.content import KEY_FILE, Policy, Scrubber
from longpole_collector.decode import json as otlp_json
from longpole_collector.decode.raw import MAX_SPANS
from longpole_collector.files import write_jaeger, write_jsonl, write_parquet
from longpole_collector.health import Health
from longpole_collector.importing import import_all, import_into
from longpole_collector.normalise import Reader
from longpole_collector.otlp_out import to_otlp, to_raw
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.remote import RemoteReader
from longpole_collector.writer import Writer

START_NS = 1_790_000_000_000_000_000
CORPUS = [
    "agent",
    "ant-stream",
    "gemini-stream",
    "oai-bad",
    "oai-chat",
    "oai-chat-stream",
    "oai-chat-tools-stream",
]
FINISH = {"stop": "stop", "end_turn": "stop", "STOP": "stop", "tool_calls": "tool_call", None: None}


def spans_of(reader):
    table = reader.sql("SELECT * EXCLUDE (received_ns) FROM spans ORDER BY start_ns, span_id")
    return table.to_pylist(maps_as_pydicts="strict")


@pytest.mark.parametrize("case", [case for case in CORPUS if case != "agent"])
def test_a_real_capture_gives_the_true_call(data, case):
    truth = json.loads((data / f"otel-genai-{case}.expected.json").read_text())
    reader = open_reader(files=[data / f"otel-genai-{case}.otlp.pb"])
    (call,) = reader.sql("SELECT * FROM calls").to_pylist()
    reader.close()
    assert truth["true_model_calls"] == 1
    assert call["request_model"] == truth["request_model"]
    assert call["dialect"] == "otel_genai"
    if truth["error"] is not None:
        assert call["error_type"]
        assert call["finish_reason"] is None
        return
    tokens = truth["tokens"]
    assert call["response_model"] == truth["response_model"]
    assert call["finish_reason"] == FINISH[truth["finish_reason"]]
    assert call["input_tokens"] == tokens["input_total"]
    assert call["uncached_input_tokens"] == tokens["input_uncached"]
    assert call["cached_input_tokens"] == tokens["input_cached"]
    assert (call["cache_write_tokens"] or 0) == tokens["input_cache_write"]
    assert (call["output_tokens"], call["reasoning_tokens"]) == (
        tokens["output"],
        tokens["reasoning"],
    )
    if truth["streamed"]:
        assert call["is_streamed"]
        assert call["first_chunk_ms"] > 0
    if call["ttft_ms"] is not None and "ttft_first_event" not in call["flags"]:
        assert call["ttft_ms"] == pytest.approx(truth["ttft_true_ms"], rel=0.05, abs=15)


def test_a_real_agent_keeps_its_shape(data):
    reader = open_reader(files=[data / "otel-genai-agent.otlp.pb"])
    calls = reader.sql("SELECT operation, finish_reason FROM calls ORDER BY start_ns").to_pylist()
    stages = reader.sql("SELECT stage, count(*) AS n FROM spans GROUP BY stage").to_pylist()
    roots = reader.sql("SELECT name FROM spans WHERE parent_id IS NULL").to_pylist()
    reader.close()
    assert [call["operation"] for call in calls] == ["embeddings", "chat", "chat"]
    assert [call["finish_reason"] for call in calls][1:] == ["tool_call", "stop"]
    assert {row["stage"]: row["n"] for row in stages} == {"tool": 2, "retrieval": 1, None: 5}
    assert roots == [{"name": "invoke_workflow answer_question"}]


def delimited(*bodies):
    parts = []
    for body in bodies:
        length, head = len(body), []
        while True:
            head.append((length & 0x7F) | (0x80 if length > 0x7F else 0))
            length >>= 7
            if not length:
                break
        parts.append(bytes(head) + body)
    return b"".join(parts)


def framed(*bodies):
    """As the OpenTelemetry Collector's file exporter writes protobuf."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def test_every_form_of_file_is_told_by_its_content(otlp, data, tmp_path):
    one, two = otlp.body([otlp.span() for _ in range(3)]), otlp.body([otlp.span()])
    document = json.loads((data / "request.json").read_text())
    line = json.dumps(document)
    holder = json.dumps(document["resourceSpans"][0])
    logs = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}]})
    forms = {
        "protobuf": (one, 3),
        "delimited": (delimited(one, two), 4),
        "json": ((data / "request.json").read_bytes(), 3),
        "bom": (b"\xef\xbb\xbf" + line.encode(), 3),
        "lines": (f"{line}\n\n{line}\n".encode(), 3),
        "holders": (f"{holder}\n{holder}".encode(), 3),
        "one holder": (holder.encode(), 3),
        "empty": (b"", 0),
        "file exporter": (framed(one, b"", two), 4),
        "one long frame": (framed(one), 3),
        "file exporter's lines": (f"{line}\n{logs}\n{line}\n".encode(), 3),
    }
    for name, (content, num) in forms.items():
        for packed in (content, gzip.compress(content, mtime=0)):
            path = tmp_path / "any.name"
            path.write_bytes(packed)
            reader = open_reader(files=[path])
            assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": num}], name
            reader.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello world", "no trace file"),
        (b'{"traces": []}', "resourceSpans"),
        (b'{"resourceSpans": []}\n{"resourceSpans": [}\n', "line 2"),
        (b"[1]", "resourceSpans"),
        (b"[]", "resourceSpans"),
        (framed(b"\n\0")[:-1], "no trace file"),
        (b"{", "not JSON"),
        (gzip.compress(b"x" * 500, mtime=0)[:-4], "gzip"),
        (b"PAR1 rubbish", "Parquet"),
    ],
)
def test_what_is_no_trace_file_is_named(tmp_path, content, message):
    path = tmp_path / "some.file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as caught:
        open_reader(files=[path])
    assert "some.file" in str(caught.value)


def test_a_missing_file_and_a_foreign_parquet_are_named(tmp_path):
    with pytest.raises(BadInput, match=r"absent\.pb"):
        open_reader(files=[tmp_path / "absent.pb"])
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(BadInput, match="column 'trace_id' is missing"):
        open_reader(files=[tmp_path / "other.parquet"])


KEY = b"k" * 32


@pytest.fixture
def full(otlp, data):
    """A store with spans of every kind."""
    store = DuckStore()
    writer = Writer(store, None, scrubber=Scrubber(Policy(key=KEY), Health()))
    for case in CORPUS:
        import_into(writer, data / f"otel-genai-{case}.otlp.pb")
    import_into(writer, data / "request.json")
    writer.write_spans(
        otlp.canonical(
            otlp.span(
                kind=2,
                attributes={keys.ENGINE_QUEUE: 0.001, keys.ENGINE_DECODE: 0.5, "x": True, "y": [1]},
                events=[("e", 7, {"n": 1, "f": 0.5, "l": ["a"], "m": {"k": True}})],
                links=[(b"t" * 16, b"s" * 8, {"a": "b"})],
            ),
            scope="vllm",
        )
    )
    writer.write_spans(otlp.canonical(otlp.span(end_time_unix_nano=0), scope=""))
    yield store
    store.close()


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_an_export_comes_back_as_the_same_spans(full, tmp_path, write, monkeypatch):
    monkeypatch.setattr("longpole_collector.files._PAGE_ROWS", 5)
    path = tmp_path / "spans"
    num = write(full, path)
    again = open_reader(files=[path])
    assert spans_of(again) == spans_of(full)
    assert num == len(spans_of(full)) > 15
    again.close()


def test_a_jaeger_export_comes_back_to_the_microsecond(full, tmp_path, monkeypatch):
    monkeypatch.setattr("longpole_collector.files._PAGE_ROWS", 5)

    def coarse(span):
        """What Jaeger can hold: whole microseconds, links without attributes."""
        times = {key: span[key] and span[key] // 1000 for key in ("start_ns", "end_ns")}
        events = [
            (event["name"], event["time_ns"] // 1000, sorted(event["attributes"]))
            for event in json.loads(span["events"] or "[]")
        ]
        links = [link["span_id"] for link in json.loads(span["links"] or "[]")]
        return span | times | {"events": events, "links": links}

    num = write_jaeger(full, tmp_path / "traces.json")
    again = open_reader(files=[tmp_path / "traces.json"])
    key = itemgetter("trace_id", "span_id")
    found = sorted(map(coarse, spans_of(again)), key=key)
    again.close()
    assert found == sorted(map(coarse, spans_of(full)), key=key)
    assert num == len(found)


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_jaeger])
def test_an_empty_store_exports_and_comes_back_empty(tmp_path, write):
    store = DuckStore()
    assert write(store, tmp_path / "none") == 0
    store.close()
    again = open_reader(files=[tmp_path / "none"])
    assert spans_of(again) == []
    again.close()


numbers = st.one_of(st.none(), st.integers(0, 10**15))
names = st.one_of(
    st.none(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
)


@settings(max_examples=100, deadline=None)
@given(
    given_fields=st.fixed_dictionaries(
        {
            "operation": st.sampled_from([None, "chat", "execute_tool"]),
            "kind": st.sampled_from(["client", "server", "internal"]),
            "stage": st.sampled_from([None, *Stage]),
            "is_streamed": st.sampled_from([None, True, False]),
            "is_detached": st.booleans(),
            "input_tokens": numbers,
            "num_attempts": st.one_of(st.none(), st.integers(1, 9)),
            "ttft_ns": numbers,
            "queue_ns": numbers,
            "stall_ns": numbers,
            "tpot_ms": st.one_of(st.none(), st.integers(0, 10**9).map(lambda n: n / 1e6)),
            "route": names,
            "provider": st.sampled_from([None, "openai", "anthropic"]),
            "outcome": st.sampled_from([None, "accepted", "failed"]),
            "weight": st.sampled_from([None, 1.0, 4.0, 20.0]),
            "randomness": st.one_of(st.none(), st.integers(0, 2**56 - 1)),
            "flags": st.lists(st.text("ab", min_size=1), max_size=2),
            "attributes": st.dictionaries(st.text("xyz.", min_size=1), st.text("a\0ü\"'")),
        }
    )
)
def test_a_span_written_as_otlp_is_read_as_itself(otlp, given_fields):
    (plain,) = otlp.canonical(otlp.span())
    given_fields["stage"] = given_fields["stage"] and str(given_fields["stage"])
    spans = [plain._replace(**given_fields)]
    for _ in range(2):
        body = json.dumps(to_otlp(map(to_raw, spans))).encode()
        normaliser = Reader(Health(), Scrubber(Policy(), Health()))
        found = [normaliser.span(raw) for raw in otlp_json.parse(body).spans(plain.received_ns)]
        if _ == 0:  # what kind and operation imply is inferred the first time
            inferred = ("stage", "is_model_call", "is_engine")
            spans = [spans[0]._replace(**{name: getattr(found[0], name) for name in inferred})]
        assert found == spans


def test_import_counts_and_says_what_was_wrong(otlp, tmp_path):
    path = tmp_path / "some.pb"
    path.write_bytes(otlp.body([otlp.span(), otlp.span(trace_id=b"x"), otlp.span()]))
    folder = tmp_path / "db"
    first = import_all([path], db=folder, url=None)
    assert first[:3] == (2, 2, 1)
    assert "trace id of 1 bytes" in first.reason
    assert import_all([path, path], db=folder, url=None)[:3] == (4, 0, 2)


def test_what_a_file_exporter_wrote_besides_traces_is_counted(data, tmp_path):
    line = json.dumps(json.loads((data / "request.json").read_text()))
    logs = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]})
    gauge = {"name": "m", "gauge": {"dataPoints": [{}]}}
    metrics = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [gauge]}]}]})
    path = tmp_path / "telemetry.jsonl"
    path.write_text(f"{line}\n{logs}\n{metrics}\n")
    done = import_all([path], db=tmp_path / "db", url=None)
    assert done[:3] == (3, 3, 3)
    assert done.reason.startswith("2 log records were dropped")
    path.write_text(f"{line}\n{metrics}\n")
    done = import_all([path], db=tmp_path / "db", url=None)
    assert done[1:4] == (0, 1, "metrics are not kept, only traces")


def test_a_large_file_goes_to_a_running_collector_in_parts(
    otlp, tmp_path, settings, collecting, monkeypatch
):
    monkeypatch.setattr("longpole_collector.importing._POST_BYTES", 20_000)
    spans = [
        otlp.span(start_time_unix_nano=START_NS + i, attributes={"b": b"\0\xff", "t": "x" * 99})
        for i in range(MAX_SPANS + 1)
    ]
    (tmp_path / "many.pb").write_bytes(otlp.body(spans[:20]))
    (tmp_path / "most.pb").write_bytes(otlp.body(spans))
    with collecting(settings) as collector:
        assert import_all([tmp_path / "many.pb"], db=None, url=collector.url)[0] == 20
        monkeypatch.undo()
        assert import_all([tmp_path / "most.pb"], db=None, url=collector.url)[0] == len(spans)
        reader = RemoteReader(collector.url)
        sql = "SELECT count(*) AS n, max(attributes['b']) AS b FROM spans"
        assert reader.sql(sql).to_pylist() == [{"n": len(spans), "b": "AP8="}]
        reader.close()
    reader = open_reader(files=[tmp_path / "most.pb"])  # no limit for files
    assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": len(spans)}]
    reader.close()


def test_import_goes_to_the_collector_that_has_the_folder(
    otlp, data, full, tmp_path, settings, collecting
):
    write_parquet(full, tmp_path / "spans.parquet")
    settings.db.mkdir()
    (settings.db / KEY_FILE).write_bytes(KEY)
    with collecting(settings) as collector:
        done = import_all(
            [data / "request.json", tmp_path / "spans.parquet"], db=None, url=collector.url
        )
        assert done.num_new is None
        assert done.num_spans == len(spans_of(full)) + 3
        reader = RemoteReader(collector.url)
        assert spans_of(reader) == spans_of(full)
        assert reader.sql("SELECT * FROM traces").num_rows > 5
        reader.close()


def test_the_record_has_nothing_an_export_forgets():
    """Every column is either written by name or follows from what is written."""
    from longpole_collector.otlp_out import _KEY_OF

    follows = {
        "trace_id", "span_id", "parent_id", "name", "kind", "start_ns", "end_ns", "received_ns",
        "service", "instance_id", "scope", "dialect", "status", "status_message", "is_model_call",
        "is_engine", "attributes", "events", "links", "weight", "randomness",
    }  # fmt: skip
    assert follows | _KEY_OF.keys() == set(Span._fields)
