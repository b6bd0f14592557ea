"""A page's own choices: the address is the truth, and a change of the widget writes it."""

from collections.abc import Callable, Sequence

import streamlit as st

from longpole_dashboard import widgets
from longpole_dashboard.model.selection import spelled
from longpole_dashboard.model.window import Match


def choose(
    title: str,
    options: Sequence[str],
    param: str,
    current: str | None,
    name: Callable[[str], str] = str,
    *,
    width: int = 230,
) -> None:
    """A list to choose from; the page reads the choice from the address.

    Args:
        title: above it.
        options: what may be chosen.
        param: the parameter of the address.
        current: what is chosen, by the address or for want of it.
        name: what an option is called.
        width: in pixels.
    """
    key = f"choice-{param}"
    st.session_state[key] = current if current in options else None
    st.selectbox(
        title,
        options,
        key=key,
        format_func=name,
        on_change=_to_address,
        args=(param, key),
        width=width,
    )


def _to_address(param: str, key: str) -> None:
    write(**{param: st.session_state[key]})


def write(**params: str | None) -> None:
    """Write parameters of the page into the address; ``None`` takes one away."""
    for name, value in params.items():
        if value is None:
            st.query_params.pop(name, None)
        else:
            st.query_params[name] = value


def narrowed(matches: Sequence[Match]) -> dict[str, str | list[str]]:
    """Parameters of an address that adds conditions to the bar's: its route, its model, others."""
    own = {"route": "route", "request_model": "model"}
    found: dict[str, str | list[str]] = {}
    more = st.query_params.get_all("where")
    for match in matches:
        if match.column in own and match.value is not None and not match.is_not:
            found[own[match.column]] = match.value
        else:
            more.append(spelled(match))
    return found | ({"where": more} if more else {})


def admit(limits: Sequence[str]) -> None:
    """Say what the page leaves out; nothing where it shows everything."""
    if limits:
        widgets.note(limits[0], "grey", *limits[1:])
