"""The lighter script of charts: what is left out, and that nothing is guessed."""

import itertools
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
import streamlit as st

from longpole_dashboard import figures
from longpole_dashboard.lighter import DRAWN, lighter

SCRIPT = (
    'import{a}from"./b.js";'
    'var c=_({"src/core.js"(e,t){t.exports={u:/[/}`]{2}/,s:`}${{a:`{`}.a}`}}}),'
    'd=_({"src/bar.js"(e,t){c(),t.exports="}"}}),f=_({"lib/bar.js"(e,t){t.exports=d()}}),'
    'g=q({"src/glue.ts"(){h=1}});function k(){return l()}var l=_({"src/kept.js"(e,t){x={}}}),'
    'm=_({"src/map.js"(e,t){t.exports=g(),1/2/3}}),n=_({"lib/map.js"(e,t){t.exports=m()}});'
    'return _({"lib/index.js"(e,t){var r=c();r.register([f(),n()]),t.exports=r}})()'
)


def test_what_nobody_calls_is_emptied_and_the_rest_stays_letter_by_letter() -> None:
    found = lighter(SCRIPT, ["bar"])
    assert found is not None
    hint, _, script = found.partition("\n")
    assert hint.startswith("//# ")
    told = 'throw Error("{} is left out")'.format
    gone = {
        "src/map.js": "t.exports=g(),1/2/3",
        "lib/map.js": "t.exports=m()",
        "src/glue.ts": "h=1",
    }
    expected = SCRIPT.replace("f(),n()", "f()")
    for path, body in gone.items():
        expected = expected.replace(body, told(path))
    assert script == expected


@pytest.mark.parametrize(
    "script",
    [
        "",
        SCRIPT.replace("register", "add"),
        SCRIPT.replace("n()])", "n(),zz()])"),
        SCRIPT.replace("lib/bar.js", "lib/bars.js"),
        SCRIPT + "}",
        SCRIPT.replace('c(),t.exports="}"', "c(),t.exports=`}"),
        SCRIPT.replace("{x={}}})", "{x={}},y:1})"),
    ],
)
def test_a_script_that_is_not_as_expected_stays_as_it_is(script: str) -> None:
    assert lighter(script, ["bar"]) is None


def test_the_installed_script_of_charts_loses_most_of_what_it_holds() -> None:
    (path,) = (Path(st.__file__).parent / "static" / "static" / "js").glob("PlotlyChart.*.js")
    script = path.read_text(encoding="utf-8")
    found = lighter(script)
    assert found is not None
    assert len(found) < len(script) / 2
    assert (
        script.rpartition("return window.Plotly")[2] == found.rpartition("return window.Plotly")[2]
    )


def test_figures_draw_no_other_kind_of_trace() -> None:
    folder = Path(figures.__file__).parent
    sources = [
        path.read_text()
        for path in itertools.chain(folder.glob("*.py"), folder.parent.glob("pages/*.py"))
    ]
    kinds = {
        kind.__name__.lower()
        for kind in vars(go).values()
        if isinstance(kind, type) and hasattr(go.Figure, f"add_{kind.__name__.lower()}")
    }
    added = {name for source in sources for name in re.findall(r"\.add_([a-z0-9]+)\(", source)}
    assert added & kinds <= {*DRAWN, "scatter"}
    assert not any(
        re.search(r"\.add_traces?\(|go\.(?!Figure\b)[A-Z]|plotly\.express", s) for s in sources
    )
