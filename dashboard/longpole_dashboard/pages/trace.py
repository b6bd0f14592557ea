"""Trace: where one workflow's time went, span by span."""

import streamlit as st

from longpole_dashboard import data, widgets
from longpole_dashboard.components.waterfall import chosen, waterfall
from longpole_dashboard.model import overview, text, trace
from longpole_dashboard.model.trace import Attributes, TraceView
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.theme import look
from longpole_dashboard.widgets import Selection

PARAM = "trace"


def draw(selected: Selection, held: Bounds) -> None:
    """The trace that the address names; the slowest one of the range where it names none."""
    trace_id = st.query_params.get(PARAM)
    if trace_id is None:
        slowest = data.ask(overview.slowest, data.filters(selected.choice, selected.route))
        trace_id = slowest[0].trace_id if slowest else None
    st.title("Trace")
    if trace_id is None:
        widgets.note("No workflow in this range: widen it, or open one from the Overview.")
        return
    view = data.ask(trace.trace, trace_id.strip().lower())
    if view is None:
        widgets.note(f"No span of trace {trace_id} is stored: it was never received, or pruned.")
        return
    _header(view)
    st.fragment(_waterfall)(view)


def _header(view: TraceView) -> None:
    pole = look(view.long_pole)
    pole_ns = max((s.critical_ns for s in view.stages), default=0)
    share = text.percent(pole_ns / view.wall_ns, 0) if view.wall_ns else text.UNKNOWN
    widgets.muted(f"{view.trace_id} · started {text.utc(view.start_ns)} UTC")
    shown = [
        ("wall time", text.duration(view.wall_ns / 1e6)),
        ("outcome", view.outcome or "unknown"),
        ("long pole", f"{pole.label} {share}"),
        *view.facts,
    ]
    if view.extended_ns > view.wall_ns:
        shown.insert(1, ("to the end of the stream", text.duration(view.extended_ns / 1e6)))
    widgets.facts(shown)
    doubts = list(view.doubts)
    if view.is_truncated:
        doubts.append(f"only the first {text.count(view.num_spans)} spans were read")
    if doubts:
        widgets.muted("; ".join(doubts) + ".")


def _waterfall(view: TraceView) -> None:
    name = f"waterfall-{view.trace_id}"
    now = chosen(name)
    if now.key is None and view.rows:
        longest = max(view.rows[: now.limit], key=lambda row: row.critical_ns)
        now = now._replace(key=longest.key)
    row = next((row for row in view.rows if row.key == now.key), None)
    detail = data.ask(trace.attributes, view.trace_id, row.span_id) if row else Attributes(())
    waterfall(name, view, now, detail)


PAGE = Page("Trace", ":material/account_tree:", 20, draw)
