"""Reports: the past weeks, each opened inside the page, and the command for another."""

from typing import Final

import streamlit as st

from longpole_dashboard import data, places, widgets
from longpole_dashboard.components.document import document
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.model import reports, text
from longpole_dashboard.model.reports import Report
from longpole_dashboard.model.verdict_lines.reports import of_reports
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection

PARAM: Final = "report"


def draw(selected: Selection, held: Bounds) -> None:
    """The list, or the report that the address names."""
    asked = st.query_params.get(PARAM)
    where = (places.folder(selected), source().project or selected.project)
    if asked is not None and not source().is_recorded:
        _one(asked, where)
        return
    st.title("Reports")
    if source().is_recorded:
        widgets.note("A file has no weekly reports; this makes one of it:")
        st.code(places.command("report", str(source().files[0].name)), language="bash")
        return
    found = data.ask(reports.reports, *where)
    widgets.note(*of_reports(found).parts)
    opened = None
    if found.reports:
        opened = table("reports", _COLUMNS, [_row(each, selected) for each in found.reports])
    _make(held)
    if opened is not None:
        widgets.go("reports", report=opened)


_COLUMNS: Final = (
    Column("report"),
    Column("from"),
    Column("to"),
    Column("requests", is_number=True),
    Column("made"),
    Column("in short"),
)


def _row(each: Report, selected: Selection) -> Row:
    clock = selected.clock
    since, until, made = (
        clock.text(clock.read(moment)) for moment in (each.since, each.until, each.made_at)
    )
    said = each.lines[0] if each.lines else text.UNKNOWN
    if each.num_traces == 0:
        said = "no data: no request began in that time"
    cells = (
        Cell(each.name),
        Cell(since),
        Cell(until),
        Cell(text.count(each.num_traces)),
        Cell(made),
        Cell(said),
    )
    return Row(cells, each.name, f"reports?report={each.name}")


def _one(name: str, where: tuple[str | None, str | None]) -> None:
    if st.button("All reports", icon=":material/arrow_back:", type="tertiary"):
        widgets.go("reports")
    html = data.ask(reports.report, name, *where)
    if html is None:
        widgets.note(f"There is no report '{name}' here that can be read.")
        return
    document(f"report {name}", html)


def _make(held: Bounds) -> None:
    """What to type for a report; nothing is run from here."""
    found = reports.weeks(reports.now())
    st.subheader("Make one")
    st.markdown("The last whole week, and the week that runs, as far as it has come:")
    for week in (found.last, found.current):
        out = f"reports/{week}"
        words = ("report", "--week", week, "--tz", found.tz, "--out", out)
        st.code(places.command(*words), language="bash")
    if held.first_ns is not None:
        widgets.muted(
            f"Data here reach from {text.utc(held.first_ns)} to {text.utc(held.last_ns)} UTC; "
            "a week without any gives a report that says so."
        )
    widgets.muted(
        'With [report] schedule = "mon 07:00 Europe/Berlin" in longpole.toml, `longpole serve` '
        "makes one every week by itself."
    )


PAGE = Page("Reports", ":material/description:", 80, draw)
