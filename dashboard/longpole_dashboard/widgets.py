"""What every page shares: the filter bar, notes, and moving between pages.

State that a colleague should see lives in the URL: range, route and trace, so a copied address
opens the same page.
"""

import html
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import streamlit as st

from longpole_dashboard.model import text
from longpole_dashboard.model.window import RANGES, Bounds, Filters, default_range
from longpole_dashboard.source import source

REFRESH_S: Final[dict[str, int | None]] = {"off": None, "10 s": 10, "60 s": 60}

_STYLE: Final = Path(__file__).with_name("page.css")


@dataclass(frozen=True)
class Selection:
    """What the filter bar says.

    A key of ``RANGES``, a route (``None``: all), seconds between refreshes (``None``: off).
    """

    choice: str
    route: str | None
    refresh_s: int | None


def style() -> None:
    """The few rules that Streamlit's theme has no option for; once a run."""
    st.html(_STYLE)


def filter_bar(held: Bounds) -> Selection:
    """Draw the bar: time range, route, refresh; what differs from the opening stands in the URL."""
    opening = default_range(held, time.time_ns(), source().is_recorded)
    asked_range, asked_route = st.query_params.get("range"), st.query_params.get("route")
    bar = st.container(horizontal=True, vertical_alignment="top", gap="medium")
    choice = bar.segmented_control(
        "Time range",
        list(RANGES),
        default=asked_range if asked_range in RANGES else opening,
        required=True,
        key="range",
    )
    route = bar.selectbox(
        "Route",
        held.routes,
        index=held.routes.index(asked_route) if asked_route in held.routes else None,
        placeholder="all routes",
        key="route",
        width=260,
    )
    refresh = bar.segmented_control(
        "Refresh",
        list(REFRESH_S),
        default="off",
        required=True,
        key="refresh",
        disabled=source().is_recorded,
    )
    _to_url("range", None if choice == opening else choice)
    _to_url("route", route)
    return Selection(choice or opening, route, REFRESH_S[refresh or "off"])


def _to_url(name: str, value: str | None) -> None:
    # Not Streamlit's own binding: it loses the parameter when the page changes.
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value


def window_line(filters: Filters, num_traces: int, held: Bounds) -> None:
    """The window in UTC, what is in it, and how old the newest data is."""
    stretch = f"{text.utc(filters.start_ns)} to {text.utc(filters.end_ns)} UTC"
    parts = [stretch, text.counted(num_traces, "workflow")]
    if held.last_ns is not None and not source().is_recorded:
        parts.append(f"newest {text.ago(held.last_ns, time.time_ns())} ago")
    muted(" · ".join([*parts, source().describe()]))


def muted(*lines: str) -> None:
    """Lines of small print; the text is escaped."""
    st.html(f'<div class="lp-muted">{"<br>".join(map(html.escape, lines))}</div>')


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
    st.session_state["longpole_pages"] = pages
    return st.navigation(list(pages.values()))


def go(page: str, **params: str) -> None:
    """Open another page, with the filters as they are; ends the run of this one."""
    kept = {name: st.query_params[name] for name in ("range", "route") if name in st.query_params}
    st.switch_page(st.session_state["longpole_pages"][page], query_params=kept | params)
