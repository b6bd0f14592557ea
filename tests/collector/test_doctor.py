import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace

import duckdb
import httpx
import pytest
from click.testing import CliRunner

from longpole_collector import doctor, doctor_data
from longpole_collector.commands import doctor as command
from longpole_collector.doctor_probe import _broken, _clock, _state
from longpole_collector.keys import Scope, create
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import SCHEMA_VERSION
from longpole_collector.stores.remote import RemoteReader


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    """An empty folder, no proxies, and ports that nothing else here has."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", "127.0.0.1:0")
    monkeypatch.setenv("LONGPOLE_COLLECTOR_GRPC", "127.0.0.1:0")
    monkeypatch.setattr(doctor, "DASHBOARD_PORT", 0)
    monkeypatch.setattr(doctor, "ENGINE_PORT", 0)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def run(*args):
    return CliRunner().invoke(command, [str(arg) for arg in args])


def examine(**where):
    return {check.name: check for check in doctor.examine(**where)}


# --- with a collector ------------------------------------------------------------------------
def test_both_doors_take_a_span_and_show_it(collector, settings):
    done = run("--db", settings.db, "--json")
    document = json.loads(done.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert document["schema"] == "longpole.doctor/1"
    assert done.exit_code == 0, done.stdout
    for check in checks.values():
        assert check.keys() == {"name", "status", "detail", "fix"}
        assert (check["status"], check["fix"]) == ("ok", None), check
    for door in ("gRPC", "HTTP"):
        assert "read back after" in checks[f"send by {door}"]["detail"]
    assert checks["collector"]["detail"] == f"ready at {collector.url}"
    assert "the collector has it open" in checks["database"]["detail"]


def test_the_doctors_spans_are_no_workflow_and_no_call(collector, settings, eventually):
    assert run("--db", settings.db).exit_code == 0
    reader = RemoteReader(collector.url)
    spans = reader.sql("SELECT * FROM spans ORDER BY name").to_pylist()
    assert [span["name"] for span in spans] == ["doctor HTTP", "doctor gRPC"]
    for span in spans:
        assert (span["service"], span["kind"]) == ("longpole-doctor", "internal")
        told = ("route", "operation", "stage", "outcome", "slo_class", "request_model")
        assert {span[column] for column in told} == {None}
    assert reader.sql("SELECT * FROM calls").num_rows == 0
    eventually(lambda: reader.sql("SELECT * FROM traces").num_rows)
    (trace,) = reader.sql("SELECT route, outcome, wall_ms FROM traces").to_pylist()
    assert (trace["route"], trace["outcome"]) == (None, None)
    reader.close()


def test_a_collector_is_found_by_its_address_alone(collector, tmp_path):
    checks = examine(url=f"{collector.url}/")
    assert "data folder" not in checks
    assert checks["send by HTTP"].status == "ok"
    assert checks["send by gRPC"].status == "fail"  # its port is not known here
    assert "not taken" in checks["send by gRPC"].detail
    checks = examine(url=collector.url, db=collector._settings.db)
    assert checks["send by gRPC"].status == "ok"


def test_the_collectors_own_ports_are_well(collector, settings, monkeypatch):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", str(collector.http))
    monkeypatch.setenv("LONGPOLE_COLLECTOR_GRPC", str(collector.grpc))
    checks = examine(db=settings.db)
    for address, what in ((collector.http, "HTTP"), (collector.grpc, "gRPC")):
        check = checks[f"port {address.port} ({what})"]
        assert (check.status, check.detail) == ("ok", f"our collector, pid {os.getpid()}")


def test_a_collector_that_is_not_ready_or_away_fails(collector, monkeypatch, listener):
    monkeypatch.setattr(type(collector.ingest), "is_ready", False)
    check = examine(url=collector.url)["collector"]
    assert (check.status, "not ready" in check.detail) == ("fail", True)
    monkeypatch.undo()
    done = run("--url", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "fail  collector: no answer at http://127.0.0.1:1" in done.stdout


def test_a_span_that_never_shows_fails_within_the_wait(collector, monkeypatch):
    monkeypatch.setattr("longpole_collector.doctor_probe.WAIT_S", 0.3)
    with collector.store._write_lock:
        check = examine(url=collector.url)["send by HTTP"]
    assert (check.status, "not to be seen" in check.detail) == ("fail", True)


def test_a_collector_that_asks_for_a_key_is_shown_the_folders(settings, collecting):
    create(settings.db, "default", Scope.INGEST)
    open_to_all = replace(settings, http="0.0.0.0:0", grpc="0.0.0.0:0")
    with collecting(open_to_all):
        checks = examine(db=settings.db)
    assert {checks[f"send by {door}"].status for door in ("gRPC", "HTTP")} == {"ok"}
    assert checks["database"].status == "ok"


def test_files_that_the_collector_cannot_read_are_named():
    def status(broken):
        answer = httpx.Response(200, json={"broken": broken}) if broken else httpx.Response(404)
        with httpx.Client(
            base_url="http://x", transport=httpx.MockTransport(lambda request: answer)
        ) as client:
            return list(_broken(_state(client)))

    assert status({}) == []
    (check,) = status({"spans-20260101.duckdb": "no DuckDB file"})
    assert (check.name, check.status) == ("database spans-20260101.duckdb", "fail")
    assert "without spans-20260101.duckdb the rest is served" in check.fix


# --- without one -----------------------------------------------------------------------------
def test_a_new_machine_is_well_and_told_what_to_start(tmp_path):
    done = run()
    assert done.exit_code == 0, done.stdout
    assert "ok    data folder: .longpole is not there yet and can be made" in done.stdout
    assert (
        done.stdout.splitlines()[-1]
        == "warn  collector: none runs on .longpole  -> longpole collect --db .longpole"
    )
    assert not list(tmp_path.iterdir())


@pytest.fixture
def stored(tmp_path, otlp):
    """A day file with two spans, one of them a call."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    spans = [otlp.span(), otlp.span(kind=3, attributes=call)]
    store = DuckStore(tmp_path / "db")
    store.append(otlp.canonical(*spans))
    store.close()
    (path,) = (tmp_path / "db").glob("spans-*.duckdb")
    return path


def test_a_database_is_opened_and_left_as_it_is(stored):
    before = stored.read_bytes()
    check = examine(db=stored.parent)["database"]
    assert check.status == "ok"
    assert f"1 of 1 files open, schema {SCHEMA_VERSION}" in check.detail
    assert stored.read_bytes() == before
    assert {path.name for path in stored.parent.iterdir()} == {stored.name, "lock"}


def test_spans_that_could_not_be_stored_are_told(stored):
    path = stored.parent / "rejected.jsonl"
    path.touch()
    assert "rejected spans" not in examine(db=stored.parent)
    path.write_text("{}\n{}\n")
    check = examine(db=stored.parent)["rejected spans"]
    assert (check.status, check.detail) == ("warn", f"2 could not be stored: {path}")


def test_a_database_of_a_newer_longpole_fails(stored):
    with duckdb.connect(str(stored)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    check = examine(db=stored.parent)[f"database {stored.name}"]
    assert (check.status, check.fix) == ("fail", "pip install --upgrade longpole")


@pytest.mark.parametrize("where", [".", "projects/other"])
@pytest.mark.parametrize("damage", [b"no database" * 1000, b""], ids=["rubbish", "empty"])
def test_a_broken_file_is_named_and_the_others_are_still_looked_at(stored, where, damage):
    folder = stored.parent / where
    folder.mkdir(parents=True, exist_ok=True)
    broken = folder / "spans-20200101.duckdb"
    broken.write_bytes(damage)
    checks = examine(db=stored.parent)
    check = checks[f"database {broken.relative_to(stored.parent)}"]
    assert check.status == "fail"
    assert f"without {broken.name} the rest is served" in check.fix
    assert "1 of 2 files open" in checks["database"].detail
    assert run("--db", stored.parent).exit_code == 1


def test_a_file_damaged_inside_is_named(stored):
    data = bytearray(stored.read_bytes())
    data[16384:] = bytes(len(data) - 16384)
    stored.write_bytes(data)
    assert examine(db=stored.parent)[f"database {stored.name}"].status == "fail"


def test_a_database_that_another_program_has_open_fails(stored):
    code = "import duckdb,sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(stored)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        check = examine(db=stored.parent)[f"database {stored.name}"]
        other.stdin.close()
    assert (check.status, "lock" in check.detail) == ("fail", True)
    assert check.fix == "end the program that has it open"


# --- what the spans lack ---------------------------------------------------------------------
def test_what_the_last_spans_lack_is_counted_and_says_what_it_unlocks(stored):
    checks = examine(db=stored.parent)
    check = checks["attribute streamed or not"]
    assert (check.status, check.detail) == (
        "warn",
        "1 of 1 answered calls lack it; unlocks TTFT of all streamed calls",
    )
    assert check.fix == "send gen_ai.request.stream, or longpole.wrap(client)"
    assert checks["attribute route"].detail.startswith("2 of 2 root spans lack it")
    assert "attribute model" not in checks  # it was sent
    assert "attribute time to first token" not in checks  # nothing is known to be streamed
    assert "attributes" not in checks


def test_a_running_collectors_spans_are_asked_too(collector, settings, otlp):
    facts = {
        "longpole.route": "r",
        "longpole.outcome": "accepted",
    }
    root = otlp.span(attributes=facts)
    httpx.post(
        f"{collector.url}/v1/traces",
        content=otlp.body([root]),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
    ).raise_for_status()
    checks = examine(db=settings.db)
    assert checks["attributes"].detail == "the last 1 spans lack nothing"


def test_every_lack_can_be_asked_of_a_store_without_spans():
    store = DuckStore()
    (check,) = doctor_data.lack_checks(store)
    store.close()
    assert (check.status, check.detail) == ("ok", "no spans yet to look at")


# --- who is let in, what is kept -------------------------------------------------------------
def test_the_bind_address_is_held_against_the_keys(tmp_path, monkeypatch):
    assert examine()["bind"].status == "ok"
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", "0.0.0.0:0")
    monkeypatch.setenv("LONGPOLE_COLLECTOR_INSECURE_NO_AUTH", "1")
    check = examine()["bind"]
    assert (check.status, "0.0.0.0:0 lets everybody in" in check.detail) == ("warn", True)
    monkeypatch.delenv("LONGPOLE_COLLECTOR_INSECURE_NO_AUTH")
    create(tmp_path / ".longpole", "default", Scope.INGEST)
    check = examine()["bind"]
    assert (check.status, check.detail) == ("ok", "0.0.0.0:0 lets in who shows a key")


def test_kept_content_is_a_warning_that_names_the_project(tmp_path, monkeypatch):
    assert examine()["content"].detail == "prompts and answers: drop in default"
    (tmp_path / "longpole.toml").write_text('[collector.projects.lab]\ncontent = "keep"\n')
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    check = examine()["content"]
    assert check.status == "warn"
    assert "drop in default, keep in lab; OTEL_INSTRUMENTATION" in check.detail
    assert check.fix == 'content = "redact" or "drop" in [collector.projects.lab]'


def test_the_engines_device_is_told(monkeypatch):
    check = examine()["torch"]
    assert (check.status, check.detail.startswith("torch ")) == ("ok", True)
    monkeypatch.setitem(sys.modules, "torch", None)
    check = examine()["torch"]
    assert (check.status, "cannot be used" in check.detail) == ("warn", True)


# --- folder and ports ------------------------------------------------------------------------
def test_a_folder_that_cannot_be_written_fails(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert examine(db=tmp_path / "file")["data folder"].status == "fail"
    check = examine(db=tmp_path / "file" / "below")["data folder"]
    assert (check.status, "is no folder" in check.detail) == ("fail", True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check = examine(db=tmp_path / "new")["data folder"]
    assert (check.status, "cannot be made" in check.detail) == ("fail", True)


def test_little_space_left_is_a_warning(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 29)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    check = examine(db=tmp_path)["disk"]
    assert (check.status, check.detail) == ("warn", "0.5 GiB free")


def test_a_taken_port_says_by_whom(listener, monkeypatch):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", f"127.0.0.1:{listener}")
    check = examine()[f"port {listener} (HTTP)"]
    assert check.status == "warn"
    assert check.fix == "end it, or choose another: longpole collect --http HOST:PORT"
    if sys.platform == "linux":
        assert f"(pid {os.getpid()})" in check.detail


def test_our_own_dashboard_is_where_it_belongs(listener, monkeypatch):
    monkeypatch.setattr(doctor, "DASHBOARD_PORT", listener)
    found = doctor.Listener("longpole serve (pid 7)", is_ours=True)
    monkeypatch.setattr(doctor, "listener_on", lambda host, port: found if port else None)
    check = examine()[f"port {listener} (dashboard)"]
    assert (check.status, check.detail) == ("ok", "taken by longpole serve (pid 7)")


def test_an_address_that_is_not_ours_fails(monkeypatch):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_GRPC", "192.0.2.1:0")
    monkeypatch.setenv("LONGPOLE_COLLECTOR_INSECURE_NO_AUTH", "1")
    check = examine()["port 0 (gRPC)"]
    assert (check.status, "cannot listen on 192.0.2.1" in check.detail) == ("fail", True)


def test_settings_that_cannot_be_fail_and_the_rest_is_checked(monkeypatch):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", "0.0.0.0:0")
    checks = examine()
    assert checks["settings"].status == "fail"
    assert "nobody has to show a key" in checks["settings"].detail
    assert checks["bind"].status == "ok"  # the defaults
    assert checks["disk"].status == "ok"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "grpc_proxy"])
def test_a_proxy_that_would_catch_localhost_is_a_warning(name, monkeypatch):
    monkeypatch.setenv(name, "http://proxy.example:3128")
    check = examine()["proxy"]
    assert check.status == "warn"
    assert check.fix == "export NO_PROXY=127.0.0.1,localhost"
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert examine()["proxy"].status == "warn"
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert examine()["proxy"].status == "ok"
    monkeypatch.setenv("NO_PROXY", "*")
    assert examine()["proxy"].status == "ok"


def test_the_probes_do_not_go_through_a_proxy(collector, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:1")
    checks = examine(db=collector._settings.db)
    assert {checks[f"send by {door}"].status for door in ("gRPC", "HTTP")} == {"ok"}


def test_missing_extras_are_named_and_the_collectors_fails(monkeypatch):
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package != "torch")
    checks = examine()
    assert checks["extras"].status == "warn"
    assert "engine lacks torch" in checks["extras"].detail
    assert checks["extras"].fix == "pip install 'longpole[engine]'"
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package not in ("duckdb", "rich"))
    checks = examine()
    assert list(checks) == ["versions", "extras"]
    assert checks["extras"].status == "fail"
    assert "collector lacks duckdb, rich" in checks["extras"].detail


def test_the_doctor_comes_without_the_collectors_packages():
    code = (
        "import sys, longpole_collector.doctor;"
        "heavy = {'pydantic', 'duckdb', 'pyarrow', 'uvicorn', 'grpc', 'rich', 'httpx'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("offset_s", "status", "detail"),
    [(0, "ok", "agree"), (60, "warn", "60 s ahead of"), (-60, "warn", "behind")],
)
def test_a_clock_is_compared_with_ours(offset_s, status, detail):
    now_s = 1_790_000_000.5
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now_s + offset_s + 0.6))
    check = _clock(date, now_s, now_s + 0.1)
    assert (check.status, detail in check.detail) == (status, True), check
    assert _clock("", now_s, now_s).status == "warn"
