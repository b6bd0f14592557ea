"""What the figures over time share."""

from typing import Any, Final

import plotly.graph_objects as go

from longpole_dashboard.model.clock import Clock, axis

BLUE: Final = "#4e79a7"
RED: Final = "#e15759"
GREY: Final = "#8a9099"
"""Legible on both themes."""
LINES: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f")
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""So that colour is not what alone tells lines apart."""


def over_time(
    figure: go.Figure,
    start_ns: int,
    end_ns: int,
    clock: Clock,
    most: int = 10,
    /,
    *,
    height: int,
    **yaxis: Any,
) -> go.Figure:
    """The figure with a time axis in the clock's zone, a legend above, and thousands separated.

    ``most`` is how many labels the time axis may have: half as many in half a page's width.
    """
    at, labels = clock.ticks(start_ns, end_ns, most)
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        xaxis={
            "type": "date",
            "range": [axis(start_ns), axis(end_ns)],
            "tickvals": at,
            "ticktext": labels,
            "tickangle": 0,
            "title": {"text": clock.label},
        },
        yaxis={"separatethousands": True, "exponentformat": "none", **yaxis},
    )
    return figure


def moment(
    figure: go.Figure, at_ns: int, label: str, *, level: float = 1.0, is_late: bool = False
) -> None:
    """Mark a moment by a line from top to bottom, its label ``level`` high in the figure.

    ``is_late``: near the right end, so that the label stands left of it.
    """
    figure.add_vline(x=axis(at_ns), line={"color": GREY, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=axis(at_ns),
        y=level,
        yref="paper",
        text=label,
        showarrow=False,
        xanchor="right" if is_late else "left",
        yanchor="top",
        font={"size": 11},
    )
