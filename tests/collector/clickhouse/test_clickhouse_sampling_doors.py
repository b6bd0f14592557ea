"""A collector that samples in front of ClickHouse: by the doors, over an outage, switched about."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from longpole.errors import UsageError
from longpole.vocab import Rollup
from longpole_collector import thinning
from longpole_collector.app import Collector, background
from longpole_collector.decode import Compression, Format
from longpole_collector.ingest import OUTBOX_FOLDER, UNDECIDED_FOLDER
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.settings import Settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.wal import Frame, Position, Wal

from .door import USER, WORD, Door

RULES = SamplingRules(is_on=True, rest=0.1, rare_traces=1, quiet_s=0.2, slices=())
PROTOBUF = {"content-type": "application/x-protobuf"}
NUM = 12


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch, door: Door) -> Iterator[None]:
    monkeypatch.setattr(thinning, "_PAUSE_S", 0.05)
    monkeypatch.setattr("longpole_collector.ingest._SAVE_S", 0.2)
    monkeypatch.setattr("longpole_collector.relay._POLL_S", 0.05)
    monkeypatch.setattr("longpole_collector.relay._RETRY_S", 0.1)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.far._PAUSE_S", 0.0)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.opening._RETRY_S", 0.1)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.opening._REST", 0)
    yield
    door.is_open = True


@pytest.fixture
def database(tmp_path: Path) -> str:
    return "s_" + "".join(char for char in tmp_path.name if char.isalnum())


@pytest.fixture
def settings(door: Door, tmp_path: Path, database: str) -> Settings:
    return Settings(
        db=tmp_path / "one",
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        store=f"clickhouse://{USER}:{WORD}@{door.address}/{database}",
        sampling=RULES,
    )


@pytest.fixture
def body(otlp: Any) -> Callable[[int], bytes]:
    """One trace of a single span, begun just now; of every fourth the id is kept."""

    def make(number: int) -> bytes:
        now_ns = time.time_ns()
        span = otlp.span(
            name=f"n{number}",
            trace_id=number.to_bytes(9, "big") + bytes([255 if number % 4 == 0 else 1] * 7),
            start_time_unix_nano=now_ns,
            end_time_unix_nano=now_ns + 10**6,
        )
        return bytes(otlp.body([span]))

    return make


def post(collector: Collector, body: bytes) -> int:
    answer = httpx.post(
        f"{collector.url}/v1/traces", content=body, headers=PROTOBUF, trust_env=False, timeout=30
    )
    return answer.status_code


def gauges(collector: Collector) -> dict[str, float]:
    text = httpx.get(f"{collector.url}/metrics", trust_env=False).text
    told = (line.split(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in told}


def test_what_is_kept_is_there_after_an_outage_and_the_rest_is_counted(
    settings: Settings, body: Any, eventually: Any, door: Door, rollup: Rollup
) -> None:
    with background(settings, rollup) as collector:
        reader = open_reader(url=collector.url)
        eventually(lambda: post(collector, body(0)) == 200)
        names = "SELECT name FROM spans ORDER BY name"
        eventually(lambda: reader.sql(names)["name"].to_pylist() == ["n0"])
        door.is_open = False
        assert {post(collector, body(number)) for number in range(1, NUM)} == {200}
        waiting = ("longpole_unsent_traces", "longpole_undecided_traces")
        eventually(lambda: [gauges(collector)[name] for name in waiting] == [2, 0])
        assert "no ClickHouse answers" in eventually(
            lambda: httpx.get(f"{collector.url}/healthz", trust_env=False).json().get("store")
        )
        door.is_open = True
        eventually(lambda: reader.sql(names)["name"].to_pylist() == ["n0", "n4", "n8"])
        counted = "SELECT sum(num) AS n FROM minutes WHERE metric = 'wall_ms'"
        eventually(lambda: reader.sql(counted).to_pylist() == [{"n": NUM}])
        weights = reader.sql("SELECT sum(weight) AS w FROM traces").to_pylist()
        assert weights == [{"w": pytest.approx(21)}]
        reader.close()


def test_what_is_undecided_when_it_ends_is_decided_when_it_starts_again(
    settings: Settings, body: Any, eventually: Any, rollup: Rollup, engine: Client, database: str
) -> None:
    patient = replace(settings, sampling=replace(RULES, quiet_s=3600.0, rest=1.0))
    with background(patient, rollup) as collector:
        assert post(collector, body(1)) == 200
        eventually(lambda: gauges(collector)["longpole_undecided_traces"] == 1)
    with background(replace(settings, sampling=replace(RULES, rest=1.0)), rollup) as collector:
        eventually(
            lambda: (
                engine.ask(f"SELECT name FROM {database}.span_rows")["name"].to_pylist() == ["n1"]
            )
        )


def test_killed_before_it_sent_on_it_does_so_when_it_starts_again(
    settings: Settings, body: Any, eventually: Any, door: Door, rollup: Rollup, tmp_path: Path
) -> None:
    """Acknowledged, and killed: some are not decoded yet, some not decided, none is sent."""
    (tmp_path / "longpole.toml").write_text("[collector.sampling]\nis_on = true\nrest = 1.0\n")
    process = subprocess.Popen(
        [sys.executable, "-c", "from longpole.cli import main; main()", "collect",
         "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--db", str(settings.db),
         "--store", str(settings.store)],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "longpole collect:" in line)
        url = f"http://{line.split('http ')[1].split(',')[0]}/v1/traces"
        for number in range(NUM):
            answer = httpx.post(
                url, content=body(number), headers=PROTOBUF, trust_env=False, timeout=30
            )
            assert answer.status_code == 200
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    everything = replace(settings, sampling=replace(RULES, rest=1.0))
    with background(everything, rollup) as collector:
        reader = open_reader(url=collector.url)
        asked = "SELECT count(*) AS n, sum(num_spans) AS spans FROM traces"
        eventually(lambda: reader.sql(asked).to_pylist() == [{"n": NUM, "spans": NUM}])
        reader.close()


def test_switching_leaves_nothing_behind_unsaid(
    settings: Settings, body: Any, rollup: Rollup
) -> None:
    outbox = settings.db / OUTBOX_FOLDER
    log = Wal(outbox, Position(0, 0))
    log.write([Frame(Format.PROTOBUF, Compression.IDENTITY, 1, body(1))])
    log.close(Position(0, 0))
    with (
        pytest.raises(UsageError, match=r"start once without \[collector.sampling\]"),
        background(settings, rollup),
    ):
        pass
    for path in outbox.glob("*.wal"):
        path.unlink()
    with background(settings, rollup) as collector:
        assert post(collector, body(1)) == 200
    with (
        pytest.raises(UsageError, match=rf"{UNDECIDED_FOLDER} has .*rest = 1 drops nothing"),
        background(replace(settings, sampling=SamplingRules()), rollup),
    ):
        pass
