"""Many traces at once: the fast way from rows of spans to roll-ups.

Compiled loops (numba) do for plain traces what ``rollup.roll_up`` does for one; whatever is odd
about a trace sends it there, so both ways give equal rows. The definitions are those of
``prepare``, ``critical_path``, ``stages`` and ``rollup``; each loop names the function it follows.

Compiling takes some seconds once, later starts load the result from disk. It happens in a thread
of its own when the first large table comes; until it is done the reference does all.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from threading import Event, Thread
from typing import Any, Final

START_SPANS: Final = 4096
"""A table of so many spans makes the compiled loops worth having."""
MIN_SPANS: Final = 128
"""Smaller tables are as fast without them, once they are there."""
REPLAY_SPANS: Final = 50_000
"""From so many spans on a replay waits for its loops; fewer take about a second without."""

_log = logging.getLogger("longpole.analytics.bulk")
_many: Callable[[Any], tuple[Any, Any]] | None = None
_thread: Thread | None = None
_is_done: Final = Event()


def roll_up_table(spans: Any) -> tuple[Any, Any]:
    """The rows of many traces and of their stages, in the fastest way there is now.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
    """
    if _many is not None and spans.num_rows >= MIN_SPANS:
        return _many(spans)
    if spans.num_rows >= START_SPANS:
        start()
    each: Any = import_module("longpole_analytics.bulk.each")
    rolled: tuple[Any, Any] = each.roll_up_each(spans)
    return rolled


def savings_table(spans: Any, questions: Any) -> Any:
    """What each question would save in each trace, in the fastest way; by id.

    A trace without a finished span takes 0 and saves 0.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
        questions: pairs of a stage and the fraction, 0 to 1, that it is faster by.

    Returns:
        A :class:`longpole_analytics.bulk.each_replay.Savings`.
    """
    if spans.num_rows >= REPLAY_SPANS:
        try:
            many: Any = import_module("longpole_analytics.bulk.savings")
            return many.savings_many(spans, questions)
        except Exception:  # noqa: BLE001 - a machine that cannot compile still has the reference
            _log.exception("traces are replayed one by one: the compiled loops cannot be had")
    each: Any = import_module("longpole_analytics.bulk.each_replay")
    return each.savings_each(spans, questions).in_order()


def start(*, wait: bool = False) -> bool:
    """Begin to load and compile, once; returns whether the compiled loops are there.

    Args:
        wait: come back when it is done.
    """
    global _thread  # noqa: PLW0603 - one a process, like the loops
    if _thread is None:
        _thread = Thread(target=_load, name="longpole-compile-rollup", daemon=True)
        _thread.start()
    if wait:
        _is_done.wait()
    return _many is not None


def _load() -> None:
    global _many  # noqa: PLW0603 - see above
    try:
        table: Any = import_module("longpole_analytics.bulk.table")
        table.warm_up()
        _many = table.roll_up_many
    except Exception:  # noqa: BLE001 - a machine that cannot compile still has the reference
        _log.exception("traces are rolled up one by one: the compiled loops cannot be had")
    finally:
        _is_done.set()
