"""The only module of the dashboard that touches a store; everything it reads is cached briefly.

Pages ask for view models. A view model is computed at most once per ``TTL_S`` seconds for the same
filters, however many browsers ask.
"""

import time
from typing import Final

import streamlit as st

from longpole_collector import stores
from longpole_collector.stores.base import Reader
from longpole_dashboard import settings
from longpole_dashboard.model import overview as overview_model
from longpole_dashboard.model import trace as trace_model
from longpole_dashboard.model import verdict as verdict_model
from longpole_dashboard.model import window
from longpole_dashboard.source import source

TTL_S: Final = 5.0
MAX_ENTRIES: Final = 64
MAX_TRACES: Final = 8
"""Whole traces kept; one may hold tens of thousands of spans."""


@st.cache_resource(show_spinner=False)
def _reader() -> Reader:
    chosen = source()
    return stores.open_reader(db=chosen.db, url=chosen.url, files=chosen.files)


def reopen() -> None:
    """Open the source anew at the next question: it could not be reached, it may have moved."""
    _reader.clear()


_brief = st.cache_data(ttl=TTL_S, max_entries=MAX_ENTRIES, show_spinner=False)


@_brief
def bounds() -> window.Bounds:
    """What the store holds."""
    return window.bounds(_reader())


@_brief
def overview(choice: str, route: str | None) -> overview_model.Overview:
    """The Overview of a range as the URL spells it, as of now."""
    held = bounds()
    filters = window.resolve(choice, route, held, time.time_ns(), source().is_recorded)
    return overview_model.overview(filters, _reader())


@st.cache_data(ttl=TTL_S, max_entries=MAX_TRACES, show_spinner=False)
def trace(trace_id: str) -> trace_model.TraceView | None:
    """One trace; ``None`` if the store has no such trace."""
    return trace_model.trace(trace_id, _reader())


@_brief
def attributes(trace_id: str, span_id: str) -> trace_model.Attributes:
    """What is stored about one span; empty if there is no such span."""
    return trace_model.attributes(trace_id, span_id, _reader())


@_brief
def verdict(choice: str, route: str | None) -> verdict_model.Verdict:
    """The finding on the range, as of now."""
    filters = overview(choice, route).filters
    return verdict_model.verdict(filters, _reader(), settings.ttft_objective_ms())
