"""The one place with CORS: spans that a listed web page sends."""

import json
from dataclasses import replace

import httpx
import pytest

from longpole_collector.settings import load_settings

PAGE = "https://shop.example"
JSON = {"content-type": "application/json"}
BODY = json.dumps(
    {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "scope": {"name": "longpole.browser"},
                        "spans": [
                            {
                                "traceId": "5b8efff798038103d269b633813fc60c",
                                "spanId": "eee19b7ec3c1b174",
                                "name": "render chat",
                                "kind": 1,
                                "startTimeUnixNano": "1790000000000000000",
                                "endTimeUnixNano": "1790000000100000000",
                                "attributes": [
                                    {"key": "longpole.stage", "value": {"stringValue": "render"}},
                                    {"key": "longpole.detached", "value": {"boolValue": True}},
                                ],
                            }
                        ],
                    }
                ]
            }
        ]
    }
).encode()


@pytest.fixture
def client(settings, collecting):
    listed = replace(settings, beacon_origins=f"http://127.0.0.1:8000, {PAGE.upper()}")
    with (
        collecting(listed) as collector,
        httpx.Client(base_url=collector.url, trust_env=False, timeout=30) as client,
    ):
        client.collector = collector
        yield client


def preflight(client, origin, path="/v1/traces", method="POST"):
    asked = {"origin": origin, "access-control-request-method": method}
    return client.options(path, headers=asked | {"access-control-request-headers": "content-type"})


def test_a_listed_page_may_send_json_spans(client, eventually):
    asked = preflight(client, PAGE)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert asked.headers["access-control-allow-methods"] == "POST"
    assert "access-control-allow-credentials" not in asked.headers
    answer = client.post("/v1/traces", content=BODY, headers=JSON | {"origin": PAGE})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["vary"] == "origin"
    query = "SELECT dialect, stage, is_detached FROM spans"
    rows = eventually(lambda: client.collector.store.sql(query).to_pylist())
    assert rows == [{"dialect": "longpole", "stage": "render", "is_detached": True}]


def test_a_page_sees_why_its_spans_were_refused(client):
    answer = client.post("/v1/traces", content=b"{", headers=JSON | {"origin": PAGE})
    assert answer.status_code == 400
    assert answer.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"{PAGE}.evil", f"{PAGE}:444", "http://shop.example"]
)
def test_other_pages_are_refused(client, origin):
    send = client.post("/v1/traces", content=BODY, headers=JSON | {"origin": origin})
    for answer in (preflight(client, origin), send):
        assert answer.status_code == 403
        assert "beacon_origins" in answer.json()["message"]
        assert "access-control-allow-origin" not in answer.headers
    text = client.get("/metrics").text
    assert 'longpole_requests_refused_total{cause="origin"} 2' in text


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics"])
def test_a_listed_page_may_send_nothing_else(client, path):
    send = client.post(path, content=b"{}", headers=JSON | {"origin": PAGE})
    protobuf = {"content-type": "application/x-protobuf", "origin": PAGE}
    other = client.post("/v1/traces", content=b"", headers=protobuf)
    assert [a.status_code for a in (preflight(client, PAGE, path), send, other)] == [403] * 3


@pytest.mark.parametrize("path", ["/api/v1/query", "/healthz", "/metrics", "/api/v1/status"])
def test_the_rest_stays_without_cors(client, path):
    for answer in (preflight(client, PAGE, path), client.get(path, headers={"origin": PAGE})):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_no_page_is_listed_by_default(collector):
    with httpx.Client(base_url=collector.url, trust_env=False) as own:
        assert preflight(own, "http://127.0.0.1:8000").status_code == 403
        assert own.post("/v1/traces", content=BODY, headers=JSON).status_code == 200


@pytest.mark.parametrize("value", ["*", "shop.example", f"{PAGE}/", "ftp://x", "null"])
def test_what_is_no_origin_cannot_be_listed(monkeypatch, tmp_path, value):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_BEACON_ORIGINS", value)
    with pytest.raises(Exception, match="beacon_origins"):
        load_settings(db=tmp_path)


def test_origins_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_BEACON_ORIGINS", f"{PAGE}, http://[::1]:8000")
    assert load_settings(db=tmp_path).origins == {PAGE, "http://[::1]:8000"}
