"""The dashboard's server: what it refuses, what it sends along, how it stops."""

import http.client
import os
import platform
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from longpole_collector.files import write_parquet
from longpole_dashboard import processes, server
from longpole_dashboard.processes import Child, Group

from .conftest import MemoryStore
from .sample import agent_trace

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Child, int]]:
    folder = tmp_path_factory.mktemp("server")
    store = MemoryStore()
    store.add(agent_trace())
    write_parquet(store, folder / "spans.parquet")
    store.close()
    port = processes.free_port(0)
    command = [sys.executable, "-m", "longpole_dashboard.server", "--port", str(port)]
    child = Child("dashboard", [*command, str(folder / "spans.parquet")], log=folder / "log")
    with Group() as group:
        group.start(child).wait_ready(f"http://127.0.0.1:{port}/_stcore/health", 60)
        yield child, port


def get(port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_it_prints_one_ready_line_and_nothing_else(running: tuple[Child, int]) -> None:
    child, port = running
    assert child.tail() == [f"dashboard ready  http://127.0.0.1:{port}  file spans.parquet"]


@pytest.mark.parametrize("path", ["/", "/trace?trace=1", "/start", "/_stcore/health", "/healthz"])
def test_a_foreign_host_name_is_refused(running: tuple[Child, int], path: str) -> None:
    assert get(running[1], path).status == 200
    assert get(running[1], path, Host="evil.example").status == 400


@pytest.mark.parametrize("path", ["/", "/overview", "/trace", "/start"])
def test_every_page_forbids_other_origins(running: tuple[Child, int], path: str) -> None:
    policy = get(running[1], path).headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "http" not in policy
    assert "*" not in policy


def test_the_first_page_has_a_name_too(running: tuple[Child, int]) -> None:
    answer = get(running[1], "/overview?route=a&range=7%20d")
    assert (answer.status, answer.headers["location"]) == (307, "/?route=a&range=7%20d")


def test_where_scripts_are_blocked_the_page_says_so(running: tuple[Child, int]) -> None:
    page = httpx.get(f"http://127.0.0.1:{running[1]}/", trust_env=False).text
    told = re.search("<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert told
    assert "You need to enable JavaScript" in told[1]


def test_scripts_go_compressed(running: tuple[Child, int]) -> None:
    page = http.client.HTTPConnection("127.0.0.1", running[1], timeout=20)
    page.request("GET", "/")
    body = page.getresponse().read().decode()
    page.close()
    script = "/static/js/" + body.split("/static/js/", 1)[1].split('"', 1)[0]
    answer = get(running[1], script, **{"Accept-Encoding": "gzip"})
    assert (answer.status, answer.headers["content-encoding"]) == (200, "gzip")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0", "--url", "http://127.0.0.1:1"], "has no login"),
        (["--host", "example.com", "--url", "http://127.0.0.1:1"], "not an IP address"),
        ([], "name one source of data"),
        (["--url", "http://127.0.0.1:1", "file.json"], "name one source of data"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_taken_port_is_refused(
    running: tuple[Child, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.main(["--port", str(running[1]), "--url", "http://127.0.0.1:1"]) == 2
    assert "is taken" in capsys.readouterr().err


def test_every_option_exists_in_the_installed_streamlit() -> None:
    from streamlit import config

    options = server.options("127.0.0.1", 1)
    assert set(options) <= set(config.get_config_options())
    assert options["browser.gatherUsageStats"] is False


def test_it_stops_with_0(tmp_path: Path) -> None:
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT):  # both start at once
        port = processes.free_port(0)
        command = [sys.executable, "-m", "longpole_dashboard.server", "--port", str(port)]
        log = tmp_path / number.name
        child = Child("dashboard", [*command, "--url", "http://127.0.0.1:1"], log=log)
        stopping.append((child, port, number))
    with Group() as group:
        for child, _, _ in stopping:
            group.start(child)
        for child, port, number in stopping:
            child.wait_ready(f"http://127.0.0.1:{port}/healthz", 60)
            assert child.pid is not None
            os.kill(child.pid, number)
            deadline = time.monotonic() + 60
            while child.is_alive:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert child.returncode == 0
            assert len(child.tail()) == 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Child, int]]:
    """Open to the network, with a login: the first start, as somebody does it by hand."""
    folder = tmp_path_factory.mktemp("guarded")
    certificate(folder)
    port = processes.free_port(0)
    command = [sys.executable, "-m", "longpole_dashboard.server", "--host", "0.0.0.0"]
    command += ["--port", str(port), "--url", "http://127.0.0.1:1", "--state", str(folder / "db")]
    env = {
        **os.environ,
        "LONGPOLE_DASHBOARD_TLS_CERTIFICATE": str(folder / "certificate.pem"),
        "LONGPOLE_DASHBOARD_TLS_KEY_FILE": str(folder / "key.pem"),
    }
    log = folder / "log"
    child = Child("dashboard", [*command, "--login", "password"], log=log, env=env)
    with Group() as group:
        group.start(child).wait_ready(f"https://127.0.0.1:{port}/healthz", 60)
        yield child, port


def certificate(folder: Path) -> None:
    """A certificate that nobody has signed but itself."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", str(folder / "key.pem")]
    words += ["-out", str(folder / "certificate.pem")]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")


def test_the_first_start_prints_a_link_that_lets_one_in_once(guarded: tuple[Child, int]) -> None:
    child, port = guarded
    base = f"https://127.0.0.1:{port}"
    first, second = child.tail()
    assert first == f"dashboard ready  https://0.0.0.0:{port}  collector http://127.0.0.1:1"
    assert second.startswith("set the password of 'admin', once, within 1 h  ")
    link = second.rpartition("  ")[2]
    assert link.startswith(f"{base}/login/set?token=")
    form = {"token": link.partition("=")[2], "password": PASSWORD, "again": PASSWORD}
    with httpx.Client(base_url=base, verify=False, timeout=30) as client:
        for path in ("/", "/start", "/_stcore/health", "/_stcore/host-config", "/static/js/a.js"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"accept": "text/html"}).status_code == 303
        assert client.post("/login/set", data=form, headers={"origin": base}).status_code == 303
        (cookie,) = client.cookies.jar
        assert cookie.secure
        assert cookie.has_nonstandard_attr("HttpOnly")
        for path in ("/", "/start", "/_stcore/health", "/_stcore/host-config"):
            assert client.get(path).status_code == 200
        assert client.get(link).status_code == 410
        assert client.get("/login").status_code == 303
    assert len(child.tail()) == 2


async def test_the_websocket_is_refused_before_a_login(guarded: tuple[Child, int]) -> None:
    port = guarded[1]
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            f"wss://127.0.0.1:{port}/_stcore/stream", ssl=unchecked, subprotocols=["streamlit"]
        )
    assert caught.value.response.status_code == 403


_THREADS = """
import ctypes
import sys
from threading import Barrier, Thread

from longpole_dashboard.server import share_heaps

if sys.argv[1] == "shared":
    share_heaps()
together = Barrier(12)

def session():
    kept = [bytearray(50_000) for _ in range(20)]
    together.wait()

threads = [Thread(target=session) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others have no heaps of threads")
def test_threads_share_their_heaps() -> None:
    def num_heaps(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", _THREADS, how], capture_output=True, text=True, check=True
        )
        return done.stderr.count("Arena ")

    assert num_heaps("shared") < num_heaps("own")
