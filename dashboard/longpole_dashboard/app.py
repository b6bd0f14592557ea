"""The frame of every page: menu, filter bar, the page, and honest failures."""

from pathlib import Path

import streamlit as st

from longpole.errors import LongpoleError, Unreachable
from longpole.family import load
from longpole_dashboard import data, widgets
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import is_open
from longpole_dashboard.widgets import Selection

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
    try:
        held = data.bounds()
        # The bar belongs to the frame, not to a page, so that its state survives a change of page.
        selected = widgets.filter_bar(held)
        widgets.navigation(_pages(selected, held)).run()
    except LongpoleError as error:
        fail(error)


def fail(error: LongpoleError) -> None:
    """Say a failure we know on the page; an unreachable source is opened anew next time."""
    if isinstance(error, Unreachable):
        data.reopen()
    widgets.note(str(error), "worse", "Reload the page to try again.")


def _pages(selected: Selection, held: Bounds) -> dict[str, st.Page]:
    members = load("longpole_dashboard.pages", "PAGE", Page)
    ordered = sorted(members.items(), key=lambda item: item[1].order)
    return {name: _page(name, member, selected, held) for name, member in ordered}


def _page(name: str, member: Page, selected: Selection, held: Bounds) -> st.Page:
    def draw() -> None:
        member.draw(selected, held)

    is_first = name == "overview"
    return st.Page(draw, title=member.title, icon=member.icon, url_path=name, default=is_first)
