"""What the dashboard reads: bounded, and empty where nothing is stored yet."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from longpole.errors import BadInput, Unreachable
from longpole_collector.files import write_parquet
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer
from longpole_dashboard import source
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .drawn import drawn, texts
from .sample import workflow

_LONG = "SELECT sum(a.range * b.range) AS n FROM range(1000000) AS a, range(1000000) AS b"
_COUNT = "SELECT count(*) AS n FROM traces"


def test_a_folder_of_an_empty_store_is_empty_until_something_is_stored(tmp_path: Path) -> None:
    DuckStore(tmp_path).close()
    with closing(Source(db=tmp_path).open()) as reader:
        assert reader.sql(_COUNT)["n"].to_pylist() == [0]
        store = DuckStore(tmp_path)
        writer = Writer(store, load_rollup())
        writer.write_spans(workflow(1))
        writer.settle(everything=True)
        store.close()
        assert reader.sql(_COUNT)["n"].to_pylist() == [1]


def test_a_folder_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no data in"):
        Source(db=tmp_path / "none").open()


def test_an_empty_folder_shows_how_to_begin(tmp_path: Path) -> None:
    DuckStore(tmp_path).close()
    with drawn("overview", tmp_path) as app:
        assert [title.value for title in app.title] == ["Start"]
        assert "No collector: start one with" in texts(app)


@pytest.mark.parametrize("kind", ["files", "folder"])
def test_a_question_that_takes_too_long_is_broken_off(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(source, "LIMIT_S", 0.2)
    if kind == "files":
        store.add(workflow(1))
        write_parquet(store, tmp_path / "spans.parquet")
        chosen = Source(files=(tmp_path / "spans.parquet",))
    else:
        kept = DuckStore(tmp_path)
        kept.append(workflow(1))
        kept.close()
        chosen = Source(db=tmp_path)
    with (
        closing(chosen.open()) as reader,
        pytest.raises(BadInput, match=r"took longer than 0\.2 s"),
    ):
        reader.sql(_LONG)


def test_a_collector_that_does_not_answer_in_time_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "LIMIT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            closing(Source(url=url).open()) as reader,
            pytest.raises(BadInput, match=r"took longer than 0\.2 s"),
        ):
            reader.sql(_COUNT)
