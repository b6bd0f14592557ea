"""Children start, become ready, are noticed when they die, and stop within a bound."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from longpole.errors import LongpoleError, Unreachable, UsageError
from longpole_dashboard import processes
from longpole_dashboard.processes import Child, Group

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def child(tmp_path: Path, code: str, *arguments: str) -> Child:
    command = [sys.executable, "-c", code, *arguments]
    return Child("thing", command, log=tmp_path / "logs" / "thing.log")


def wait_for(text: str, of: Child) -> None:
    deadline = time.monotonic() + 30
    while text not in "".join(of.tail()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_is_ready_when_it_answers_200(tmp_path: Path) -> None:
    port = processes.free_port(0)
    with Group() as group:
        server = group.start(child(tmp_path, SERVER, str(port)))
        assert server.wait_ready(f"http://127.0.0.1:{port}/ready", 30) >= 0
        assert server.is_alive
        with pytest.raises(
            Unreachable, match=r"thing gave no answer at .* for 0\.2 s: see .*thing"
        ):
            server.wait_ready(f"http://127.0.0.1:{port}/other", 0.2)
    assert not server.is_alive
    assert server.returncode == -signal.SIGTERM


def test_a_child_that_dies_before_it_is_ready_is_named_with_its_last_line(tmp_path: Path) -> None:
    code = "import sys; print('port taken \\x1b[31m', file=sys.stderr); sys.exit(3)"
    dying = child(tmp_path, code)
    dying.start()
    with pytest.raises(LongpoleError, match=r"^thing ended with code 3: port taken \[31m \(log: "):
        dying.wait_ready("http://127.0.0.1:9/ready", 30)


def test_the_log_is_private_and_has_both_streams(tmp_path: Path) -> None:
    with Group() as group:
        code = "import sys; print('out'); print('err', file=sys.stderr)"
        talker = group.start(child(tmp_path, code))
        assert group.wait() is talker
    assert talker.returncode == 0
    assert sorted(talker.tail()) == ["err", "out"]
    assert stat.S_IMODE(talker.log.stat().st_mode) == 0o600
    assert stat.S_IMODE(talker.log.parent.stat().st_mode) == 0o700


def test_a_child_that_ignores_sigterm_is_killed_within_the_bound(tmp_path: Path) -> None:
    deaf = child(tmp_path, STUBBORN)
    deaf.start()
    wait_for("deaf", deaf)
    assert deaf.stop(0.2) == -signal.SIGKILL
    assert deaf.stop(0.2) == -signal.SIGKILL


def test_a_child_never_started_stops_without_error(tmp_path: Path) -> None:
    idle = child(tmp_path, "")
    assert idle.stop() is None
    assert (idle.pid, idle.returncode, idle.is_alive, idle.tail()) == (None, None, False, [])
    idle.kill()


def test_a_child_starts_once(tmp_path: Path) -> None:
    once = child(tmp_path, "")
    once.start()
    with pytest.raises(UsageError, match="was started already"):
        once.start()
    once.stop()


def test_a_missing_program_is_one_sentence(tmp_path: Path) -> None:
    missing = Child("thing", [str(tmp_path / "nowhere")], log=tmp_path / "log")
    with pytest.raises(LongpoleError, match="cannot start thing: "):
        missing.start()


def test_the_group_notices_the_first_that_ends(tmp_path: Path) -> None:
    with Group() as group:
        group.start(child(tmp_path, "import time; time.sleep(600)"))
        short = group.start(child(tmp_path, "raise SystemExit(4)"))
        assert group.wait() is short
    assert group.children == []


def test_any_stop_signal_is_a_keyboard_interrupt_inside_the_group(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with pytest.raises(KeyboardInterrupt), Group() as group:  # noqa: PT012 - the signal's place
            sleeper = group.start(child(tmp_path, "import time; time.sleep(600)"))
            threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
            group.wait()
        assert not sleeper.is_alive
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    group = Group(stop_timeout_s=60)
    with group:
        deaf = group.start(child(tmp_path, STUBBORN))
        wait_for("deaf", deaf)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        group.stop()
    assert deaf.returncode == -signal.SIGKILL


def test_a_taken_port_gives_way_to_the_next() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        if taken < 65_000:
            assert taken < processes.free_port(taken) <= taken + processes.NUM_PORTS_TRIED
            following = processes.free_port(taken)
            assert processes.free_port(taken, taken={following}) > following


def test_no_port_at_all_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"no free port on 192\.0\.2\.1 from 1234 on"):
        processes.free_port(1234, "192.0.2.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_loopback_is_always_allowed(host: str) -> None:
    assert processes.check_bind(host, is_insecure=False) is False


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_bind_beyond_this_machine_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(UsageError, match="--insecure-no-auth"):
        processes.check_bind(host, is_insecure=False)
    assert processes.check_bind(host, is_insecure=True) is True


def test_the_longpole_command_runs_this_interpreter() -> None:
    done = subprocess.run(
        processes.longpole_command("--version"), capture_output=True, text=True, check=True
    )
    assert "version" in done.stdout
