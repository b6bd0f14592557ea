"""The dashboard in front of a collector, as ``longpole serve`` runs them; and a bare page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from benchmarks.collector.process import Collector, Tree, collecting, serving, wait_until

from longpole_dashboard.processes import free_port

_READY_S = 120.0


class Served(NamedTuple):
    """A running dashboard."""

    url: str
    tree: Tree
    """Of the dashboard alone."""
    collector: Collector


@contextmanager
def dashboard(folder: Path) -> Iterator[Served]:
    """The dashboard on a data folder, with a collector of its own."""
    port = free_port(0)
    url = f"http://127.0.0.1:{port}"
    with collecting(folder) as collector:
        command = [
            *(sys.executable, "-m", "longpole_dashboard.server"),
            *("--port", str(port), "--url", collector.url),
        ]
        with serving(command, folder.parent / "dashboard.log") as process:
            _wait(f"{url}/healthz")
            yield Served(url, Tree(process.pid), collector)


@contextmanager
def bare(folder: Path) -> Iterator[str]:
    """The address of Streamlit's own server with a page of one title."""
    port = free_port(0)
    script = folder / "hello.py"
    script.write_text('import streamlit as st\n\nst.title("Hello")\n')
    command = [
        *(sys.executable, "-m", "streamlit", "run", str(script)),
        *("--server.port", str(port), "--server.address", "127.0.0.1"),
        *("--server.headless", "true", "--browser.gatherUsageStats", "false"),
    ]
    with serving(command, folder / "bare.log", folder=folder) as _:
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/_stcore/health")
        yield url


def _wait(url: str) -> None:
    with httpx.Client(trust_env=False, timeout=10) as client:

        def is_ready() -> bool:
            try:
                return client.get(url).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(is_ready, f"an answer at {url}", _READY_S, 0.05)
