"""The frame of every page: menu, filter bar, the page, and honest failures."""

import gc
import logging
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

import streamlit as st

from longpole.errors import BadInput, LongpoleError, Unreachable
from longpole.family import load
from longpole_dashboard import bar, data, widgets
from longpole_dashboard.login import scope as login_scope
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import is_open
from longpole_dashboard.widgets import Selection

log = logging.getLogger("longpole.dashboard.app")

# Files of ours: Streamlit fetches its named icons for the browser's tab from another host.
_HERE = Path(__file__).parent
ICON = str(_HERE / "icon.svg")
LOGO = str(_HERE / "logo.svg")
MENU_WIDTH_PX = 220


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(
        page_title="longpole", layout="wide", page_icon=ICON, initial_sidebar_state=MENU_WIDTH_PX
    )
    st.logo(LOGO, size="large")
    widgets.style()
    if is_open():
        widgets.note("Open to the network without a login (--insecure-no-auth).", "worse")
    login_scope.sign()
    drawn: list[tuple[Selection, Bounds]] = []
    asked: Page | None = None
    try:
        members = _members()
        page = widgets.navigation(_pages(members, drawn))
        data.use_project(bar.chosen_project(page.url_path))
        asked = members.get(page.url_path)
        held = data.bounds()
        # The bar belongs to the frame, not to a page, so that its state survives a change of page.
        drawn.append((bar.filter_bar(held, page.url_path), held))
        page.run()
        _settle(page.url_path)
    except LongpoleError as error:
        fail(error)
        if not drawn and asked is not None and asked.without_store is not None:
            with suppress(LongpoleError):  # then the note above says why
                asked.without_store()


def fail(error: LongpoleError) -> None:
    """Say a failure we know on the page; an unreachable source is opened anew next time."""
    if isinstance(error, Unreachable):
        data.reopen()
    # what a store cannot answer of a page's own question was too much for it
    hint = "Narrow the range." if isinstance(error, BadInput) else "Reload the page to try again."
    widgets.note(str(error), "worse", hint)


@lru_cache  # once for each page
def _settle(page: str) -> None:
    """Have garbage collection leave out what is there by now: modules and charts, which stay.

    Streamlit collects after every run; walking over all of that takes a tenth of a second, for
    which the browser would wait for what it is sent last.
    """
    gc.freeze()


def _members() -> dict[str, Page]:
    """The pages by name, in the order of the menu."""
    members = load("longpole_dashboard.pages", "PAGE", Page, _missing)
    return dict(sorted(members.items(), key=lambda item: item[1].order))


def _pages(members: dict[str, Page], drawn: list[tuple[Selection, Bounds]]) -> dict[str, st.Page]:
    """The pages for the menu; each draws what the bar, drawn before it, has put into ``drawn``.

    One that has nothing to show is not in the menu.
    """
    return {name: _page(name, member, drawn) for name, member in members.items()}


def _missing(name: str, error: Exception) -> None:
    """A page that somebody else wrote cannot be loaded: the others go on without it."""
    log.error("page %s cannot be loaded", name, exc_info=error)
    widgets.note(f"The page '{name}' cannot be loaded; the log says why.", "worse")


def _page(name: str, member: Page, drawn: list[tuple[Selection, Bounds]]) -> st.Page:
    def draw() -> None:
        member.draw(*drawn[-1])

    # Not left out: then its address would be said to be none, also while the store is slow to tell.
    shown: Literal["visible", "hidden"] = "visible" if member.is_shown() else "hidden"
    return st.Page(
        draw,
        title=member.title,
        icon=member.icon,
        url_path=name,
        default=name == "overview",
        visibility=shown,
    )
