"""A matrix: its cells, what no cell beats, going on where it ended, and a page without script."""

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from longpole.cli import main
from longpole.errors import BadInput, UsageError
from longpole_engine.load import matrix_run
from longpole_engine.load.matrix import (
    Axes,
    Basis,
    cells,
    empty,
    frontier,
    middle,
    panels,
    read,
    resumed,
    write,
)
from longpole_engine.load.matrix_page import page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] >= other[1]


@given(POINTS)
def test_the_best_are_those_that_no_other_beats(points: list[tuple[int, int]]) -> None:
    flags = frontier(points)
    for point, is_best in zip(points, flags, strict=True):
        assert is_best is not any(beats(other, point) for other in points)


def test_cells_are_all_combinations_each_with_its_own_name() -> None:
    axes = Axes(
        input_tokens=(8, 16),
        output_tokens=(4,),
        concurrency=(1, 2),
        cache=("hit", "off"),
        start=("warm", "cold"),
        language=("en", "zh"),
        settings={"policy": ("fcfs", "shortest"), "weights": ("int4", "int8")},
    )
    found = cells(axes)
    assert len(found) == 2 * 2 * 2 * 2 * 2 * 2 * 2
    assert len({cell.key for cell in found}) == len(found)
    engines = [(str(cell.settings), cell.cache) for cell in found]
    assert len([1 for a, b in pairwise(engines) if a != b]) == 7


@pytest.mark.parametrize(
    "wrong", [{"cache": ("often",)}, {"start": ("hot",)}, {"concurrency": (0,)}]
)
def test_what_is_no_axis_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Axes(**wrong)


def row(key: str, took: float | None, rate: float | None, **cell: Any) -> dict[str, Any]:
    values = {"num": 9, "p50": None, "mean": took}
    facts = {"input_tokens": 8, "output_tokens": 4, "concurrency": 1, "cache": "off"}
    result = {"ttft_ms": values, "tpot_ms": values, "e2e_ms": values, "failures": {"cut": 2}}
    return {
        "key": key,
        "cell": {**facts, "start": "warm", "language": "en", "settings": {}, **cell},
        "start_s": None,
        "result": {**result, "output_tokens_per_s": rate, "requests_per_s": 1.0},
    }


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {**empty(Basis(), {"num_cores": 2}), "cells": list(rows)}


def test_cells_compare_with_those_of_the_same_work_only() -> None:
    found = panels(
        document(
            row("a", 10.0, 5.0),
            row("b", 20.0, 4.0),
            row("c", 30.0, 1.0, input_tokens=64),
            row("d", None, 1.0),
            row("e", 1.0, None),
        )
    )
    points = {
        panel.input_tokens: [(p.row["key"], p.is_best) for p in panel.points] for panel in found
    }
    assert points == {64: [("c", True)], 8: [("a", True), ("b", False)]}
    assert middle({"p50": 3.0, "mean": 4.0}) == 3.0
    assert middle(None) is None


def test_a_file_goes_on_and_one_of_other_runs_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.json"
    wanted = cells(Axes(cache=("off",)))
    first, left = resumed(path, Basis(), {}, wanted)
    assert left == wanted
    first["cells"].append(row(wanted[0].key, 1.0, 1.0))
    write(path, first)
    again, left = resumed(path, Basis(), {}, wanted)
    assert (again, left) == (first, wanted[1:])
    with pytest.raises(UsageError, match="requests 24"):
        resumed(path, Basis(requests=5), {}, wanted)
    assert [each.name for each in path.parent.iterdir()] == ["m.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "longpole.load/1"}',
                                  '{"schema": "longpole.matrix/1", "cells": [1]}'])  # fmt: skip
def test_a_file_that_is_no_matrix_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"m\.json"):
        read(path)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert not (value or "").startswith("http")


def test_the_page_needs_nothing_and_holds_no_script() -> None:
    hostile = {"language": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    found = document(row("a", 10.0, 5.0, **hostile), row("b", 12.0, 4.0, **hostile))
    html = page({**found, "model": HOSTILE, "machine": {"system": HOSTILE}})
    tags = _Tags()
    tags.feed(html)
    assert not {"script", "img", "link", "iframe", "object"} & tags.found
    assert "svg" in tags.found
    assert page(document()).endswith("</html>")


def matrix(out: Path, *words: str) -> Result:
    small = ("--model", "tiny", "--input-tokens", "64", "--output-tokens", "4", "--requests", "4")
    return CliRunner().invoke(
        main, ["engine", "matrix", "--out", str(out), *small, "--concurrency", "2", *words]
    )


def test_cells_run_on_real_engines_and_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m.json"
    words = ("--cache", "miss,hit", "--language", "zh")
    done = matrix(out, *words)
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["cells"]
    by_cache = {each["cell"]["cache"]: each["result"] for each in rows}
    assert {name: each["num_completed"] for name, each in by_cache.items()} == {"miss": 4, "hit": 4}
    assert by_cache["hit"]["cached_share"] > 0.5 > by_cache["miss"]["cached_share"]
    assert by_cache["hit"]["output_tokens_per_s"] > 0
    assert "2 cells, 0 of them done before" in done.stderr
    assert "</html>" in out.with_suffix(".html").read_text()

    def never(*_: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(matrix_run, "Replica", never)
    again = matrix(out, *words, "--json")
    assert json.loads(again.stdout)["schema"] == "longpole.matrix/1"
    assert "2 of them done before" in again.stderr


class Still:
    """In an engine's place: nobody is there, and whoever starts it has had enough."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.url, self.model, self.start_s = "http://127.0.0.1:1", "m", 0.1

    async def start(self) -> "Still":
        Still.stop_all()
        return self

    async def kill(self) -> None:
        pass

    stop_all = staticmethod(lambda: None)


async def test_a_cell_that_is_given_up_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_run, "Replica", Still)
    path = tmp_path / "m.json"
    made = matrix_run.Matrix(Basis(requests=2), Axes(cache=("off",)), path, {})
    monkeypatch.setattr(Still, "stop_all", made.stop)
    await made()
    assert not made.document["cells"]
    assert not path.exists()
    monkeypatch.setattr(Still, "stop_all", lambda: None)
    one = Axes((8,), (4,), (1,), ("off",), ("cold",))
    failing = matrix_run.Matrix(Basis(requests=2), one, path, {})
    await failing()
    (row,) = json.loads(path.read_text())["cells"]
    assert (row["result"]["failures"], row["start_s"]) == ({"connect": 2}, 0.1)
    assert row["result"]["output_tokens_per_s"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("--cache", "often"),
        ("--cache", ","),
        ("--concurrency", "many"),
        ("--language", "xx"),
        ("--setting", "policy"),
        ("--setting", "port=1"),
        ("--setting", "nothing=1"),
        ("--spread", "nan"),
    ],
)
def test_wrong_usage_is_exit_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert matrix(tmp_path / "m.json", *words).exit_code == 2


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = matrix(tmp_path / "file" / "m.json")
    assert done.exit_code == 2
    assert "--out" in done.stderr
    assert "cells" not in done.stderr


def test_an_engine_that_does_not_start_is_told(tmp_path: Path) -> None:
    done = matrix(tmp_path / "m.json", "--setting", "max_num_seqs=many", "--cache", "off")
    assert done.exit_code == 1
    assert "before it was ready: " in done.stderr
