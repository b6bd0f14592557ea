"""Figures of the page Explore: the map, what differs, extra time by stage."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any, Final

import plotly.graph_objects as go

from longpole_dashboard.figures.frame import GREY, RED, over_time
from longpole_dashboard.model import text
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.clock import Clock, axis
from longpole_dashboard.model.explore import Difference, Extra, share_text
from longpole_dashboard.model.heatmap import METRICS, Heat, column_ns, edge
from longpole_dashboard.theme import look

_SCALE: Final = (
    (0.0, "#cfe0ee"),
    (0.35, "#86aed0"),
    (0.7, "#3f78ac"),
    (1.0, "#173f66"),
)
"""One hue; what there is most of stands out most: dark on light, and the other way about."""
_BOX: Final = "#d1495b"
_MAP_HEIGHT: Final = 440
_ROW_HEIGHT: Final = 46


def value_text(value: float, unit: str) -> str:
    """A value of the map with its unit."""
    return text.duration(value) if unit == "ms" else f"${text.significant(value)}"


def heat_map(heat: Heat, box: Box | None, clock: Clock, *, is_dark: bool = False) -> go.Figure:
    """The map; a box on it is drawn as a frame, the objective as a dashed line."""
    metric = METRICS[heat.metric]
    figure = go.Figure()
    num_columns = 1 + max((x for x, _, _ in heat.cells), default=0)
    counts: list[list[float | None]] = [[None] * num_columns for _ in range(heat.num_rows)]
    for x, y, count in heat.cells:
        counts[y][x] = count
    most = max((n for _, _, n in heat.cells), default=1)
    figure.add_heatmap(
        x=[axis(column_ns(heat, x)) for x in range(num_columns + 1)],
        y=[edge(heat, y) for y in range(heat.num_rows + 1)],
        z=[[None if n is None else log10(n) for n in row] for row in counts],
        text=[["" if n is None else text.counted(n, "workflow") for n in row] for row in counts],
        colorscale=[(place, colour) for place, colour in _scale(is_dark=is_dark)],
        zmin=0,
        zmax=log10(max(most, 2)),  # a scale without length cannot be drawn
        colorbar=_colour_bar(most),
        hovertemplate=f"%{{text}}<br>{metric.label} %{{y:.3s}} {metric.unit}<extra></extra>",
        hoverongaps=False,
        xgap=0,
        ygap=0,
    )
    over_time(
        figure,
        heat.filters.start_ns,
        heat.filters.end_ns,
        clock,
        height=_MAP_HEIGHT,
        title={"text": f"{metric.label}, {metric.unit} (log)"},
        type="log",
        **_ticks(heat),
    )
    figure.update_layout(
        hovermode="closest",
        dragmode="select",
        selectdirection="any",
        newselection={"line": {"width": 1.5, "dash": "solid", "color": _BOX}},
        xaxis={"title": {"text": f"start of the workflow, {clock.label}"}},
    )
    if heat.objective is not None:
        _line(figure, heat.objective, metric.unit)
    if box is not None:
        _frame(figure, heat, box)
    return figure


def differences(found: Sequence[Difference]) -> go.Figure:
    """Two bars a slice: its share of the selection and of the others; grey while undecided."""
    shown = list(reversed(found))
    figure = go.Figure()
    names = [_short(each.text) for each in shown]
    for label, ratios, colours in (
        ("others", [each.of_rest for each in shown], [GREY] * len(shown)),
        (
            "selected",
            [each.of_selected for each in shown],
            [_BOX if each.is_decided else GREY for each in shown],
        ),
    ):
        figure.add_bar(
            name=label,
            orientation="h",
            y=list(range(len(shown))),
            x=[100 * ratio for ratio in ratios],
            marker={
                "color": colours,
                "line": {"width": 0},
                "opacity": 0.55 if label == "others" else 1.0,
                "pattern": {"shape": "/" if label == "others" else "", "size": 5},
            },
            hovertext=[_plain(f"{each.text}: {share_text(each)}") for each in shown],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    for place, each in enumerate(shown):
        figure.add_annotation(
            x=1.0,
            xref="paper",
            y=place,
            text=_risk_text(each),
            showarrow=False,
            xanchor="left",
            font={"size": 11},
        )
    figure.update_layout(
        barmode="group",
        height=70 + _ROW_HEIGHT * max(1, len(shown)),
        margin={"l": 8, "r": 120, "t": 8, "b": 8},
        showlegend=False,
        xaxis={"title": {"text": "share of workflows, %"}, "range": [0, 105]},
        yaxis={"tickvals": list(range(len(shown))), "ticktext": names, "automargin": True},
    )
    return figure


def extra_time(found: Sequence[Extra]) -> go.Figure:
    """One signed bar a stage, most on top."""
    shown = [each for each in reversed(found) if each.mean_ms]
    looks = [look(each.stage) for each in shown]
    largest = max((abs(each.mean_ms) for each in shown), default=1.0)
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[each.label for each in looks],
        x=[each.mean_ms for each in shown],
        marker={
            "color": [each.colour for each in looks],
            "line": {"width": 0},
            "pattern": {"shape": ["/" if each.is_hatched else "" for each in looks], "size": 6},
        },
        text=[signed(each.mean_ms) for each in shown],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y} %{text}<extra></extra>",
    )
    low = min((each.mean_ms for each in shown), default=0.0)
    figure.update_layout(
        height=90 + 30 * max(1, len(shown)),
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        showlegend=False,
        xaxis={
            "title": {"text": "selected - others, mean ms"},
            "separatethousands": True,
            "range": [low - 0.3 * largest if low < 0 else 0.0, 1.3 * largest],
            "zeroline": True,
            "zerolinewidth": 1,
        },
        yaxis={"automargin": True},
    )
    return figure


def signed(ms: float) -> str:
    """A duration with its sign: ``+2,350 ms``."""
    return f"{'+' if ms >= 0 else '-'}{text.duration(abs(ms))}"


# --- parts --------------------------------------------------------------------------------------
def _scale(*, is_dark: bool) -> list[tuple[float, str]]:
    if not is_dark:
        return list(_SCALE)
    return [(1 - place, colour) for place, colour in reversed(_SCALE)]


def _ticks(heat: Heat) -> dict[str, Any]:
    """Ticks at 1, 2 and 5, with the unit that the value is said in."""
    unit = METRICS[heat.metric].unit
    low, high = heat.low, edge(heat, heat.num_rows)
    if heat.objective is not None:
        low, high = min(low, heat.objective * 0.9), max(high, heat.objective * 1.1)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    values = [step * 10.0**decade for decade in decades for step in steps]
    shown = [value for value in values if low <= value <= high] or [(low * high) ** 0.5]
    return {
        "tickvals": shown,
        "ticktext": [value_text(value, unit) for value in shown],
        "range": [log10(low), log10(high)],
    }


def _colour_bar(most: float) -> dict[str, object]:
    values = sorted({*(10**decade for decade in range(floor(log10(most)) + 1)), most})
    return {
        "title": {"text": "workflows"},
        "tickvals": [log10(value) for value in values],
        "ticktext": [text.count(value) for value in values],
        "thickness": 10,
        "len": 0.9,
    }


def _line(figure: go.Figure, objective: float, unit: str) -> None:
    """The objective, with its value."""
    figure.add_hline(y=objective, line={"color": RED, "width": 1.5, "dash": "dash"})
    figure.add_annotation(
        x=0,
        xref="paper",
        y=log10(objective),
        text=f"objective {value_text(objective, unit)}",
        showarrow=False,
        xanchor="left",
        yanchor="bottom",
        font={"size": 11, "color": RED},
    )


def _frame(figure: go.Figure, heat: Heat, box: Box) -> None:
    """The box, cut to what the map shows."""
    filters = heat.filters
    start_ns = max(box.start_ns or filters.start_ns, filters.start_ns)
    end_ns = min(box.end_ns or filters.end_ns, filters.end_ns)
    bottom, top = 10.0 ** figure.layout.yaxis.range[0], 10.0 ** figure.layout.yaxis.range[1]
    low = min(max(box.low or bottom, bottom), top)
    high = max(min(box.high or top, top), low)
    figure.add_shape(
        type="rect",
        x0=axis(start_ns),
        x1=axis(max(end_ns, start_ns)),
        y0=low,
        y1=high,
        line={"color": _BOX, "width": 1.5},
        fillcolor="rgba(209, 73, 91, 0.1)",
        layer="above",
    )


def _risk_text(each: Difference) -> str:
    if each.risk_ratio is None or each.low is None or each.high is None:
        return ""
    interval = f"{text.significant(each.low, 2)} to {text.significant(each.high, 2)}"
    return f" {text.significant(each.risk_ratio, 2)}x ({interval})"


def _short(said: str) -> str:
    """A name for an axis: short, and nothing of it is read as a tag."""
    cut = said if len(said) <= 40 else f"{said[:39]}…"
    return _plain(cut)


def _plain(said: str) -> str:
    return text.escaped(" ".join(said.split()))
