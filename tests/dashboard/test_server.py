"""The dashboard's server: what it refuses, what it sends along, how it stops."""

import http.client
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longpole_collector.files import write_parquet
from longpole_dashboard import processes, server
from longpole_dashboard.processes import Child, Group

from .conftest import MemoryStore
from .sample import agent_trace


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


@pytest.mark.parametrize("path", ["/", "/trace?trace=1", "/start", "/_stcore/health"])
def test_a_foreign_host_name_is_refused(running: tuple[Child, int], path: str) -> None:
    assert get(running[1], path).status == 200
    assert get(running[1], path, Host="evil.example").status == 400


@pytest.mark.parametrize("path", ["/", "/overview", "/trace", "/start"])
def test_every_page_forbids_other_origins(running: tuple[Child, int], path: str) -> None:
    policy = get(running[1], path).headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "http" not in policy
    assert "*" not in policy


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

    options = server.options("127.0.0.1", 1, is_open=False)
    assert set(options) <= set(config.get_config_options())
    assert options["browser.gatherUsageStats"] is False
    assert options["server.allowedHosts"] == ["localhost", "127.0.0.1", "[::1]", "::1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_with_0(tmp_path: Path, number: signal.Signals) -> None:
    import os

    port = processes.free_port(0)
    command = [sys.executable, "-m", "longpole_dashboard.server", "--port", str(port)]
    child = Child("dashboard", [*command, "--url", "http://127.0.0.1:1"], log=tmp_path / "log")
    with Group() as group:
        group.start(child).wait_ready(f"http://127.0.0.1:{port}/_stcore/health", 60)
        assert child.pid is not None
        os.kill(child.pid, number)
        assert group.wait() is child
    assert child.returncode == 0
    assert len(child.tail()) == 1
