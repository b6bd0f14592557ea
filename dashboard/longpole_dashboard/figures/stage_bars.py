"""Bars of stages: shares of a slice's time, and what a stage took more or less."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go

from longpole_analytics.stage_slices import Part, StageSlice
from longpole_analytics.wording import quantile_name
from longpole_dashboard.model import text
from longpole_dashboard.theme import LOOKS, StageLook, look

MAX_SLICES: Final = 8
_MAX_LABEL: Final = 28
_BAR_PX: Final = 27
_GAP: Final = 0.5
"""Between slices, in bars."""
_LEAST_MS: Final = 0.001
_LEAST_SHARE: Final = 0.0005
"""What is less cannot be seen: no bar."""
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


class StageChange(NamedTuple):
    """A stage's milliseconds on two sides; ``None`` where a side does not know it."""

    stage: str
    before_ms: float | None
    after_ms: float | None


def shares(slices: Sequence[StageSlice]) -> go.Figure:
    """Each slice's time by stage as bars of 100 %: all its workflows, above p90, above p99.

    The stages are in the order in which a request meets them. A part that too few workflows make
    has no bar. At most eight slices.
    """
    bars: list[tuple[float, str, Part]] = []
    for place, each in enumerate(slices[:MAX_SLICES]):
        for part in each.parts:
            if part.stages:
                n, mean = text.count(part.n), text.duration(part.mean)
                name = f"{part_name(part)}, n {n}, mean {mean}"
                is_first = part.above is None
                label = f"<b>{_label(each)}</b>  {name}" if is_first else name
                bars.append((len(bars) + _GAP * place, label, part))
    at = [y for y, _, _ in bars]
    figure = go.Figure()
    for stage, style in LOOKS.items():
        own = [
            next((s for s in part.stages if s.stage.value == stage), None) for _, _, part in bars
        ]
        if not any(s is not None and s.share >= _LEAST_SHARE for s in own):
            continue
        figure.add_bar(
            orientation="h",
            name=style.label,
            y=at,
            x=[None if s is None else 100 * s.share for s in own],
            marker=_marker(style),
            hovertext=[
                ""
                if s is None
                else f"{style.label} {text.percent(s.share)}, mean {text.duration(s.mean_ms)}"
                for s in own
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        bargap=0.25,
        height=120 + _BAR_PX * max(len(bars), 1) + 13 * min(len(slices), MAX_SLICES),
        margin={"l": 8, "r": 24, "t": 8, "b": 8},
        legend=_LEGEND,
        xaxis={"title": {"text": "share of the time on the critical path, %"}, "range": [0, 100]},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "tickvals": at,
            "ticktext": [label for _, label, _ in bars],
        },
    )
    return figure


def changes(rows: Sequence[StageChange], title: str) -> go.Figure:
    """Milliseconds that each stage took more (to the right) or less.

    A stage that did not change is left out.

    Args:
        rows: by stage.
        title: of the axis, without its unit.
    """
    known = [
        (row, row.after_ms - row.before_ms)
        for row in rows
        if row.before_ms is not None and row.after_ms is not None
    ]
    moved = [(row, change) for row, change in known if abs(change) >= _LEAST_MS]
    figure = go.Figure()
    for row, change in moved:
        style = look(row.stage)
        sign = "+" if change > 0 else ""
        figure.add_bar(
            orientation="h",
            name=style.label,
            y=[style.label],
            x=[change],
            marker=_marker(style),
            text=f"{sign}{text.duration(change)}",
            textposition="outside",
            cliponaxis=False,
            hovertext=(
                f"{style.label} {text.duration(row.before_ms)} to {text.duration(row.after_ms)}"
            ),
            hovertemplate="%{hovertext}<extra></extra>",
            showlegend=False,
        )
    reach = 1.25 * max((abs(change) for _, change in moved), default=1.0)
    figure.update_layout(
        height=80 + _BAR_PX * max(len(moved), 1),
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        bargap=0.3,
        xaxis={"title": {"text": f"{title}, ms"}, "range": [-reach, reach], "zeroline": True},
        yaxis={"autorange": "reversed", "automargin": True, "type": "category"},
    )
    figure.update_xaxes(zerolinewidth=2, separatethousands=True)
    return figure


def part_name(part: Part) -> str:
    """``all``, ``above p90``."""
    return "all" if part.above is None else f"above {quantile_name(part.above)}"


def _label(each: StageSlice) -> str:
    # Plotly reads a few HTML tags in labels: names come from anywhere.
    named = ", ".join(str(value or "(unknown)") for value in each.where.values()) or "all"
    return text.escaped(named if len(named) <= _MAX_LABEL else f"{named[: _MAX_LABEL - 1]}…")


def _marker(style: StageLook) -> dict[str, object]:
    return {
        "color": style.colour,
        "line": {"width": 0},
        "pattern": {"shape": "/" if style.is_hatched else "", "size": 6},
    }
