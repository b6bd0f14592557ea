"""What is asked ahead of a page is what the page then asks."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from longpole_dashboard import ahead, data, source
from longpole_dashboard.pages import explore, overview
from longpole_dashboard.server import SCRIPT
from longpole_dashboard.source import Source

from .drawn import holding
from .sample import agent_trace

NUM_KINDS = 4
"""The Overview, its findings, its bins and its slowest workflows."""
ADDRESSES: tuple[dict[str, Any], ...] = (
    {},
    {"range": "all"},
    {"range": "7 d", "compare": "week", "tz": "local", "where": ["route!=x", "outcome=accepted"]},
    {"range": "no such", "route": "no such"},
    {"from": "2020-01-01T00:00:00Z", "to": "2036-01-01T00:00:00Z", "refresh": "10 s"},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead")
    with holding(path, agent_trace()):
        pass
    return path


@pytest.mark.parametrize("address", ADDRESSES)
def test_what_the_page_asks_is_known_when_it_was_asked_ahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch, address: dict[str, Any]
) -> None:
    st.cache_data.clear()
    st.cache_resource.clear()
    source.use(Source(db=folder))
    asked: list[tuple[Any, ...]] = []
    inner = data._asked

    def spied(name: str, key: Any, chosen: Source, arguments: Any, function: Any) -> Any:
        asked.append((name, repr(key), chosen))
        return inner(name, key, chosen, arguments, function)

    monkeypatch.setattr(data, "_asked", spied)
    try:
        ahead.ask(overview.PAGE, urlencode(address, doseq=True))
        deadline = time.monotonic() + 60
        while len({each[0] for each in asked}) < NUM_KINDS + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        early = set(asked)
        assert len({name for name, _, _ in early}) == NUM_KINDS + 1  # and what the store holds
        asked.clear()
        page = AppTest.from_file(str(SCRIPT), default_timeout=60)
        for name, value in address.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception, page.exception
    finally:
        source._source = None
    names = {name for name, _, _ in early}
    assert {each for each in asked if each[0] in names} == early


def test_a_page_that_asks_nothing_ahead_and_an_empty_store_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(data, "begin_of", lambda *question: asked.append(question))
    st.cache_data.clear()
    st.cache_resource.clear()
    source.use(Source(db=tmp_path))
    try:
        ahead.ask(overview.PAGE, "")
        ahead.ask(explore.PAGE, "")
    finally:
        source._source = None
    assert explore.PAGE.ahead is None
    assert asked == []
