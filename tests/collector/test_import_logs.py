"""GenAI events in files of log records: joined to their spans as at the door."""

import base64
import gzip
import json
from dataclasses import replace

import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole_collector.content import KEY_FILE
from longpole_collector.decode import Format
from longpole_collector.decode.logs import parse_logs
from longpole_collector.events import JOINED
from longpole_collector.importing import import_all
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader

KEY = b"k" * 32
IDS = ("traceId", "spanId", "parentSpanId")


def framed(*bodies):
    """As the OpenTelemetry Collector's file exporter writes protobuf."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def delimited(*bodies):
    """As protobuf's own delimited streams have it, lengths of three bytes."""
    heads = [bytes([len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F | 0x80, len(body) >> 14])
             for body in bodies]  # fmt: skip
    return b"".join(head + body for head, body in zip(heads, bodies, strict=True))


def line_of(message, data):
    """A request as a line of OTLP JSON: protobuf's JSON with ids in hex."""

    def in_hex(value):
        if isinstance(value, list):
            return [in_hex(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64decode(item).hex() if key in IDS else in_hex(item)
            for key, item in value.items()
        }

    return json.dumps(in_hex(MessageToDict(message.FromString(data)))).encode() + b"\n"


def told(reader):
    """All spans and calls, and how many took an event over."""
    columns = "* EXCLUDE (received_ns)"
    spans = reader.sql(f"SELECT {columns} FROM spans ORDER BY span_id").to_pylist()
    calls = reader.sql("SELECT * FROM calls ORDER BY span_id").to_pylist()
    return spans, calls, sum(JOINED in span["flags"] for span in spans)


@pytest.fixture(params=["openai-v2", "genai-openai"])
def logged(request, data, tmp_path):
    """A capture of spans and their events, as a door's requests and as files of several forms."""
    traces, logs = (
        (data / "logs" / f"{request.param}.{kind}.pb").read_bytes() for kind in ("traces", "logs")
    )
    lines = [
        line_of(ExportLogsServiceRequest, logs), line_of(ExportTraceServiceRequest, traces)
    ]  # fmt: skip
    forms = {
        "traces.pb": traces,
        "logs.pb": logs,
        "logs.framed": framed(logs, b""),
        "both.framed": framed(logs, traces),
        "both.delimited": delimited(traces, logs),
        "both.jsonl": b"".join(lines),
        "both.jsonl.gz": gzip.compress(b"".join(reversed(lines))),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
    return traces, logs, tmp_path


WAYS = (
    ("traces.pb", "logs.pb"), ("logs.pb", "traces.pb"), ("logs.framed", "traces.pb"),
    ("both.framed",), ("both.delimited",), ("both.jsonl",), ("both.jsonl.gz",),
)  # fmt: skip


def at_the_doors(folder, traces, logs, collecting, settings, eventually):
    folder.mkdir(mode=0o700)
    (folder / KEY_FILE).write_bytes(KEY)
    with collecting(replace(settings, db=folder)) as collector:
        for path, body in (("traces", traces), ("logs", logs)):
            httpx.post(
                f"{collector.url}/v1/{path}", content=body, trust_env=False,
                headers={"content-type": "application/x-protobuf"},
            ).raise_for_status()  # fmt: skip
        num = len(parse_logs(logs, Format.PROTOBUF).events)
        eventually(lambda: collector.ingest.health.total("events_joined") == num)
        reader = RemoteReader(collector.url)
        found = told(reader)
        reader.close()
    return found, num


def test_events_in_files_are_joined_as_at_the_door(logged, collecting, settings, eventually):
    traces, logs, folder = logged
    at_door, num = at_the_doors(folder / "door", traces, logs, collecting, settings, eventually)
    assert at_door[2] > 0
    for number, names in enumerate(WAYS):
        db = folder / f"db{number}"
        db.mkdir(mode=0o700)
        (db / KEY_FILE).write_bytes(KEY)
        for _ in range(2):  # again: the same
            done = import_all([folder / name for name in names], db=db, url=None)
            assert done.num_events == num
            reader = open_reader(db=db)
            assert told(reader) == at_door, names
            reader.close()
        reader = open_reader(files=[folder / name for name in names])
        assert told(reader)[2] == at_door[2], names
        reader.close()


def test_events_in_files_go_to_a_running_collector_in_parts_too(
    logged, collecting, settings, eventually, monkeypatch
):
    traces, logs, folder = logged
    at_door, num = at_the_doors(folder / "door", traces, logs, collecting, settings, eventually)
    for limit in (1 << 20, 3000):
        monkeypatch.setattr("longpole_collector.importing._POST_BYTES", limit)
        db = folder / f"db{limit}"
        db.mkdir(mode=0o700)
        (db / KEY_FILE).write_bytes(KEY)
        with collecting(replace(settings, db=db)) as collector:
            done = import_all([folder / "both.framed"], db=db, url=None)
            assert (done.num_events, done.num_new) == (num, None)
            reader = RemoteReader(collector.url)
            eventually(lambda reader=reader: told(reader) == at_door)
            reader.close()
