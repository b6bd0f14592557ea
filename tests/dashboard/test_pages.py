"""Pages run as Streamlit runs them, without a browser."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from longpole import family
from longpole.errors import UsageError
from longpole_collector.files import write_parquet
from longpole_collector.stores.base import Reader
from longpole_dashboard import data, server, source
from longpole_dashboard.model import window
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .sample import agent_trace, workflow


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def run() -> AppTest:
    return AppTest.from_file(str(server.SCRIPT), default_timeout=60).run()


def show(page: str, **address: str | list[str]) -> AppTest:
    """A page as the address opens it, with the bar above it."""

    def script(page: str) -> None:
        from importlib import import_module

        from longpole_dashboard import bar, data

        held = data.bounds()
        selected = bar.filter_bar(held, page)
        import_module(f"longpole_dashboard.pages.{page}").PAGE.draw(selected, held)

    app = AppTest.from_function(script, default_timeout=60, args=(page,))
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


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


def test_a_question_over_its_limit_is_one_sentence_and_what_to_do(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(reader: Reader) -> None:
        reader.sql("SELECT sum(a.range * b.range) FROM range(1000000) AS a, range(1000000) AS b")

    monkeypatch.setattr(source, "LIMIT_S", 0.2)
    monkeypatch.setattr(window, "bounds", endless)
    store.add(agent_trace())
    write_parquet(store, tmp_path / "spans.parquet")
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    app = run()
    assert not app.exception
    assert "took longer than 0.2 s" in texts(app)
    assert "Narrow the range." in texts(app)


@pytest.mark.parametrize("given", [{}, {"url": "http://x", "db": Path("d")}])
def test_a_source_is_exactly_one(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="name one source"):
        Source(**given)  # type: ignore[arg-type]


def test_a_source_describes_itself() -> None:
    assert Source(files=(Path("a/b.json"), Path("c"))).describe() == "file b.json and 1 more"
    assert Source(db=Path("d")).describe() == "data folder d"
    assert Source(url="http://x").describe() == "collector http://x"


@pytest.fixture
def planted(tmp_path: Path) -> MemoryStore:
    """A recorded file in which prompt v2 is slow."""
    held = MemoryStore()
    spans = []
    for number in range(200):
        is_slow = number % 4 == 0
        spans += workflow(
            number + 1,
            at_s=number,
            ttft_ms=2_000.0 + number if is_slow else 100.0 + number,
            prompt_version="v2" if is_slow else "v1",
        )
    held.add(spans)
    write_parquet(held, tmp_path / "spans.parquet")
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    return held


def test_explore_compares_the_slow_ones_and_excludes_a_slice(planted: MemoryStore) -> None:
    app = show("explore", box=",,1000,")
    assert not app.exception
    assert any("**50 workflows selected** of 200" in part.value for part in app.markdown)
    assert "50 selected against 150 others of the same routes" in texts(app)
    assert "longpole top --since 2026-09-14T13:30:00Z" in texts(app)
    assert "prompt_version=v2 is " in texts(app)
    assert "as likely" in texts(app)
    app.selectbox(key="explore-slice").select(("prompt_version", "v2"))
    next(button for button in app.button if button.label == "Exclude this").click()
    app.run()
    assert app.query_params["where"] in ("prompt_version!=v2", ["prompt_version!=v2"])
    assert "0 workflows in the box" in texts(app)


def test_a_box_can_be_set_without_a_mouse(planted: MemoryStore) -> None:
    app = show("explore", box=",,1000,")
    app.text_input[0].set_value("2100")
    app.text_input[1].set_value(" 2150 ")
    next(button for button in app.button if button.label == "Select").click()
    app.run()
    assert not app.exception
    assert app.query_params["box"] in (",,2100,2150", [",,2100,2150"])
    assert "TTFT above 2,100 ms up to 2,150 ms" in " ".join(
        part.value.replace("\\", "") for part in app.markdown
    )


def test_a_data_folder_offers_its_projects_and_a_collector_none(tmp_path: Path) -> None:
    (tmp_path / "projects" / "beta").mkdir(parents=True)
    source.use(Source(db=tmp_path))
    assert data.projects() == ("default", "beta")
    source.use(Source(url="http://127.0.0.1:1"))
    assert data.projects() == ()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ({"box": "1,2,3"}, "no box of four parts"),
        ({"metric": "<b>"}, "metric &#x27;&lt;b&gt;&#x27;"),
        ({"range": "x", "metric": "cost_usd"}, "range &#x27;x&#x27;"),
        ({"from": "2020-01-01", "to": "2020-01-02"}, "No workflow here tells its TTFT"),
        ({"box": "2026-09-14T13:30:00Z,2026-09-14T13:30:20Z,1000,"}, "5 workflows in the box"),
        ({"split": "nothing", "compare": "x"}, "no &#x27;x&#x27; to compare with"),
        ({"from": "2026-09-15", "to": "2026-09-14"}, "ends before it begins"),
        ({"from": "1970-01-01", "to": "2262-01-01"}, "longpole top --since 1970-01-01"),
    ],
)
def test_explore_follows_an_address_as_far_as_it_can(
    planted: MemoryStore, address: dict[str, str], says: str
) -> None:
    app = show("explore", **address)
    assert not app.exception
    assert says in texts(app)


def test_a_plug_in_page_that_cannot_be_imported_leaves_the_others(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(agent_trace())
    write_parquet(store, tmp_path / "spans.parquet")
    source.use(Source(files=(tmp_path / "spans.parquet",)))
    broken = EntryPoint("broken", "no_such_module_of_anybody:PAGE", "longpole.page")
    found = family.entry_points

    def points(group: str) -> EntryPoints:
        return EntryPoints([broken]) if group == broken.group else found(group=group)

    monkeypatch.setattr(family, "entry_points", points)
    app = run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Overview"]
    assert "The page &#x27;broken&#x27; cannot be loaded" in texts(app)
