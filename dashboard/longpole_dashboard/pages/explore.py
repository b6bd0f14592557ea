"""Explore: which workflows are slow, what they share, and where they lose their time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import streamlit as st

from longpole_dashboard import data, heat_chart, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import explore as figures
from longpole_dashboard.heat_chart import BOX
from longpole_dashboard.model import explore, objective, text
from longpole_dashboard.model.box import Box, read_box, spelled
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.explore import Brushed, Exemplar, Picked
from longpole_dashboard.model.heatmap import ALIASES, METRICS, Heat, heatmap
from longpole_dashboard.model.population import Population, population
from longpole_dashboard.model.selection import spelled as spelled_match
from longpole_dashboard.model.verdict_lines.base import Line
from longpole_dashboard.model.verdict_lines.explore import of_selection
from longpole_dashboard.model.window import COLUMNS, Bounds, Match
from longpole_dashboard.pages.base import Page
from longpole_dashboard.theme import look
from longpole_dashboard.widgets import Selection

METRIC: Final = "metric"
SPLIT: Final = "split"
_HAS_TOP: Final = "longpole_explore_has_top"
"""Whether the browser shows a sentence on top, which stays until there is the next one."""
_DENSE: Final = 200
"""A selection of which a sample holds fewer is read anew, densely."""


def draw(selected: Selection, held: Bounds) -> None:
    """The page; a sentence where the window is empty."""
    st.title("Explore")
    st.session_state[_HAS_TOP] = False
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    filters = data.filters(selected)
    metric = _metric()
    limit = objective.objective_for(metric, filters.value_of("route"))
    # Drawing on a map does not make it another one: unless it is to follow the clock, it is kept.
    asked = data.hold if selected.refresh_s is None else data.ask
    heat = asked(heatmap, filters, metric, limit)
    if heat.num_calls:
        widgets.window_line(filters, heat.num_unknown, data.bounds(), selected)
        widgets.note(
            f"{text.counted(heat.num_calls, 'call')} are too many for a map of "
            f"{METRICS[metric].label}: narrow the range, or choose the workflow as the metric."
        )
        return
    if not heat.num:
        widgets.window_line(filters, 0, data.bounds(), selected)
        widgets.note(
            f"No workflow here tells its {METRICS[metric].label}: widen the range, or choose "
            "another metric."
        )
        return
    widgets.window_line(heat.filters, round(heat.num), data.bounds(), selected)
    if heat.sampled is not None:
        widgets.muted(heat.sampled)
    box = _box(heat)
    if box is None:
        num = heat.num if heat.num_kept is None else heat.num_kept
        widgets.note(
            f"Only {text.counted(num, 'workflow')} here: too few to tell slow ones from "
            "others. Draw a box on the map to list what is in it."
        )
        heat_chart.draw(heat, box, selected)
        return
    asked_for = data.begin(explore.picked, heat.filters, metric, box)
    top = st.container()
    if not st.session_state.get(_HAS_TOP):  # as high as what comes, so that the map stays there
        top = top.empty()
        with top:
            widgets.note("Comparing the selected workflows with the others.", "grey", "…")
    heat_chart.draw(heat, box, selected)
    picked, said = _selection(heat, box, asked_for, selected)
    with top:
        widgets.note(*said.parts)
    st.session_state[_HAS_TOP] = True
    st.subheader("Workflows in the selection, slowest first")
    opened = _exemplars(picked.exemplars, heat, selected)
    if len(picked.exemplars) < picked.num:
        kept = "" if picked.stood_for is None else " that were kept"
        widgets.muted(f"The first {len(picked.exemplars)} of {text.count(picked.num)}{kept}.")
    if opened is not None:
        widgets.go("trace", trace=opened)


# --- what the address says ----------------------------------------------------------------------
def _metric() -> str:
    asked = st.query_params.get(METRIC, "ttft_ms")
    asked = ALIASES.get(asked, asked)
    if asked not in METRICS:
        widgets.muted(
            f"The address asks for metric '{asked[:60]}', which there is not: it is TTFT."
        )
        asked = "ttft_ms"
    names = list(METRICS)
    key = "explore-metric"
    if st.session_state.get("longpole_metric") != asked:
        st.session_state[key] = asked
    chosen = st.segmented_control(
        "Metric",
        names,
        format_func=lambda name: METRICS[name].label,
        required=True,
        key=key,
    )
    chosen = chosen or "ttft_ms"
    if chosen != asked:
        # a box is of one metric
        st.query_params[METRIC] = chosen
        st.query_params.pop(BOX, None)
    st.session_state["longpole_metric"] = chosen
    return str(chosen)


def _box(heat: Heat) -> Box | None:
    box, said = read_box(st.query_params.get(BOX))
    if said:
        widgets.muted(said)
    return box or heat.slow


# --- the selection ------------------------------------------------------------------------------
def _selection(
    heat: Heat, box: Box, asked_for: Callable[[], Picked], selected: Selection
) -> tuple[Picked, Line]:
    """The line under the map, the buttons, and what the selection shares; what is in it, in short.

    The latter stands on top of the page.
    """
    above = st.container()
    people = data.hold(population, heat.filters, heat.metric, None)
    is_dense = people.num_inside(box) >= _DENSE
    found = None
    if is_dense:  # enough to compare, however many there are: it is drawn while they are counted
        found = _compared(people, heat, box)
    picked = asked_for()
    with above:
        told = _selected(picked, heat)
        st.markdown(f"{told} · {text.markdown(_box_text(heat, box, selected))}")
        _buttons(heat, box, selected)
    if not is_dense and not picked.is_thin:
        if people.num_inside(box) < picked.num:  # a sample that holds few of them
            people = data.hold(population, heat.filters, heat.metric, box)
        found = _compared(people, heat, box)
    return picked, of_selection(picked, found)


def _selected(picked: Picked, heat: Heat) -> str:
    """How many workflows lie in the box; where not all were kept, how many came, and are there."""
    num = picked.num if picked.stood_for is None else picked.stood_for
    told = f"**{text.counted(num, 'workflow')} selected** of {text.count(heat.num)}"
    return told if heat.num_kept is None else f"{told}, told by {text.count(picked.num)} kept"


def _compared(people: Population, heat: Heat, box: Box) -> Brushed:
    """What a selection shares, and where it loses its time; the verdict says where it does not."""
    split = _split(people)
    found = explore.brushed(people, box, split)
    if found.reason:
        return found
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What differs")
        _differences(found, heat)
    with right:
        st.subheader(f"Extra time per stage: {figures.signed(found.extra_ms)} on average")
        st.plotly_chart(
            figures.extra_time(found.extra),
            key="extra",
            config={"displayModeBar": False},
            alt="extra milliseconds by stage, selected workflows against like ones",
        )
    _fine_print(found, people, heat, box)
    return found


def _fine_print(found: Brushed, people: Population, heat: Heat, box: Box) -> None:
    read = f"{text.count(found.num_selected)} selected against {text.count(found.num_rest)} others"
    sample = f", a sample of {text.count(people.num)}" if people.is_drawn else ""
    sample += ", weighted" if people.is_weighed else ""
    widgets.muted(
        f"{read} of the same routes{sample}. Ratios with 95 % intervals at like prompt and answer "
        "lengths; grey where the interval holds 1. Extra time is above the median of like "
        "workflows. An association, no proof."
    )
    where = data.ask(explore.where_of, heat.filters.where)
    is_weighed = heat.num_kept is not None
    command = explore.command(heat.filters, heat.metric, box, where, is_weighed=is_weighed)
    widgets.reproduce(command)


def _box_text(heat: Heat, box: Box, selected: Selection) -> str:
    unit = METRICS[heat.metric].unit
    parts = [METRICS[heat.metric].label]
    if box.low is not None:
        parts.append(f"above {figures.value_text(box.low, unit)}")
    if box.high is not None:
        parts.append(f"up to {figures.value_text(box.high, unit)}")
    if box.low is not None and box.low == heat.objective:
        parts.append("(the objective)")
    elif box == heat.slow and heat.quantile is not None:
        parts.append(f"(p{100 * heat.quantile:g})")
    if not box.is_whole_time:
        start = max(box.start_ns or heat.filters.start_ns, heat.filters.start_ns)
        end = min(box.end_ns or heat.filters.end_ns, heat.filters.end_ns)
        parts.append(f"from {selected.clock.stretch(start, end)}")
    return " ".join(parts)


# --- what one does with it ----------------------------------------------------------------------
def _buttons(heat: Heat, box: Box, selected: Selection) -> None:
    line = st.container(horizontal=True, gap="small")
    if not box.is_whole_time and line.button("Zoom to box", icon=":material/zoom_in:"):
        _zoom(heat, box)
    with line.popover("Set limits", icon=":material/tune:"):
        _limits(heat, box)
    if st.query_params.get(BOX):
        line.button("Slow ones again", icon=":material/restart_alt:", on_click=_clear)
    if box.low is None:
        return
    where = data.ask(explore.where_of, heat.filters.where)
    good = 1 - heat.num_above / heat.num if box.low == heat.objective else heat.quantile or 0.95
    toml = explore.objective_toml(heat.metric, box.low, heat.filters.value_of("route"), where, good)
    if toml is not None:
        with line.popover("Make SLO", icon=":material/flag:"):
            st.markdown("Paste into `longpole.toml`; `longpole slo validate` reads it.")
            st.code(toml, language="toml")


def _limits(heat: Heat, box: Box) -> None:
    """The box without a mouse: what it lies above and goes up to."""
    unit = METRICS[heat.metric].unit
    said = [
        st.text_input(f"{title}, {unit}", value="" if value is None else f"{value:.6g}")
        for title, value in (("Above", box.low), ("Up to", box.high))
    ]
    if st.button("Select"):
        times = spelled(replace(box, low=None, high=None)).split(",")[:2]
        found, complaint = read_box(",".join([*times, *(part.strip() for part in said)]))
        if found is None:
            widgets.muted(
                f"Two numbers in order, in {unit}; one may be empty." if complaint else ""
            )
            return
        st.query_params[BOX] = spelled(found)
        st.rerun()


def _zoom(heat: Heat, box: Box) -> None:
    st.query_params["from"] = iso(max(box.start_ns or 0, heat.filters.start_ns))
    st.query_params["to"] = iso(min(box.end_ns or heat.filters.end_ns, heat.filters.end_ns))
    st.query_params.pop("range", None)
    st.query_params[BOX] = spelled(replace(box, start_ns=None, end_ns=None))
    st.rerun()


def _clear() -> None:
    st.query_params.pop(BOX, None)


def _split(people: Population) -> str | None:
    names = explore.splits(people)
    asked = st.query_params.get(SPLIT)
    key = "explore-split"
    if st.session_state.get(key) not in (None, *names):
        st.session_state[key] = None
    chosen: str | None = st.selectbox(
        "Split by",
        names,
        index=names.index(asked) if asked in names else None,
        placeholder="whatever differs most",
        width=260,
        key=key,
    )
    if chosen is None:
        st.query_params.pop(SPLIT, None)
    else:
        st.query_params[SPLIT] = chosen
    return chosen


def _differences(found: Brushed, heat: Heat) -> None:
    if not found.differences:
        widgets.muted("No slice is in the selection more often than among the others.")
        return
    st.plotly_chart(
        figures.differences(found.differences),
        key="differences",
        config={"displayModeBar": False},
        alt="share of the selection and of the others by slice",
    )
    widgets.muted("Solid: selected. Hatched: others. At the right: risk ratio and its interval.")
    single = [each.where[0] for each in found.differences if len(each.where) == 1]
    usable = [pair for pair in single if pair[0] in COLUMNS]
    if not usable:
        return
    line = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    chosen = line.selectbox(
        "Slice",
        usable,
        format_func=lambda pair: f"{pair[0]}={pair[1]}",
        key="explore-slice",
        width=300,
    )
    if chosen is None:
        return
    if line.button("Exclude this", icon=":material/block:"):
        _match(Match(*chosen, is_not=True))
    if line.button("Only this", icon=":material/filter_alt:"):
        _match(Match(*chosen))


def _match(match: Match) -> None:
    kept, added = st.query_params.get_all("where"), spelled_match(match)
    st.query_params["where"] = [*kept, *([] if added in kept else [added])]
    st.rerun()


# --- the workflows ------------------------------------------------------------------------------
def _exemplars(shown: tuple[Exemplar, ...], heat: Heat, selected: Selection) -> str | None:
    metric = METRICS[heat.metric]
    columns = [
        Column("trace"),
        Column(f"started, {selected.clock.label}"),
        Column(metric.label, is_number=True),
        *([Column("workflow", is_number=True)] if metric.name != "e2e_ms" else []),
        Column("long pole"),
        Column("share", is_number=True),
        Column("route"),
        Column("prompt version"),
        Column("outcome"),
    ]
    largest = max((each.value for each in shown), default=1.0) or 1.0
    rows = []
    for each in shown:
        pole = look(each.long_pole)
        cells = [
            Cell(each.trace_id[:8]),
            Cell(selected.clock.text(each.start_ns)),
            Cell(figures.value_text(each.value, metric.unit), bar_ratio=each.value / largest),
            *([Cell(text.duration(each.wall_ms))] if metric.name != "e2e_ms" else []),
            Cell(pole.label, colour=pole.colour, is_hatched=pole.is_hatched),
            Cell(text.percent(each.long_pole_ratio, 0)),
            Cell(each.route or text.UNKNOWN),
            Cell(each.prompt_version or text.UNKNOWN),
            Cell(each.outcome or "unknown"),
        ]
        rows.append(Row(cells, each.trace_id, f"trace?trace={each.trace_id}"))
    return table("workflows in the selection", columns, rows)


PAGE = Page("Explore", ":material/grid_on:", 15, draw)
