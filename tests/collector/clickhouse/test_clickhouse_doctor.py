"""What the doctor says of a ClickHouse store that no collector runs for."""

from pathlib import Path

from longpole_collector.doctor_store import store_checks
from longpole_collector.ingest import OUTBOX_FOLDER, UNDECIDED_FOLDER
from longpole_collector.stores.clickhouse.client import Client

from .door import USER, WORD


def test_a_store_that_answers_and_one_that_does_not(engine: Client, tmp_path: Path) -> None:
    (found,) = store_checks(tmp_path, "chdb://?database=anything")
    assert (found.name, found.status) == ("store", "ok")
    (found,) = store_checks(tmp_path, f"clickhouse://{USER}:{WORD}@127.0.0.1:9/db?timeout_s=1")
    assert (found.status, "127.0.0.1:9" in found.detail) == ("fail", True)
    assert WORD not in found.detail + (found.fix or "")


def test_what_waits_for_a_store_without_a_collector(tmp_path: Path) -> None:
    assert not list(store_checks(tmp_path, None))
    for folder, name in ((OUTBOX_FOLDER, "1.wal"), (UNDECIDED_FOLDER, "spans-20260101.duckdb")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"12345")
    outbox, undecided = store_checks(tmp_path, None)
    assert (outbox.name, outbox.status, outbox.detail[:7]) == ("outbox", "warn", "5 bytes")
    assert (undecided.name, undecided.status, undecided.detail[:7]) == (
        "undecided", "warn", "5 bytes",
    )  # fmt: skip
