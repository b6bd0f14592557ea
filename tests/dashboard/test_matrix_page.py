"""Matrix: the documents of a data folder, and one as charts and tables."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from longpole_dashboard import source
from longpole_dashboard.figures.matrix import pareto
from longpole_dashboard.model import matrix
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def times(mean: float | None, p50: float | None = None) -> dict[str, Any]:
    return {"num": 9, "p50": p50, "mean": mean, "max": mean}


def row(cache: str, took: float | None, rate: float | None, **cell: Any) -> dict[str, Any]:
    work = {"input_tokens": 64, "output_tokens": 16, "concurrency": 4, "language": "en"}
    return {
        "key": f"{cache} {cell}",
        "cell": {**work, "cache": cache, "start": "warm", "settings": {"policy": HOSTILE}, **cell},
        "start_s": 3.5 if cell.get("start") == "cold" else None,
        "result": {
            "ttft_ms": times(took),
            "tpot_ms": times(5.0, 4.0),
            "e2e_ms": times(None),
            "cached_share": 0.875,
            "num_completed": 24,
            "failures": {"timeout": 2},
            "output_tokens_per_s": rate,
            "requests_per_s": 2.0,
        },
    }


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    about = {"model": f"m {HOSTILE}", "requests": 24, "machine": {"num_cores": 2, "system": "L"}}
    return {"schema": "longpole.matrix/1", **about, "cells": list(rows)}


FULL = document(
    row("hit", 10.0, 50.0),
    row("off", 30.0, 40.0),
    row("miss", 40.0, 60.0, start="cold"),
    row("hit", 99.0, 9.0, input_tokens=256),
    row("off", None, None),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with two matrices and files that are none."""
    at = tmp_path / "data" / "matrix"
    at.mkdir(parents=True)
    for number, (name, said) in enumerate(
        {
            "old": document(),
            "new": FULL,
            "broken": "{",
            "other": {"schema": "longpole.load/1"},
            "hand": {"schema": "longpole.matrix/1", "cells": []},
        }.items()
    ):
        (at / f"{name}.json").write_text(said if isinstance(said, str) else json.dumps(said))
        os.utime(at / f"{name}.json", (number, number))
    (tmp_path / "data" / "outside.json").write_text(json.dumps(FULL))
    return tmp_path / "data"


def test_matrices_are_listed_the_latest_first_and_what_is_none_is_left_out(folder: Path) -> None:
    assert matrix.names(str(folder)) == ("hand", "new", "old")
    assert matrix.names(str(folder / "none")) == ()


@pytest.mark.parametrize("name", ["broken", "other", "hand", "../outside", "", "..", "no\0ne"])
def test_nothing_but_a_matrix_of_the_folder_is_opened(folder: Path, name: str) -> None:
    assert matrix.matrix(name, str(folder)) is None


def test_a_view_has_the_works_and_in_each_the_least_latency_first() -> None:
    view = matrix.view(FULL)
    assert [panel.input_tokens for panel in view.works["ttft_ms"]] == [64, 256]
    assert view.works["e2e_ms"] == ()
    lines = view.lines("ttft_ms", 0)
    assert [(line.ttft_ms, line.is_best) for line in lines] == [
        (10.0, True),
        (30.0, False),
        (40.0, True),
    ]
    assert (lines[0].tpot_ms, lines[0].cached_share, lines[0].num_failed) == (4.0, 0.875, 2)
    assert [line.start_s for line in lines] == [None, None, 3.5]


def test_the_figure_fills_what_none_beats_and_draws_its_line() -> None:
    panel = matrix.view(FULL).works["ttft_ms"][0]
    line, *kinds = pareto(panel, "TTFT").data
    assert list(zip(line.x, line.y, strict=True)) == [(50.0, 10.0), (60.0, 40.0)]
    marks = {trace.name: list(trace.marker.symbol) for trace in kinds}
    assert {name: mark[0].endswith("-open") for name, mark in marks.items()} == {
        "cache hit": False,
        "cache miss, cold": False,
        "cache off": True,
    }
    assert all("<img" not in text for trace in kinds for text in trace.text)


def test_the_page_shows_the_latest_or_says_what_to_type(
    folder: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "open", lambda self: store)
    source.use(Source(db=folder))
    (folder / "matrix" / "hand.json").unlink()
    said = texts(run("matrix"))
    assert "64 tokens in, 16 out" in said
    assert "5 cells" in said
    assert "24 requests" in said
    assert "least TTFT by 4 at once, cache hit" in said
    assert HOSTILE not in said
    assert "nothing to compare" in texts(run("matrix", matrix="old"))
    source.use(Source(db=folder / "matrix"))
    assert "longpole engine matrix" in texts(run("matrix"))
