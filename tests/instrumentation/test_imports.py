"""Packages are acted on when the application imports them, and not imported for that."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import longpole
from longpole import imports


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "made_for_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "data.txt").write_text("text")
    monkeypatch.syspath_prepend(tmp_path)
    yield "made_for_test"
    sys.modules.pop("made_for_test", None)
    imports.forget()


def test_it_acts_right_after_the_import(package: str) -> None:
    seen: list[object] = []
    imports.when_imported(package, lambda: seen.append(sys.modules[package].VALUE))
    assert package not in sys.modules
    assert seen == []
    module = importlib.import_module(package)
    assert seen == [1]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert (importlib.resources.files(package) / "data.txt").read_text() == "text"


def test_it_acts_at_once_on_what_is_there() -> None:
    seen: list[int] = []
    imports.when_imported("sys", lambda: seen.append(1))
    assert seen == [1]


def test_a_failure_after_an_import_is_counted(package: str) -> None:
    imports.when_imported(package, lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    assert importlib.import_module(package).VALUE == 1
    assert longpole.stats().num_internal_errors == {"instrument": 1}


def test_a_missing_package_is_missing_as_ever() -> None:
    imports.when_imported("made_for_nothing", list)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_for_nothing")
    imports.forget()
    assert imports._FINDER not in sys.meta_path
