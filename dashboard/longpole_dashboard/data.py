"""The only module of the dashboard that touches a store; everything it reads is cached briefly.

Pages ask for view models: ``ask(function, ...)`` calls ``function(..., reader)`` about once per
``TTL_S`` seconds for the same arguments, however many browsers ask. What has just run out is
shown once more while it is computed anew, so that nobody waits for a refresh.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import streamlit as st

from longpole_collector.settings import PROJECTS_FOLDER
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import selection, window
from longpole_dashboard.model.selection import Selection
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.source import Source, source

TTL_S: Final = 5.0
MAX_STALE_S: Final = 2 * TTL_S
"""Nothing older is shown: then a page waits for the store."""
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 256_000_000
"""Of all view models together; a trace of 10,000 spans takes about 10 MB."""
HOLD_S: Final = 60.0
MAX_HELD: Final = 8
"""Tables of single workflows; one of 14,000 takes about 10 MB."""
MAX_READERS: Final = 32
"""Open stores and connections: one a project."""
NUM_THREADS: Final = 4
"""Questions that are asked side by side."""
DEFAULT_PROJECT: Final = "default"
_PROJECT: Final = "longpole_project"

R = TypeVar("R")
_threads = ThreadPoolExecutor(NUM_THREADS, "longpole-ask")


@st.cache_resource(max_entries=MAX_READERS, show_spinner=False)
def _reader(chosen: Source) -> Reader:
    return chosen.open()


def projects() -> tuple[str, ...]:
    """The projects of a data folder, the default one first; empty where there is but one.

    A collector shows the one project of the key that it is asked with.
    """
    chosen = source()
    folder = chosen.db
    if folder is None or chosen.project is not None or not (folder / PROJECTS_FOLDER).is_dir():
        return ()
    others = sorted(each.name for each in (folder / PROJECTS_FOLDER).iterdir() if each.is_dir())
    return (DEFAULT_PROJECT, *others) if others else ()


def use_project(project: str | None) -> None:
    """Answer this browser's questions from a project from now on; ``None`` is the default one."""
    st.session_state[_PROJECT] = None if project == DEFAULT_PROJECT else project


def reopen() -> None:
    """Open the source anew at the next question: it could not be reached, it may have moved."""
    _reader.clear()


def ask(function: Callable[..., R], *arguments: Any) -> R:
    """What ``function(*arguments, reader)`` returns.

    The function is a module's own, pure but for the reader, and its arguments are what Streamlit
    can hash: plain values, tuples, frozen dataclasses. Filters that move with the clock count as
    the same while their selection is.
    """
    return ask_of(_chosen(), function, *arguments)


def begin(function: Callable[..., R], *arguments: Any) -> Callable[[], R]:
    """As :func:`ask`, without waiting: what it gives back waits, and returns the answer.

    For what a page will need while it asks and draws something else.
    """
    return begin_of(_chosen(), function, *arguments)


def ask_of(chosen: Source, function: Callable[..., R], *arguments: Any) -> R:
    """As :func:`ask`, of a source: for whoever draws no page."""
    found: R = _asked(*_question(chosen, function, arguments), arguments, function)
    return found


def begin_of(chosen: Source, function: Callable[..., R], *arguments: Any) -> Callable[[], R]:
    """As :func:`begin`, of a source."""
    return _threads.submit(ask_of, chosen, function, *arguments).result


def hold(function: Callable[..., R], *arguments: Any) -> R:
    """As :func:`ask`, for what is too large to be copied: kept ``HOLD_S`` seconds, never changed.

    Whoever asks gets the same object.
    """
    found: R = _held(*_question(_chosen(), function, arguments), arguments, function)
    return found


def _chosen() -> Source:
    # What somebody may see is part of what is kept: nobody gets what another's question found.
    return source().narrowed(st.session_state.get(_PROJECT))


def _question(
    chosen: Source, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[str, tuple[Any, ...], Source]:
    name = f"{function.__module__}.{function.__qualname__}"
    key = tuple(_same(argument) for argument in arguments)
    return name, key, chosen


def _same(argument: Any) -> Any:
    return argument.asked or argument if isinstance(argument, Filters) else argument


@st.cache_data(
    ttl=TTL_S,
    refresh_mode="background",
    max_entries=MAX_ENTRIES,
    max_size=MAX_BYTES,
    show_spinner=False,
)
def _asked(
    name: str,
    key: tuple[Any, ...],
    chosen: Source,
    _arguments: tuple[Any, ...],
    _function: Callable[..., Any],
) -> Any:
    return _function(*_arguments, _reader(chosen))


@st.cache_resource(ttl=HOLD_S, max_entries=MAX_HELD, show_spinner=False)
def _held(
    name: str,
    key: tuple[Any, ...],
    chosen: Source,
    _arguments: tuple[Any, ...],
    _function: Callable[..., Any],
) -> Any:
    return _function(*_arguments, _reader(chosen))


def bounds() -> Bounds:
    """What the store holds."""
    return ask(window.bounds)


def filters(selected: Selection) -> Filters:
    """What a selection stands for, as of now."""
    return selection.resolve(selected, bounds(), time.time_ns(), source().is_recorded)
