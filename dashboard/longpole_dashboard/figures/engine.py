"""Figures of engines over time: a line a model, each point a stretch of time to look into."""

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from longpole_dashboard.figures.frame import DASHES, LINES, over_time
from longpole_dashboard.model import text
from longpole_dashboard.model.clock import Clock, axis
from longpole_dashboard.model.engine import EngineView, Point
from longpole_dashboard.model.quantiles import Quantile

Value = Callable[[Point], float | None]
Words = Callable[[Point], str]


def lines(
    view: EngineView,
    clock: Clock,
    title: str,
    value: Value,
    words: Words,
    is_open: Callable[[Point], bool] = lambda _: False,
    **yaxis: Any,
) -> go.Figure | None:
    """One figure: ``value`` of every model over time; ``None`` where no model tells it.

    Args:
        view: the page.
        clock: shows times.
        title: of the axis, with its unit.
        value: of a point; ``None`` leaves a gap.
        words: what stands at the pointer besides the model's name.
        is_open: which points are drawn as open circles.
        yaxis: more of the axis.
    """
    figure = go.Figure()
    has_any = False
    for number, model in enumerate(view.models):
        values = [value(point) for point in model.points]
        has_any |= any(each is not None for each in values)
        figure.add_scatter(
            name=text.escaped(model.name),
            x=[axis(point.middle_ns) for point in model.points],
            y=values,
            mode="lines+markers",
            line={
                "color": LINES[number % len(LINES)],
                "dash": DASHES[number % len(DASHES)],
                "width": 1.6,
            },
            marker={
                "size": 6,
                "symbol": ["circle-open" if is_open(p) else "circle" for p in model.points],
            },
            customdata=[[model.name, str(point.start_ns)] for point in model.points],
            text=[words(point) for point in model.points],
            hovertemplate="%{text}",
            showlegend=True,
        )
    if not has_any:
        return None
    over_time(
        figure,
        view.filters.start_ns,
        view.filters.end_ns,
        clock,
        5,
        height=230,
        title={"text": title},
        **{"rangemode": "tozero", **yaxis},
    )
    figure.update_layout(hovermode="closest")
    return figure


def median_words(quantile: Quantile) -> str:
    """The median, or the maximum of too few, with the number of requests behind it."""
    what = "p50" if quantile.is_shown else "max"
    return f"{what} {text.duration(quantile.tail)}, {text.counted(quantile.n, 'request')}"


def picked(event: Any) -> tuple[str, int] | None:
    """The model and the stretch of the point that was clicked; ``None`` for none."""
    points: Sequence[Any] = event["selection"]["points"] if event else ()
    for point in points:
        data = point.get("customdata")
        if isinstance(data, Sequence) and len(data) == 2 and str(data[1]).isdigit():
            return str(data[0]), int(data[1])
    return None
