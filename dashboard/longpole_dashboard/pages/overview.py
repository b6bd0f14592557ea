"""Overview: is it slow, where does the time go, which traces to open."""

from typing import Final, Literal

import streamlit as st

from longpole_dashboard import data, figures, settings, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.model import text
from longpole_dashboard.model.cards import Card, Tone
from longpole_dashboard.model.overview import Overview, Slice, SlowTrace, overview
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.verdict import verdict
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.pages import start
from longpole_dashboard.pages.base import Page
from longpole_dashboard.theme import look
from longpole_dashboard.widgets import Selection

_TONES: Final[dict[Tone, Literal["green", "red", "grey"]]] = {
    "better": "green",
    "worse": "red",
    "grey": "grey",
}


def draw(selected: Selection, held: Bounds) -> None:
    """The page; the start page's content while there is nothing to show."""
    if not held.num_traces:
        start.draw(selected, held)
        return
    st.title("Overview")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    filters = data.filters(selected.choice, selected.route)
    shown = data.ask(overview, filters)
    held = data.bounds()
    widgets.window_line(shown.filters, shown.num_traces, held)
    if not shown.num_traces:
        newest = text.utc(held.last_ns)
        widgets.note(f"No workflow here. The newest one ended at {newest} UTC: widen the range.")
        return
    _verdict(filters)
    _cards(shown.cards, selected)
    st.subheader("Slices, worst first")
    _slices(shown.slices)
    st.subheader("Where the time goes: mean ms on the critical path, by stage")
    st.plotly_chart(
        figures.stage_area(shown.bins, shown.bin_s),
        key="stages",
        config={"displayModeBar": False},
        alt="mean milliseconds on the critical path per stage over time, stacked",
    )
    st.subheader("Slowest workflows")
    opened = _slowest(shown)
    if opened is not None:
        widgets.go("trace", trace=opened)


def _verdict(filters: Filters) -> None:
    found = data.ask(verdict, filters, settings.ttft_objective_ms())
    widgets.note(found.line, found.tone, *found.facts)
    if found.exemplar and st.button("Open one of the slow workflows", icon=":material/search:"):
        widgets.go("trace", trace=found.exemplar)


def _cards(cards: tuple[Card, ...], selected: Selection) -> None:
    for column, card in zip(st.columns(len(cards)), cards, strict=True):
        with column.container(border=True, height="stretch"):
            st.metric(
                card.label,
                card.value,
                card.change,
                delta_color=_TONES[card.tone],
                delta_description=f"vs previous {selected.choice}" if card.change else None,
            )
            widgets.muted(card.samples, card.interval)


_SLICE_COLUMNS = (
    Column("route"),
    Column("prompt version"),
    Column("workflows", is_number=True),
    Column("calls", is_number=True),
    Column("p50 TTFT", is_number=True),
    Column("p99 TTFT", is_number=True),
    Column("p50 workflow", is_number=True),
    Column("p99 workflow", is_number=True),
)


def _slices(slices: tuple[Slice, ...]) -> None:
    rows = [
        Row(
            (
                Cell(s.route or text.UNKNOWN),
                Cell(s.prompt_version or text.UNKNOWN),
                Cell(text.count(s.num_workflows)),
                Cell(text.count(s.num_calls)),
                _quantile(s.ttft_p50),
                _quantile(s.ttft_p99),
                _quantile(s.wall_p50),
                _quantile(s.wall_p99),
            )
        )
        for s in slices
    ]
    table("slices", _SLICE_COLUMNS, rows)
    if any(q.n and not q.is_shown for s in slices for q in (s.ttft_p99, s.wall_p99)):
        widgets.muted(
            "max: the largest value, where there are too few for the percentile "
            "(p99 needs 1,000, p50 needs 20)."
        )


def _quantile(q: Quantile) -> Cell:
    if q.max is None:
        return Cell(text.UNKNOWN)
    if not q.is_shown:
        return Cell(text.duration(q.max), muted="max")
    has_interval = q.n < 1_000 and q.low is not None and q.high is not None
    return Cell(
        text.duration(q.value),
        muted=f"{text.span_of(q.low, q.high)}" if has_interval and q.low and q.high else "",
    )


_SLOWEST_COLUMNS = (
    Column("trace"),
    Column("started, UTC"),
    Column("route"),
    Column("prompt version"),
    Column("wall time", is_number=True),
    Column("long pole"),
    Column("share", is_number=True),
    Column("outcome"),
)


def _slowest(shown: Overview) -> str | None:
    longest = max(t.wall_ms for t in shown.slowest) or 1.0
    rows = [
        Row(_slow_cells(t, longest), t.trace_id, f"trace?trace={t.trace_id}") for t in shown.slowest
    ]
    return table("slowest workflows", _SLOWEST_COLUMNS, rows)


def _slow_cells(t: SlowTrace, longest_ms: float) -> tuple[Cell, ...]:
    pole = look(t.long_pole)
    return (
        Cell(t.trace_id[:8]),
        Cell(text.utc(t.start_ns)),
        Cell(t.route or text.UNKNOWN),
        Cell(t.prompt_version or text.UNKNOWN),
        Cell(text.duration(t.wall_ms), bar_ratio=t.wall_ms / longest_ms),
        Cell(pole.label, colour=pole.colour, is_hatched=pole.is_hatched),
        Cell(text.percent(t.long_pole_ratio, 0)),
        Cell(t.outcome or "unknown"),
    )


PAGE = Page("Overview", ":material/speed:", 10, draw)
