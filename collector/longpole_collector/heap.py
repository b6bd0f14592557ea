"""Memory that Python and the libraries have freed goes back to the system.

Request bodies and tables of many sizes come and go in several threads, and glibc keeps what they
leave between what is still used: up to half of a busy collector's heap.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

_PERIOD_S: Final = 2.0
_MANY_BYTES: Final = 48 << 20
_SOME_BYTES: Final = 16 << 20
_STATM: Final = Path("/proc/self/statm")


class Heap:
    """Gives freed memory back now and then, in a thread of its own; only on Linux with glibc.

    That is when the process has grown much since the last time, or some and now rests: it costs
    about 20 ms, and as much again when the memory is used next.
    """

    def __init__(self) -> None:
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="longpole-heap", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        trim = _trim()
        if trim is None or not _STATM.exists():
            return
        kept = before = resident_bytes()
        while not self._stopping.wait(_PERIOD_S):
            now = resident_bytes()
            rests = abs(now - before) < _SOME_BYTES
            if now - kept > (_SOME_BYTES if rests else _MANY_BYTES):
                trim(0)
                kept = now = resident_bytes()
            kept, before = min(kept, now), now


def resident_bytes() -> int:
    """Memory of this process that is in RAM (Linux)."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> Callable[[int], Any] | None:
    """malloc_trim(3), where there is one."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
