"""Bytes a span takes on disk once its day is over, beside the same spans as OTLP under gzip -6.

Every span is built anew here (no pool), so that neither side profits from repeats that real
traffic would not have. The disk side is the whole day file: spans, roll-ups, and the counts by
minute and hour.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import duckdb
from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench
from benchmarks.collector.load import Order
from benchmarks.collector.payload import Payload
from benchmarks.collector.process import collecting

from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention
from longpole_collector.stores.minutes import refresh
from longpole_collector.upkeep import prune_folder

_HOUR_NS = 3_600_000_000_000


def disk(bench: Bench) -> list[Bar]:
    """Sealed bytes a span over gzip -6 bytes a span."""
    num_spans = bench.spans(500_000)
    folder = bench.folder / "disk"
    first_ns = time.time_ns() - _HOUR_NS
    with collecting(folder) as collector:
        order = Order(
            f"{collector.url}/v1/traces",
            num_spans,
            first_ns=first_ns,
            window_ns=_HOUR_NS,
            num_pool=num_spans,
        )
        sent = bench.loader.send(order)
        collector.wait_stored(sent.num_spans)
        collector.wait_settled()
    count_minutes(folder, first_ns + 2 * _HOUR_NS)
    as_received = _size(folder)
    compact(folder)
    sealed = _size(folder) / sent.num_spans
    zipped, plain = _otlp(num_spans, first_ns)
    sides: dict[str, float | str] = {
        "sealed_bytes_per_span": sealed,
        "gzip6_otlp_bytes_per_span": zipped,
        "otlp_bytes_per_span": plain,
        "as_received_bytes_per_span": as_received / sent.num_spans,
        "num_spans": sent.num_spans,
        **_by_table(folder, sent.num_spans),
    }
    return [Bar("disk", sealed / zipped, "x", "<=", 1.1, sides)]


def count_minutes(folder: Path, now_ns: int) -> None:
    """Count the minutes of a folder that nobody has open, as the collector does in time.

    Args:
        folder: the data folder.
        now_ns: minutes before this are over.
    """
    store = DuckStore(folder)
    try:
        refresh(store, now_ns)
    finally:
        store.close()


def compact(folder: Path) -> None:
    """Rewrite the days of a data folder that nobody has open, the present one too."""
    prune_folder(folder, Retention(), None, compact=True)


def day_files(folder: Path) -> list[Path]:
    """The day files of a data folder, oldest first."""
    return sorted(folder.glob("spans-*.duckdb"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("spans-*"))


def _otlp(num_spans: int, first_ns: int) -> tuple[float, float]:
    """Bytes a span of the same spans as requests, under gzip -6 and plain."""
    payload = Payload(512, num_pool=num_spans)
    zipped = plain = num = 0
    for body in payload.bodies(num_spans, 1, first_ns, _HOUR_NS):
        zipped += len(gzip.compress(body, 6))
        plain += len(body)
        num += payload.per_body
    return zipped / num, plain / num


def _by_table(folder: Path, num_spans: int) -> dict[str, float | str]:
    """Bytes a span by table, from the blocks each table's columns lie in."""
    found: dict[str, float | str] = {}
    for path in day_files(folder):
        connection = duckdb.connect(str(path), read_only=True)
        size = connection.execute("SELECT block_size FROM pragma_database_size()").fetchall()[0][0]
        tables = [
            row[0]
            for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        ]
        for table in tables:
            blocks = connection.execute(
                "SELECT count(DISTINCT block) FROM ("  # noqa: S608 - its own tables
                "SELECT unnest(list_append(coalesce(additional_block_ids, []), block_id)) AS block "
                f"FROM pragma_storage_info('{table}')) WHERE block >= 0"
            ).fetchall()[0][0]
            found[f"bytes_per_span_in_{table}"] = blocks * size / num_spans
        connection.close()
    return found
