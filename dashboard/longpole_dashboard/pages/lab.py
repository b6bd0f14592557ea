"""Lab: every latency shape with its picture, made by a recipe that can be run here."""

from typing import Any, Final

import streamlit as st

from longpole_analytics.wording import quantile_name
from longpole_dashboard import places, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures.stage_bars import StageChange, changes
from longpole_dashboard.lab.catalogue import all_recipes
from longpole_dashboard.lab.recipe import Recipe
from longpole_dashboard.lab.shown import Shown, latest
from longpole_dashboard.lab.values import written
from longpole_dashboard.model import text
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection

PARAM: Final = "recipe"
_COLUMNS: Final = (
    Column("evidence"),
    Column("quantile"),
    Column("before", is_number=True),
    Column("now", is_number=True),
    Column("ratio", is_number=True),
    Column("n", is_number=True),
)


def draw(selected: Selection, held: Bounds) -> None:
    """The recipe that the address names, or the first."""
    st.title("Lab")
    widgets.muted(
        "A shape is a kind of slowness. Each recipe makes one happen on real engines; the "
        "diagnosis sees the traces alone and has to name it."
    )
    recipes = all_recipes()
    names = list(recipes)
    asked = st.query_params.get(PARAM, names[0])
    at = names.index(asked) if asked in names else 0
    name = st.selectbox("recipe", names, index=at, format_func=lambda n: _title(recipes[n]))
    _content(recipes[name or names[at]])


def _title(recipe: Recipe) -> str:
    return f"{recipe.truth.shape} · {recipe.name}"


def _content(recipe: Recipe) -> None:
    widgets.facts(
        [
            ("what happens", recipe.text),
            ("shape", recipe.truth.shape),
            ("sub-cause", recipe.truth.sub_cause.replace("_", " ")),
        ]
    )
    found = latest(recipe.name, source().db)
    if found is None:
        widgets.note("This recipe was not run yet; this runs it:")
    else:
        _picture(found)
    st.code(places.command("lab", "run", recipe.name), language="bash")


def _picture(found: Shown) -> None:
    run = found.run
    verdict = run["verdict"]
    is_right = run["is_named"] and run["is_explained"]
    said = verdict["shape"] or "too few samples"
    widgets.note(
        f"The diagnosis said {said}: {verdict['sub_cause'] or 'nothing changed'}",
        "better" if is_right else "worse",
        verdict["next_check"] or "",
    )
    rows = [StageChange(s["stage"], s["before_ms"], s["now_ms"]) for s in run["stages"]]
    st.plotly_chart(
        changes(rows, "mean time of a request, more or less than before"),
        key="stages",
        config={"displayModeBar": False},
        alt="what each stage took more or less with the cause",
    )
    table("evidence", _COLUMNS, [_row(each) for each in verdict["evidence"]])
    num = sum(run["played"]["num_sent"].values())
    kind = "a recorded sample" if found.is_sample else "the last run in this data folder"
    widgets.muted(f"{text.counted(num, 'request')}, {kind}.")


def _row(evidence: dict[str, Any]) -> Row:
    q = evidence["quantile"]
    ratio = evidence["ratio"]
    return Row(
        (
            Cell(evidence["metric"]),
            Cell("" if q is None else quantile_name(q)),
            Cell(_value(evidence["metric"], evidence["baseline"])),
            Cell(_value(evidence["metric"], evidence["current"])),
            Cell("" if ratio is None else f"{ratio:.2f}"),
            Cell(text.count(evidence["n"])),
        )
    )


def _value(metric: str, value: float | None) -> str:
    return text.UNKNOWN if value is None else written(metric, value)


PAGE = Page("Lab", ":material/science:", 77, draw)
