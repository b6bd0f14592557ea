"""A fork waits for imports of ours that other threads are in the middle of.

A forked child has only the thread that forked. A module that another thread was importing stays
locked in the child for ever, and with it whoever imports it there: the application itself, when
the module is ``requests``.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_S = 2.0
"""Nobody waits longer: an import that hangs must not take the fork with it."""

_gate = threading.RLock()
_held = threading.local()


@contextmanager
def loading() -> Iterator[None]:
    """The block imports what takes long: no fork meanwhile."""
    gate = _gate
    is_held = gate.acquire(timeout=WAIT_S)
    try:
        yield
    finally:
        if is_held:
            gate.release()


def _before() -> None:
    _held.gate = _gate if _gate.acquire(timeout=WAIT_S) else None


def _after_in_parent() -> None:
    if _held.gate is not None:
        _held.gate.release()


def _after_in_child() -> None:
    global _gate  # noqa: PLW0603 - another thread may hold it
    _gate = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
