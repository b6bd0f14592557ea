"""The SDK's own health: what was sent, dropped and swallowed, and who may say so in the log.

Our failure never reaches the application: whoever catches one hands it to :func:`swallow`, which
counts it and logs it once. Messages never carry an exception's text, which may quote a prompt.
"""

import logging
import threading
from collections import Counter

_logger = logging.getLogger("longpole")
_lock = threading.Lock()
_said: set[str] = set()
internal_errors: Counter[str] = Counter()
"""Our own failures, by place."""
sent: Counter[str] = Counter()
"""Spans accepted by the collector, under ``spans``."""
dropped: Counter[str] = Counter()
"""Spans lost, by cause."""


def swallow(place: str, error: BaseException) -> None:
    """Count a failure of ours; log its type and its line the first time it happens there."""
    count(internal_errors, place)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"
    warn_once(
        f"internal:{place}",
        f"longpole failed in {place} ({type(error).__name__} at {line}): measurements are "
        "incomplete, the application is not affected",
    )


def count(counter: Counter[str], key: str, number: int = 1) -> None:
    """Add to one of the counters, from any thread."""
    with _lock:
        counter[key] += number


def warn_once(key: str, message: str) -> None:
    """Log a warning the first time ``key`` comes up in this process."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    _logger.warning(message)


def reset() -> None:
    """Forget everything; for tests and for the child after a fork."""
    global _lock  # noqa: PLW0603 - another thread may have held it at the fork
    _lock = threading.Lock()
    for counter in (internal_errors, sent, dropped):
        counter.clear()
    _said.clear()
