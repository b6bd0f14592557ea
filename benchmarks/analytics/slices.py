"""What an overview costs on ten million calls: quantiles by slice and by hour, from counts.

A store gets a day of calls (eight routes, two prompt versions, two models) and a workflow for
every fourth; its counts by minute are made by the same upkeep as a collector's. Then the overview
is asked: p50, p95 and p99 of four metrics over all, by route and prompt version, by hour, and of
the last 90 minutes. Wall time, the median of some rounds; beside it the same quantiles from the
calls themselves.

    python -m benchmarks.analytics.slices [--calls 10000000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from longpole_analytics.minutes import query
from longpole_analytics.slices import SliceRules, rolled_slices
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.schema import SPANS, TRACES, arrow_schema
from longpole_collector.stores.stale import mark_where

DAY_NS = 86_400 * 10**9
HOUR_NS = 3600 * 10**9
FIRST_NS = 1_790_035_200 * 10**9
"""Midnight, UTC."""
CHUNK = 500_000
ROUNDS = 5
NEED_MS = 300.0
RULES = SliceRules(quantiles=(0.5, 0.95, 0.99))
BY = ["route", "prompt_version"]
METRICS = ("ttft_ms", "tpot_ms", "e2e_ms", "wall_ms")
EXACT = (
    "SELECT route, prompt_version, count(*), quantile_disc(ttft_ms, [0.5, 0.95, 0.99]), "
    "quantile_disc(tpot_ms, [0.5, 0.95, 0.99]), quantile_disc(e2e_ms, [0.5, 0.95, 0.99]) "
    "FROM calls GROUP BY ALL"
)


def rows(number: int, num: int, of: int) -> pa.Table:
    """Calls of one stretch of the day, as the store takes them."""
    source = np.random.default_rng(number)
    span_ns = DAY_NS * num // of
    starts = FIRST_NS + number * DAY_NS * CHUNK // of + np.sort(source.integers(0, span_ns, num))
    ttft = (source.lognormal(13, 0.6, num) * 1e3).astype(np.int64)
    e2e = ttft + (source.lognormal(14.5, 0.7, num) * 1e3).astype(np.int64)
    words = {
        "name": ["chat m"],
        "kind": ["client"],
        "service": ["shop", "search"],
        "instance_id": ["a-1"],
        "scope": ["longpole"],
        "dialect": ["longpole"],
        "status": ["unset"],
        "operation": ["chat"],
        "request_model": ["small", "large"],
        "route": [f"route{k}" for k in range(8)],
        "prompt_version": ["v1", "v2"],
        "attributes": ["{}"],
    }
    values: dict[str, Any] = {
        "trace_hi": source.integers(1, 2**63, num, np.uint64),
        "trace_lo": source.integers(1, 2**63, num, np.uint64),
        "span_id": source.integers(1, 2**63, num, np.uint64),
        "start_ns": starts,
        "end_ns": starts + e2e,
        "received_ns": starts + e2e,
        "ttft_ns": ttft,
        "tpot_ms": source.lognormal(3, 0.3, num),
        "is_model_call": np.ones(num, np.bool_),
    }
    arrays: list[pa.Array] = []
    schema = arrow_schema(SPANS)
    for field in schema:
        if field.name in words:
            choices = pa.array(words[field.name])
            picked = (source.power(0.5, num) * len(choices)).astype(np.int64) % len(choices)
            arrays.append(choices.take(pa.array(picked)))
        elif field.name in values:
            arrays.append(pa.array(values[field.name], field.type))
        elif field.type == pa.bool_():
            arrays.append(pa.array(np.zeros(num, np.bool_)))
        elif field.name == "flags":
            arrays.append(pa.array([[]], field.type).take(pa.array(np.zeros(num, np.int64))))
        else:
            arrays.append(pa.nulls(num, field.type))
    return pa.table(arrays, schema=schema)


def build(folder: Path, num_calls: int) -> None:
    """A store of so many calls, counted."""
    store = DuckStore(folder, limits=Limits(memory="4GB"))
    begun = time.perf_counter()
    for number, first in enumerate(range(0, num_calls, CHUNK)):
        store.insert(rows(number, min(CHUNK, num_calls - first), num_calls))
        store.save()
    for day in store.days:
        with store.transaction(day) as writer:
            columns = "trace_hi, trace_lo, start_ns, service, route, prompt_version"
            writer.execute(
                f"INSERT INTO {day.catalog}.{TRACES.name} BY NAME SELECT {columns}, "  # noqa: S608
                f"end_ns, end_ns - start_ns + 50000000 AS wall_ns, 1 AS num_spans, "
                "1 AS num_calls, 0 AS num_tools, 0 AS num_retries, 'later_decode' AS long_pole, "
                "0 AS long_pole_ns, name AS root_name, flags "
                f"FROM {day.catalog}.{SPANS.name} WHERE span_id % 4 = 0"
            )
            mark_where(writer, day.catalog, TRACES.name)
    print(f"{'stored in':34}{time.perf_counter() - begun:10.1f} s")
    begun = time.perf_counter()
    num_minutes = refresh(store, FIRST_NS + 2 * DAY_NS)
    print(f"{'counted in':34}{time.perf_counter() - begun:10.1f} s   {num_minutes:,} minutes")
    store.save()
    store.close()


def ask(store: DuckStore, by: list[str], *, is_timed: bool, since_ns: int | None = None) -> int:
    """One part of the overview: the rows, and of them every metric's quantiles."""
    asked = query(by, is_timed=is_timed, since_ns=since_ns)
    found = pl.from_arrow(store.sql(asked))
    assert isinstance(found, pl.DataFrame)
    names = [*by, *(["hour"] if is_timed else [])]
    return sum(len(rolled_slices(found, names, m, rules=RULES).slices) for m in METRICS)


def milliseconds(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Wall time, the median of some rounds."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return 1e3 * sorted(took)[rounds // 2]


def measure(folder: Path) -> float:
    """Print what each part takes; gives the sum."""
    limits = Limits(max_rows=10_000_000)
    store = DuckStore(folder, is_read_only=True, limits=limits)
    for view in ("calls", "minutes", "hours"):
        num = store.sql(f"SELECT count(*) AS n FROM {view}")["n"][0].as_py()  # noqa: S608
        print(f"{'rows of ' + view:34}{num:10,}")
    last_ns = FIRST_NS + DAY_NS - HOUR_NS * 3 // 2
    parts: dict[str, Callable[[], int]] = {
        "all": lambda: ask(store, [], is_timed=False),
        "by route and prompt version": lambda: ask(store, BY, is_timed=False),
        "by hour": lambda: ask(store, [], is_timed=True),
        "last 90 minutes, by route": lambda: ask(store, BY, is_timed=False, since_ns=last_ns),
    }
    total = 0.0
    for name, part in parts.items():
        took = milliseconds(part)
        total += took
        print(f"{name:34}{took:10.1f} ms   {part():,} quantile rows")
    print(f"{'the overview':34}{total:10.1f} ms   need < {NEED_MS:.0f}")
    print(f"{'by slice, from the calls':34}{milliseconds(lambda: store.sql(EXACT), 1):10.1f} ms")
    store.close()
    return total


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="Where the store is kept; built if missing.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "db"
        if not folder.is_dir():
            build(folder, given.calls)
        return int(measure(folder) >= NEED_MS)


if __name__ == "__main__":
    sys.exit(main())
