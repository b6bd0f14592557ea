"""A local provider in a process of its own, so that its work is not counted as the client's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_END_S = 10


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[str]:
    """The address of a module that prints its port and ends with its standard input."""
    process = subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-m", module, *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(_END_S)
        process.stdout.close()
