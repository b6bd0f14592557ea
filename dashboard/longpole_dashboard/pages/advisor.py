"""Advisor: what to change first, what it would save, and how to see that it did."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import streamlit as st

from longpole_analytics.audit import FAIL, PASS, UNSEEN
from longpole_dashboard import data, widgets
from longpole_dashboard.choices import admit, narrowed
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.model import text
from longpole_dashboard.model.advisor import (
    AdvisorView,
    advisor,
    each_ms,
    facts,
    matches,
    relation,
    saving,
)
from longpole_dashboard.model.cache import usd
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.widgets import Selection

MAX_SHOWN: Final = 10
_TONES: Final[dict[str, Literal["worse", "better", "grey"]]] = {
    PASS: "better",
    FAIL: "worse",
    UNSEEN: "grey",
}


def draw(selected: Selection, held: Bounds) -> None:
    """The page for the bar's workflows."""
    st.title("Advisor")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    filters = data.filters(selected)
    shown = data.ask(advisor, filters)
    widgets.window_line(filters, shown.advice["num_traces"], data.bounds(), selected)
    admit(shown.scope.limits())
    if shown.sampled is not None:
        widgets.muted(shown.sampled)
    if not shown.advice["num_traces"]:
        widgets.note("No complete workflow here: widen the range, or drop a condition.")
        return
    _all(shown)
    widgets.reproduce(shown.commands[0])
    st.subheader("The application, graded")
    opened = _audit(shown.audit)
    widgets.reproduce(shown.commands[1])
    if opened is not None:
        widgets.go("trace", trace=opened)


def _all(shown: AdvisorView) -> None:
    found = shown.advice
    if not found["advice"]:
        widgets.note(
            "Nothing to advise: no rule that can see what it needs found anything worth changing."
        )
        return
    saved = text.duration(each_ms(found))
    widgets.note(
        f"All of it together saves {saved} a workflow in the mean, overlaps counted once.",
        "grey",
        "Holds if everything else stays equal: no load feedback, and every order seen is kept.",
    )
    for advice in found["advice"][:MAX_SHOWN]:
        with st.container(border=True):
            _one(advice)
    hidden = len(found["advice"]) - MAX_SHOWN
    if hidden > 0:
        widgets.muted(f"{text.count(hidden)} more: the command has them.")
    if found["num_left_out"]:
        left = text.counted(found["num_left_out"], "workflow")
        widgets.muted(f"{left} incomplete or odd, left out.")


def _one(advice: Mapping[str, Any]) -> None:
    rule = advice["rule"].replace("_", " ")
    where = ", ".join(f"{name} {value}" for name, value in advice["where"].items() if value)
    head, button = st.columns([6, 1], vertical_alignment="center")
    head.markdown(f"**{advice['rank']}. {text.markdown(rule)}** &nbsp; {text.markdown(where)}")
    chosen = matches(advice)
    key = f"explore-{advice['rank']}"
    if button.button("Explore", key=key, icon=":material/search:", disabled=not chosen):
        widgets.go("explore", **narrowed(chosen))
    widgets.facts(
        [
            ("saves", saving(advice)),
            ("money", usd(advice["saving"]["usd"])),
            ("touches", _touched(advice)),
            ("confidence", advice["confidence"]),
            ("beside the others", relation(advice)),
        ]
    )
    widgets.muted(
        f"Why: {advice['title']}",
        f"Evidence: {', '.join(facts(advice['evidence'])) or text.UNKNOWN}",
        f"Change: {advice['change']}",
        "Check whether it helped:",
    )
    st.code(advice["verify"], language="bash", wrap_lines=True)
    opened = _exemplars(f"workflows that show advice {advice['rank']}", advice["trace_ids"])
    if opened is not None:
        widgets.go("trace", trace=opened)


def _touched(advice: Mapping[str, Any]) -> str:
    share = text.percent(advice["share_of_traces"], 0)
    return f"{text.counted(advice['num_traces'], 'workflow')}, {share} of the route"


def _exemplars(name: str, ids: list[str]) -> str | None:
    rows = [Row((Cell(each),), each, f"trace?trace={each}") for each in ids]
    return table(name, (Column("workflows that show it"),), rows) if rows else None


def _audit(found: Mapping[str, Any]) -> str | None:
    """The lines of the checklist; returns the workflow that was opened."""
    counts = ("num_pass", "pass"), ("num_fail", "fail"), ("num_not_observable", "not observable")
    widgets.muted(", ".join(f"{found[name]} {grade}" for name, grade in counts))
    rows = []
    for line in found["lines"]:
        more = [line["reason"], *([f"Next: {line['next_step']}"] if line["grade"] != PASS else [])]
        grade = line["grade"].capitalize()
        widgets.note(f"{grade}: {line['question']}", _TONES[line["grade"]], *more)
        cells = (Cell(line["question"]), Cell(line["grade"]))
        rows += [
            Row((Cell(each), *cells), each, f"trace?trace={each}") for each in line["trace_ids"]
        ]
    if not rows:
        return None
    heads = ("workflows that show it", "line", "grade")
    return table("workflows that show a line of the checklist", [Column(h) for h in heads], rows)


PAGE = Page("Advisor", ":material/lightbulb:", 35, draw)
