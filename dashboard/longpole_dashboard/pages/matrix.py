"""Matrix: what an engine does at which lengths, concurrency and settings, and what none beats."""

from typing import Final

import streamlit as st

from longpole_dashboard import places, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures.matrix import pareto
from longpole_dashboard.model import matrix, text
from longpole_dashboard.model.matrix import Line, MatrixView
from longpole_dashboard.model.verdict_lines.matrix import of_matrix
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection
from longpole_engine.load.matrix import LATENCIES

PARAM: Final = "matrix"
_COMMAND: Final = ("engine", "matrix")


def draw(selected: Selection, held: Bounds) -> None:
    """The matrix that the address names, or the latest one."""
    st.title("Matrix")
    folder = places.folder(selected)
    found = matrix.names(folder)
    if not found:
        widgets.note("No matrix was run yet; this runs one:")
        st.code(places.command(*_COMMAND), language="bash")
        return
    asked = st.query_params.get(PARAM, found[0])
    if len(found) > 1:
        at = found.index(asked) if asked in found else 0
        asked = st.selectbox("matrix", found, index=at, label_visibility="collapsed")
    view = matrix.matrix(asked, folder)
    if view is None:
        widgets.note(f"There is no matrix '{asked}' here that can be read.")
        return
    _content(view)


def _content(view: MatrixView) -> None:
    widgets.muted(
        f"{view.model} · {text.counted(view.num_cells, 'cell')} of "
        f"{text.counted(view.requests, 'request')} each, closed loop · "
        f"{view.machine}"
    )
    if not any(view.works.values()):
        widgets.note("No cell has an answer with counted tokens: nothing to compare.")
        return
    top = st.container()
    latency = st.segmented_control(
        "latency", list(LATENCIES), format_func=LATENCIES.__getitem__, default="ttft_ms"
    )
    latency = latency or "ttft_ms"
    with top:
        widgets.note(*of_matrix(view, latency).parts)
    for number, panel in enumerate(view.works[latency]):
        st.subheader(
            f"{panel.input_tokens:,} tokens in, {panel.output_tokens:,} out, "
            f"{text.markdown(panel.language)}"
        )
        title = LATENCIES[latency]
        st.plotly_chart(
            pareto(panel, title),
            key=f"pareto {number}",
            config={"displayModeBar": False},
            alt=f"{title} against output tokens a second of each cell",
        )
        table(f"cells {number}", _COLUMNS, [_row(line) for line in view.lines(latency, number)])
    widgets.muted(
        "Filled, and marked ●: no other cell of the same work has less latency and more tokens a "
        "second. Latency is the median, the mean where a cell has under 20 requests."
    )


_COLUMNS: Final = (
    Column("cell"),
    Column("TTFT", is_number=True),
    Column("a token", is_number=True),
    Column("whole", is_number=True),
    Column("tokens/s", is_number=True),
    Column("cached", is_number=True),
    Column("failed", is_number=True),
    Column("start", is_number=True),
)


def _row(line: Line) -> Row:
    rate = text.UNKNOWN if line.tokens_per_s is None else f"{line.tokens_per_s:,.1f}"
    start_ms = None if line.start_s is None else line.start_s * 1e3
    cells = (
        Cell(f"{'● ' if line.is_best else ''}{line.label}"),
        *(Cell(text.duration(ms)) for ms in (line.ttft_ms, line.tpot_ms, line.e2e_ms)),
        Cell(rate),
        Cell(text.percent(line.cached_share, 0)),
        Cell(text.count(line.num_failed)),
        Cell("" if start_ms is None else text.duration(start_ms)),
    )
    return Row(cells)


def _has_any() -> bool:
    db = source().db
    return bool(matrix.names(None if db is None else str(db)))


PAGE = Page("Matrix", ":material/grid_on:", 75, draw, is_shown=_has_any)
