"""Figures of one objective: its budget, its burn rates, its good and bad requests."""

from collections.abc import Sequence
from math import log10
from typing import Final

import plotly.graph_objects as go

from longpole_dashboard.figures.frame import BLUE, DASHES, GREY, LINES, RED, moment, over_time
from longpole_dashboard.model import text
from longpole_dashboard.model.alerts import Alert
from longpole_dashboard.model.clock import Clock, axis
from longpole_dashboard.model.slo import Detail

LEAST_BURN: Final = 0.05
"""Where the logarithmic axis of burn rates begins; what is less is drawn there."""
_MAX_LABEL: Final = 36
_LEVELS: Final = 4
_MINUTE_NS: Final = 60_000_000_000


def budget(detail: Detail, clock: Clock) -> go.Figure:
    """What is left of the period's budget in per cent, below 0 where more was spent."""
    start, end = _extent(detail)
    figure = go.Figure()
    left = [None if share is None else 100 * share for share in detail.left]
    figure.add_scatter(
        x=[axis(at) for at in detail.ends_ns],
        y=left,
        mode="lines",
        fill="tozeroy",
        line={"color": BLUE, "width": 2},
        name="budget left",
        hovertemplate="%{y:.1f} % left<extra></extra>",
        showlegend=False,
    )
    figure.add_hline(y=0, line={"color": RED, "width": 1.5})
    known = [value for value in left if value is not None]
    low, high = min([0.0, *known]), 100.0
    pad = 0.04 * (high - low)
    _marks(figure, detail)
    over_time(
        figure,
        start,
        end,
        clock,
        height=260,
        title={"text": "budget left, %"},
        range=[low - pad, high + pad],
    )
    return figure


def burn(detail: Detail, alerts: Sequence[Alert], clock: Clock) -> go.Figure:
    """The burn rate of each window, on a logarithmic axis, with the rules' factors and alerts."""
    start, end = _extent(detail)
    figure = go.Figure()
    at = [axis(moment_ns) for moment_ns in detail.ends_ns]
    for number, one in enumerate(detail.burns):
        figure.add_scatter(
            x=at,
            y=[None if rate is None else max(rate, LEAST_BURN) for rate in one.rates],
            mode="lines",
            line={
                "color": LINES[number % len(LINES)],
                "dash": DASHES[number % len(DASHES)],
                "width": 1.6,
            },
            name=f"burn {one.window}",
            text=["" if rate is None else f"{rate:.3g}x" for rate in one.rates],
            hovertemplate=f"{one.window} %{{text}}<extra></extra>",
        )
    for line in detail.lines:
        figure.add_hline(y=line.factor, line={"color": GREY, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=0.003,
            xref="paper",
            y=log10(line.factor),
            text=line.label,
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"size": 11},
        )
    for alert in alerts:
        first, last = max(alert.started_ns, start), min(alert.ended_ns or end, end)
        if first < last:
            figure.add_vrect(
                x0=axis(first), x1=axis(last), fillcolor=RED, opacity=0.14, line_width=0
            )
    _marks(figure, detail)
    rates = [rate for one in detail.burns for rate in one.rates if rate is not None]
    top = max([2.0, *(line.factor for line in detail.lines), *rates])
    over_time(
        figure,
        start,
        end,
        clock,
        height=340,
        type="log",
        title={"text": "burn rate, x of what the promise allows"},
        range=[log10(LEAST_BURN), log10(top * 1.6)],
        dtick=1,
    )
    return figure


def counts(detail: Detail, clock: Clock) -> go.Figure:
    """Good and bad requests by stretches of the period, one upon the other."""
    start, end = _extent(detail)
    half = detail.bar_min * _MINUTE_NS // 2
    at = [axis(bar + half) for bar in detail.bars_ns]
    figure = go.Figure()
    for name, values, colour, shape in (
        ("bad", detail.bad, RED, "/"),
        ("good", detail.good, BLUE, ""),
    ):
        figure.add_bar(
            name=name,
            x=at,
            y=list(values),
            width=detail.bar_min * 60_000,
            marker={
                "color": colour,
                "line": {"width": 0},
                "pattern": {"shape": shape, "size": 5},
            },
            hovertemplate=f"%{{y:,}} {name}<extra></extra>",
        )
    over_time(figure, start, end, clock, height=220, title={"text": "requests"})
    figure.update_layout(barmode="stack", bargap=0)
    return figure


def _extent(detail: Detail) -> tuple[int, int]:
    return detail.bars_ns[0], detail.ends_ns[-1]


def _marks(figure: go.Figure, detail: Detail) -> None:
    start, end = _extent(detail)
    for number, mark in enumerate(detail.marks):
        label = mark.text if len(mark.text) <= _MAX_LABEL else f"{mark.text[: _MAX_LABEL - 1]}…"
        moment(
            figure,
            mark.at_ns,
            text.escaped(label),
            level=1 - 0.07 * (number % _LEVELS),  # beside each other they would run together
            is_late=2 * mark.at_ns > start + end,
        )
