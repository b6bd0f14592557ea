"""GenAI event logs: what real libraries send, as read and as taken by the doors."""

import asyncio
import base64
import json
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from longpole.errors import BadInput
from longpole_collector.decode import Compression, Format, Received, TooLarge
from longpole_collector.decode.logs import LogEvent, parse_logs
from longpole_collector.events import JOINED
from longpole_collector.health import Health
from longpole_collector.signals import LOGS, METRICS, TRACES, Export, take
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.remote import RemoteReader
from longpole_collector.writer import Writer

TRACE, SPAN = "ab" * 16, "cd" * 8
DATA = Path(__file__).parent / "data"
CAPTURES = {"openai-v2": 19, "genai-openai": 6, "openllmetry": 16}


@pytest.fixture
def capture():
    return lambda name, kind="logs": (DATA / "logs" / f"{name}.{kind}.pb").read_bytes()


def record(**given):
    return {"traceId": TRACE, "spanId": SPAN, "eventName": "gen_ai.choice"} | given


def parse(*records):
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]})
    return parse_logs(body.encode(), Format.JSON)


def event(name="gen_ai.choice", time_ns=1, **attributes):
    return LogEvent(TRACE, SPAN, time_ns, name, attributes)


# --- reading ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CAPTURES)
def test_the_events_of_real_libraries_are_read(name, capture):
    logs = parse_logs(capture(name), Format.PROTOBUF)
    assert len(logs.events) == CAPTURES[name]
    assert {event.name.partition(".")[0] for event in logs.events} == {"gen_ai"}
    assert all(event.time_ns > 1_790_000_000_000_000_000 for event in logs.events)


def test_an_event_without_a_span_is_dropped_and_said(capture):
    logs = parse_logs(capture("openllmetry"), Format.PROTOBUF)
    assert logs.num_dropped == 2  # the choices of its streams, written when the span was over
    assert logs.reason.startswith("2 GenAI events were dropped, they belong to no span: trace id")


@pytest.mark.parametrize("name", CAPTURES)
def test_json_gives_the_same_events_as_protobuf(name, capture):
    request = MessageToDict(ExportLogsServiceRequest.FromString(capture(name)))
    for resource in request["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for each in scope["logRecords"]:
                for key in {"traceId", "spanId"} & each.keys():
                    each[key] = _hex(each[key])
    logs = parse_logs(json.dumps(request).encode(), Format.JSON)
    other = parse_logs(capture(name), Format.PROTOBUF)
    assert logs.events == other.events
    assert logs.num_dropped == other.num_dropped


def _hex(base64_id):
    return base64.b64decode(base64_id).hex().upper()


def test_other_log_records_are_counted_and_said():
    logs = parse(record(), record(eventName="my.event"), {"body": {"stringValue": "hello"}}, {})
    assert len(logs.events) == 1
    assert logs.num_dropped == 3
    assert logs.reason.startswith("3 log records were dropped: longpole keeps spans and the GenAI")


@pytest.mark.parametrize(
    "bad",
    [
        {"traceId": "abc"},
        {"spanId": ""},
        {"spanId": "00" * 8},
        {"traceId": None},
        {"timeUnixNano": "-5"},
        {"timeUnixNano": "x"},
        {"body": {"stringValue": 5}},
    ],
)
def test_a_bad_event_is_dropped_alone(bad):
    logs = parse(record(), record(**bad), record())
    assert (len(logs.events), logs.num_dropped) == (2, 1)
    assert "1 GenAI events were dropped" in logs.reason


def test_the_name_may_be_an_attribute_and_the_time_the_observers():
    named = {"key": "event.name", "value": {"stringValue": "gen_ai.choice"}}
    (found,) = parse(
        record(eventName=None, attributes=[named], observedTimeUnixNano="7", timeUnixNano=0)
    ).events
    assert found == event(time_ns=7)


def test_a_body_stays_whole_and_its_facts_stand_by_themselves():
    pairs = [
        {"key": "finish_reason", "value": {"stringValue": "stop"}},
        {"key": "message", "value": {"stringValue": "secret"}},
    ]
    (found,) = parse(record(body={"kvlistValue": {"values": pairs}})).events
    assert found.attributes == {
        "finish_reason": "stop",
        "body": {"finish_reason": "stop", "message": "secret"},
    }


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"rubbish", Format.PROTOBUF),
        (b"rubbish", Format.JSON),
        (b"[]", Format.JSON),
        (b'{"resourceLogs": 5}', Format.JSON),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [5]}]}]}', Format.JSON),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": 5}]}]}]}', Format.JSON),
    ],
)
def test_what_is_no_logs_request_is_refused(body, form):
    with pytest.raises(BadInput):
        parse_logs(body, form)


def test_too_many_records_are_refused_and_an_empty_request_is_none():
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(3):
        logs.add()
    with pytest.raises(TooLarge, match="3 log records: at most 2"):
        parse_logs(request.SerializeToString(), Format.PROTOBUF, 2)
    for form in Format:
        assert parse_logs(b"", form) == ([], 0, "")


def test_nesting_beyond_reason_drops_the_event():
    value = {"stringValue": "x"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    assert parse(record(body=value)).num_dropped == 1


@given(st.binary(), st.sampled_from(list(CAPTURES)), st.floats(0, 1), st.sampled_from(Format))
def test_whatever_bytes_come_they_are_read_or_refused(noise, name, at, form):
    whole = (DATA / "logs" / f"{name}.logs.pb").read_bytes()
    if form is Format.JSON:
        whole = json.dumps(MessageToDict(ExportLogsServiceRequest.FromString(whole))).encode()
    place = int(at * len(whole))
    for body in (noise, whole[:place] + noise + whole[place + len(noise) :]):
        try:
            logs = parse_logs(body, form)
        except BadInput:
            continue
        assert all(len(event.trace_id + event.span_id) == 48 for event in logs.events)
        assert bool(logs.num_dropped) == bool(logs.reason)


# --- the doors -------------------------------------------------------------------------------
class Taker:
    """Takes what comes, as the ingest does."""

    def __init__(self):
        self.health = Health()
        self.taken = []

    async def accept(self, body, form, compression):
        self.taken.append(("traces", body, form, compression))
        return SimpleNamespace(num_rejected=0, reason="")

    async def accept_logs(self, body, form, compression):
        logs = parse_logs(body, form)
        self.taken.append(("logs", body, form, compression))
        return SimpleNamespace(num_rejected=logs.num_dropped, reason=logs.reason)


def export(signal, body, form=Format.PROTOBUF, compression=Compression.IDENTITY):
    taker = Taker()
    request = Export(signal, body, form, compression, "http", 0.0)
    return taker, asyncio.run(take(request, taker, 1 << 20))


def test_taken_events_are_no_partial_success_and_dropped_ones_are(capture):
    taker, answer = export(LOGS, capture("openai-v2"))
    assert answer == b""
    assert taker.health.total("signals_dropped") == 0
    taker, answer = export(LOGS, capture("openllmetry"))
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert partial.rejected_log_records == 2
    assert "belong to no span" in partial.error_message
    assert taker.health.total("signals_dropped", "logs") == 2


def test_every_answered_request_is_counted_by_signal_door_and_encoding():
    taker, _ = export(TRACES, b"{}", Format.JSON, Compression.GZIP)
    assert taker.health.total("requests_answered", ("traces", "http", "json+gzip")) == 1
    assert 'longpole_ack_seconds_count{door="http"} 1' in taker.health.prometheus()
    taker, answer = export(METRICS, b'{"resourceMetrics": []}', Format.JSON)
    assert (answer, taker.taken) == (b"{}", [])
    assert taker.health.total("requests_answered", ("metrics", "http", "json")) == 1


EXPORT = {
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}


def send(collector, door, signal, body):
    if door == "gRPC":
        with grpc.insecure_channel(str(collector.grpc)) as channel:
            return channel.unary_unary(EXPORT[signal])(body, timeout=20)
    headers = {"content-type": "application/x-protobuf"}
    answer = httpx.post(
        f"{collector.url}/v1/{signal}", content=body, headers=headers, trust_env=False, timeout=20
    )
    answer.raise_for_status()
    return answer.content


@pytest.mark.parametrize("door", ["HTTP", "gRPC"])
@pytest.mark.parametrize("first", ["logs", "traces"])
def test_events_sent_to_a_door_are_joined_whichever_comes_first(
    door, first, capture, collector, eventually
):
    order = [first, *{"logs", "traces"} - {first}]
    for signal in order:
        assert send(collector, door, signal, capture("openai-v2", signal)) == b""
    reader = RemoteReader(collector.url)
    query = (
        "SELECT finish_reason, count(*) AS n FROM spans "
        f"WHERE list_contains(flags, '{JOINED}') GROUP BY ALL ORDER BY ALL"
    )
    eventually(lambda: sum(reader.sql(query)["n"].to_pylist()) == 6)
    assert [tuple(row.values()) for row in reader.sql(query).to_pylist()] == [
        ("error", 1),
        ("stop", 3),
        ("tool_call", 1),
        (None, 1),
    ]
    assert reader.sql("SELECT * FROM spans").num_rows == 6
    eventually(lambda: reader.sql("SELECT * FROM traces").num_rows == 6)
    reader.close()
    metrics = httpx.get(f"{collector.url}/metrics", trust_env=False).text
    for line in (
        "longpole_events_received_total 19",
        "longpole_events_joined_total 19",
        "longpole_pending_events 0",
    ):
        assert line in metrics.splitlines()


def test_all_events_are_joined_at_once_though_many_wait_for_a_span(capture, tmp_path, monkeypatch):
    """Those without a span come first and hold up none; a span gets all of its events together."""
    monkeypatch.setattr("longpole_collector.stores.events._MAX_ROWS", 4)
    store = DuckStore(tmp_path / "data")
    writer = Writer(store, None)
    now_ns = time.time_ns()
    lonely = [record(traceId=f"{number:032x}") for number in range(1, 7)]
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": lonely}]}]}).encode()
    writer.write_events([Received(body, Format.JSON, now_ns)])
    writer.write_events([Received(capture("openai-v2"), Format.PROTOBUF, now_ns + 1)])
    traces = Received(capture("openai-v2", "traces"), Format.PROTOBUF, now_ns)
    writer.write(writer.read([traces]))
    writer.settle(everything=True)
    assert writer.health.total("events_joined") == 19
    (found,) = store.sql(
        f"SELECT count(*) AS n FROM spans WHERE list_contains(flags, '{JOINED}')"
    ).to_pylist()
    assert found == {"n": 6}
    store.close()
