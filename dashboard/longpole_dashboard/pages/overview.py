"""Overview: is it slow, where does the time go, which traces to open."""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

import streamlit as st

from longpole_dashboard import data, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import overview as figures
from longpole_dashboard.model import explore, objective, slo, text
from longpole_dashboard.model.box import Box, spelled
from longpole_dashboard.model.budgets import Budget, budgets
from longpole_dashboard.model.cards import Tone
from longpole_dashboard.model.clock import UTC_CLOCK, Clock
from longpole_dashboard.model.heatmap import METRICS
from longpole_dashboard.model.overview import (
    Binned,
    Overview,
    Slice,
    SlowTrace,
    command,
    overview,
    slowest,
    stage_bins,
)
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.selection import spelled as spelled_match
from longpole_dashboard.model.verdict import MAX_TRACES, Verdict, verdicts
from longpole_dashboard.model.window import Bounds, Filters, Match
from longpole_dashboard.pages import start
from longpole_dashboard.pages.base import Begin, Page
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


class _Asked(NamedTuple):
    """What the page begins with, and what waits for the rest of it."""

    shown: Overview
    verdicts: Callable[[], tuple[Verdict, ...]]
    bins: Callable[[], Binned]
    slowest: Callable[[], tuple[SlowTrace, ...]]


def _ask(filters: Filters, begin: Begin, clock: Clock = UTC_CLOCK) -> _Asked:
    """Ask all there is to ask, side by side; waits for the first answer alone."""
    first = begin(overview, filters)
    promised = objective.of_findings(objective.objectives())
    others = begin(verdicts, filters, promised), begin(slowest, filters)
    shown = first()
    bins = begin(stage_bins, filters, shown.bin_s, shown.size, clock)
    return _Asked(shown, others[0], bins, others[1])


def _content(selected: Selection) -> None:
    filters = data.filters(selected)
    asked = _ask(filters, data.begin, selected.clock)
    shown = asked.shown
    held = data.bounds()
    widgets.window_line(shown.filters, round(shown.num_traces), held, selected)
    if shown.sampled is not None:
        widgets.muted(shown.sampled)
    if not shown.num_traces:
        newest = selected.clock.text(held.last_ns)
        widgets.note(
            f"No workflow here. The newest one ended at {newest} {selected.clock.label}: widen "
            "the range."
        )
        return
    # What takes longer is looked for when the rest is there.
    top = st.empty()
    with top:
        widgets.muted("Looking for what is slow.")
    _cards(shown)
    if shown.is_rolled:
        before = ", before any was dropped" if shown.size.is_sampled else ""
        widgets.muted(f"Latencies are of calls rolled up by the minute{before}, to within 1 %.")
    st.subheader("Slices, worst first")
    opened = _slices(shown.slices, _budgets(filters))
    if opened is not None:
        _explore(shown.slices[int(opened)])
    where = data.ask(explore.where_of, filters.where)
    widgets.reproduce(command(shown.filters, where))
    with top.container():
        _verdicts(asked.verdicts(), shown, selected)
    _stages(asked.bins(), shown, selected)
    st.subheader("Slowest workflows")
    trace_id = _slowest(asked.slowest(), selected)
    if trace_id is not None:
        widgets.go("trace", trace=trace_id)


def _verdicts(told: tuple[Verdict, ...], shown: Overview, selected: Selection) -> None:
    for number, found in enumerate(told):
        _verdict(number, found, selected)
    if shown.size.num_kept > MAX_TRACES:
        kept = " that were kept" if shown.size.is_sampled else ""
        widgets.muted(
            f"Findings are of the newest {text.count(MAX_TRACES)} of "
            f"{text.counted(shown.size.num_kept, 'workflow')}{kept}."
        )


def _stages(found: Binned, shown: Overview, selected: Selection) -> None:
    st.subheader("Where the time goes: mean ms on the critical path, by stage")
    st.plotly_chart(
        figures.stage_area(found.bins, selected.clock),
        key="stages",
        config={"displayModeBar": False},
        alt="mean milliseconds on the critical path per stage over time, stacked",
    )
    estimated = ", by what was kept" if shown.size.is_sampled else ""
    if found.is_sample:
        widgets.muted(
            f"Means of a random sample of {text.count(found.num_traces)} of "
            f"{text.counted(shown.num_traces, 'workflow')}."
        )
    elif abs(found.num_traces - shown.num_traces) >= 1:
        widgets.muted(
            f"Means of {text.counted(found.num_traces, 'workflow')}, counted by the whole minute: "
            f"{text.count(shown.num_traces)} are in the range now{estimated}."
        )


def _verdict(number: int, found: Verdict, selected: Selection) -> None:
    since = f"Since {selected.clock.text(found.since_ns)} {selected.clock.label}"
    widgets.note(found.line, found.tone, *([since] if found.since_ns else []), *found.facts)
    if found.box_ms is None:
        return
    if st.button(
        "Explore the slow ones",
        icon=":material/grid_on:",
        key=f"verdict-{number}",
        help="The map with the slow region boxed, what differs, extra time per stage",
    ):
        widgets.go(
            "explore",
            metric=found.metric,
            route=found.route or "",
            box=spelled(Box(low=found.box_ms)),
        )


def _cards(shown: Overview) -> None:
    versus = shown.filters.versus
    for number, (column, card) in enumerate(
        zip(st.columns(len(shown.cards)), shown.cards, strict=True)
    ):
        with column.container(border=True, height="stretch"):
            st.metric(
                card.label,
                card.value,
                card.change,
                delta_color=_TONES[card.tone],
                delta_description=f"vs {versus}" if card.change else None,
            )
            widgets.muted(card.samples, card.interval)
            if st.button(
                "Explore",
                key=f"card-{number}",
                type="tertiary",
                icon=":material/grid_on:",
                help=f"Explore by {METRICS[card.metric].label}",
            ):
                widgets.go("explore", metric=card.metric)


_SLICE_COLUMNS = (
    Column("route"),
    Column("prompt version"),
    Column("workflows", is_number=True),
    Column("p50 TTFT", is_number=True),
    Column("p99 TTFT", is_number=True),
    Column("p99 workflow", is_number=True),
    Column("TTFT trend"),
    Column("budget left", is_number=True),
)


def _slices(slices: tuple[Slice, ...], budgets: dict[str | None, Budget] | None) -> str | None:
    """Draw the table; returns the place of the row that was just opened."""
    columns = _SLICE_COLUMNS if budgets is not None else _SLICE_COLUMNS[:-1]
    rows = []
    for number, each in enumerate(slices):
        cells = [
            Cell(each.route or text.UNKNOWN),
            Cell(each.prompt_version or text.UNKNOWN),
            Cell(text.count(each.num_workflows), muted=_rests_on(each)),
            _quantile(each.ttft_p50),
            _quantile(each.ttft_p99),
            _quantile(each.wall_p99),
            Cell("", line=each.line) if any(each.line) else Cell(text.UNKNOWN),
        ]
        if budgets is not None:
            cells.append(_budget(budgets.get(each.route, budgets.get(None))))
        rows.append(Row(cells, str(number), _explore_address(each)))
    opened = table("slices", columns, rows)
    told = []
    if any(q.n and not q.is_shown for s in slices for q in (s.ttft_p99, s.wall_p99)):
        is_sampled = any(s.wall_p99.kept is not None for s in slices)
        more = ", and more where not all were kept" if is_sampled else ""
        told.append(
            "max: the largest value, where there are too few for the percentile "
            f"(p99 needs 1,000, p50 needs 20{more})."
        )
    told.append("Trend: p50 TTFT from 0 up, each slice by its own scale.")
    if budgets is None:
        told.append("No objective is configured ([slo.NAME] of longpole.toml): no budget is shown.")
    widgets.muted(*told)
    return opened


def _rests_on(each: Slice) -> str:
    """How many calls, which TTFT is of, where they are not one a workflow; and how many tell it."""
    is_same = round(each.num_calls) == round(each.num_workflows)
    parts = [] if is_same else [text.counted(each.num_calls, "call")]
    kept = each.wall_p99.kept
    parts += [] if kept is None else [f"told by {text.count(kept)}"]
    return ", ".join(parts)


def _budgets(filters: Filters) -> dict[str | None, Budget] | None:
    """What is left of the tightest budget of each route; ``None`` without objectives."""
    objectives = slo.configured()
    return data.ask(budgets, objectives, filters) if objectives else None


def _budget(found: Budget | None) -> Cell:
    if found is None or found.left is None:
        return Cell(text.UNKNOWN, muted="" if found is None else "too few requests")
    return Cell(text.percent(found.left, 0), bar_ratio=min(max(found.left, 0.0), 1.0))


def _where(each: Slice) -> list[str]:
    """What the bar's parameter ``where`` says of a slice; a named route has its own parameter."""
    matches = [Match("prompt_version", each.prompt_version)]
    if each.route is None:
        matches.append(Match("route", None))
    return [spelled_match(match) for match in matches]


def _explore_address(each: Slice) -> str:
    params = [("where", value) for value in _where(each)]
    if each.route is not None:
        params.append(("route", each.route))
    return f"explore?{urlencode(params, quote_via=quote)}"


def _explore(each: Slice) -> None:
    widgets.go("explore", route=each.route or "", where=_where(each))


def _quantile(q: Quantile) -> Cell:
    if q.max is None:
        return Cell(text.UNKNOWN)
    if not q.is_shown:
        return Cell(text.duration(q.max), muted="max")
    is_unsure = q.n < 1_000 or q.kept is not None
    has_interval = is_unsure and q.low is not None and q.high is not None
    return Cell(
        text.duration(q.value),
        muted=_interval(q.low, q.high) if has_interval and q.low and q.high else "",
    )


def _interval(low_ms: float, high_ms: float) -> str:
    """The interval in the unit of the value before it."""
    return text.span_of(low_ms, high_ms).rpartition(" ")[0]


_SLOWEST_COLUMNS = (
    Column("trace"),
    Column("started"),
    Column("route"),
    Column("prompt version"),
    Column("wall time", is_number=True),
    Column("long pole"),
    Column("share", is_number=True),
    Column("outcome"),
)


def _slowest(shown: tuple[SlowTrace, ...], selected: Selection) -> str | None:
    longest = max((t.wall_ms for t in shown), default=0.0) or 1.0
    rows = [
        Row(_slow_cells(t, longest, selected), t.trace_id, f"trace?trace={t.trace_id}")
        for t in shown
    ]
    return table("slowest workflows", _SLOWEST_COLUMNS, rows)


def _slow_cells(t: SlowTrace, longest_ms: float, selected: Selection) -> tuple[Cell, ...]:
    pole = look(t.long_pole)
    return (
        Cell(t.trace_id[:8]),
        Cell(selected.clock.text(t.start_ns)),
        Cell(t.route or text.UNKNOWN),
        Cell(t.prompt_version or text.UNKNOWN),
        Cell(text.duration(t.wall_ms), bar_ratio=t.wall_ms / longest_ms),
        Cell(pole.label, colour=pole.colour, is_hatched=pole.is_hatched),
        Cell(text.percent(t.long_pole_ratio, 0)),
        Cell(t.outcome or "unknown"),
    )


PAGE = Page("Overview", ":material/speed:", 10, draw, ahead=_ask)
