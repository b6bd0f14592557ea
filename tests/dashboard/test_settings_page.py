"""Settings and health: what a running collector tells, and nothing that opens anything."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from tests.alerts.fakes import serving, webhook
from tests.alerts.harness import START, Scene, slo

from longpole_collector.app import background
from longpole_collector.doctor_data import lack_checks
from longpole_collector.keys import Scope, create
from longpole_collector.settings import Settings, load_settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader
from longpole_dashboard import server, source, widgets
from longpole_dashboard.model import alerts, health, reports
from longpole_dashboard.pages import settings as page
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import agent_trace

TOML = """
[slo.chat]
metric = "e2e_ms"
threshold = 1000
target = 0.99
period = "1d"

[alerts]
interval_s = 1
allow_hosts = "127.0.0.1"

[alerts.sinks.hook]
kind = "webhook"
url = "${env:HOOK}"
secret = "${env:HOOK_SECRET}"

[report]
schedule = "mon 07:00 UTC"

[collector.projects.default]
content = "redact"
redact = ["ORD-[0-9]{8}", "${env:HOOK_SECRET}"]
"""
SECRET = "s3cr3t-of-the-hook"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source, source._is_open = None, False


def test_a_running_collector_tells_its_state_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "longpole.toml").write_text(TOML)
    put = tmp_path / "data" / "reports" / "2026-W37"
    put.mkdir(parents=True)
    (put / "report.json").write_text(json.dumps(_report()))
    secrets = {}
    for scope in Scope:
        _, secrets[scope] = create(tmp_path / "data", "default", scope, f"for {scope}")
    create(tmp_path / "data", "shop", Scope.ADMIN, "another project's")
    with serving(webhook) as (url, got):
        monkeypatch.setenv("HOOK", url)
        given = load_settings(db=tmp_path / "data", http="127.0.0.1:0", grpc="127.0.0.1:0")
        with background(given) as collector:
            _spans(collector.url)
            reader = RemoteReader(collector.url)
            shown = health.settings(None, reader)
            told = alerts.alerts(None, reader)
            listed = reports.reports(None, None, reader)
            html = reports.report("2026-W37", None, None, reader)
            assert reports.report("../2026-W37?x=#", None, None, reader) is None
            state = health.health(reader)
            answers = [
                httpx.get(f"{collector.url}/api/v1/{path}", trust_env=False).text
                for path in ("settings", "watched/alerts", "watched/reports")
            ]
            for scope, status in ((Scope.READ, 403), (Scope.ADMIN, 200), (Scope.INGEST, 403)):
                limited = RemoteReader(collector.url, secrets[scope])
                assert limited.get("/api/v1/settings").status_code == status
                limited.close()
            refused = RemoteReader(collector.url, secrets[Scope.READ])
            assert "admin" in health.settings(None, refused).missing
            assert alerts.alerts(None, refused).missing == ""
            refused.close()
            assert reader.get("/api/v1/watched/nothing").status_code == 404
            monkeypatch.setattr(Source, "open", lambda self: reader)
            _page(collector.url, got)
            reader.close()
    assert {key.name for key in shown.keys} == {"for ingest", "for read", "for admin"}
    assert (shown.policy, shown.project) == ("redact", "default")
    assert shown.rules == ("ORD-[0-9]{8}", "${env:HOOK_SECRET}")
    assert "iban" in shown.kinds
    assert shown.num_bytes > 0
    assert [(sink.name, sink.kind) for sink in told.sinks] == [("hook", "webhook")]
    assert [each.name for each in listed.reports] == ["2026-W37"]
    assert html is not None
    counts = dict(state.counts)
    assert counts["spans received"] == counts["spans stored"] + counts["duplicates"] == 3
    assert ("spans rejected", "", 1) in state.lost
    for text in (*answers, repr(shown), repr(told)):
        assert SECRET not in text
        assert url not in text
        assert not any(secret in text for secret in secrets.values())
        assert not re.search("[0-9a-f]{64}", text)


def _report() -> dict[str, object]:
    window = {"since": "2026-09-07T00:00:00Z", "until": "2026-09-14T00:00:00Z", "num_traces": 0,
              "text": "that week"}  # fmt: skip
    return {"schema": "longpole.report/1", "title": "t", "window": window, "sections": [],
            "project": "default"}  # fmt: skip


def _send(url: str) -> None:
    now = time.time_ns()
    spans = [
        {"traceId": "1" * 32, "spanId": f"{n:016x}", "name": "chat m", "kind": 3,
         "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 10**9)}
        for n in (1, 2, 3, 0)
    ]  # fmt: skip
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    answer = httpx.post(f"{url}/v1/traces", json=body, trust_env=False)
    assert answer.status_code == 200


def _spans(url: str) -> None:
    _send(url)
    reader = RemoteReader(url)
    deadline = time.monotonic() + 60
    while reader.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py() < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    reader.close()


def _page(url: str, got: list[object]) -> None:
    """The page on that collector; a test is sent only after it was confirmed."""
    source.use(Source(url=url))
    app = run("settings")
    said = texts(app)
    assert "ORD-[0-9]{8}" in said
    assert "Not all that came is stored as it was sent: spans rejected 1" in said
    (button,) = (each for each in app.button if each.key == "send-hook")
    button.click().run()
    assert not got
    source.use(Source(url=url), is_open=True)
    app = run("settings")
    assert not [each for each in app.button if str(each.key).startswith("send-")]
    assert "open without a login" in texts(app)
    source.use(Source(url=url))
    assert page._sent("hook") == ("sink 'hook' took a test alert and its end", "better")
    assert len(got) == 2
    assert page._sent("nobody")[1] == "worse"


def test_a_store_that_is_away_is_told_with_what_waits_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "clickhouse://longpole:hush-hush@127.0.0.1:1/nowhere"
    given = Settings(db=tmp_path, http="127.0.0.1:0", grpc="127.0.0.1:0", store=away)
    with background(given) as collector:
        _send(collector.url)
        reader = RemoteReader(collector.url)
        found = health.health(reader)
        # no page can ask the store: this one is drawn as far as its collector tells
        monkeypatch.setattr(Source, "open", lambda self: reader)
        monkeypatch.setattr(widgets, "navigation", lambda pages: pages["settings"])
        source.use(Source(url=collector.url))
        app = AppTest.from_file(str(server.SCRIPT), default_timeout=60).run()
        reader.close()
    assert not app.exception
    said = texts(app)
    assert found.problem.startswith("no ClickHouse answers at clickhouse://127.0.0.1:1/nowhere")
    assert found.log_bytes
    assert dict(found.counts)["requests received"] == 1
    assert said.count(found.problem) == 2  # why there is no page, and what the store lacks
    assert f"{page._bytes(found.log_bytes)} of acknowledged requests wait in the log" in said
    assert "Mend it over there" in said
    assert "The store cannot be used: what comes is not seen" in said
    assert "hush-hush" not in said + repr(found)


def test_a_folder_that_nobody_serves_is_read_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create(tmp_path / "data", "default", Scope.READ, "reader")
    with background(Settings(db=tmp_path / "data", http="127.0.0.1:0", grpc="127.0.0.1:0")) as it:
        _spans(it.url)
    reader = open_reader(db=tmp_path / "data")
    shown = health.settings(str(tmp_path / "data"), reader)
    assert [key.name for key in shown.keys] == ["reader"]
    assert shown.free_bytes
    assert health.health(reader).missing
    assert "Nobody watches" in alerts.alerts(str(tmp_path / "data"), reader).missing
    reader.close()


def test_what_fired_and_ended_is_told_of_the_data_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: MemoryStore,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    scene = Scene(tmp_path / "data", **{"search-ttft": slo(), "other": slo(where="route = 'x'")})
    request.addfinalizer(scene.close)
    for minute in range(20):
        scene.store.add(START + minute, bad=5)
    scene.now_s = (START + 20) * 60.0
    scene.watch.tick(scene.now_s)
    found = alerts.alerts(str(tmp_path / "data"), store)
    (alert,) = found.alerts
    assert (alert.slo, alert.severity, alert.state, alert.ended_ns) == (
        "search-ttft", "page", "firing", None,
    )  # fmt: skip
    assert alert.summary.startswith("PAGE search-ttft: burn")
    for minute in range(20, 200):
        scene.store.add(START + minute, good=50)
    scene.now_s = (START + 200) * 60.0
    scene.watch.tick(scene.now_s)
    (ended,) = alerts.alerts(str(tmp_path / "data"), store).alerts
    assert ended.state == "ended"
    assert ended.started_ns == alert.started_ns // 10**9 * 10**9
    assert ended.ended_ns == (START + 200) * 60 * 10**9
    scene.watch.deliver(scene.now_s)
    assert scene.got[0]["links"]["slo"] == "http://127.0.0.1:8501/slo?slo=search-ttft"


def test_what_spans_lack_is_what_the_doctor_says(store: MemoryStore) -> None:
    store.add(agent_trace())
    found = health.lacks(store)
    checks = [check for check in lack_checks(store) if check.fix]
    assert [(each.told, each.fix) for each in found] == [(c.detail, c.fix) for c in checks]
    assert any(each.fact == "cached tokens" and each.is_common for each in found)
    (row,) = health.quality(store)
    assert row.num_calls == 3
    ratios = dict(zip((name for name, _ in health.RATIOS), row.ratios, strict=True))
    assert ratios["no_ttft_ratio"] == 0.0
    assert ratios["no_finish_ratio"] == 1.0


def test_prometheus_text_is_read_and_what_is_none_is_left_out() -> None:
    text = (
        "# HELP a b\n# TYPE a counter\na_total 3\n"
        'b_total{cause="full, \\"q\\"",door="x"} 4\nnonsense\nc_total NaN?\n'
    )
    assert health.parse(text) == [
        ("a_total", {}, 3.0),
        ("b_total", {"cause": 'full, \\"q\\"', "door": "x"}, 4.0),
    ]


def test_bytes_are_shown_in_one_unit() -> None:
    shown = [page._bytes(each) for each in (None, 0, 999, 12_345, 5 << 30)]
    assert shown == ["—", "0 B", "999 B", "12.3 kB", "5.37 GB"]
