"""Values to Plotly figures; pure, no Streamlit."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from longpole_dashboard.model import text
from longpole_dashboard.model.clock import Clock, axis
from longpole_dashboard.model.overview import Bin
from longpole_dashboard.theme import LOOKS

_LEGEND: Final = {
    "orientation": "h",
    "y": 1.02,
    "yanchor": "bottom",
    "x": 0,
    "xanchor": "left",
    "traceorder": "normal",
    "itemclick": "toggleothers",
    "itemdoubleclick": "toggle",
}


def stage_area(bins: Sequence[Bin], clock: Clock) -> go.Figure:
    """Mean critical-path ms per stage over time, stacked in the order a request meets the stages.

    Drawn in steps, one per bin, so that a stretch without traces stays empty instead of being
    bridged or drawn as 0. A click on the legend shows that stage alone.
    """
    at = [axis((b.start_ns + b.end_ns) // 2) for b in bins]
    widths_ms = [(b.end_ns - b.start_ns) / 1e6 for b in bins]
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
            width=widths_ms,
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
        legend=_LEGEND,
        xaxis={
            "title": {"text": f"start of the workflow, {clock.label}"},
            "type": "date",
            **_ticks(bins, clock),
        },
        yaxis={"title": {"text": "mean ms per workflow"}, "separatethousands": True},
    )
    return figure


def _ticks(bins: Sequence[Bin], clock: Clock) -> dict[str, object]:
    if not bins:
        return {}
    start_ns, end_ns = bins[0].start_ns, bins[-1].end_ns
    at, labels = clock.ticks(start_ns, end_ns)
    return {"tickvals": at, "ticktext": labels, "range": [axis(start_ns), axis(end_ns)]}
