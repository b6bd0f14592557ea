"""Start: how to send the first span, and a live wait for it."""

import shlex
from typing import Final

import streamlit as st

from longpole_dashboard import choices, data, widgets
from longpole_dashboard.model import first_span, text
from longpole_dashboard.model.first_span import DEFAULT_ENDPOINT, Door
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.snippets import PYTHON, SNIPPETS, Snippet
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection

POLL_S = 2
_PARAM: Final = "with"
_BY_NAME: Final = {snippet.name: snippet for snippet in SNIPPETS}


def draw(selected: Selection, held: Bounds) -> None:
    """The lines to instrument an application, the endpoint, and what has arrived."""
    st.title("Start")
    _waiting(held.num_traces)
    st.subheader("Instrument an application")
    asked = st.query_params.get(_PARAM)
    snippet = _BY_NAME.get(asked or "", SNIPPETS[0])
    choices.choose("Provider, framework or sender", list(_BY_NAME), _PARAM, snippet.name, width=320)
    if asked is not None and asked not in _BY_NAME:
        widgets.muted(f"There are no lines for '{asked}': these are {snippet.name}'s.")
    door = _door()
    _lines(snippet, door)
    _address(door)
    st.subheader("Or look at a real workload first")
    st.code("longpole demo", language="bash")
    st.markdown("A real model on this machine, a real workload, one planted fault; no key needed.")


def _lines(snippet: Snippet, door: Door) -> None:
    code = snippet.code
    if snippet.language != PYTHON:
        code = code.format(endpoint=door.endpoint)
    st.code(code, language=snippet.language)
    needed = f"pip install longpole {shlex.quote(snippet.install)}" if snippet.install else ""
    widgets.muted(*filter(None, (needed, snippet.note)))


def _door() -> Door:
    """Where to send; the default address where no collector runs yet."""
    chosen = source()
    if chosen.url is None:
        return Door(DEFAULT_ENDPOINT, None)
    host = st.context.headers.get("host", "")
    return data.ask(first_span.door, chosen.url, chosen.project, host)


def _address(door: Door) -> None:
    told = first_span.lines(door)
    if not told:
        widgets.muted(f"Spans go to {door.endpoint} by themselves, over HTTP; no key is needed.")
        return
    st.markdown("Tell the application where to send, before it starts:")
    st.code("\n".join(told), language="bash")


@st.fragment(run_every=POLL_S)
def _waiting(num_before: int) -> None:
    chosen = source()
    held = data.bounds()
    if held.num_traces > num_before == 0:
        st.rerun()
    if held.num_traces:
        widgets.note(f"{text.counted(held.num_traces, 'workflow')} received.", "better")
    elif chosen.is_recorded:
        widgets.note(f"There is no workflow in {chosen.describe()}.")
    elif chosen.url is None:
        widgets.note(f"No collector: start one with `longpole serve --db {chosen.db}`.")
    else:
        widgets.note(f"Waiting for the first span. Listening: {chosen.describe()}.")


PAGE = Page("Start", ":material/rocket_launch:", 90, draw)
