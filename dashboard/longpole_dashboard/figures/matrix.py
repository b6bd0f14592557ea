"""The Pareto figure of a matrix's work: latency against throughput, what no cell beats filled."""

import plotly.graph_objects as go

from longpole_dashboard.figures.frame import LINES
from longpole_dashboard.model import text
from longpole_engine.load.matrix import Panel, label

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def pareto(panel: Panel, title: str) -> go.Figure:
    """Cells as points, a symbol and a colour a cache state; a line through those none beats.

    Args:
        panel: the cells of one work.
        title: of the latency.
    """
    figure = go.Figure()
    best = sorted((p.tokens_per_s, p.latency_ms) for p in panel.points if p.is_best)
    figure.add_scatter(
        x=[x for x, _ in best],
        y=[y for _, y in best],
        mode="lines",
        name="no cell beats these",
        line={"color": "#8a9099", "width": 1.2, "dash": "dot"},
        hoverinfo="skip",
    )
    kinds = sorted({_kind(p.row["cell"]) for p in panel.points})
    for number, kind in enumerate(kinds):
        of_kind = [p for p in panel.points if _kind(p.row["cell"]) == kind]
        symbol = _SYMBOLS[number % len(_SYMBOLS)]
        figure.add_scatter(
            x=[p.tokens_per_s for p in of_kind],
            y=[p.latency_ms for p in of_kind],
            mode="markers",
            name=text.escaped(kind),
            marker={
                "size": 10,
                "color": LINES[number % len(LINES)],
                "symbol": [symbol if p.is_best else f"{symbol}-open" for p in of_kind],
            },
            text=[text.escaped(label(p.row)) for p in of_kind],
            hovertemplate="%{text}<br>%{y:,.4g} ms, %{x:,.4g} tokens/s<extra></extra>",
        )
    axis = {"rangemode": "tozero", "separatethousands": True, "exponentformat": "none"}
    figure.update_layout(
        height=320,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        xaxis={"title": {"text": "output tokens a second"}, **axis},
        yaxis={"title": {"text": f"{title}, ms"}, **axis},
    )
    return figure


def _kind(cell: dict[str, object]) -> str:
    return f"cache {cell['cache']}" + (", cold" if cell.get("start") == "cold" else "")
