"""One page run as Streamlit runs it, without a browser; what it shows; its commands run."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st
from click.testing import CliRunner
from streamlit.testing.v1 import AppTest

from longpole.cli import main
from longpole.vocab import Span
from longpole_collector.rollup import load_rollup
from longpole_collector.stores import open_reader
from longpole_collector.stores.base import Reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer
from longpole_dashboard import source
from longpole_dashboard.source import Source

_SCRIPT = """
from importlib import import_module
from longpole_dashboard import data
from longpole_dashboard.model.selection import Selection
page = import_module("longpole_dashboard.pages.{page}").PAGE
page.draw(Selection("all"), data.bounds())
"""


class Held(NamedTuple):
    """A data folder, as a collector leaves it, and a reader of it."""

    folder: Path
    reader: Reader

    def run(self, command: str, *, exit_codes: tuple[int, ...] = (0,)) -> Any:
        """The document of a command, as a page shows it, over the folder."""
        words = [*shlex.split(command)[1:], "--db", str(self.folder)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code in exit_codes, (result.output, result.exception)
        return json.loads(result.stdout)


@contextmanager
def holding(folder: Path, spans: list[Span]) -> Iterator[Held]:
    """A data folder that holds these spans, rolled up."""
    store = DuckStore(folder)
    writer = Writer(store, load_rollup())
    writer.write_spans(spans)
    writer.settle(everything=True)
    store.close()
    reader = open_reader(db=folder)
    yield Held(folder, reader)
    reader.close()


@contextmanager
def drawn(page: str, folder: Path, **params: str) -> Iterator[AppTest]:
    """The page over a data folder, at an address with these parameters."""
    st.cache_data.clear()
    st.cache_resource.clear()
    source.use(Source(db=folder))
    app = AppTest.from_string(_SCRIPT.format(page=page), default_timeout=240)
    for name, value in params.items():
        app.query_params[name] = value
    try:
        app.run()
        assert not app.exception, app.exception
        yield app
        assert not app.exception, app.exception
    finally:
        source._source = None


def texts(app: AppTest) -> str:
    """Notes, small print and commands of a page."""
    return " ".join(str(part.value) for part in app.main if part.type == "html")


def plain(document: Any) -> Any:
    """A document as JSON hands it on."""
    return json.loads(json.dumps(document, allow_nan=False))
