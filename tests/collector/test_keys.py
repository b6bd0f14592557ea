"""Who may come in: keys and their folder, at both doors, on loopback and beyond."""

import json
import logging
import os
from dataclasses import replace

import grpc
import httpx
import pytest
from click.testing import CliRunner
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from longpole.errors import UsageError
from longpole_collector import keys as keys_module
from longpole_collector.key_commands import keys as command
from longpole_collector.keys import (
    Access,
    Grant,
    NoKey,
    Scope,
    TooFast,
    WrongScope,
    create,
    listed,
    revoke,
)
from longpole_collector.settings import Settings
from longpole_collector.stores.remote import RemoteReader

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SELECT = b'{"sql": "SELECT count(*) AS n FROM spans"}'


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(keys_module, "_LOOK_AGAIN_S", 0.0)


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def export(collector, body, secret=None):
    """The status code of an export by gRPC, and its trailing metadata."""
    with grpc.insecure_channel(str(collector.grpc)) as channel:
        metadata = tuple(bearer(secret).items()) if secret else None
        try:
            channel.unary_unary(EXPORT)(body, timeout=20, metadata=metadata)
        except grpc.RpcError as error:
            return error.code(), dict(error.trailing_metadata())
        return grpc.StatusCode.OK, {}


# --- the folder --------------------------------------------------------------------------------
def test_a_key_is_shown_once_and_kept_as_a_hash_for_its_owner_only(tmp_path):
    folder = tmp_path / "data"
    key, secret = create(folder, "web", Scope.INGEST, "ci")
    (path,) = (folder / "keys").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert secret.startswith("lp_")
    assert len(bytes.fromhex(secret.rpartition("_")[2])) == 32
    assert secret.rpartition("_")[2] not in path.read_text()
    assert listed(folder) == [key]
    assert key.last_used is None
    revoke(folder, key.id)
    assert listed(folder) == []
    for unknown in (key.id, "../x", ""):
        with pytest.raises(UsageError, match="no key"):
            revoke(folder, unknown)


@pytest.mark.parametrize("name", ["", "Web", "../x", "-x", "x" * 64, "a b", "a/b", "a\n"])
def test_a_key_opens_no_project_of_a_strange_name(tmp_path, name):
    with pytest.raises(UsageError, match="project"):
        create(tmp_path, name, Scope.READ)


def test_a_damaged_key_file_opens_nothing(tmp_path):
    key, secret = create(tmp_path, "web", Scope.READ)
    path = tmp_path / "keys" / f"{key.id}.json"
    good = json.loads(path.read_text())
    for bad in (
        "",
        "[]",
        "{}",
        json.dumps(good | {"project": "../.."}),
        json.dumps(good | {"x": 1}),
    ):
        path.write_text(bad)
        assert listed(tmp_path) == []
        with pytest.raises(NoKey):
            Access(tmp_path, 1e9).grant(f"Bearer {secret}", Scope.READ, is_open=True)


# --- the guard ---------------------------------------------------------------------------------
def test_the_key_decides_the_project_and_what_may_be_done(tmp_path):
    access = Access(tmp_path, 1e9)
    for scope, allowed in (
        (Scope.INGEST, {Scope.INGEST}),
        (Scope.READ, {Scope.READ}),
        (Scope.ADMIN, set(Scope)),
    ):
        key, secret = create(tmp_path, "web", scope)
        for wanted in Scope:
            for is_open in (True, False):
                if wanted in allowed:
                    granted = access.grant(f"bearer {secret}", wanted, is_open=is_open)
                    assert granted == Grant("web", key.id)
                else:
                    with pytest.raises(WrongScope):
                        access.grant(f"Bearer {secret}", wanted, is_open=is_open)


def test_no_key_is_enough_at_an_open_door_and_a_wrong_one_never(tmp_path):
    access = Access(tmp_path, 1e9)
    key, secret = create(tmp_path, "web", Scope.ADMIN)
    assert access.grant("", Scope.READ, is_open=True) == Grant("default")
    with pytest.raises(NoKey):
        access.grant("", Scope.READ, is_open=False)
    for wrong in (
        f"Bearer {secret[:-1]}0" if secret[-1] != "0" else f"Bearer {secret[:-1]}1",
        f"Basic {secret}",
        f"Bearer lp_{key.id}_",
        "Bearer lp_00000000_" + "0" * 64,
        "Bearer",
        "Bearer x\N{SNOWMAN}",
        secret,
    ):
        with pytest.raises(NoKey):
            access.grant(wrong, Scope.READ, is_open=True)


def test_keys_made_and_revoked_count_at_once_and_their_use_is_noted(tmp_path):
    access = Access(tmp_path, 1e9)
    with pytest.raises(NoKey):
        access.grant("Bearer lp_x_y", Scope.READ, is_open=False)
    key, secret = create(tmp_path, "web", Scope.READ)
    access.grant(f"Bearer {secret}", Scope.READ, is_open=False)
    assert listed(tmp_path)[0].last_used is not None
    revoke(tmp_path, key.id)
    with pytest.raises(NoKey):
        access.grant(f"Bearer {secret}", Scope.READ, is_open=False)


def test_a_collectors_own_key_opens_one_project_and_dies_with_it(tmp_path):
    access = Access(tmp_path, 1e9)
    secret = access.own_key("web")
    assert access.grant(f"Bearer {secret}", Scope.READ, is_open=False).project == "web"
    assert listed(tmp_path) == []
    with pytest.raises(NoKey):
        Access(tmp_path, 1e9).grant(f"Bearer {secret}", Scope.READ, is_open=True)


def test_a_key_that_has_sent_too_much_waits(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(keys_module, "monotonic", lambda: now[0])
    access = Access(tmp_path, bytes_per_s=1000)
    fast, other, nobody = Grant("web", "a"), Grant("web", "b"), Grant("default")
    access.check_rate(fast)
    access.spend(fast, 5_000)
    access.spend(nobody, 10**9)
    with pytest.raises(TooFast) as caught:
        access.check_rate(fast)
    assert caught.value.wait_s == pytest.approx(3.0)
    access.check_rate(other)
    access.check_rate(nobody)
    now[0] += 3.1
    access.check_rate(fast)


# --- the doors ---------------------------------------------------------------------------------
def test_on_loopback_nobody_needs_a_key_and_one_that_is_shown_counts(otlp, settings, collecting):
    _, sender = create(settings.db, "web", Scope.INGEST)
    _, reader = create(settings.db, "web", Scope.READ)
    body = otlp.body([otlp.span()])
    with (
        collecting(settings) as collector,
        httpx.Client(base_url=collector.url, trust_env=False) as client,
    ):

        def post(**headers):
            return client.post("/v1/traces", content=body, headers=PROTOBUF | headers)

        def ask(**headers):
            return client.post("/api/v1/query", content=SELECT, headers=JSON | headers)

        assert post().status_code == ask().status_code == 200
        assert post(**bearer(sender)).status_code == ask(**bearer(reader)).status_code == 200
        refused = post(**bearer("lp_wrong"))
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert Status.FromString(refused.content).code == 16
        refused = post(**bearer(reader))
        assert (refused.status_code, Status.FromString(refused.content).code) == (403, 7)
        refused = client.post("/v1/traces", content=b"{}", headers=JSON | bearer("lp_wrong"))
        assert (refused.status_code, refused.json()["code"]) == (401, 16)
        for answer, status in ((ask(**bearer("no")), 401), (ask(**bearer(sender)), 403)):
            assert answer.status_code == status
            assert answer.json()["error"]
        assert export(collector, body)[0] is grpc.StatusCode.OK
        assert export(collector, body, sender)[0] is grpc.StatusCode.OK
        assert export(collector, body, "lp_wrong")[0] is grpc.StatusCode.UNAUTHENTICATED
        assert export(collector, body, reader)[0] is grpc.StatusCode.PERMISSION_DENIED
        health = collector.ingest.health
        assert health.total("requests_refused", "no_key") == 3


def test_beyond_loopback_everybody_needs_a_key(otlp, settings, collecting, caplog):
    caplog.set_level(logging.DEBUG)
    _, secret = create(settings.db, "default", Scope.ADMIN)
    body = otlp.body([otlp.span(name="known")])
    with (
        collecting(replace(settings, http="0.0.0.0:0", grpc="0.0.0.0:0")) as collector,
        httpx.Client(base_url=collector.url, trust_env=False) as client,
    ):
        get = ("/metrics", "/api/v1/status")
        for headers, status in (({}, 401), (bearer("lp_x"), 401), (bearer(secret), 200)):
            sent = client.post("/v1/traces", content=body, headers=PROTOBUF | headers)
            asked = client.post("/api/v1/query", content=SELECT, headers=JSON | headers)
            got = [client.get(path, headers=headers).status_code for path in get]
            assert [sent.status_code, asked.status_code, *got] == [status] * 4
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        local = f"127.0.0.1:{collector.grpc.port}"
        with grpc.insecure_channel(local) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(EXPORT)(body, timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        reader = RemoteReader(collector.url)
        with pytest.raises(UsageError, match="LONGPOLE_COLLECTOR_API_KEY"):
            reader.sql("SELECT 1")
        reader.close()
    assert secret not in caplog.text


def test_the_official_exporter_shows_a_key_by_its_own_variable(
    settings, collecting, monkeypatch, eventually
):
    _, secret = create(settings.db, "web", Scope.ADMIN)
    with collecting(replace(settings, http="0.0.0.0:0")) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{secret}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
        provider.get_tracer("test").start_span("by name").end()
        provider.shutdown()
        monkeypatch.setenv("LONGPOLE_COLLECTOR_API_KEY", secret)
        reader = RemoteReader(collector.url)
        names = eventually(lambda: reader.sql("SELECT name FROM spans").to_pylist())
        assert names == [{"name": "by name"}]
        reader.close()


def test_the_bind_of_each_door_decides(otlp, settings, collecting):
    create(settings.db, "default", Scope.ADMIN)
    body = otlp.body([otlp.span()])
    with collecting(replace(settings, http="0.0.0.0:0")) as collector:
        assert httpx.post(f"{collector.url}/v1/traces", content=body).status_code == 401
        assert export(collector, body)[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_bind_beyond_loopback_without_keys_is_refused(tmp_path, door):
    where = {"db": tmp_path, "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", door: "0.0.0.0:0"}
    with pytest.raises(UsageError, match="longpole keys create"):
        Settings(**where)
    open_to_all = Settings(**where, insecure_no_auth=True)
    assert open_to_all.is_open(open_to_all.http_address)
    create(tmp_path, "default", Scope.READ)
    assert not Settings(**where).is_open(getattr(Settings(**where), f"{door}_address"))


def test_a_key_is_held_to_its_rate_at_both_doors(otlp, settings, collecting):
    one, two = (create(settings.db, "default", Scope.INGEST)[1] for _ in range(2))
    body = otlp.body([otlp.span(attributes={"x": "y" * 5_000})])
    with collecting(replace(settings, key_bytes_per_s=100)) as collector:
        url = f"{collector.url}/v1/traces"
        sent = [httpx.post(url, content=body, headers=PROTOBUF | bearer(one)) for _ in range(2)]
        assert [answer.status_code for answer in sent] == [200, 429]
        assert int(sent[1].headers["retry-after"]) > 10
        assert export(collector, body, two)[0] is grpc.StatusCode.OK
        code, metadata = export(collector, body, two)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        retry = RetryInfo()
        Status.FromString(metadata["grpc-status-details-bin"]).details[0].Unpack(retry)
        assert retry.retry_delay.seconds > 10
        assert export(collector, body, one)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert httpx.post(url, content=body, headers=PROTOBUF).status_code == 200
        assert collector.ingest.health.total("requests_refused", "too_fast") == 3


# --- the command -------------------------------------------------------------------------------
def test_the_command_makes_lists_and_revokes(tmp_path):
    def run(*args):
        done = CliRunner().invoke(command, [*args, "--db", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.stdout

    secret = run("create", "--project", "web", "--scope", "ingest", "--name", "ci").strip()
    assert secret.startswith("lp_")
    made = json.loads(run("create", "--scope", "read", "--json"))
    assert (made["schema"], made["project"], made["scope"]) == (
        "longpole.keys.create/1",
        "default",
        "read",
    )
    document = json.loads(run("list", "--json"))
    assert document["schema"] == "longpole.keys/1"
    first, second = sorted(document["keys"], key=lambda key: key["scope"])
    assert first | {"id": "", "created": ""} == {
        "id": "", "name": "ci", "project": "web", "scope": "ingest", "created": "",
        "last_used": None,
    }  # fmt: skip
    listing = run("list")
    assert "used never" in listing
    assert all(part not in listing + json.dumps(document) for part in (secret, made["key"]))
    run("revoke", second["id"])
    assert [key["id"] for key in json.loads(run("list", "--json"))["keys"]] == [first["id"]]
    assert os.listdir(tmp_path / "keys") == [f"{first['id']}.json"]
