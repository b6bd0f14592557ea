"""Stages & slices: where the time of each slice goes, how much it is, and for which prompts."""

from urllib.parse import quote, urlencode

import streamlit as st

from longpole_analytics.slice_labels import OTHER
from longpole_analytics.slices import Slice, SliceQuantile, Slices
from longpole_analytics.wording import quantile_name
from longpole_dashboard import data, widgets
from longpole_dashboard.choices import admit, choose, narrowed
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import stage_bars
from longpole_dashboard.model import text
from longpole_dashboard.model.stages import (
    LENGTH,
    Grid,
    StagesView,
    metric_name,
    slice_name,
    stages,
)
from longpole_dashboard.model.verdict_lines.stages import of_stages
from longpole_dashboard.model.window import COLUMNS, Bounds, Match
from longpole_dashboard.pages.base import Page
from longpole_dashboard.widgets import Selection

MAX_ROWS = 200
MANY = 1_000
"""So many workflows tell enough: the interval is left out."""


def draw(selected: Selection, held: Bounds) -> None:
    """The page for the bar's workflows, split by what the address says."""
    st.title("Stages & slices")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    by, metric = (st.query_params.get(name) for name in ("by", "metric"))
    filters = data.filters(selected)
    shown = data.ask(stages, filters, by, metric, selected.clock.label)
    widgets.window_line(filters, shown.num_requests, data.bounds(), selected)
    admit(shown.scope.limits())
    if shown.quantiles is None or shown.stages is None:
        widgets.note("No complete workflow here: widen the range, or drop a condition.")
        return
    widgets.note(*of_stages(shown).parts)
    bar = st.container(horizontal=True, gap="medium")
    with bar:
        choose("Split by", shown.dimensions, "by", shown.by)
        choose("Measure", shown.metrics, "metric", shown.metric, metric_name)
    if by not in (None, shown.by) or metric not in (None, shown.metric):
        widgets.muted(f"Not sent here: {by or ''} {metric or ''}; this is split as shown.")
    _shares(shown)
    st.subheader(f"{_title(shown)} by {text.markdown(shown.by)}")
    opened = _quantiles(shown.quantiles)
    widgets.reproduce(shown.command)
    _grid(shown)
    if shown.not_sent:
        widgets.muted(f"Not sent, so not to split by: {', '.join(shown.not_sent)}.")
    if opened is not None:
        widgets.go("explore", **narrowed([opened]))


def _title(shown: StagesView) -> str:
    name = metric_name(shown.metric)
    return name[:1].upper() + name[1:]


def _shares(shown: StagesView) -> None:
    assert shown.stages is not None  # noqa: S101 - the caller has looked
    st.subheader("Where the time goes: of all, and of the slowest")
    slices = shown.stages.slices
    st.plotly_chart(
        stage_bars.shares(slices),
        key="shares",
        config={"displayModeBar": False},
        alt="share of each stage on the critical path, by slice, for all workflows and for those "
        "above p90 and p99",
    )
    said = [
        f"Slowest by {metric_name(shown.metric)}, each slice by its own quantile; "
        "above p90 needs 100 workflows of a slice, above p99 1,000."
    ]
    hidden = len(slices) - stage_bars.MAX_SLICES + shown.stages.num_left_out
    if hidden > 0:
        said.append(f"The {stage_bars.MAX_SLICES} largest slices; {text.count(hidden)} more below.")
    unknown = sum(each.num_unknown for each in slices)
    if unknown:
        said.append(f"{text.counted(unknown, 'workflow')} without a time of the kind left out.")
    widgets.muted(*said)


def _quantiles(found: Slices) -> Match | None:
    """The table; returns the slice that was opened."""
    (by,) = found.by
    names = [quantile_name(told.q) for told in found.slices[0].quantiles] if found.slices else []
    columns = [
        Column(by),
        Column("workflows", is_number=True),
        *(Column(name, is_number=True) for name in names),
        Column("max", is_number=True),
    ]
    rows = [_row(by, place, each) for place, each in enumerate(found.slices[:MAX_ROWS])]
    opened = table("slices", columns, rows)
    hidden = max(len(found.slices) - MAX_ROWS, 0) + found.num_left_out
    if hidden:
        widgets.muted(f"{text.count(hidden)} more slices: the command has up to 1,000.")
    if any(told.value is None for each in found.slices for told in each.quantiles):
        widgets.muted(
            "n too small: p50 needs 20 workflows, p90 100, p95 200, p99 1,000. Behind a quantile "
            "of fewer than 1,000 stands its 95 % interval."
        )
    return None if opened is None else Match(by, found.slices[int(opened)].where[by])


def _row(by: str, place: int, each: Slice) -> Row:
    value = each.where[by]
    cells = (
        Cell(slice_name(value)),
        Cell(text.count(each.n), muted=_unknown(each)),
        *(_quantile(told, each.n) for told in each.quantiles),
        Cell(text.duration(each.greatest)),
    )
    if by not in COLUMNS or value == OTHER:
        return Row(cells)
    address = urlencode(narrowed([Match(by, value)]), doseq=True, quote_via=quote)
    return Row(cells, str(place), f"explore?{address}")


def _unknown(each: Slice) -> str:
    return f"+{text.count(each.num_unknown)} unknown" if each.num_unknown else ""


def _quantile(told: SliceQuantile, n: int) -> Cell:
    if told.value is None:
        return Cell(text.UNKNOWN, muted="n too small")
    has_ends = n < MANY and told.low is not None and told.high is not None
    return Cell(
        text.duration(told.value),
        muted=text.span_of(told.low, told.high) if has_ends and told.low and told.high else "",
    )


def _grid(shown: StagesView) -> None:
    st.subheader(f"{_title(shown)} by prompt length and cache")
    if shown.grid is None:
        widgets.muted(
            "It needs the length of prompts and either the state of the cache or the tokens read "
            f"from it: {', '.join(_missing(shown))} not sent."
        )
        return
    _cells(shown.grid)
    widgets.reproduce(shown.grid.command)


def _missing(shown: StagesView) -> list[str]:
    return [n for n in (LENGTH, "cache_state", "cached_input_tokens") if n in shown.not_sent]


def _cells(grid: Grid) -> None:
    """p50 of each cell; the largest where too few workflows carry it."""
    cells = {(each.where[LENGTH], each.where[grid.cache]): each for each in grid.cells.slices}
    lengths = list(dict.fromkeys(length for length, _ in cells))
    states = list(dict.fromkeys(state for _, state in cells))
    longest = max((_middle(each)[0] or 0.0 for each in cells.values()), default=0.0)
    name = "cache" if grid.cache == "cache_state" else "tokens from the cache"
    columns = [
        Column("prompt tokens"),
        *(Column(f"{name} {slice_name(state)}", is_number=True) for state in states),
    ]
    rows = []
    for length in lengths:
        line = [Cell(slice_name(length))]
        for state in states:
            each = cells.get((length, state))
            line.append(Cell(text.UNKNOWN) if each is None else _cell(each, longest))
        rows.append(Row(line))
    table("length by cache", columns, rows[:MAX_ROWS])
    widgets.muted("p50 of the workflows in each cell; max where fewer than 20 carry it.")


def _cell(each: Slice, longest: float) -> Cell:
    value, kind = _middle(each)
    ratio = value / longest if value and longest > 0 else None
    return Cell(text.duration(value), muted=f"{kind}n {text.count(each.n)}", bar_ratio=ratio)


def _middle(each: Slice) -> tuple[float | None, str]:
    middle = each.quantiles[0].value
    return (each.greatest, "max, ") if middle is None else (middle, "")


PAGE = Page("Stages & slices", ":material/stacked_bar_chart:", 40, draw)
