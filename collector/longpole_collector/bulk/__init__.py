"""Many spans at once: the fast way from OTLP protobuf to the store's columns.

Compiled loops (numba) over the bytes of many bodies fill the columns directly. They read plain
spans only; whatever is unusual, and all of JSON, goes through the reference
(``decode.parse`` and the dialects), span by span, so both ways give equal rows.

Compiling takes some seconds once, later starts load the result from disk. It happens in a
thread of its own when the first large batch comes; until it is done the reference does all.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from threading import Event, Thread
from typing import Any, Final

START_BYTES: Final = 128 << 10
"""A batch of so many bytes makes the compiled loops worth having."""
MIN_BYTES: Final = 16 << 10
"""Smaller batches are as fast without them, once they are there."""

_log = logging.getLogger("longpole.collector.bulk")
_count: Callable[[bytes], int] | None = None
_thread: Thread | None = None
_is_done: Final = Event()


def counter() -> Callable[[bytes], int] | None:
    """The compiled check of a body, once there is one.

    It gives the number of spans of a body that is good and plain, else -1.
    """
    return _count


def is_ready() -> bool:
    """Whether the compiled loops are there."""
    return _count is not None


def start(*, wait: bool = False) -> bool:
    """Begin to load and compile, once; returns whether the compiled loops are there.

    Args:
        wait: come back when it is done.
    """
    global _thread  # noqa: PLW0603 - one a process, like the loops
    if _thread is None:
        _thread = Thread(target=_load, name="longpole-compile", daemon=True)
        _thread.start()
    if wait:
        _is_done.wait()
    return is_ready()


def _load() -> None:
    global _count  # noqa: PLW0603 - see above
    try:
        counting: Any = import_module("longpole_collector.bulk.counting")
        table: Any = import_module("longpole_collector.bulk.table")
        table.warm_up()
        counting.count_spans(b"")
        _count = counting.count_spans
    except Exception:  # noqa: BLE001 - a machine that cannot compile still has the reference
        _log.exception("spans are decoded one by one: the compiled loops cannot be had")
    finally:
        _is_done.set()
