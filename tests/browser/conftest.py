"""A real collector, a real dashboard, a real browser."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from longpole_collector.stores import open_reader
from longpole_dashboard.processes import Child, Group, free_port, longpole_command

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Running:
    """Addresses of a collector and of the dashboard on it."""

    collector: str
    dashboard: str

    def wait_for_traces(self, num_traces: int) -> None:
        reader = open_reader(url=self.collector)
        deadline = time.monotonic() + 60
        query = "SELECT count(*) AS n FROM traces WHERE wall_ms IS NOT NULL"
        while reader.sql(query).to_pylist()[0]["n"] < num_traces:
            assert time.monotonic() < deadline, "the collector did not roll up in time"
            time.sleep(0.2)
        reader.close()


def start(group: Group, folder: Path) -> Running:
    http, grpc = free_port(0), free_port(0)
    port = free_port(0)
    collector = longpole_command(
        *("collect", "--db", str(folder / "db")),
        *("--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{grpc}"),
    )
    url = f"http://127.0.0.1:{http}"
    page = [sys.executable, "-m", "longpole_dashboard.server", "--port", str(port), "--url", url]
    children = (
        (Child("collector", collector, log=folder / "collector.log"), f"{url}/readyz"),
        (Child("dashboard", page, log=folder / "dashboard.log"), f"http://127.0.0.1:{port}/start"),
    )
    for child, _ in children:
        group.start(child)
    for child, ready in children:
        child.wait_ready(ready, 90)
    return Running(url, f"http://127.0.0.1:{port}")


@pytest.fixture(scope="module")  # Playwright's loop runs in this thread: no other may, meanwhile
def browser() -> Iterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"no browser at {CHROMIUM}: set CHROMIUM")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@dataclass
class Watched:
    """A page, and everything it asked for or complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def assert_clean(self, base: str) -> None:
        schemes = ("data:", "blob:", base, base.replace("http", "ws", 1))
        assert [url for url in self.requests if not url.startswith(schemes)] == []
        assert self.complaints == []


@pytest.fixture
def open_page(browser: Browser) -> Iterator[object]:
    """``open_page(url, scheme, width)`` opens a page in a fresh profile."""
    contexts = []

    def opened(url: str, scheme: str = "light", width: int = 1_280) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]  # "light" or "dark"
        )
        contexts.append(context)
        watched = Watched(context.new_page())
        page = watched.page
        page.set_default_timeout(60_000)
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("websocket", lambda socket: watched.requests.append(socket.url))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("dialog", lambda dialog: watched.complaints.append(f"dialog {dialog.message}"))
        page.on(
            "console",
            lambda line: watched.complaints.append(line.text) if line.type == "error" else None,
        )
        page.goto(url)
        return watched

    yield opened
    for context in contexts:
        context.close()
