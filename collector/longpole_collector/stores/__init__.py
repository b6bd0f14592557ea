"""Where spans are kept, and how to get at them: :func:`open_reader`."""

from collections.abc import Sequence
from pathlib import Path

from longpole.errors import StoreBusy, Unreachable, UsageError
from longpole_collector.stores.base import Reader
from longpole_collector.stores.remote import RemoteReader

__all__ = ["open_reader"]


def open_reader(
    *, db: Path | None = None, url: str | None = None, files: Sequence[Path] = ()
) -> Reader:
    """A reader over a data folder, a running collector, or files.

    Args:
        db: data folder. If a collector runs on it, that collector is asked; else requests that
            a killed collector left in its log are brought into the store first.
        url: HTTP address of a running collector.
        files: trace files of any form that can be imported; kept in memory only.

    Raises:
        UsageError: not exactly one of the three is given.
        Unreachable: no data there, or the store cannot be opened.
        BadInput: a file cannot be read; the message names it.
    """
    if sum((db is not None, url is not None, bool(files))) != 1:
        raise UsageError("give one of: a data folder (--db), an address (--url), files")
    if url is not None:
        return RemoteReader(url)
    if db is None:
        return _open_files(files)
    try:
        return _open_folder(db)
    except StoreBusy:
        from longpole_collector.whereabouts import find

        running = find(db)
        if running is None:
            raise
        return RemoteReader(running.url)


def _open_folder(folder: Path) -> Reader:
    from longpole_collector.ingest import recover
    from longpole_collector.stores.duckdb import FILE_NAME, DuckStore

    recover(folder)
    path = folder / FILE_NAME
    if not path.is_file():
        raise Unreachable(f"no data in {folder}: run `longpole collect` or `longpole import` first")
    return DuckStore(path, is_read_only=True)


def _open_files(files: Sequence[Path]) -> Reader:
    from longpole_collector.importing import import_into
    from longpole_collector.rollup import load_rollup
    from longpole_collector.stores.duckdb import DuckStore
    from longpole_collector.writer import Writer

    store = DuckStore()
    writer = Writer(store, load_rollup())
    for path in files:
        import_into(writer, path)
    writer.settle(everything=True)
    return store
