import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from longpole_collector.importing import import_all
from longpole_collector.stores import open_reader

ROUNDS = 4
PROTOBUF = {"content-type": "application/x-protobuf"}


@contextmanager
def collect(folder):
    """A collector in a process of its own; killed at the end if it still runs."""
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from longpole.cli import main; main()", "collect",
            "--db", str(folder), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield process, wait_ready(process, folder)
    finally:
        process.kill()
        process.communicate()


def wait_ready(process, folder):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        try:
            found = json.loads((folder / "collector.json").read_text())
            if found["pid"] == process.pid:
                answer = httpx.get(found["url"] + "/readyz", trust_env=False)
                if answer.status_code == 200:
                    return found["url"]
        except (OSError, ValueError, httpx.HTTPError):
            pass
        time.sleep(0.05)
    raise TimeoutError("the collector never got ready")


def blast(url, otlp, acked, stop):
    """Sends requests until told to stop; keeps the names of the acknowledged spans."""
    rng = random.Random()
    with httpx.Client(trust_env=False, timeout=10) as client:
        while not stop.is_set():
            names = [f"{rng.getrandbits(64):x}" for _ in range(8)]
            spans = [
                otlp.span(name=name, trace_id=rng.randbytes(16), span_id=rng.randbytes(8))
                for name in names
            ]
            try:
                answer = client.post(url + "/v1/traces", content=otlp.body(spans), headers=PROTOBUF)
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                acked.update(names)


def test_every_acknowledged_span_survives_kill_9_exactly_once(otlp, tmp_path):
    folder = tmp_path / "data"
    acked: set[str] = set()
    for _ in range(ROUNDS):
        with collect(folder) as (process, url):
            before, stop = len(acked), threading.Event()
            threads = [
                threading.Thread(target=blast, args=(url, otlp, acked, stop)) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 20
            while len(acked) < before + 200 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random.random() * 0.3)
            os.kill(process.pid, signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join()
        assert len(acked) > before
    with collect(folder) as (process, url):
        check(open_reader(url=url), acked)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out == ""
        assert "http 127.0.0.1:" in err
    check(open_reader(db=folder), acked)


def check(reader, acked):
    counts = reader.sql("SELECT name, count(*) AS n FROM spans GROUP BY name").to_pylist()
    found = {row["name"]: row["n"] for row in counts}
    reader.close()
    assert acked <= found.keys()
    assert set(found.values()) == {1}


def test_a_killed_collectors_log_is_read_without_starting_it_again(otlp, tmp_path):
    folder = tmp_path / "data"
    with collect(folder) as (process, url):
        spans = [otlp.span() for _ in range(50)]
        for span in spans:
            httpx.post(
                url + "/v1/traces", content=otlp.body([span]), headers=PROTOBUF, trust_env=False
            ).raise_for_status()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert list((folder / "wal").iterdir())
    reader = open_reader(db=folder)
    assert reader.sql("SELECT count(DISTINCT span_id) AS n FROM spans").to_pylist() == [{"n": 50}]
    reader.close()
    assert not list((folder / "wal").iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_also_with_others_on_its_folder(tmp_path, data, number):
    folder = tmp_path / "data"
    with collect(folder) as (process, _):
        done = import_all([data / "request.json"], db=folder, url=None)
        assert (done.num_spans, done.num_new) == (3, None)
        reader = open_reader(db=folder)
        assert reader.sql("SELECT name FROM calls JOIN spans USING (span_id)").num_rows == 1
        reader.close()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "Traceback" not in err
    assert not (folder / "collector.json").exists()
