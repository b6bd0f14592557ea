"""A page of HTML inside the page, which can run nothing, fetch nothing and reach nothing.

Its frame is sandboxed without scripts and without the dashboard's origin; links open in a tab of
their own. Streamlit's own frame lets scripts run.
"""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent

_MOUNT = st.components.v2.component(
    "longpole_document",
    html='<div class="holder"></div>',
    css=".holder iframe { border: 0; display: block; height: 82vh; width: 100%; }",
    js=(_HERE / "document.js").read_text(encoding="utf-8"),
)


def document(name: str, html: str) -> None:
    """Show a whole HTML document.

    Args:
        name: unique on the page; also the frame's accessible name.
        html: the document.
    """
    _MOUNT(key=name, data={"label": name, "html": html})
