"""The Trace page as Streamlit runs it: its words, its command, and what it says when it cannot."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from click.testing import CliRunner

from longpole.errors import BadInput
from longpole.vocab import Span
from longpole_analytics.commands import explain
from longpole_collector.files import write_parquet
from longpole_collector.stores.base import Reader
from longpole_dashboard import source
from longpole_dashboard.model import text, trace_kin
from longpole_dashboard.model.trace_kin import Kin
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts
from .sample import Builder, agent_trace

TRACE = f"{3:032x}"
BROKEN = f"{700:032x}"


def broken() -> list[Span]:
    made = Builder(700)
    root = made.span("root", 0, 100, route="broken")
    for i in range(3):
        made.span(
            f"orphan {i}", 10, 20 + i, root._replace(span_id="f" * 16), flags=["invalid_utf8"]
        )
    made.span("late", 90, 150, root)
    return made.spans


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    held = MemoryStore()
    held.add([*(s for i in range(1, 5) for s in agent_trace(i, turns=i)), *broken()])
    path = tmp_path_factory.mktemp("trace") / "spans.parquet"
    write_parquet(held, path)
    held.close()
    return path


@pytest.fixture(scope="module", autouse=True)
def used(file: Path) -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    source.use(Source(files=(file,)))
    yield
    source._source = None
    st.cache_data.clear()
    st.cache_resource.clear()


def test_the_page_says_what_its_command_says(file: Path) -> None:
    app = run("trace", trace=TRACE.upper())
    said = texts(app)
    told = CliRunner().invoke(explain, [TRACE, "--json", "--file", str(file)])
    document = json.loads(told.stdout)
    assert f"longpole explain {TRACE} --json" in said
    assert f"<span>wall time</span><b>{text.duration(document['wall_ms'])}</b>" in said
    assert document["shape"]["sub_cause"] in said
    assert "Next check: " in said
    assert "no. 2 of 4 like it by wall time, the next took " in said
    assert [button.label for button in app.button] == ["Next slow one like this"]
    assert not app.get("link_button")


def test_doubts_are_sentences_and_a_page_of_another_viewer_is_linked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGPOLE_DASHBOARD_JAEGER_URL", "http://jaeger:16686")
    app = run("trace", trace=BROKEN)
    said = texts(app)
    assert "Mind: 3 span(s) name a parent that never arrived" in said
    assert "1 span(s) outlived their parent: nobody waited for them" in said
    assert "text of 3 span(s) was no UTF-8 and was repaired" in said
    assert "no. 1 of 1 like it by wall time" in said
    assert app.button[0].disabled
    (link,) = app.get("link_button")
    assert link.proto.url == f"http://jaeger:16686/trace/{BROKEN}"


def test_a_trace_that_is_not_here_is_one_sentence() -> None:
    app = run("trace", trace="<b>" + "x" * 300)
    said = texts(app)
    assert said.count("No span of trace &lt;b&gt;xxx") == 1
    assert "never received, was pruned, or belongs to another project" in said
    assert "x" * 100 not in said


def test_what_cannot_be_compared_is_said_and_the_waterfall_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(trace_id: str, reader: Reader) -> Kin | None:
        raise BadInput("the query took too long: narrow the range")

    monkeypatch.setattr(trace_kin, "kin", fails)
    app = run("trace", trace=TRACE)
    said = texts(app)
    assert "could not be compared with its route: the query took too long" in said
    assert [part.value for part in app.subheader] == [
        "Each stage against its route, and what if it were faster"
    ]
