"""What every page shares: notes, small print, and moving between pages."""

import html
import time
from pathlib import Path
from typing import Final, Literal

import streamlit as st

from longpole_dashboard.bar import kept_address
from longpole_dashboard.model import text
from longpole_dashboard.model.selection import Selection as Selection
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.source import source

_STYLE: Final = Path(__file__).with_name("page.css")
_PAGES: Final = "longpole_pages"


def style() -> None:
    """The few rules that Streamlit's theme has no option for; once a run."""
    st.html(_STYLE)


def window_line(filters: Filters, num_traces: int, held: Bounds, selected: Selection) -> None:
    """The window in the display zone, what is in it, and how old the newest data is."""
    parts = [
        selected.clock.stretch(filters.start_ns, filters.end_ns),
        text.counted(num_traces, "workflow"),
    ]
    if held.last_ns is not None and not source().is_recorded:
        parts.append(f"newest {text.ago(held.last_ns, time.time_ns())} ago")
    muted(" · ".join([*parts, source().describe()]))


def muted(*lines: str) -> None:
    """Lines of small print; the text is escaped."""
    st.html(f'<div class="lp-muted">{"<br>".join(map(html.escape, lines))}</div>')


def reproduce(command: str) -> None:
    """The command that gives what stands above it; the text is escaped."""
    st.html(f'<div class="lp-muted lp-command"><code>{html.escape(command)}</code></div>')


def note(line: str, tone: Literal["worse", "better", "grey"] = "grey", *more: str) -> None:
    """A boxed sentence, with ``more`` in small print below it; the texts are escaped."""
    below = "".join(f'<div class="lp-muted">{html.escape(part)}</div>' for part in more)
    st.html(f'<div class="lp-note {tone}">{html.escape(line)}{below}</div>')


def facts(pairs: list[tuple[str, str]]) -> None:
    """A row of named values; the texts are escaped."""
    items = "".join(
        f"<div><span>{html.escape(name)}</span><b>{html.escape(value)}</b></div>"
        for name, value in pairs
    )
    st.html(f'<div class="lp-head">{items}</div>')


def navigation(pages: dict[str, st.Page]) -> st.Page:
    """Draw the menu; returns the page to run, and keeps the pages for :func:`go`."""
    st.session_state[_PAGES] = pages
    return st.navigation(list(pages.values()), expanded=True)


def go(page: str, **params: str | list[str]) -> None:
    """Open another page, with the bar as it is but for ``params``; ends the run of this one.

    Args:
        page: its name.
        params: parameters of the new address; an empty one takes the bar's away.
    """
    told = {name: value for name, value in {**kept_address(), **params}.items() if value}
    st.switch_page(st.session_state[_PAGES][page], query_params=told)
