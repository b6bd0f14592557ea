"""Values to Plotly figures; pure, no Streamlit."""

from collections.abc import Sequence

import plotly.graph_objects as go

from longpole_dashboard.model import text
from longpole_dashboard.model.overview import Bin
from longpole_dashboard.theme import LOOKS


def stage_area(bins: Sequence[Bin], bin_s: int) -> go.Figure:
    """Mean critical-path ms per stage over time, stacked in the order a request meets the stages.

    Drawn in steps, one per bin, so that a stretch without traces stays empty instead of being
    bridged or drawn as 0. A click on the legend shows that stage alone.
    """
    # Plotly reads ISO text as it stands, so the axis is UTC in every browser.
    at = [text.utc(b.start_ns + bin_s * 500_000_000) for b in bins]
    figure = go.Figure()
    for stage, look in LOOKS.items():
        means = [b.mean_ms.get(stage) for b in bins]
        if not any(means):
            continue
        hover = [
            f"{look.label} {text.duration(mean)}, {text.counted(b.num_traces, 'workflow')}"
            for mean, b in zip(means, bins, strict=True)
        ]
        figure.add_bar(
            name=look.label,
            x=at,
            y=means,
            width=bin_s * 1_000,
            marker={
                "color": look.colour,
                "line": {"width": 0},
                "pattern": {"shape": "/" if look.is_hatched else "", "size": 6},
            },
            hovertext=hover,
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        bargap=0,
        height=380,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="x unified",
        legend={
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
            "traceorder": "normal",
            "itemclick": "toggleothers",
            "itemdoubleclick": "toggle",
        },
        xaxis={"title": {"text": "start of the workflow, UTC"}, "type": "date"},
        yaxis={"title": {"text": "mean ms per workflow"}, "separatethousands": True},
    )
    return figure
