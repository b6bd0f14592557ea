"""The only module of the dashboard that touches a store; everything it reads is cached briefly.

Pages ask for view models: ``ask(function, ...)`` calls ``function(..., reader)`` at most once per
``TTL_S`` seconds for the same arguments, however many browsers ask.
"""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import streamlit as st

from longpole_collector import stores
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import window
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.source import source

TTL_S: Final = 5.0
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 256_000_000
"""Of all view models together; a trace of 10,000 spans takes about 10 MB."""

R = TypeVar("R")


@st.cache_resource(show_spinner=False)
def _reader() -> Reader:
    chosen = source()
    return stores.open_reader(db=chosen.db, url=chosen.url, files=chosen.files)


def reopen() -> None:
    """Open the source anew at the next question: it could not be reached, it may have moved."""
    _reader.clear()


def ask(function: Callable[..., R], *arguments: Any) -> R:
    """What ``function(*arguments, reader)`` returns.

    The function is a module's own, pure but for the reader, and its arguments are what Streamlit
    can hash: plain values, tuples, frozen dataclasses.
    """
    found: R = _asked(f"{function.__module__}.{function.__qualname__}", arguments, function)
    return found


@st.cache_data(ttl=TTL_S, max_entries=MAX_ENTRIES, max_size=MAX_BYTES, show_spinner=False)
def _asked(name: str, arguments: tuple[Any, ...], _function: Callable[..., Any]) -> Any:
    return _function(*arguments, _reader())


def bounds() -> Bounds:
    """What the store holds."""
    return ask(window.bounds)


@st.cache_data(ttl=TTL_S, max_entries=MAX_ENTRIES, show_spinner=False)
def filters(choice: str, route: str | None) -> Filters:
    """The stretch of a range as the URL spells it, as of now; the same for ``TTL_S`` seconds."""
    return window.resolve(choice, route, bounds(), time.time_ns(), source().is_recorded)
