"""MLflow's and Phoenix's servers beside ours: spans stored per CPU-second, same spans, same run.

Each is installed with pip into a virtual environment of its own under ``LONGPOLE_BENCH_CACHE``
(default ``~/.cache/longpole-bench``), runs with its defaults on SQLite, and gets bodies of 256
spans over four connections. Their start is not counted; the time until their database counts
every span is. Both compute things at ingest that we do not; they are run as a user would run them.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench
from benchmarks.collector.load import Order, Sent
from benchmarks.collector.process import Tree, serving, wait_until
from benchmarks.collector.throughput import rates

_PER_BODY = 256
_START_S = 300
_SEND_S = 60.0
_DRAIN_S = 180
_WARM_UP_BODIES = 8
_MLFLOW_DATABASE = "mlflow.db"


@dataclass(frozen=True)
class Peer:
    """A server to compare with."""

    name: str
    package: str
    need: float
    database: str
    """File name within its folder."""
    ready: str
    """Path that answers 200 once it serves."""
    command: Callable[[Path, Path, int], list[str | Path]]
    """Its ``bin`` folder, its data folder, its port -> how it is started."""
    env: Callable[[Path, int], dict[str, str]] = lambda folder, port: {}
    headers: Mapping[str, str] = field(default_factory=dict)


def _mlflow(bin_: Path, folder: Path, port: int) -> list[str | Path]:
    store = f"sqlite:///{folder / _MLFLOW_DATABASE}"
    return [bin_ / "mlflow", "server", "--port", str(port), "--backend-store-uri", store]


MLFLOW = Peer(
    name="mlflow",
    package="mlflow",
    need=100,
    database=_MLFLOW_DATABASE,
    ready="/health",
    command=_mlflow,
    headers={"x-mlflow-experiment-id": "0"},
)
PHOENIX = Peer(
    name="phoenix",
    package="arize-phoenix",
    need=300,
    database="phoenix.db",
    ready="/healthz",
    command=lambda bin_, folder, port: [bin_ / "phoenix", "serve"],
    env=lambda folder, port: {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(_free_port()),
    },
)


def peers(bench: Bench) -> list[Bar]:
    """Our rate over theirs."""
    ours, _ = rates(bench)
    bars = []
    for peer in (MLFLOW, PHOENIX):
        version = _install(peer)
        bench.say(f"{peer.package} {version}")
        sides = _measure(bench, peer)
        theirs = float(sides["stored_spans_per_cpu_s"])
        sides = {"our_spans_per_cpu_s": ours, "version": version, **sides}
        bars.append(Bar(peer.name, ours / theirs, "x", ">=", peer.need, sides))
    return bars


def _measure(bench: Bench, peer: Peer) -> dict[str, float | str]:
    folder = bench.folder / peer.name
    folder.mkdir()
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    command = peer.command(_bin(peer), folder, port)
    env = {"PATH": f"{_bin(peer)}:{os.environ['PATH']}", **peer.env(folder, port)}
    with serving(command, bench.folder / f"{peer.name}.log", env, folder) as process:
        begun = time.perf_counter()
        wait_until(lambda: _is_up(address + peer.ready), f"{peer.name} serves", _START_S, 1)
        start_s = time.perf_counter() - begun
        database = folder / peer.database
        # the first requests of its workers' lives pay for imports and caches: not counted
        warm = _send(bench, peer, address, _WARM_UP_BODIES * _PER_BODY, 7, 120)
        _wait_stored(database, warm.num_spans)
        tree = Tree(process.pid)
        cpu_s, begun = tree.cpu_s(), time.perf_counter()
        sent = _send(bench, peer, address, bench.spans(20_000), 1, bench.seconds(_SEND_S))
        with suppress(TimeoutError):  # then what it has stored by now counts
            _wait_stored(database, warm.num_spans + sent.num_spans)
        cpu_s, wall_s = tree.cpu_s() - cpu_s, time.perf_counter() - begun
        num_stored = _num_stored(database) - warm.num_spans
        return {
            "stored_spans_per_cpu_s": num_stored / cpu_s,
            "num_spans_acknowledged": sent.num_spans,
            "num_spans_stored": num_stored,
            "wall_spans_per_s": num_stored / wall_s,
            "ack_p50_ms": sent.ack_p50_ms,
            "ack_p99_ms": sent.ack_p99_ms,
            "start_s": start_s,
            "rss_mib": tree.rss_mib(),
        }


def _send(
    bench: Bench, peer: Peer, address: str, num_spans: int, seed: int, limit_s: float
) -> Sent:
    return bench.loader.send(
        Order(
            f"{address}/v1/traces",
            num_spans,
            _PER_BODY,
            seed,
            limit_s=limit_s,
            headers=dict(peer.headers),
            num_pool=20_480,
        )
    )


def _wait_stored(database: Path, num_spans: int) -> None:
    wait_until(lambda: _num_stored(database) >= num_spans, f"{num_spans} stored", _DRAIN_S, 1)


def _num_stored(database: Path) -> int:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)
    try:
        return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])
    finally:
        connection.close()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _cache() -> Path:
    return Path(os.environ.get("LONGPOLE_BENCH_CACHE", "~/.cache/longpole-bench")).expanduser()


def _bin(peer: Peer) -> Path:
    return _cache() / peer.name / "bin"


def _install(peer: Peer) -> str:
    """Install it once; returns its version."""
    python = str(_bin(peer) / "python")
    say = f"from importlib.metadata import version; print(version({peer.package!r}))"
    if not Path(python).exists() or _told([python, "-c", say]) is None:
        _cache().mkdir(parents=True, exist_ok=True)
        for command in (
            [sys.executable, "-m", "venv", str(_cache() / peer.name)],
            [python, "-m", "pip", "install", "--quiet", peer.package],
        ):
            subprocess.run(command, check=True)  # noqa: S603 - our own
    return _told([python, "-c", say]) or "unknown"


def _told(command: list[str]) -> str | None:
    """What a command says; ``None`` if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None
