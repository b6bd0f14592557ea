"""Quantiles of two populations: how much each changed, with its interval."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from longpole_dashboard.model import text
from longpole_dashboard.model.cards import Tone
from longpole_dashboard.model.scorecard import Moved, change

_LOOKS: Final[dict[Tone, tuple[str, str]]] = {
    "better": ("#3f9f4f", "triangle-left"),
    "worse": ("#d9484b", "triangle-right"),
    "grey": ("#8a9099", "circle"),
}
"""Colour and sign of a change: the sign tells it without the colour."""
_ROW_PX: Final = 24


def changes(rows: Sequence[Moved], margin: float) -> go.Figure:
    """The change of each quantile that is known, its 95 % interval, and the margin as a band.

    Args:
        rows: in order.
        margin: a share: what lies within it counts as no difference.
    """
    known = [row for row in rows if row.change is not None and row.low is not None]
    figure = go.Figure()
    for tone, (colour, symbol) in _LOOKS.items():
        own = [row for row in known if row.tone == tone]
        if not own:
            continue
        figure.add_scatter(
            name={"better": "faster", "worse": "slower", "grey": "not decided"}[tone],
            mode="markers",
            x=[100 * (row.change or 0.0) for row in own],
            y=[row.name for row in own],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [_reach(row.change, row.high) for row in own],
                "arrayminus": [_reach(row.low, row.change) for row in own],
                "thickness": 2,
                "width": 5,
            },
            marker={"color": colour, "symbol": symbol, "size": 11},
            hovertext=[
                f"{row.name} {change(row.change)} (95 %: {change(row.low)} to {change(row.high)}), "
                f"{text.duration(row.base_ms)} to {text.duration(row.cand_ms)}"
                for row in own
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.add_vrect(
        x0=-100 * margin, x1=100 * margin, fillcolor="#8a9099", opacity=0.18, line_width=0
    )
    figure.add_vline(x=0, line={"color": "#8a9099", "width": 1})
    figure.update_layout(
        height=110 + _ROW_PX * max(len(known), 1),
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        xaxis={
            "title": {"text": "change of the candidate against the baseline, %"},
            "separatethousands": True,
        },
        yaxis={
            "categoryorder": "array",
            "categoryarray": [row.name for row in reversed(known)],
            "automargin": True,
        },
    )
    return figure


def _reach(low: float | None, high: float | None) -> float:
    """From one end to the other, in per cent; an end that is not known reaches nowhere."""
    return 0.0 if low is None or high is None else 100 * (high - low)
