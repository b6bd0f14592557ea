"""``longpole doctor --fix``: what it mends, says so, and what it leaves alone."""

import json
import os
import subprocess
import sys

import duckdb
import pytest
from click.testing import CliRunner

from longpole_collector import doctor, doctor_mend
from longpole_collector.commands import doctor as command
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.whereabouts import Whereabouts, announce, is_announced


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    """An empty folder and ports that nothing else here has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", "127.0.0.1:0")
    monkeypatch.setenv("LONGPOLE_COLLECTOR_GRPC", "127.0.0.1:0")
    monkeypatch.setattr(doctor, "DASHBOARD_PORT", 0)
    monkeypatch.setattr(doctor, "ENGINE_PORT", 0)


@pytest.fixture
def stored(tmp_path, otlp):
    """A day file with a span."""
    store = DuckStore(tmp_path / "db")
    store.append(otlp.canonical(otlp.span()))
    store.close()
    (path,) = (tmp_path / "db").glob("spans-*.duckdb")
    return path


def examine(folder, *, is_fixing=False):
    return {check.name: check for check in doctor.examine(folder, is_fixing=is_fixing)}


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.skipif(os.name != "posix", reason="rights are another matter there")
def test_rights_are_given_back_to_the_owner_alone(stored):
    folder = stored.parent
    (folder / "projects" / "web" / "wal").mkdir(parents=True)
    (folder / "projects" / "web" / "wal" / "1.wal").write_bytes(b"")
    (folder / "notes.txt").write_text("somebody else's")
    for path in (folder, stored, folder / "notes.txt"):
        path.chmod(0o755)
    check = examine(folder)["rights"]
    assert (check.status, check.fix) == ("warn", "longpole doctor --fix")
    assert check.detail.startswith(f"others may look into {folder} and ")
    assert mode(folder) == 0o755
    check = examine(folder, is_fixing=True)["rights"]
    assert (check.status, check.fix) == ("ok", None)
    assert check.detail.startswith("mended: others may look")
    inner = folder / "projects" / "web" / "wal"
    assert {mode(path) for path in (folder, stored, inner, inner.parent.parent)} == {0o700}
    assert mode(inner / "1.wal") == 0o600
    assert mode(folder / "notes.txt") == 0o755
    assert examine(folder)["rights"].detail == f"only its owner may look into {folder}"


@pytest.mark.skipif(os.name != "posix", reason="rights are another matter there")
def test_a_folder_that_is_not_ours_keeps_its_rights(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter").write_text("dear")
    assert "rights" not in examine(folder, is_fixing=True)
    assert mode(folder) == 0o755


def gone():
    """The pid of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("is_pid_taken", [False, True])
def test_what_a_killed_collector_left_is_removed(stored, is_pid_taken):
    folder = stored.parent
    pid = os.getpid() if is_pid_taken else gone()
    announce(folder, Whereabouts(pid, "http://127.0.0.1:1", "127.0.0.1:1"))
    check = examine(folder)["whereabouts"]
    assert (check.status, check.fix) == ("warn", "longpole doctor --fix")
    assert is_announced(folder)
    checks = examine(folder, is_fixing=True)
    assert (checks["whereabouts"].status, checks["whereabouts"].fix) == ("ok", None)
    assert checks["whereabouts"].detail.startswith("mended: ")
    assert not is_announced(folder)
    assert checks["collector"].detail == f"none runs on {folder}"
    assert "whereabouts" not in examine(folder)


def test_a_running_collector_is_left_alone(collector, settings):
    checks = examine(settings.db, is_fixing=True)
    assert "whereabouts" not in checks
    assert is_announced(settings.db)
    assert checks["rights"].status == "ok"
    assert checks["send by HTTP"].status == "ok"


@pytest.mark.parametrize("damage", [b"no database" * 1000, b""], ids=["rubbish", "empty"])
def test_a_broken_file_is_set_aside_and_the_rest_is_served(stored, damage):
    folder = stored.parent
    broken = folder / "spans-20200101.duckdb"
    for number in ("", "2"):
        broken.write_bytes(damage)
        done = CliRunner().invoke(command, ["--db", str(folder), "--fix", "--json"])
        assert done.exit_code == 0, done.output
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        check = checks[f"database {broken.name}"]
        assert check["status"] == "warn"
        assert f"set aside as {broken.name}.broken{number}" in check["detail"]
        assert check["fix"] == f"restore {broken.name} from a backup"
        assert not broken.exists()
        assert (folder / f"{broken.name}.broken{number}").read_bytes() == damage
    assert "1 of 1 files open" in examine(folder)["database"].detail
    reader = open_reader(db=folder)
    assert reader.sql("SELECT * FROM spans").num_rows == 1
    reader.close()


def test_files_that_are_not_broken_stay(stored, monkeypatch):
    with duckdb.connect(str(stored)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    check = examine(stored.parent, is_fixing=True)[f"database {stored.name}"]
    assert (check.status, stored.exists()) == ("fail", True)
    code = "import duckdb,sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(stored)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        check = examine(stored.parent, is_fixing=True)[f"database {stored.name}"]
        other.stdin.close()
    assert (check.fix, stored.exists()) == ("end the program that has it open", True)
    stored.write_bytes(b"no database" * 1000)
    monkeypatch.setattr(doctor_mend.Path, "rename", refused)
    check = examine(stored.parent, is_fixing=True)[f"database {stored.name}"]
    assert (check.status, stored.exists()) == ("fail", True)


def refused(path, target):
    raise PermissionError(13, "refused")
