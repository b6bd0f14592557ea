"""Where spans are kept, and how to get at them: :func:`open_reader`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longpole.errors import StoreBusy, Unreachable, UsageError
from longpole_collector.stores import clickhouse
from longpole_collector.stores.base import Reader
from longpole_collector.stores.remote import RemoteReader

if TYPE_CHECKING:
    from longpole_collector.stores.connection import Limits

__all__ = ["open_reader"]

_NO_DATA = "no data in {}: run `longpole collect` or `longpole import` first"


def open_reader(
    *,
    db: Path | None = None,
    url: str | None = None,
    files: Sequence[Path] = (),
    timeout_s: float | None = None,
) -> Reader:
    """A reader over a data folder, a running collector, or files.

    Args:
        db: data folder. If a collector runs on it, that collector is asked; else requests that
            a killed collector left in its log are brought into the store first.
        url: HTTP address of a running collector, or a ClickHouse store's
            (``clickhouse://HOST:PORT/DATABASE``).
        files: trace files of any form that can be imported; kept in memory only.
        timeout_s: how long one query may take; ``None`` is the store's own limit.

    Raises:
        UsageError: not exactly one of the three is given.
        Unreachable: no data there, or the store cannot be opened.
        BadInput: a file cannot be read; the message names it.
    """
    if sum((db is not None, url is not None, bool(files))) != 1:
        raise UsageError("give one of: a data folder (--db), an address (--url), files")
    if url is not None:
        return _open_address(url, timeout_s)
    if db is None:
        return _open_files(files, timeout_s)
    try:
        return _open_folder(db, timeout_s)
    except StoreBusy:
        from longpole_collector.whereabouts import find

        running = find(db)
        if running is None:
            raise
        return RemoteReader(running.url, running.key, timeout_s)


def _open_address(url: str, timeout_s: float | None) -> Reader:
    if clickhouse.is_address(url):
        from longpole_collector.stores.clickhouse.opening import open_reader as open_clickhouse

        return open_clickhouse(url)
    return RemoteReader(url, timeout_s=timeout_s)


def _open_folder(folder: Path, timeout_s: float | None) -> Reader:
    from longpole_collector.recovery import has_data, recover
    from longpole_collector.stores.duckdb import DuckStore

    if not folder.is_dir():
        raise Unreachable(_NO_DATA.format(folder))
    recover(folder)
    store = DuckStore(folder, is_read_only=True, limits=_limits(timeout_s))
    if has_data(folder):
        return store
    store.close()
    raise Unreachable(_NO_DATA.format(folder))


def _open_files(files: Sequence[Path], timeout_s: float | None) -> Reader:
    from longpole_collector.importing import import_into
    from longpole_collector.rollup import load_rollup
    from longpole_collector.stores.duckdb import DuckStore
    from longpole_collector.writer import Writer

    store = DuckStore(limits=_limits(timeout_s))
    writer = Writer(store, load_rollup())
    for path in files:
        import_into(writer, path)
    writer.settle(everything=True)
    return store


def _limits(timeout_s: float | None) -> "Limits | None":
    from longpole_collector.stores.connection import Limits

    return None if timeout_s is None else Limits(timeout_s=timeout_s)
