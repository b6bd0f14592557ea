"""The pages of the reference are what the code gives now; nothing in them is empty."""

import importlib
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.docs.conftest import Stand
from tests.docs.pages import ROOT

from longpole_collector import stores

FOLDER = ROOT / "docs" / "reference"
NAMES = ("cli", "exit-codes", "configuration", "views", "attributes", "flags", "metrics")


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("reference_pages")
    sys.path.remove(str(ROOT / "scripts"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_code_gives(name: str, reference: Any) -> None:
    text = reference.PAGES[name]()
    assert (FOLDER / f"{name}.md").read_text("utf-8") == text, "run scripts/make-reference"


def test_the_documents_are_those_that_the_commands_print(reference: Any, stand: Stand) -> None:
    def run(line: str) -> str:
        return stand.run(tuple(shlex.split(line)[1:])).stdout

    text = reference.documents.documents(run)
    assert (FOLDER / "documents.md").read_text("utf-8") == text, "run scripts/make-reference"


def test_every_page_is_made_by_the_script(reference: Any) -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*NAMES, "documents"}
    assert set(reference.PAGES) == set(NAMES)


def test_every_threshold_table_that_a_command_reads_is_told(reference: Any) -> None:
    page = (FOLDER / "configuration.md").read_text("utf-8")
    read = set()
    for path in (ROOT / "analytics").rglob("*.py"):
        read |= set(re.findall(r'configured\(\w+\(\), "(\w+)"', path.read_text("utf-8")))
    assert len(read) > 5
    assert {name for name in read if f"`[analytics.{name}]`" not in page} == set()


def test_the_figures_are_what_the_data_give(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "open_reader", stand.open)
    figures = runpy.run_path(str(ROOT / "scripts" / "make-figures"))["FIGURES"]
    folder = ROOT / "docs" / "explanation" / "figures"
    assert {path.stem for path in folder.glob("*.svg")} == set(figures)
    for name, draw in figures.items():
        assert (folder / f"{name}.svg").read_text("utf-8") == draw(), "run scripts/make-figures"


@pytest.mark.parametrize("name", ["configuration", "views", "flags", "metrics"])
def test_everything_has_a_meaning(name: str) -> None:
    rows = re.findall(r"^\| `.*$", (FOLDER / f"{name}.md").read_text("utf-8"), re.MULTILINE)
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []
