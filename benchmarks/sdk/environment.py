"""Where each side runs: ours here, each peer in a virtual environment of its own, made once.

They lie in ``LONGPOLE_BENCH_CACHE`` (default ``~/.cache/longpole-bench``) as ``sdk-NAME``. A
library that cannot be installed is named with the reason, and the others still run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.child import serving
from benchmarks.sdk.libraries import Library

ROOT = Path(__file__).parents[2]
_LIMIT_S = 1800


class Unavailable(Exception):
    """A library that cannot be installed or run, and why."""


def _cache() -> Path:
    return Path(os.environ.get("LONGPOLE_BENCH_CACHE", "~/.cache/longpole-bench")).expanduser()


def python_of(library: Library) -> str:
    """The interpreter it runs in, after installing what is missing.

    Raises:
        Unavailable: pip failed.
    """
    if not library.packages:
        return sys.executable
    folder = _cache() / f"sdk-{library.name}"
    python, stamp = str(folder / "bin" / "python"), folder / "installed.txt"
    wanted = "\n".join((*library.packages, *library.lone))
    if not stamp.exists() or stamp.read_text() != wanted:
        _cache().mkdir(parents=True, exist_ok=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _told([sys.executable, "-m", "venv", str(folder)])
        _told([*pip, *library.packages])
        if library.lone:
            _told([*pip, "--no-deps", *library.lone])
        stamp.write_text(wanted)
    return python


def _told(command: list[str]) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(  # noqa: S603 - our own
        command,
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise Unavailable(f"{' '.join(command[:4])} ...: {''.join(last)}")
    return done.stdout


def run_in(library: Library, module: str, *arguments: str) -> Any:
    """What a module of this package wrote, run in a library's environment.

    Raises:
        Unavailable: it could not be installed, or the module failed.
    """
    python = python_of(library)
    with TemporaryDirectory(prefix="longpole-bench-") as folder:
        out = Path(folder) / "out.json"
        _told([python, "-m", f"benchmarks.sdk.{module}", library.name, *arguments, str(out)])
        return json.loads(out.read_text())


def provider(truth: Path) -> AbstractContextManager[str]:
    """The local provider in a process of its own; gives its address."""
    return serving("benchmarks.sdk.server", str(truth))
