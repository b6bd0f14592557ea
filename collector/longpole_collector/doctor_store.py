"""The doctor's look at a ClickHouse store: of the configuration, or as a collector tells of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from longpole.errors import LongpoleError
from longpole_collector.doctor_check import FAIL, OK, WARN, Check

_NAME: Final = "store"
_FIX: Final = "mend it over there: what is acknowledged waits in the log and goes in by itself"


def told_checks(state: Mapping[str, Any]) -> Iterator[Check]:
    """How the ClickHouse store of a running collector does; nothing if it has none.

    Args:
        state: what the collector says of itself.
    """
    store, problem = state.get("store"), state.get("problem")
    if problem:
        waiting = int(state.get("log_bytes") or 0)
        yield Check(_NAME, FAIL, f"{problem}; {waiting} bytes wait in the log", _FIX)
    elif store:
        yield Check(_NAME, OK, f"{store} takes spans")


def store_checks(folder: Path, store: str | None) -> Iterator[Check]:
    """Whether the configured store answers, and what waits for one without a collector.

    Args:
        folder: the data folder; no collector runs on it.
        store: the address; ``None`` if the spans are in the folder.
    """
    from longpole_collector.ingest import OUTBOX_FOLDER, UNDECIDED_FOLDER  # needs the extra

    if store is not None:
        yield _asked(store)
    waiting = sum(path.stat().st_size for path in (folder / OUTBOX_FOLDER).glob("*.wal"))
    if waiting:
        detail = f"{waiting} bytes of requests wait for a ClickHouse store"
        fix = f"longpole collect --db {folder} --store clickhouse://HOST:PORT/DATABASE"
        yield Check("outbox", WARN, detail, fix)
    kept = sum(path.stat().st_size for path in (folder / UNDECIDED_FOLDER).glob("*.duckdb"))
    if kept:
        detail = f"{kept} bytes of sampled traces, some perhaps on their way to a ClickHouse store"
        yield Check("undecided", WARN, detail, f"start the collector on {folder} again")


def _asked(store: str) -> Check:
    try:
        from longpole_collector.stores.clickhouse.address import parse
        from longpole_collector.stores.clickhouse.client import Client

        client = Client(parse(store))
        try:
            client.ask("SELECT 1 AS one")
        finally:
            client.close()
    except LongpoleError as error:
        return Check(_NAME, FAIL, str(error), "correct [collector] store, or start the server")
    return Check(_NAME, OK, f"{client.address} answers")
