"""Alerts inside a running collector: from a bad span to the page, and what /metrics says."""

import random
import time

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from longpole.errors import UsageError
from longpole.vocab import keys
from longpole_analytics.alerts.plugin import WATCHER
from longpole_collector import app
from longpole_collector.app import background
from longpole_collector.settings import Settings
from longpole_collector.watching import Seat, Watching, configured

from .fakes import serving, webhook

TOML = """
[slo.chat]
metric = "e2e_ms"
threshold = 1000
target = 0.99
period = "1d"
where = "route = 'chat'"

[alerts]
interval_s = 1
patience_s = 0
allow_hosts = "127.0.0.1"

[alerts.sinks.hook]
kind = "webhook"
url = "${env:HOOK}"
"""


def body(num, seconds):
    dice, now_ns = random.Random(seconds), time.time_ns()
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = keys.SCOPE_SDK
    for _ in range(num):
        span = scope.spans.add(
            trace_id=dice.randbytes(16),
            span_id=dice.randbytes(8),
            name="chat",
            start_time_unix_nano=now_ns - int(seconds * 1e9) - 10**9,
            end_time_unix_nano=now_ns - 10**9,
        )
        pair = span.attributes.add(key=keys.ROUTE)
        pair.value.string_value = "chat"
    return request.SerializeToString()


def send(collector, data):
    headers = {"content-type": "application/x-protobuf"}
    url = f"{collector.url}/v1/traces"
    assert httpx.post(url, content=data, headers=headers, trust_env=False).status_code == 200


def metrics(collector, wanted):
    """The text of /metrics, once it has what is wanted."""
    text = httpx.get(f"{collector.url}/metrics", trust_env=False).text
    return text if wanted in text else None


def eventually(check, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin = lambda: Watching(b for b in [WATCHER.configure()] if b is not None)  # noqa: E731
    monkeypatch.setattr(app, "configured", begin)
    return Settings(db=tmp_path / "data", http="127.0.0.1:0", grpc="127.0.0.1:0")


def test_a_bad_span_pages_and_a_restart_pages_nobody_again(chosen, tmp_path, monkeypatch):
    (tmp_path / "longpole.toml").write_text(TOML)
    with serving(webhook) as (url, got):
        monkeypatch.setenv("HOOK", url)
        for _ in range(2):
            with background(chosen) as collector:
                eventually(lambda at=collector: at.ingest.is_ready)
                for num, seconds in ((5, 0.1), (20, 3.0)):
                    send(collector, body(num, seconds))
                eventually(lambda: got)
                text = eventually(lambda at=collector: metrics(at, "longpole_slo_budget"))
        assert [(each.json["status"], each.json["severity"]) for each in got] == [
            ("firing", "page")
        ]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (left,) = families["longpole_slo_budget_remaining_ratio"].samples
    assert left.labels == {"slo": "chat"}
    assert left.value < 0
    assert families["longpole_alerts_firing"].samples
    assert "longpole_spans_stored" in families


def test_without_objectives_nothing_is_watched(chosen):
    assert WATCHER.configure() is None
    with background(chosen) as collector:
        text = httpx.get(f"{collector.url}/metrics", trust_env=False).text
    assert "longpole_slo" not in text
    assert not (chosen.db / "alerts").exists()


def test_a_broken_objective_stops_the_start(chosen, tmp_path):
    (tmp_path / "longpole.toml").write_text("[slo.x]\nmetric = 'speed'\n")
    with pytest.raises(UsageError, match="speed"), background(chosen):
        pass


def test_the_plug_in_is_found_by_its_entry_point(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert configured().start(Seat("default", tmp_path, None)) == []
