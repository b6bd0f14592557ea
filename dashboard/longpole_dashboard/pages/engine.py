"""Engine: what the engines' own spans tell, model by model."""

from collections.abc import Callable
from typing import Any, Final

import plotly.graph_objects as go
import streamlit as st

from longpole.errors import LongpoleError
from longpole_dashboard import data, places, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import engine as figures
from longpole_dashboard.figures.engine import median_words
from longpole_dashboard.model import engine, engine_asked, text
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.engine import EngineRequest, EngineView, Model, Share
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.verdict_lines.engine import of_engine
from longpole_dashboard.model.window import SECOND_NS, Bounds, Filters
from longpole_dashboard.pages.base import Page
from longpole_dashboard.widgets import Selection

DAY_NS: Final = 86_400 * SECOND_NS
RECENT_DAYS: Final = 7
"""An engine that told of nothing for so long before the last span has no page."""
AT: Final = "at"
OF: Final = "of"


def draw(selected: Selection, held: Bounds) -> None:
    """Every model's load and speed, and the requests of the stretch of time that was clicked."""
    st.title("Engine")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    filters = data.filters(selected)
    view = data.ask(engine.engine, filters, selected.clock)
    num = sum(model.num_requests for model in view.models)
    widgets.muted(
        f"{selected.clock.stretch(filters.start_ns, filters.end_ns)} · "
        f"{text.counted(num, 'request')} as the engines tell them, "
        f"by {text.ago(0, view.bin_s * SECOND_NS)}"
    )
    if not view.models:
        widgets.note("No engine told of a request here: widen the range, or drop a condition.")
        return
    if view.sampled is not None:
        widgets.muted(view.sampled)
    widgets.note(*of_engine(view).parts)
    _models(view)
    _charts(view, selected)
    _clicked(view, filters, selected)


_COLUMNS: Final = (
    Column("model"),
    Column("requests", is_number=True),
    Column("prefix hits", is_number=True),
    Column("drafts accepted", is_number=True),
)
_TIMES: Final = (
    Column("model"),
    Column("time"),
    Column("p50", is_number=True),
    Column("p95", is_number=True),
)


def _models(view: EngineView) -> None:
    rows = [
        Row(
            (
                Cell(model.name),
                Cell(text.count(model.num_requests)),
                _share(model.prefix, "no cache counts"),
                _drafts(model),
            )
        )
        for model in view.models
    ]
    table("models", _COLUMNS, rows)
    times = [
        Row((Cell(model.name), Cell(what), *(_quantile(q) for q in pair)))
        for model in view.models
        for what, pair in (
            ("queue", model.queue),
            ("TTFT", model.ttft),
            ("between tokens", model.itl),
        )
    ]
    table("times of models", _TIMES, times)
    more = "" if view.num_kept is None else ", and more where not all were kept"
    notes = [
        f"max: the largest value, where there are too few for the percentile (p95 needs 200{more})"
    ]
    if view.num_left_out:
        notes.append(f"{text.counted(view.num_left_out, 'model')} with fewer requests not shown")
    notes.append("KV use: engines tell it as a metric, not in spans, and metrics are not stored")
    widgets.muted(*notes)
    statement = engine_asked.statement(view.filters, is_weighed=view.num_kept is not None)
    widgets.reproduce(places.command("query", statement, "--json"))


def _quantile(q: Quantile) -> Cell:
    if q.max is None:
        return Cell(text.UNKNOWN, muted="not sent")
    n = text.count(q.n) if q.kept is None else f"{text.count(q.n)}, told by {text.count(q.kept)}"
    if not q.is_shown:
        return Cell(text.duration(q.max), muted=f"max of {n}")
    is_unsure = q.n < 1_000 or q.kept is not None
    has_interval = is_unsure and q.low is not None and q.high is not None
    interval = text.span_of(q.low, q.high) if has_interval and q.low and q.high else ""
    return Cell(text.duration(q.value), muted=interval or f"n = {n}")


def _share(share: Share, missing: str) -> Cell:
    if share.ratio is None:
        return Cell(text.UNKNOWN, muted=missing)
    return Cell(text.percent(share.ratio), muted=f"of {share.whole:,} tokens, n = {share.n:,}")


def _drafts(model: Model) -> Cell:
    if model.drafts is None:
        return Cell(text.UNKNOWN, muted="narrow the range")
    return _share(model.drafts, "no drafts")


# --- charts -------------------------------------------------------------------------------------
def _charts(view: EngineView, selected: Selection) -> None:
    clock = selected.clock

    def mean(value: float | None, what: str) -> str:
        return text.UNKNOWN if value is None else f"{value:.3g} {what} on average"

    shown: list[tuple[str, str, go.Figure | None]] = [
        (
            "running",
            "Running",
            figures.lines(
                view,
                clock,
                "requests running, mean",
                lambda p: p.running,
                lambda p: mean(p.running, "running"),
            ),
        ),
        (
            "waiting",
            "Waiting",
            figures.lines(
                view,
                clock,
                "requests waiting, mean",
                lambda p: p.waiting,
                lambda p: mean(p.waiting, "waiting"),
            ),
        ),
        *(
            (name, title, _times(view, selected, unit, of))
            for name, title, unit, of in (
                ("queue", "Time in the queue", "queue, ms: p50, ○ max", lambda p: p.queue_ms),
                ("ttft", "Time to first token", "TTFT, ms: p50, ○ max", lambda p: p.ttft_ms),
                ("itl", "Time between tokens", "ms per token: p50, ○ max", lambda p: p.itl_ms),
            )
        ),
        ("prefix", "Prefix hits", _hits(view, selected)),
    ]
    drawn = [each for each in shown if each[2] is not None]
    for left, right in zip(drawn[::2], [*drawn[1::2], None], strict=False):
        for column, one in zip(st.columns(2), (left, right), strict=True):
            if one is not None:
                with column:
                    _chart(*one)
    missing = [title.lower() for _, title, figure in shown if figure is None]
    if missing:
        widgets.muted(f"Not sent: {', '.join(missing)}.")
    widgets.muted("○ the largest value, where a stretch has under 20 requests for a median.")


def _times(
    view: EngineView, selected: Selection, title: str, of: Callable[[Any], Quantile]
) -> go.Figure | None:
    return figures.lines(
        view,
        selected.clock,
        title,
        lambda point: of(point).tail,
        lambda point: median_words(of(point)),
        lambda point: not of(point).is_shown,
    )


def _hits(view: EngineView, selected: Selection) -> go.Figure | None:
    return figures.lines(
        view,
        selected.clock,
        "cached of input tokens, %",
        lambda p: None if p.prefix.ratio is None else 100 * p.prefix.ratio,
        lambda p: f"{text.percent(p.prefix.ratio)} of {p.prefix.whole:,} tokens",
        range=[0, 104],
    )


def _chart(name: str, title: str, figure: go.Figure) -> None:
    st.markdown(f"**{title}**")
    st.plotly_chart(
        figure,
        key=name,
        on_select=lambda: _remember(name),
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"{title.lower()} of each model over time",
    )


def _remember(name: str) -> None:
    found = figures.picked(st.session_state.get(name))
    if found is not None:
        st.query_params[OF], st.query_params[AT] = found[0], iso(found[1])


# --- the requests of a point --------------------------------------------------------------------
_REQUEST_COLUMNS: Final = (
    Column("trace"),
    Column("began"),
    Column("in the engine", is_number=True),
    Column("queue", is_number=True),
    Column("prefill", is_number=True),
    Column("TTFT", is_number=True),
    Column("input, cached", is_number=True),
    Column("output", is_number=True),
    Column("error"),
)


def _clicked(view: EngineView, filters: Filters, selected: Selection) -> None:
    at, of = st.query_params.get(AT), st.query_params.get(OF)
    at_ns = selected.clock.read(at) if at else None
    if at_ns is None or of is None:
        widgets.muted("Click a point for the requests that began then.")
        return
    st.subheader(f"Requests of {text.markdown(of)} that began at {selected.clock.text(at_ns)}")
    found = data.ask(engine.requests, filters, of, at_ns, view.bin_s, selected.clock)
    if not found:
        widgets.muted("None began then: they ran or waited from before.")
        return
    opened = table("requests", _REQUEST_COLUMNS, [_row(each, selected) for each in found])
    widgets.muted(f"the longest first, at most {engine.MAX_REQUESTS}; times in the engine")
    if opened is not None:
        widgets.go("trace", trace=opened)


def _row(each: EngineRequest, selected: Selection) -> Row:
    cached = "" if each.cached_input_tokens is None else f"{each.cached_input_tokens:,} cached"
    cells = (
        Cell(each.trace_id[:8]),
        Cell(selected.clock.text(each.start_ns)),
        Cell(text.duration(each.e2e_ms)),
        Cell(text.duration(each.queue_ms)),
        Cell(text.duration(each.prefill_ms)),
        Cell(text.duration(each.ttft_ms)),
        Cell(text.count(each.input_tokens), muted=cached),
        Cell(text.count(each.output_tokens)),
        Cell(each.error_type or ""),
    )
    return Row(cells, each.trace_id, f"trace?trace={each.trace_id}")


def _has_engine() -> bool:
    try:
        last_ns = data.bounds().last_ns
        if last_ns is None:
            return False
        # whole days, so that the question stays the same while spans come in
        return data.ask(engine.has_engine, (last_ns // DAY_NS - RECENT_DAYS) * DAY_NS)
    except LongpoleError:  # the page that is drawn says so
        return False


PAGE = Page("Engine", ":material/memory:", 70, draw, is_shown=_has_engine)
