"""What has to be done to a data folder before it can be read without its collector."""

from pathlib import Path

from longpole_collector.content import Scrubber, policy_of
from longpole_collector.health import Health
from longpole_collector.ingest import WAL_FOLDER
from longpole_collector.replay import replay
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.days import files_of
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import SINGLE_FILE
from longpole_collector.wal import Wal
from longpole_collector.writer import Writer


def has_data(folder: Path) -> bool:
    """Whether spans were ever stored there."""
    return bool(files_of(folder))


def recover(folder: Path) -> None:
    """Bring what a killed collector left in its log into the store, and an old store up to date.

    Nothing to do is fine.

    Raises:
        StoreBusy: a collector runs on the folder.
    """
    has_log = any((folder / WAL_FOLDER).glob("*.wal"))
    if not has_log and not (folder / SINGLE_FILE).is_file():
        return
    store = DuckStore(folder)
    try:
        health = Health()
        scrubber = Scrubber(policy_of(folder), health)
        writer = Writer(store, load_rollup(), health, scrubber=scrubber)
        wal = Wal(folder / WAL_FOLDER, store.stored())
        stored = replay(wal, writer)
        writer.settle(everything=True)
        writer.save()
        wal.close(stored)
    finally:
        store.close()
