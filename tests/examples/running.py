"""A collector, the tiny engine and an example, each a process of its own, as a reader runs them."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longpole_collector.stores import open_reader
from longpole_dashboard.processes import Child, Group, free_port, longpole_command

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Stack:
    """What runs, and where."""

    group: Group
    folder: Path
    collector: str
    page: str
    env: dict[str, str]

    def rows(self, query: str, num: int = 1) -> list[dict[str, Any]]:
        """The rows of a query, once there are so many."""
        deadline = time.monotonic() + 60
        with closing(open_reader(url=self.collector)) as reader:
            while len(found := reader.sql(query).to_pylist()) < num:
                assert time.monotonic() < deadline, (query, found)
                time.sleep(0.2)
        return found

    def run(self, script: str, *arguments: str) -> Child:
        """Run an example to its end."""
        path = EXAMPLES / script
        child = Child(
            path.parent.name,
            [sys.executable, "-W", "error::RuntimeWarning", str(path), *arguments],
            log=self.folder / f"{path.parent.name}.log",
            env=self.env,
        )
        self.group.start(child)
        deadline = time.monotonic() + 120
        while child.is_alive:
            assert time.monotonic() < deadline, child.tail()
            time.sleep(0.1)
        assert child.returncode == 0, child.tail()
        return child

    def serve_chat(self) -> None:
        """Start the chat page's server."""
        port = self.page.rpartition(":")[2]
        folder = str(EXAMPLES / "fastapi_sse")
        command = [sys.executable, "-m", "uvicorn", "--app-dir", folder, "app:app", "--port", port]
        child = Child("chat", command, log=self.folder / "chat.log", env=self.env)
        self.group.start(child).wait_ready(f"{self.page}/longpole.js")


@contextmanager
def stack(folder: Path) -> Iterator[Stack]:
    """A collector that listens to the chat page, and the tiny engine that sends to it."""
    ports: list[int] = []
    for _ in range(4):
        ports.append(free_port(0, taken=ports))
    http, grpc, engine, page = (f"127.0.0.1:{port}" for port in ports)
    env = {
        **os.environ,
        "LONGPOLE_COLLECTOR_BEACON_ORIGINS": f"http://{page}",
        "LONGPOLE_ENGINE_OTLP_ENDPOINT": f"http://{http}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{http}",
        "OPENAI_BASE_URL": f"http://{engine}/v1",
        "OPENAI_API_KEY": "none",
        "MODEL": "tiny",
    }
    serve = longpole_command("engine", "serve", "--model", "tiny", "--port", str(ports[2]))
    collect = longpole_command(
        "collect", "--db", str(folder / "db"), "--http", http, "--grpc", grpc
    )
    with Group() as group:
        collector = Child("collector", collect, log=folder / "collector.log", env=env)
        serving = Child("engine", serve, log=folder / "engine.log", env=env)
        group.start(collector)
        group.start(serving)
        collector.wait_ready(f"http://{http}/readyz")
        serving.wait_ready(f"http://{engine}/health")
        yield Stack(group, folder, f"http://{http}", f"http://{page}", env)
