"""What each person who is logged in may read: their login's project, in this one place."""

import html
from dataclasses import replace

import streamlit as st

from longpole.errors import UsageError
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_dashboard.login.gate import viewer_in
from longpole_dashboard.login.store import ANYONE, Logins
from longpole_dashboard.source import Source
from longpole_dashboard.source import viewer as who


def viewer() -> str | None:
    """Who looks at the page that is drawn; ``None`` if the gate has not named them."""
    return viewer_in({name.lower(): value for name, value in st.context.headers.items()})


def sign() -> None:
    """Say who is logged in, and how to leave; nothing where nobody logs in."""
    name = who()
    if name is not None:
        said = f'{html.escape(name)} · <a href="/logout" target="_self">Log out</a>'
        st.sidebar.html(f'<div class="lp-muted">{said}</div>')


class Scoped:
    """Narrows a source to the login of whoever looks."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    def __call__(self, source: Source) -> Source:
        """The source as they may see it; the same one where their login names no project, or files.

        Raises:
            UsageError: nobody is logged in, or their login is gone.
        """
        name = viewer()
        login = (self._logins.find(name) or self._logins.find(ANYONE)) if name else None
        if login is None:
            raise UsageError("log in first: open /login")
        if source.is_recorded or (login.project is None and login.key is None):
            return source
        if source.db is not None:
            return source.narrowed(login.project or DEFAULT_PROJECT)
        if login.key is None:
            raise UsageError(f"the login has no key to project '{login.project}': make it anew")
        return replace(source, key=login.key, project=login.project)
