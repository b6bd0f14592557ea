"""The percentiles of a day among ten days, beside the local store on the same spans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.bars import Bar, info, say
from benchmarks.clickhouse.bench import DAY_NS, Bench
from benchmarks.clickhouse.insert import merged_bytes
from benchmarks.collector.build import NUM_DAYS, build
from benchmarks.collector.queries import TRACE, TTFT_CALLS

from longpole_collector.stores.base import Reader, Value
from longpole_collector.stores.clickhouse.derived import Derived
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, arrow_schema

_NUM_ASKED = 20
_HOURS = 24
_HOUR_NS = DAY_NS // _HOURS
_DONE = "done"


class Cost(NamedTuple):
    """Of one question, over repeats: mean CPU of this process, median by the clock, rows."""

    cpu_ms: float
    wall_ms: float
    num_rows: int


def queries(bench: Bench) -> list[Bar]:
    """24 h of TTFT per model and minute, and one trace by its id, among ten days."""
    folder = bench.folder / "ten-days"
    marker = bench.folder / _DONE
    if not marker.exists():
        data = build(folder, bench.spans(1_000_000), say)
        marker.write_text(f"{data.num_spans} {data.first_ns} {data.last_ns}")
    num_spans, first_ns, last_ns = map(int, marker.read_text().split())
    duck = DuckStore(folder, is_read_only=True, limits=Limits(max_rows=1 << 40, memory="2GB"))
    click = bench.store("ten_days")
    _copy(bench.folder, duck, click, first_ns)
    sizes = merged_bytes(click)
    window: list[Sequence[Value]] = [(last_ns - DAY_NS, last_ns)] * _NUM_ASKED
    traces = [(trace,) for trace in _traces(duck, first_ns)]
    both = {"duckdb": duck, "clickhouse": click}
    ttft = {name: _cost(reader, TTFT_CALLS, window) for name, reader in both.items()}
    by_id = {name: _cost(reader, TRACE, traces) for name, reader in both.items()}
    assert ttft["duckdb"].num_rows == ttft["clickhouse"].num_rows
    duck.close()
    click.close()
    of_tables = {f"bytes_in_{name}": size / num_spans for name, size in sizes.items()}
    return [
        _ratio("ttft_24h", ttft, {"num_spans": num_spans, **of_tables}),
        info("trace_by_id", by_id["clickhouse"].cpu_ms, "cpu ms", _sides(by_id)),
    ]


def _ratio(name: str, cost: dict[str, Cost], more: dict[str, float]) -> Bar:
    ratio = cost["clickhouse"].cpu_ms / cost["duckdb"].cpu_ms
    return Bar(name, ratio, "x", "<=", 2, {**_sides(cost), **more})


def _sides(cost: dict[str, Cost]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name, each in cost.items():
        found |= {f"{name}_cpu_ms": each.cpu_ms, f"{name}_wall_ms": each.wall_ms}
        found |= {f"{name}_rows": each.num_rows}
    return found


def _cost(reader: Reader, sql: str, asked: Sequence[Sequence[Value]]) -> Cost:
    """The first two do not count."""
    for params in asked[:2]:
        reader.sql(sql, params)
    walls_ms, num_rows, cpu_s = [], 0, time.process_time()
    for params in asked:
        begun = time.perf_counter()
        num_rows = reader.sql(sql, params).num_rows
        walls_ms.append((time.perf_counter() - begun) * 1e3)
    cpu_ms = (time.process_time() - cpu_s) * 1e3 / len(asked)
    return Cost(cpu_ms, float(np.median(walls_ms)), num_rows)


def _copy(folder: Path, duck: DuckStore, click: ClickStore, first_ns: int) -> None:
    """Spans, calls and traces as the local store has them, an hour at a time."""
    names = ", ".join(arrow_schema(SPANS).names)
    for day in range(NUM_DAYS):
        marker = folder / f"copied-{day}"
        if marker.exists():
            continue
        begun = time.perf_counter()
        for hour in range(_HOURS):
            since = first_ns + day * DAY_NS + hour * _HOUR_NS
            inside = f"start_ns >= {since} AND start_ns < {since + _HOUR_NS}"
            with duck.writing() as reader:
                table = reader.sql(f"SELECT {names} FROM span_rows WHERE {inside}")  # noqa: S608
                click.insert(table.to_arrow_table())
            Derived(click.client, version=first_ns, rollup_version=1).copy(duck, inside)
        marker.touch()
        say(f"day {day + 1} copied in {time.perf_counter() - begun:.1f} s")


def _traces(duck: DuckStore, first_ns: int) -> list[str]:
    found: list[str] = []
    for day in range(NUM_DAYS):
        since = first_ns + day * DAY_NS + DAY_NS // 3
        rows = duck.sql(
            f"SELECT DISTINCT trace_id FROM spans WHERE start_ns >= {since} "  # noqa: S608
            f"AND start_ns < {since + _HOUR_NS} ORDER BY trace_id LIMIT 5"
        )
        found += rows["trace_id"].to_pylist()
    return found
