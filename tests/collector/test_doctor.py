import json
import os
import shutil
import socket
import subprocess
import sys
import time

import duckdb
import pytest
from click.testing import CliRunner

from longpole_collector import doctor
from longpole_collector.commands import doctor as command
from longpole_collector.doctor_probe import _clock
from longpole_collector.stores.duckdb import FILE_NAME, DuckStore
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
    with collector._store._write_lock:
        check = examine(url=collector.url)["send by HTTP"]
    assert (check.status, "not to be seen" in check.detail) == ("fail", True)


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


def test_a_database_is_opened_and_left_as_it_is(tmp_path):
    DuckStore(tmp_path / "db" / FILE_NAME).close()
    before = (tmp_path / "db" / FILE_NAME).read_bytes()
    check = examine(db=tmp_path / "db")["database"]
    assert (check.status, "schema 1" in check.detail) == ("ok", True)
    assert (tmp_path / "db" / FILE_NAME).read_bytes() == before


def test_a_database_of_a_newer_longpole_or_a_broken_one_fails(tmp_path):
    path = tmp_path / "db" / FILE_NAME
    DuckStore(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    check = examine(db=path.parent)["database"]
    assert (check.status, check.fix) == ("fail", "pip install --upgrade longpole")
    path.write_bytes(b"no database" * 1000)
    assert examine(db=path.parent)["database"].status == "fail"
    assert run("--db", path.parent).exit_code == 1


def test_a_database_that_another_program_has_open_fails(tmp_path):
    path = tmp_path / "db" / FILE_NAME
    DuckStore(path).close()
    code = "import duckdb,sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        check = examine(db=path.parent)["database"]
        other.stdin.close()
    assert (check.status, "lock" in check.detail) == ("fail", True)


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
