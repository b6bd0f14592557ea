"""How fast decoded columns go in, and how many bytes a span takes when all is merged."""

from __future__ import annotations

import os
import time

from benchmarks.bars import Bar, say
from benchmarks.clickhouse.bench import DAY_NS, Bench, rows, yesterday_ns

from longpole_collector.stores.clickhouse.opening import settle
from longpole_collector.stores.clickhouse.store import ClickStore

_TABLES = ("span_rows", "call_rows", "trace_rows")


def insert(bench: Bench) -> list[Bar]:
    """Spans per CPU-second of this process, the engine's threads included."""
    num_spans = bench.spans(1_000_000)
    store = bench.store(f"insert_{os.getpid()}")
    cpu_s, wall_s, num = insert_cost(store, num_spans)
    _drop(store)
    sides: dict[str, float | str] = {"cpu_s": cpu_s, "wall_s": wall_s, "num_spans": num}
    return [Bar("insert", num / cpu_s, "spans/CPU-s", ">=", 150_000, sides)]


def bytes_a_span(bench: Bench) -> list[Bar]:
    """Bytes of all tables over spans; no pool, so that nothing repeats that would not.

    So many that the merged part of the spans has a file a column, as all large ones have.
    """
    num_spans = bench.spans(1_000_000)
    store = bench.store(f"bytes_{os.getpid()}")
    sizes, settle_s = settled_bytes(store, num_spans)
    _drop(store)
    total = sum(sizes.values()) / num_spans
    sides: dict[str, float | str] = {f"in_{name}": size / num_spans for name, size in sizes.items()}
    settled = {"settled_spans_per_cpu_s": num_spans / settle_s, "num_spans": num_spans}
    return [Bar("bytes_a_span", total, "B/span", "<=", 90, sides | settled)]


def insert_cost(store: ClickStore, num_spans: int) -> tuple[float, float, int]:
    """CPU and wall seconds of inserting all but the first table of a day's spans, and how many."""
    tables = list(rows(num_spans, yesterday_ns() - DAY_NS, DAY_NS, has_pool=True))
    store.insert(tables[0])  # the first one also opens things
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for table in tables[1:]:
        store.insert(table)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return cpu_s, wall_s, sum(table.num_rows for table in tables[1:])


def settled_bytes(store: ClickStore, num_spans: int) -> tuple[dict[str, int], float]:
    """Bytes by table of a day's spans, all settled and merged, and CPU seconds of settling."""
    for table in rows(num_spans, yesterday_ns() - DAY_NS, DAY_NS, has_pool=False):
        store.insert(table)
    cpu_s = time.process_time()
    num_traces = settle(store)
    cpu_s = time.process_time() - cpu_s
    say(f"{num_traces} traces settled, {num_spans / cpu_s:.0f} spans per CPU-s")
    return merged_bytes(store), cpu_s


def _drop(store: ClickStore) -> None:
    store.client.tell("DROP DATABASE " + store.client.address.database)
    store.close()


def merged_bytes(store: ClickStore) -> dict[str, int]:
    """Bytes on disk by table, when all parts are merged."""
    for table in _TABLES:
        store.client.tell(f"OPTIMIZE TABLE {table} FINAL")
    found = store.client.ask(
        "SELECT table, toInt64(sum(bytes_on_disk)) AS size FROM system.parts "
        "WHERE active AND database = {db:String} GROUP BY table ORDER BY table",
        db=store.client.address.database,
    )
    return dict(zip(found["table"].to_pylist(), found["size"].to_pylist(), strict=True))
