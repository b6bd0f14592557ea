"""Pages run as Streamlit runs them, without a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from longpole.errors import UsageError
from longpole_collector.files import write_parquet
from longpole_dashboard import server, source
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .sample import agent_trace


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def run() -> AppTest:
    return AppTest.from_file(str(server.SCRIPT), default_timeout=60).run()


def texts(app: AppTest) -> str:
    return " ".join(str(part.value) for part in app.main if part.type == "html")


def test_the_overview_draws_a_recorded_file_at_once(store: MemoryStore, tmp_path: Path) -> None:
    store.add(agent_trace())
    write_parquet(store, tmp_path / "spans.parquet")
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    app = run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Overview"]
    assert [metric.value for metric in app.metric] == [
        *("304 ms", "304 ms", "—", "4,500 ms"),
        "100.0 %",
    ]
    assert app.session_state["range"] == "all"


def test_an_empty_store_shows_how_to_begin(store: MemoryStore, tmp_path: Path) -> None:
    write_parquet(store, tmp_path / "spans.parquet")
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    app = run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Start"]
    assert "longpole.wrap" in app.code[0].value


def test_a_collector_out_of_reach_is_one_sentence() -> None:
    source.use(Source(url="http://127.0.0.1:1"))
    app = run()
    assert not app.exception
    assert not app.title


@pytest.mark.parametrize("given", [{}, {"url": "http://x", "db": Path("d")}])
def test_a_source_is_exactly_one(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="name one source"):
        Source(**given)  # type: ignore[arg-type]


def test_a_source_describes_itself() -> None:
    assert Source(files=(Path("a/b.json"), Path("c"))).describe() == "file b.json and 1 more"
    assert Source(db=Path("d")).describe() == "data folder d"
    assert Source(url="http://x").describe() == "collector http://x"
