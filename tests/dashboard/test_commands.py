"""``serve``, ``open`` and ``demo`` as a shell runs them."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import UsageError
from longpole_collector.files import write_parquet
from longpole_collector.keys import listed
from longpole_collector.stores.remote import RemoteReader
from longpole_dashboard import commands, processes
from longpole_dashboard.login.store import Logins, invite

from .conftest import MemoryStore
from .sample import agent_trace


class Shell:
    """A running command whose stderr goes to a file."""

    def __init__(self, command: list[str], err: Path) -> None:
        self.err = err
        with err.open("wb") as out:
            self.process = subprocess.Popen(command, stderr=out, cwd=err.parent)

    def said(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + 90
        while True:
            if found := re.search(pattern, self.err.read_text()):
                return found
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < deadline, self.err.read_text()
            time.sleep(0.1)

    def ended(self) -> int:
        return self.process.wait(60)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Shell]:
    shell = Shell(processes.longpole_command(*arguments), folder / "stderr")
    try:
        yield shell
    finally:
        if shell.process.poll() is None:
            shell.process.kill()
            shell.process.wait()


def serve(tmp_path: Path, http: int) -> list[str]:
    grpc = processes.free_port(0)
    port = processes.free_port(0)
    return [
        *("serve", "--db", "data", "--http", f"127.0.0.1:{http}"),
        *("--grpc", f"127.0.0.1:{grpc}", "--port", str(port)),
    ]


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_starts_both_gives_way_on_a_taken_port_and_stops_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with running(tmp_path, *serve(tmp_path, taken)) as shell:
            http = shell.said(r"collector ready  http://127\.0\.0\.1:(\d+) ")[1]
            page = shell.said(r"dashboard ready  (\S+) ")[1]
            assert int(http) != taken
            assert processes.answers_200(f"http://127.0.0.1:{http}/readyz")
            assert processes.answers_200(f"{page}/start")
            started = children_of(shell.process.pid)
            assert len(started) == 2
            assert {os.getpgid(pid) for pid in started} == {os.getpgid(shell.process.pid)}
            shell.process.send_signal(number)
            assert shell.ended() == 0
            assert shell.err.read_text().endswith("stopping\n")
            assert not any(is_alive(pid) for pid in started)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform != "linux", reason="reads a child's environment from /proc")
def test_serve_shows_one_project_by_a_key_that_ends_with_it(
    store: MemoryStore, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    store.add(agent_trace())
    write_parquet(store, tmp_path / "spans.parquet")
    words = ["import", "--db", str(folder), "--project", "shop", str(tmp_path / "spans.parquet")]
    assert CliRunner().invoke(main, words).exit_code == 0
    with running(tmp_path, *serve(tmp_path, processes.free_port(0)), "--project", "shop") as shell:
        url = shell.said(r"collector ready  (http://\S+) ")[1]
        shell.said(r"dashboard ready  (\S+) ")
        dashboard = max(children_of(shell.process.pid))
        told = Path(f"/proc/{dashboard}/environ").read_text().split("\0")
        (key,) = [
            word.partition("=")[2] for word in told if word.startswith("LONGPOLE_COLLECTOR_API_KEY")
        ]
        for shown, num in ((key, 1), (None, 0)):
            with closing(RemoteReader(url, shown)) as reader:
                assert reader.sql("SELECT * FROM traces").num_rows == num
        (known,) = listed(folder)
        assert (known.project, known.scope) == ("shop", "read")
        shell.process.send_signal(signal.SIGTERM)
        assert shell.ended() == 0
    assert listed(folder) == []
    done = CliRunner().invoke(main, ["serve", "--db", str(folder), "--project", "Sh/op"])
    assert (done.exit_code, "project 'Sh/op'" in done.stderr) == (2, True)


def test_serve_notices_a_child_that_dies(tmp_path: Path) -> None:
    with running(tmp_path, *serve(tmp_path, processes.free_port(0))) as shell:
        shell.said("dashboard ready")
        started = children_of(shell.process.pid)
        os.kill(min(started), signal.SIGKILL)
        assert shell.ended() == 1
        assert "Error: collector ended with code -9" in shell.err.read_text()
        assert not any(is_alive(pid) for pid in started)


def test_open_serves_a_folder_of_recorded_traces_and_keeps_nothing(
    store: MemoryStore, tmp_path: Path
) -> None:
    store.add(agent_trace())
    folder = tmp_path / "recorded"
    folder.mkdir()
    write_parquet(store, folder / "spans.parquet")
    (folder / "README.md").write_text("not a trace")
    port = processes.free_port(0)
    with running(tmp_path, "open", str(folder), "--port", str(port)) as shell:
        assert shell.said(r"dashboard ready  (\S+) ")[1] == f"http://127.0.0.1:{port}"
        shell.process.send_signal(signal.SIGTERM)
        assert shell.ended() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recorded", "stderr"]


@pytest.mark.parametrize("command", [["serve"], ["open", "."]])
def test_a_bind_beyond_loopback_is_refused_with_2(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "spans.json").touch()
    done = subprocess.run(
        processes.longpole_command(*command, "--host", "0.0.0.0"),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "--insecure-no-auth" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_login_opens_the_bind_and_the_first_start_invites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "data"
    where = commands._Where("0.0.0.0", 0, is_insecure=False, login="password")
    page = commands._page(["--url", "http://127.0.0.1:1"], state, where, ())
    assert page.invitation is not None
    token = page.invitation.partition("/login/set?token=")[2]
    assert Logins(state).by_link(token)
    assert token not in page.child.command  # others see command lines
    assert page.child.command[-4:-2] == ["--login", "password"]
    assert invite(state, is_told=True) is None  # the server says it no second time
    assert Logins(state).set_password(token, "correct horse battery")
    where = commands._Where("0.0.0.0", 0, is_insecure=False, login=None)
    page = commands._page(["--url", "http://127.0.0.1:1"], state, where, ())
    assert (page.invitation, page.child.command[-3]) == (None, "password")
    where = commands._Where(None, 0, is_insecure=False, login=None)
    page = commands._page(["--url", "http://127.0.0.1:1"], state, where, ())
    assert page.url.startswith("http://127.0.0.1:")
    assert page.child.command[-3] == "none"


@pytest.mark.parametrize("words", [[], [".", "--url", "http://127.0.0.1:1"]])
def test_open_wants_files_or_a_collector(words: list[str]) -> None:
    done = CliRunner().invoke(main, ["open", *words])
    assert (done.exit_code, "or a collector with --url" in done.stderr) == (2, True)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace file"):
        commands.trace_files([tmp_path])


@pytest.mark.parametrize("text", ["4318", "host:", ":4318", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        commands._address(text)
    assert commands._address("[::1]:4318") == ("::1", 4318)


def test_demo_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from longpole_dashboard.demo import run as demo_run

    taken: list[demo_run.Options] = []

    def run(options: demo_run.Options) -> int:
        taken.append(options)
        return 3

    monkeypatch.setattr(demo_run, "run", run)
    arguments = ["--minutes", "0.5", "--json", "--exit", "--db", str(tmp_path), "--port", "9"]
    done = CliRunner().invoke(commands.demo, [*arguments, "--model", "tiny", "--seed", "7"])
    assert done.exit_code == 3
    assert taken == [
        demo_run.Options(
            minutes=0.5,
            as_json=True,
            exit_after=True,
            db=tmp_path,
            keep=False,
            port=9,
            model="tiny",
            seed=7,
        )
    ]


def test_demo_refuses_a_length_of_nothing() -> None:
    done = CliRunner().invoke(commands.demo, ["--minutes", "0"])
    assert isinstance(done.exception, UsageError)
