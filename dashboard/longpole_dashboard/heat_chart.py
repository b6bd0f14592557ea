"""Explore's map in a browser: a box that is drawn on it goes into the address, and stays on it."""

import time
from functools import lru_cache
from typing import Final, NamedTuple

import streamlit as st

from longpole_dashboard import data, widgets
from longpole_dashboard.figures import explore as figures
from longpole_dashboard.model import text
from longpole_dashboard.model.box import Box, box_to_filter, spelled
from longpole_dashboard.model.clock import Clock
from longpole_dashboard.model.heatmap import METRICS, Heat
from longpole_dashboard.model.window import SECOND_NS
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection

BOX: Final = "box"
"""The parameter of the address."""
_KEY: Final = "explore-map"
"""Begins the key of a map; ``page.css`` knows it."""
_SHOWN: Final = "longpole_map_shown"
_MAX_FIGURES: Final = 8
_figure = lru_cache(_MAX_FIGURES)(figures.heat_map)


class _Shown(NamedTuple):
    """The map that a browser shows: its key, and what it was made of."""

    key: str
    heat: Heat
    box: Box | None
    clock: Clock
    is_dark: bool

    @property
    def drawn(self) -> Box | None:
        """The box that was drawn on it; ``None`` while there is only the one it came with."""
        return box_to_filter(st.session_state.get(self.key))


def draw(heat: Heat, box: Box | None, selected: Selection) -> None:
    """The map with a box on it, and in small print what it holds."""
    shown = _shown(heat, box, selected.clock)
    st.plotly_chart(
        _figure(shown.heat, shown.box, shown.clock, is_dark=shown.is_dark),
        key=shown.key,
        on_select=_take_box,
        selection_mode="box",
        config={"displayModeBar": False, "scrollZoom": False, "editSelection": False},
        alt=f"workflows by start and {METRICS[heat.metric].label}, as a map of counts",
    )
    told = [f"Drag on the map to select. {text.counted(heat.num, 'workflow')} on it"]
    if heat.num_flat:
        told.append(f"{text.count(heat.num_flat)} of them at 0, below its edge")
    if heat.num_unknown:
        told.append(
            f"{text.counted(heat.num_unknown, 'more workflow')} incomplete or without the metric"
        )
    lines = ["; ".join(told) + "."]
    now_ns = time.time_ns()
    if now_ns - heat.read_ns > data.TTL_S * SECOND_NS and not source().is_recorded:
        lines.append(f"The map is as of {text.ago(heat.read_ns, now_ns)} ago.")
    # One part of the page, however many lines: one more would have all below it drawn anew.
    widgets.muted(*lines)


def _shown(heat: Heat, box: Box | None, clock: Clock) -> _Shown:
    """The map as it stands in the browser if its box is the one, else another one.

    A box drawn on a map stays on it, and the map, dear to send and to draw, where it is.
    """
    is_dark = st.context.theme.type == "dark"
    last: _Shown | None = st.session_state.get(_SHOWN)
    made_of = (heat, clock, is_dark)
    if (
        last
        and (last.heat, last.clock, last.is_dark) == made_of
        and (last.drawn or last.box) == box
    ):
        return last
    number = 0 if last is None else int(last.key.rpartition("-")[2]) + 1
    made = _Shown(f"{_KEY}-{number}", heat, box, clock, is_dark)
    st.session_state[_SHOWN] = made
    return made


def _take_box() -> None:
    """Put the box that was just drawn into the address."""
    box = st.session_state[_SHOWN].drawn
    if box is not None:
        st.query_params[BOX] = spelled(box)
