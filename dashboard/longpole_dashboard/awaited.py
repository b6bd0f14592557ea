"""A data folder in which nothing is stored yet: empty, until something is."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from longpole.errors import Unreachable
from longpole_collector.ingest import WAL_FOLDER
from longpole_collector.recovery import has_data
from longpole_collector.stores.base import Params, Reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import SINGLE_FILE
from longpole_collector.whereabouts import find


class Awaited:
    """Reads nothing while a folder holds nothing, then what it holds."""

    def __init__(self, folder: Path, opened: Callable[[], Reader]) -> None:
        """Open nothing yet.

        Args:
            folder: the data folder.
            opened: gives a reader over it.
        """
        self._folder = folder
        self._opened = opened
        self._reader: Reader | None = None
        self._empty = DuckStore()

    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        if self._reader is None and self._has_something():
            try:
                self._reader = self._opened()
            except Unreachable:
                if has_data(self._folder):
                    raise
        return (self._reader or self._empty).sql(query, params)

    def _has_something(self) -> bool:
        """Whether to try: an open store keeps a collector from starting on the folder."""
        return (
            has_data(self._folder)
            or any((self._folder / WAL_FOLDER).glob("*.wal"))
            or (self._folder / SINGLE_FILE).is_file()
            or find(self._folder) is not None
        )

    def close(self) -> None:
        """Let go of both."""
        self._empty.close()
        if self._reader is not None:
            self._reader.close()
