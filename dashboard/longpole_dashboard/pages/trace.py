"""Trace: where one workflow's time went, span by span."""

from typing import Final

import streamlit as st

from longpole.errors import LongpoleError
from longpole_dashboard import data, settings, widgets
from longpole_dashboard.components.waterfall import chosen, payload, waterfall
from longpole_dashboard.components.waterfall.panel import panel
from longpole_dashboard.components.waterfall.stages import stages
from longpole_dashboard.model import overview, text, trace, trace_kin, trace_span
from longpole_dashboard.model.clock import Clock
from longpole_dashboard.model.trace import TraceView
from longpole_dashboard.model.trace_kin import Kin
from longpole_dashboard.model.trace_span import Detail
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.theme import look
from longpole_dashboard.widgets import Selection

PARAM: Final = "trace"
SPAN: Final = "span"
_MAX_SHOWN: Final = 64


def draw(selected: Selection, held: Bounds) -> None:
    """The trace that the address names; the slowest one of the range where it names none."""
    trace_id = st.query_params.get(PARAM)
    if trace_id is None:
        slowest = data.ask(overview.slowest, data.filters(selected))
        trace_id = slowest[0].trace_id if slowest else None
    st.title("Trace")
    if trace_id is None:
        widgets.note("No workflow in this range: widen it, or open one from the Overview.")
        return
    view = data.ask(trace.trace, trace_id.strip().lower())
    if view is None:
        widgets.note(
            f"No span of trace {trace_id[:_MAX_SHOWN]} is stored here: it was never received, "
            "was pruned, or belongs to another project."
        )
        return
    _header(view, selected.clock)
    _actions(view)
    spot = st.empty()
    with spot:
        widgets.note("Comparing it with other workflows of its route …", "grey", "…")
    st.fragment(_waterfall)(view, payload(view))
    _against_its_route(view, spot.container())
    widgets.reproduce(f"longpole explain {view.trace_id} --json")


def _header(view: TraceView, clock: Clock) -> None:
    pole = look(view.long_pole)
    pole_ns = max((s.critical_ns for s in view.stages), default=0)
    share = text.percent(pole_ns / view.wall_ns, 0) if view.wall_ns else text.UNKNOWN
    widgets.muted(f"{view.trace_id} · started {clock.text(view.start_ns)} {clock.label}")
    shown = [
        ("wall time", text.duration(view.wall_ns / 1e6)),
        ("outcome", view.outcome or "unknown"),
        ("long pole", f"{pole.label} {share}"),
        *view.facts,
        ("spans", text.count(view.num_spans)),
    ]
    if view.extended_ns > view.wall_ns:
        shown.insert(1, ("to the end of the stream", text.duration(view.extended_ns / 1e6)))
    widgets.facts(shown)
    doubts = list(view.doubts)
    if view.is_truncated:
        doubts.append(f"only the first {text.count(view.num_spans)} spans were read")
    if doubts:
        widgets.muted(f"Mind: {'; '.join(doubts)}.")


def _actions(view: TraceView) -> None:
    """The next slow trace like this one, and the same trace in other viewers."""
    bar = st.container(horizontal=True, vertical_alignment="center")
    found = data.ask(trace_kin.next_slow, view.trace_id)
    if found is not None:
        is_open = bar.button(
            "Next slow one like this",
            icon=":material/skip_next:",
            disabled=found.trace_id is None,
            help="Same route, long pole and prompt version, within a day; the slowest come first.",
        )
        if is_open and found.trace_id:
            widgets.go("trace", trace=found.trace_id)
    for name, address in settings.viewers(view.trace_id):
        bar.link_button(f"Open in {name}", address, icon=":material/open_in_new:")
    if found is not None:
        with bar:
            following = f", the next took {text.duration(found.wall_ms)}" if found.trace_id else ""
            widgets.muted(
                f"no. {text.count(found.place)} of {text.count(found.num_like)} like it "
                f"by wall time{following}"
            )


def _waterfall(view: TraceView, drawn: str) -> None:
    name = f"waterfall-{view.trace_id}"
    keys = {row.key: row for row in view.rows}
    asked = st.query_params.get(SPAN, "")
    # What the trace was opened with stays what is sent: the rows then travel once.
    opened = st.session_state.setdefault(
        f"{name}-opened", asked if asked in keys else _longest(view)
    )
    key = chosen(name)
    if key is not None:
        st.query_params[SPAN] = key
    row = keys.get(key or opened)
    left, right = st.columns([0.77, 0.23])
    with left:
        waterfall(name, drawn, opened)
    with right:
        has_span = row is not None and row.span_id
        detail = data.ask(trace_span.detail, view.trace_id, row) if has_span else Detail()
        panel(f"{name}-panel", row, detail, view.wall_ns)


def _longest(view: TraceView) -> str:
    """The key of the row with most time on the path, of those that are not folded away."""
    best, at = "", 0
    most = -1
    while at < len(view.rows):
        row = view.rows[at]
        if row.critical_ns > most:
            best, most = row.key, row.critical_ns
        at += 1 + (row.num_below if row.num_folded else 0)
    return best


def _against_its_route(view: TraceView, spot: st.delta_generator.DeltaGenerator) -> None:
    try:
        found = data.ask(trace_kin.kin, view.trace_id)
    except LongpoleError as error:
        # The waterfall stands; only the comparison does not.
        found = None
        with spot:
            widgets.note(f"It could not be compared with its route: {error}")
    else:
        with spot:
            _shape(found)
    if not view.stages:
        return
    st.subheader("Each stage against its route, and what if it were faster")
    stages(f"stages-{view.trace_id}", view, found)
    held_against = f"{found.like} " if found else ""
    widgets.muted(
        f"{held_against}A saving holds if everything else stays equal: a faster stage also "
        "shortens queues, which one trace cannot show."
    )
    if found and found.parallel:
        st.subheader("Might run side by side")
        more = found.num_more_parallel
        rest = [f"and {text.counted(more, 'smaller group')}"] if more else []
        widgets.muted(*found.parallel, *rest)


def _shape(found: Kin | None) -> None:
    if found is None:
        widgets.note("Not rolled up yet, so nothing is known of its like: reload in a moment.")
        return
    cause = f": {found.sub_cause}" if found.sub_cause else ""
    widgets.note(
        f"Shape {found.shape or 'unknown'}{cause}",
        "grey",
        "; ".join(found.evidence),
        f"Next check: {found.next_check}",
    )


PAGE = Page("Trace", ":material/account_tree:", 20, draw)
