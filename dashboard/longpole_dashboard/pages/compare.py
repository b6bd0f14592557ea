"""Compare: two populations, or two traces, and whether the difference is one."""

from typing import Any, Final, Literal

import streamlit as st

from longpole_analytics.scorecard.rules import BETTER, INCONCLUSIVE, WORSE
from longpole_dashboard import data, widgets
from longpole_dashboard.choices import admit, choose, write
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import compared, stage_bars
from longpole_dashboard.figures.stage_bars import StageChange
from longpole_dashboard.model import text
from longpole_dashboard.model.clock import SECOND_NS, iso
from longpole_dashboard.model.compare import (
    TIME,
    TRACES,
    Asked,
    Comparison,
    TracePair,
    compare,
    two_traces,
)
from longpole_dashboard.model.scorecard import Moved, change, contrasts, ends, mix_lines, moved
from longpole_dashboard.model.stages import metric_name
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.pages.base import Page
from longpole_dashboard.theme import look
from longpole_dashboard.widgets import Selection

PINNED: Final = "pinned"
LEAST_MS: Final = 0.001
"""A stage of less is what rounding to nanoseconds left: no row."""
_TONES: Final[dict[str, Literal["worse", "better", "grey"]]] = {BETTER: "better", WORSE: "worse"}
_COLOURS: Final = {"better": "#3f9f4f", "worse": "#d9484b", "grey": None}
_STATUS: Final = {"held": "#3f9f4f", "broken": "#d9484b"}
_CHART: Final = {"displayModeBar": False}


def draw(selected: Selection, held: Bounds) -> None:
    """The page for the bar's workflows and what the address says."""
    st.title("Compare")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    given = st.query_params
    asked = Asked(
        given.get("of"),
        given.get("base"),
        given.get("cand"),
        given.get("target"),
        given.get("swap") == "1",
    )
    filters = data.filters(selected)
    is_pinned = given.get(PINNED) == "1"
    shown = data.ask(compare, filters, asked)
    if is_pinned:
        _pinned(filters, selected)
    else:
        _choices(shown, filters)
    if shown.asked.of == TRACES:
        _two_traces(given.get("a", ""), given.get("b", ""))
        return
    widgets.muted(" · ".join(_times(filters, selected, shown)))
    admit(shown.limits)
    if shown.document is None:
        widgets.note(shown.reason)
        return
    _verdict(shown, shown.document)
    _body(shown, shown.document)
    widgets.reproduce(shown.command)
    if selected.is_live and not is_pinned:
        widgets.muted(
            "Looked at again and again while data comes in, something differs by chance: pin it, "
            "or look with --look K."
        )
    _downloads(shown)


def _times(filters: Filters, selected: Selection, shown: Comparison) -> list[str]:
    """The window, and in a comparison of times that of the other side."""
    told = [selected.clock.stretch(filters.start_ns, filters.end_ns)]
    other = filters.baseline
    is_other = other is not None and other.start_ns != filters.start_ns
    if other is not None and is_other and shown.asked.of == TIME:
        stretch = selected.clock.stretch(other.start_ns, other.end_ns)
        told.append(f"{filters.versus}: {stretch}")
    return told


# --- what is compared ---------------------------------------------------------------------------
def _choices(shown: Comparison, filters: Filters) -> None:
    bar = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    values = {each.name: each.values for each in shown.dimensions}
    with bar:
        names = {TIME: f"with {filters.versus or 'the period before'}"}
        options = (TIME, *values, TRACES)
        choose("Compare", options, "of", shown.asked.of, lambda option: names.get(option, option))
        own = values.get(shown.asked.of or "", ())
        if own:
            choose("Baseline", own, "base", shown.asked.base)
            choose("Candidate", own, "cand", shown.asked.cand)
        if shown.document is None:
            return
        choose("Decided by", shown.targets, "target", shown.asked.target, metric_name)
        if st.button("Swap", icon=":material/swap_horiz:", help="Exchange the two sides"):
            _swap(shown.asked)
        if st.button("Pin as scorecard", icon=":material/push_pin:", help="Fix the times"):
            _pin(filters, shown.asked)


def _swap(asked: Asked) -> None:
    if asked.of == TIME:
        write(swap=None if asked.is_swapped else "1")
    else:
        write(of=asked.of, base=asked.cand, cand=asked.base)
    st.rerun()


def _pin(filters: Filters, asked: Asked) -> None:
    """The same comparison at fixed times, whole seconds, under an address of its own."""
    start_s, end_s = filters.start_ns // SECOND_NS, -(-filters.end_ns // SECOND_NS)
    params = {
        "of": asked.of or TIME,
        "base": asked.base or "",
        "cand": asked.cand or "",
        "target": asked.target or "",
        "swap": "1" if asked.is_swapped else "",
    }
    times = {"range": "", "from": iso(start_s * SECOND_NS), "to": iso(end_s * SECOND_NS)}
    widgets.go("compare", **times, **params, **{PINNED: "1"})


def _pinned(filters: Filters, selected: Selection) -> None:
    line, button = st.columns([5, 1], vertical_alignment="center")
    with line:
        widgets.muted(
            f"Scorecard pinned to {selected.clock.stretch(filters.start_ns, filters.end_ns)}: this "
            "address shows the same as long as the workflows are kept."
        )
    if button.button("Unpin", icon=":material/keep_off:"):
        write(**{PINNED: None})
        st.rerun()


# --- the scorecard ------------------------------------------------------------------------------
def _verdict(shown: Comparison, document: Any) -> None:
    verdict, needed = document["verdict"], document["n_needed"]
    said = "not enough evidence" if verdict == INCONCLUSIVE else verdict
    more = list(document["reasons"])
    if needed is not None:
        more.append(f"{text.count(needed)} workflows on each side would decide.")
    line = f"{shown.names[1]} against {shown.names[0]}: {said}"
    widgets.note(line, _TONES.get(verdict, "grey"), *more)
    target = document["target"]
    low, high = target["ci95"] or (None, None)
    name = f"p{100 * target['quantile']:g} {metric_name(target['metric'])}"
    ratio = target["ratio"]
    widgets.facts(
        [
            (f"baseline, {shown.names[0]}", f"n = {text.count(document['n']['base'])}"),
            (f"candidate, {shown.names[1]}", f"n = {text.count(document['n']['cand'])}"),
            (name, change(None if ratio is None else ratio - 1)),
            ("95 % interval", ends(*(None if end is None else end - 1 for end in (low, high)))),
            ("counts as equal", f"within {100 * target['margin']:g} %"),
        ]
    )
    notes = [f"{note['flag'].replace('_', ' ')}: {note['text']}" for note in document["notes"]]
    if notes:
        widgets.muted(*notes)


def _body(shown: Comparison, document: Any) -> None:
    rows = moved(document)
    st.subheader("Quantiles")
    if any(row.change is not None for row in rows):
        st.plotly_chart(
            compared.changes(rows, document["target"]["margin"]),
            key="quantiles",
            config=_CHART,
            alt="change of each quantile with its 95 % interval; the band is the margin",
        )
    _quantiles(rows)
    st.subheader("Mix and time")
    widgets.muted(*mix_lines(document))
    stages = [
        StageChange(row["stage"], row["base_ms"], row["cand_ms"])
        for row in document["stages"]
        if max(row["base_ms"] or 0.0, row["cand_ms"] or 0.0) >= LEAST_MS
    ]
    st.subheader("Stages: mean ms on the critical path")
    _stages(stages, ("baseline", "candidate"), "candidate less baseline")
    widgets.muted("Means of all workflows as recorded, not weighted to a common mix.")
    _guardrails(document)
    _contrasts(document)


def _quantiles(rows: tuple[Moved, ...]) -> None:
    columns = (
        Column("time"),
        Column("baseline", is_number=True),
        Column("candidate", is_number=True),
        Column("change", is_number=True),
        Column("95 % interval", is_number=True),
        Column("n, smaller side", is_number=True),
    )
    made = [
        Row(
            (
                Cell(row.name),
                Cell(text.duration(row.base_ms)),
                Cell(text.duration(row.cand_ms)),
                Cell(change(row.change), muted=row.why, colour=_COLOURS[row.tone]),
                Cell(ends(row.low, row.high)),
                Cell(text.count(row.n)),
            )
        )
        for row in rows
    ]
    table("quantiles compared", columns, made)
    widgets.muted("A colour only where the whole interval lies on one side of 0.")


def _stages(rows: list[StageChange], names: tuple[str, str], title: str) -> None:
    if not rows:
        widgets.muted("No side tells its stages.")
        return
    st.plotly_chart(
        stage_bars.changes(rows, title),
        key="stages",
        config=_CHART,
        alt=f"milliseconds of each stage, {title}",
    )
    columns = (
        Column("stage"),
        *(Column(name, is_number=True) for name in names),
        Column("change", is_number=True),
    )
    made = []
    for row in rows:
        style, delta = look(row.stage), None
        if row.before_ms is not None and row.after_ms is not None:
            delta = row.after_ms - row.before_ms
        made.append(
            Row(
                (
                    Cell(style.label, colour=style.colour, is_hatched=style.is_hatched),
                    Cell(text.duration(row.before_ms)),
                    Cell(text.duration(row.after_ms)),
                    Cell(f"{'+' if delta and delta > 0 else ''}{text.duration(delta)}"),
                )
            )
        )
    table("stages compared", columns, made)


def _guardrails(document: Any) -> None:
    columns = (
        Column("guardrail"),
        Column("status"),
        Column("candidate against baseline"),
        Column("workflows needed", is_number=True),
    )
    rows = [
        Row(
            (
                Cell(each["name"].replace("_", " ")),
                Cell(each["status"].replace("_", " "), colour=_STATUS.get(each["status"])),
                Cell(each["text"]),
                Cell(text.count(each["n_needed"])),
            )
        )
        for each in document["guardrails"]
    ]
    st.subheader("What must not get worse")
    table("guardrails", columns, rows)


def _contrasts(document: Any) -> None:
    rows = [Row([Cell(each) for each in row]) for row in contrasts(document)]
    if not rows:
        return
    st.subheader("Rates, costs, quality, tokens")
    names = ("baseline", "candidate", "change", "95 % interval")
    columns = (Column("of a workflow"), *(Column(name, is_number=True) for name in names))
    table("rates and means", columns, rows)


def _downloads(shown: Comparison) -> None:
    bar = st.container(horizontal=True, gap="small")
    forms = (("HTML", "text/html", "html"), ("Markdown", "text/markdown", "md"))
    for (name, kind, suffix), content in zip(forms, shown.written, strict=True):
        bar.download_button(
            f"Scorecard as {name}",
            content,
            f"scorecard.{suffix}",
            kind,
            icon=":material/download:",
            on_click="ignore",
        )


# --- two traces ---------------------------------------------------------------------------------
def _two_traces(first: str, second: str) -> None:
    bar = st.container(horizontal=True, gap="medium")
    for param, title, current in (("a", "First trace", first), ("b", "Second trace", second)):
        key = f"choice-{param}"
        st.session_state[key] = current
        bar.text_input(title, key=key, on_change=_typed, args=(param, key), width=330)
    if not first or not second:
        widgets.muted("Give the ids of two traces, as the Trace page shows them.")
        return
    ids = (first.strip().lower(), second.strip().lower())
    pair = data.ask(two_traces, *ids)
    if pair.missing:
        named = " and ".join(pair.missing)
        widgets.note(f"No trace {named} is stored: it was never received, or pruned.")
        return
    _pair(pair)
    for each in pair.ids:
        widgets.reproduce(f"longpole explain {each} --json")


def _typed(param: str, key: str) -> None:
    write(**{param: st.session_state[key] or None})


def _pair(pair: TracePair) -> None:
    rows = [
        Row(
            (
                Cell(trace_id),
                Cell(route or text.UNKNOWN),
                Cell(outcome or "unknown"),
                Cell(text.duration(wall_ms)),
            ),
            trace_id,
            f"trace?trace={trace_id}",
        )
        for trace_id, route, outcome, wall_ms in zip(
            pair.ids, pair.routes, pair.outcomes, pair.walls_ms, strict=True
        )
    ]
    columns = (
        Column("trace"),
        Column("route"),
        Column("outcome"),
        Column("wall time", is_number=True),
    )
    opened = table("traces compared", columns, rows)
    if len(set(pair.routes)) > 1:
        widgets.muted("They are of different routes: what differs may be the work.")
    st.subheader("Stages on the critical path")
    stages = [
        StageChange(each.stage, each.first_ms, each.second_ms)
        for each in pair.stages
        if max(each.first_ms, each.second_ms) >= LEAST_MS
    ]
    _stages(stages, ("first", "second"), "second less first")
    if opened is not None:
        widgets.go("trace", trace=opened)


PAGE = Page("Compare", ":material/compare_arrows:", 30, draw)
