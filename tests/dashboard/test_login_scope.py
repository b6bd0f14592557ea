"""Two people with different projects: each sees their own on every page, whatever they try."""

import ast
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from tests.browser import feed
from tests.dashboard.gate import sources_closed

import longpole_dashboard
from longpole.errors import UsageError
from longpole_collector.app import background
from longpole_collector.files import write_parquet
from longpole_collector.keys import Scope, create
from longpole_collector.settings import Settings
from longpole_collector.stores.remote import RemoteReader
from longpole_dashboard import data, server, source
from longpole_dashboard.login import scope as login_scope
from longpole_dashboard.login.store import Logins
from longpole_dashboard.model import window
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .sample import agent_trace

PACKAGE = Path(longpole_dashboard.__file__).parent
MARK = {"ann": "of-ann-only", "bob": "of-bob-only"}
TRACE = {"ann": f"{1:032x}", "bob": f"{2:032x}"}
HOSTILE = "<img src=x onerror=alert(1)>"
_NAMES = (
    *("range", "from", "to", "route", "model", "compare", "tz", "refresh", "where", "project"),
    *("trace", "span", "metric", "box", "split", "by", "with", "slo", "report", "cause", "at"),
)
ADDRESS = dict.fromkeys(_NAMES, HOSTILE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scope")


@pytest.fixture(scope="module")
def logins(folder: Path) -> Logins:
    found = Logins(folder)
    for name in MARK:
        found.add(name, f"of-{name}", create(folder, f"of-{name}", Scope.READ)[1])
    return found


@pytest.fixture(scope="module")
def url(folder: Path, logins: Logins) -> Iterator[str]:
    """A collector with a trace in each project."""
    keys = {name: create(folder, f"of-{name}", Scope.INGEST)[1] for name in MARK}
    with background(Settings(db=folder, http="127.0.0.1:0", grpc="127.0.0.1:0")) as running:
        for number, (name, mark) in enumerate(MARK.items(), 1):
            spans = [
                span._replace(route=mark if span.route else None, name=f"{span.name} {mark}")
                for span in agent_trace(number)
            ]
            call = urllib.request.Request(
                f"{running.url}/v1/traces",
                data=feed.request(spans).SerializeToString(),
                headers={
                    "content-type": "application/x-protobuf",
                    "authorization": f"Bearer {keys[name]}",
                },
            )
            with urllib.request.urlopen(call, timeout=30) as answer:
                assert answer.status == 200
        deadline = time.monotonic() + 60
        for name in MARK:
            with closing(RemoteReader(running.url, logins.known(name).key)) as reader:
                while not reader.sql("SELECT 1 FROM traces").num_rows:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        yield running.url


class Looking:
    """Who looks at the page; the gate would say so in a header."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __call__(self) -> str | None:
        return self.name


@pytest.fixture(scope="module")
def _opened() -> Iterator[None]:
    with sources_closed():
        yield


@pytest.fixture
def looking(_opened: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looking]:
    found = Looking()
    monkeypatch.setattr(login_scope, "viewer", found)
    st.cache_data.clear()
    yield found
    source.use(Source(files=(Path("none"),)))
    source._source = None


def page(name: str, **params: str) -> AppTest:
    """A page as the frame draws it, with an address."""

    def alone() -> None:
        from importlib import import_module

        import streamlit as st

        from longpole_dashboard import bar, data

        name = st.query_params["page"]
        data.use_project(bar.chosen_project(name))
        held = data.bounds()
        drawn = import_module(f"longpole_dashboard.pages.{name}").PAGE
        drawn.draw(bar.filter_bar(held, name), held)

    app = AppTest.from_function(alone, default_timeout=60)
    for key, value in {"page": name, **params}.items():
        app.query_params[key] = value
    return app.run()


def sent(app: AppTest) -> str:
    """Everything that the page sends to the browser."""
    found: list[str] = []

    def walk(block: Any) -> None:
        for child in getattr(block, "children", {}).values():
            found.append(str(getattr(child, "proto", "")))
            walk(child)

    walk(app._tree)
    return "\n".join(found)


@pytest.mark.parametrize("name", server.PAGES)
def test_no_page_shows_anothers_project_whatever_the_address_says(
    url: str, logins: Logins, looking: Looking, name: str
) -> None:
    source.use(Source(url=url), seen=login_scope.Scoped(logins))
    looking.name = "bob"
    asked = {"trace": TRACE["ann"], "route": MARK["ann"], "project": "of-ann"}
    app = page(name, **ADDRESS | asked)
    assert not app.exception
    shown = sent(app)
    assert shown
    for quoted in ("'{}'", "&#x27;{}&#x27;"):  # the page says what the address asked for
        shown = shown.replace(quoted.format(MARK["ann"]), "")
    assert MARK["ann"] not in shown
    drawn = " ".join(str(part.value) for part in app.main if part.type in ("html", "markdown"))
    assert HOSTILE not in drawn
    if name == "overview":
        looking.name = "ann"
        assert MARK["ann"] in sent(page(name))


def test_the_same_question_has_an_answer_for_each(
    url: str, logins: Logins, looking: Looking
) -> None:
    source.use(Source(url=url), seen=login_scope.Scoped(logins))
    for name in ("ann", "bob", "ann"):
        looking.name = name
        assert data.bounds().routes == (MARK[name],)
    for name in (None, "eve"):
        looking.name = name
        with pytest.raises(UsageError, match="log in first"):
            data.bounds()
    logins.add("gus", "of-gus")  # a project, and no key to it
    looking.name = "gus"
    with pytest.raises(UsageError, match="no key"):
        data.bounds()
    logins.remove("gus")


def test_a_data_folder_is_narrowed_and_stays_so(
    tmp_path: Path, logins: Logins, looking: Looking
) -> None:
    for name, mark in MARK.items():
        store = MemoryStore()
        store.add([span._replace(route=mark if span.route else None) for span in agent_trace(1)])
        write_parquet(store, tmp_path / "spans.parquet")
        store.close()
        _import(tmp_path / "spans.parquet", tmp_path / "db", f"of-{name}")
    source.use(Source(db=tmp_path / "db"), seen=login_scope.Scoped(logins))
    for name in ("ann", "bob"):
        looking.name = name
        data.use_project("of-ann")  # whatever the address says
        assert data.bounds().routes == (MARK[name],)
        assert data.projects() == ()
        assert f"project of-{name}" in source.source().describe()
    source.use(Source(db=tmp_path / "db"))
    assert data.projects() == ("default", "of-ann", "of-bob")
    assert data.bounds().routes == (MARK["ann"],)
    data.use_project(None)


def _import(file: Path, folder: Path, project: str) -> None:
    from click.testing import CliRunner

    from longpole.cli import main

    words = ["import", "--db", str(folder), "--project", project, str(file)]
    assert CliRunner().invoke(main, words).exit_code == 0


def test_a_file_is_the_same_for_everybody(logins: Logins, looking: Looking) -> None:
    source.use(Source(files=(Path("a.json"),)), seen=login_scope.Scoped(logins))
    looking.name = "ann"
    assert source.source() == Source(files=(Path("a.json"),))
    assert "lp_" not in repr(Source(url="http://x", key="lp_secret"))


def test_what_is_kept_is_kept_by_source_and_only_one_place_opens_a_store() -> None:
    assert window.bounds.__module__ == "longpole_dashboard.model.window"
    kept, opened = [], []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                words = (
                    ast.unparse(ast.Module([*node.decorator_list], []))
                    if (node.decorator_list)
                    else ""
                )
                if "cache_data" in words or "cache_resource" in words:
                    types = [ast.unparse(a.annotation) for a in node.args.args if a.annotation]
                    assert "Source" in types, f"{path.name}: {node.name} is shared by everybody"
                    kept.append(node.name)
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in ("open_reader", "RemoteReader", "DuckStore"):
                    opened.append(str(path.relative_to(PACKAGE)))
    assert kept
    # awaited.py's own store is an empty one; demo and lab fill theirs themselves
    served = {name for name in opened if not name.startswith(("demo/", "lab/"))}
    assert served == {"source.py", "awaited.py"}
