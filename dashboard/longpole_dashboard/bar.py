"""The bar of every page: range, route, model, comparison, zone, refresh, project.

The address is the truth: what a colleague opens shows the same. A widget that is changed writes
it, and an address that changed (a link, the back button) sets the widgets.
"""

import time
from dataclasses import replace
from typing import Final

import streamlit as st

from longpole_dashboard import data
from longpole_dashboard.model import text
from longpole_dashboard.model.clock import UTC_CLOCK, Clock
from longpole_dashboard.model.selection import (
    CUSTOM,
    NAMES,
    PREVIOUS,
    RANGES,
    REFRESH_S,
    VERSIONS,
    WEEK,
    Known,
    Selection,
    default_range,
    read,
    resolve,
    spelled,
    write,
)
from longpole_dashboard.model.window import Bounds, Match
from longpole_dashboard.source import source

_WRITTEN: Final = "longpole_address"
_WHERE: Final = "longpole_where"
_SAID: Final = "longpole_said"
_KEYS: Final = ("range", "route", "model", "compare", "tz", "refresh", "project")
_COMPARED: Final = {PREVIOUS: "previous period", WEEK: "same hours last week"}
MAX_VERSIONS: Final = 50


def filter_bar(held: Bounds, page: str) -> Selection:
    """Draw the bar, keep the address in step with it, and say what could not be followed.

    Args:
        held: what the store holds.
        page: the page that is shown.
    """
    opening = default_range(held, time.time_ns(), source().is_recorded)
    known = Known(held, opening, data.projects())
    _follow_address(known, page)
    selected = _drawn(known)
    kept = write(selected, opening)
    _to_address(kept)
    st.session_state[_WRITTEN] = (page, kept)
    for sentence in st.session_state.get(_SAID, ()):
        st.html(f'<div class="lp-muted">{text.escaped(sentence)}</div>')
    return selected


def chosen_project(page: str) -> str | None:
    """The project that the address or the bar names; it decides what the store holds."""
    known = data.projects()
    is_followed = _is_followed(page)
    named = (st.query_params if is_followed else st.session_state).get("project")
    return named if named in known else None


def kept_address() -> dict[str, str | list[str]]:
    """The bar's part of the address, for another page's."""
    return {name: values for name, values in _address().items() if values}


def _address() -> dict[str, list[str]]:
    return {name: found for name in NAMES if (found := st.query_params.get_all(name))}


def _is_followed(page: str) -> bool:
    """Whether the address says something else than the widgets wrote into it."""
    asked = _address()
    last_page, written = st.session_state.get(_WRITTEN, (None, None))
    # Streamlit's menu leads to an address without parameters: the bar then stays as it is.
    return asked != written and (bool(asked) or last_page in (None, page))


def _follow_address(known: Known, page: str) -> None:
    """Set the widgets by the address where it is not what they wrote."""
    if not _is_followed(page):
        return
    selected, said = read(_address(), known, Clock(st.context.timezone or "UTC"))
    st.session_state[_SAID] = said
    st.session_state[_WHERE] = selected.where
    state = {
        "range": selected.choice,
        "route": selected.route,
        "model": selected.model,
        "compare": selected.compare,
        "tz": "local" if selected.is_local else "UTC",
        "refresh": next(name for name, s in REFRESH_S.items() if s == selected.refresh_s),
        "project": selected.project,
        **_custom(selected),
    }
    for name, value in state.items():
        st.session_state[name] = value


def _custom(selected: Selection) -> dict[str, str]:
    """A custom range as its widgets have it, in the display zone."""
    if selected.choice != CUSTOM:
        return {}
    return {
        "from": selected.clock.text(selected.from_ns),
        "to": selected.clock.text(selected.to_ns),
    }


def _drawn(known: Known) -> Selection:
    """The widgets, and what they say together."""
    held, state = known.held, st.session_state
    for name, names in (("route", held.routes), ("model", held.models)):
        if state.get(name) not in (None, *names):
            state[name] = None
    bar = st.container(horizontal=True, vertical_alignment="top", gap="small")
    ranges = [*RANGES, CUSTOM]
    choice = bar.segmented_control("Time range", ranges, required=True, key="range")
    is_local = state["tz"] == "local"
    clock = Clock(st.context.timezone or "UTC") if is_local else UTC_CLOCK
    selected = Selection(choice or known.opening, is_local=is_local, clock=clock)
    if choice == CUSTOM:
        selected = _custom_range(bar, selected, known)
    selected = replace(
        selected,
        route=_chosen(bar, "Route", "route", held.routes, "all routes"),
        model=_chosen(bar, "Model", "model", held.models, "all models"),
        compare=_compared(bar, held),
        where=state[_WHERE],
    )
    bar.segmented_control("Times in", ["UTC", "local"], required=True, key="tz")
    is_still = source().is_recorded or not selected.is_live
    refresh = bar.segmented_control(
        "Refresh", list(REFRESH_S), required=True, key="refresh", disabled=is_still
    )
    if len(known.projects) > 1:
        project = _chosen(bar, "Project", "project", known.projects, known.projects[0])
        selected = replace(selected, project=project)
    _conditions(selected.where)
    return selected if is_still else replace(selected, refresh_s=REFRESH_S[refresh or "off"])


def _chosen(
    bar: st.delta_generator.DeltaGenerator,
    title: str,
    key: str,
    names: tuple[str, ...],
    everything: str,
) -> str | None:
    """One of the names, or none; nothing is drawn where there is nothing to choose."""
    if not names:
        return None
    found: str | None = bar.selectbox(
        title, names, index=None, placeholder=everything, key=key, width=140
    )
    return found


def _compared(bar: st.delta_generator.DeltaGenerator, held: Bounds) -> str:
    versions = {"prompt_version": held.prompt_versions, "route_version": held.route_versions}
    options = [
        *_COMPARED,
        *(f"{name}={v}" for name, values in versions.items() for v in values[:MAX_VERSIONS]),
    ]
    state = st.session_state
    if state["compare"] not in options:
        options.append(state["compare"])
    return bar.selectbox(
        "Compare with", options, key="compare", format_func=_compare_text, width=180
    )


def _compare_text(option: str) -> str:
    name, _, version = option.partition("=")
    return _COMPARED.get(option) or f"{VERSIONS[name]} {version}"


def _custom_range(
    bar: st.delta_generator.DeltaGenerator, selected: Selection, known: Known
) -> Selection:
    """From and to as they are typed; what is no range is said and not followed."""
    state, clock = st.session_state, selected.clock
    if not state.get("from") or not state.get("to"):
        before = Selection(known.opening)
        around = resolve(before, known.held, time.time_ns(), source().is_recorded)
        state["from"], state["to"] = clock.text(around.start_ns), clock.text(around.end_ns)
    from_ns, to_ns = (
        clock.read(bar.text_input(f"{title}, {clock.label}", key=key, width=190) or "")
        for title, key in (("From", "from"), ("To", "to"))
    )
    if from_ns is not None and to_ns is not None and from_ns < to_ns:
        return replace(selected, from_ns=from_ns, to_ns=to_ns)
    st.session_state[_SAID] = (
        f"From and to are not two times in order, as 2026-09-14 13:30: this is {known.opening}.",
    )
    return replace(selected, choice=known.opening)


def _conditions(where: tuple[Match, ...]) -> None:
    """What must hold besides, each with a button that drops it."""
    if not where:
        return
    line = st.container(horizontal=True, vertical_alignment="center", gap="small")
    for number, match in enumerate(where):
        sign = "is not" if match.is_not else "is"
        told = text.markdown(f"{match.column} {sign} {match.value or 'unknown'}")
        line.button(
            told,
            key=f"drop-{number}-{spelled(match)}",
            icon=":material/close:",
            help="Drop this condition",
            on_click=_drop,
            args=(match,),
        )


def _drop(match: Match) -> None:
    kept = tuple(each for each in st.session_state[_WHERE] if each != match)
    st.session_state[_WHERE] = kept


def _to_address(kept: dict[str, list[str]]) -> None:
    # Not Streamlit's own binding: it loses the parameter when the page changes.
    for name in NAMES:
        values = kept.get(name)
        if not values:
            st.query_params.pop(name, None)
        elif st.query_params.get_all(name) != values:
            st.query_params[name] = values
