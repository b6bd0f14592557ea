"""A real store in memory, filled the way a collector fills it."""

from collections.abc import Iterator

import pytest

from longpole.vocab import Span
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer


class MemoryStore(DuckStore):
    """A store in memory that rolls up what it is given at once."""

    def add(self, spans: list[Span]) -> None:
        writer = Writer(self, load_rollup())
        writer.write_spans(spans)
        writer.settle(everything=True)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    held = MemoryStore()
    yield held
    held.close()
