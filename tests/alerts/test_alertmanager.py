"""The life of an alert in a real Alertmanager, with restarts of the watch in between."""

import contextlib
import shutil
import socket
import subprocess
import time
from datetime import datetime

import httpx
import pytest

from longpole_analytics.alerts.sinks.base import make_sinks

from .harness import Scene, slo

BINARY = shutil.which("prometheus-alertmanager")
pytestmark = pytest.mark.skipif(
    BINARY is None, reason="needs Alertmanager: apt-get install prometheus-alertmanager"
)
CONFIG = """
route: {receiver: nobody}
receivers: [{name: nobody}]
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "config.yml").write_text(CONFIG)
    port = free_port()
    arguments = [
        BINARY,
        f"--config.file={folder / 'config.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(400):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{address}/-/ready", trust_env=False).status_code == 200:
                    break
            time.sleep(0.05)
        else:
            raise TimeoutError((folder / "log").read_text())
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def playing(url, tmp_path):
    """Makes scenes, each of an objective of its own, that fire two minutes ago."""
    scenes = []

    def make(name):
        sinks = make_sinks({"am": {"kind": "alertmanager", "url": url}})
        it = Scene(tmp_path / name, sinks=sinks, **{name: slo(where=f"route = '{name}'")})
        it.now_s = time.time() // 60 * 60 - 74 * 60  # Alertmanager has the real clock
        scenes.append(it)
        it.fill(60, good=20, route=name)
        it.fill(12, good=2, bad=18, bad_prompt="v42", route=name)
        return it

    yield make
    for it in scenes:
        it.close()


def test_an_alert_fires_stays_one_and_resolves(url, playing):
    it = playing("search")
    (alert,) = alerts(url, "search")
    assert alert["status"]["state"] == "active"
    assert alert["labels"] == {
        "alertname": "LongpoleSLOBurn",
        "slo": "search",
        "severity": "page",
        "project": "default",
        "route": "search",
    }
    assert alert["annotations"]["summary"] == it.got[0]["summary"]
    assert alert["annotations"]["slice"].startswith("prompt_version=v42")
    assert alert["generatorURL"] == it.got[0]["links"]["explore"]
    assert ends(alert) > it.now_s

    for _ in range(3):  # it hears of it every minute, also from a watch that was restarted
        it.open()
        it.store.add(int(it.now_s) // 60, bad=20, route="search")
        it.look(it.now_s + 61)
    (later,) = alerts(url, "search")
    assert later["fingerprint"] == alert["fingerprint"]
    assert ends(later) > ends(alert)
    assert it.told == [("firing", "page")]


def test_what_is_over_is_no_longer_active(url, playing):
    it = playing("other")
    assert alerts(url, "other")
    it.open()
    it.fill(1, good=600, route="other")  # it is over a minute ago
    assert it.told == [("firing", "page"), ("resolved", "page")]
    assert {d["state"] for d in it.ledger_rows()} == {"sent"}
    deadline = time.monotonic() + 60
    while alerts(url, "other"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_store_out_of_reach_keeps_it_firing(url, playing):
    it = playing("third")
    (before,) = alerts(url, "third")
    it.store.is_down = True
    for _ in range(3):
        it.look(it.now_s + 61)
    (after,) = alerts(url, "third")
    assert ends(after) > ends(before)
    assert it.told == [("firing", "page")]


def alerts(url, name):
    answer = httpx.get(f"{url}/api/v2/alerts", trust_env=False)
    assert answer.status_code == 200
    return [each for each in answer.json() if each["labels"]["slo"] == name]


def ends(alert):
    return datetime.fromisoformat(alert["endsAt"]).timestamp()
