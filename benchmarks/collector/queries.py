"""What questions cost as data grows, and while data comes in.

Ten days of a million spans each are brought into a store as if each had been received on its
day, through the collector's own decoder and store; the small store is the last of these days.
Questions are asked over HTTP of a collector with nothing else to do; their cost is its CPU time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import NamedTuple

import numpy as np
from benchmarks.bars import Bar
from benchmarks.collector.bench import DAY_NS, Bench
from benchmarks.collector.build import NUM_DAYS, build
from benchmarks.collector.load import Order
from benchmarks.collector.mix import Params, ask
from benchmarks.collector.process import Collector, collecting
from benchmarks.collector.throughput import rates

from longpole_collector.stores.remote import RemoteReader

_NUM_ASKED = 20
_NUM_TRACES = 100
_MIX_ROUNDS = 200
_TTFT = """
SELECT {model} AS model, start_ns // 60000000000 AS minute, count(*) AS num_calls,
       quantile_cont({ttft}, [0.5, 0.95, 0.99]) AS ttft_ms
FROM {view} WHERE start_ns >= ? AND start_ns < ? AND {ttft} IS NOT NULL GROUP BY ALL
"""
TTFT_CALLS = _TTFT.format(view="calls", model="request_model", ttft="ttft_ms")
TTFT_SPANS = _TTFT.format(view="spans", model="request_model", ttft="first_chunk_ns / 1e6")
TRACE = "SELECT * FROM spans WHERE trace_id = ?"


class Cost(NamedTuple):
    """Medians over repeats of one question."""

    cpu_ms: float
    wall_ms: float
    num_rows: int


def queries(bench: Bench) -> list[Bar]:
    """Percentiles on ten times the data, one trace among all, and both while data comes in."""
    begun = time.perf_counter()
    data = build(bench.folder / "ten-days", bench.spans(1_000_000), bench.say)
    bench.say(f"{data.num_spans} spans in place after {time.perf_counter() - begun:.0f} s")
    one_day = bench.folder / "one-day"
    last = (data.last_ns - DAY_NS, data.last_ns)
    with collecting(data.folder) as collector:
        collector.wait_settled(3600)
        ten = {view: _cost(collector, sql, [last] * _NUM_ASKED) for view, sql in _VIEWS.items()}
        traces = _some_traces(collector, data.first_ns)
        by_id = _cost(collector, TRACE, [(trace,) for trace in traces])
    one_day.mkdir(mode=0o700)
    shutil.copy(data.last_file, one_day)
    with collecting(one_day) as collector:
        collector.wait_settled(3600)
        one = {view: _cost(collector, sql, [last] * _NUM_ASKED) for view, sql in _VIEWS.items()}
        mix = _mixed(bench, collector, last)
    bars = [
        Bar(
            f"ttft_10x_{view}",
            ten[view].cpu_ms / one[view].cpu_ms,
            "x",
            "<=",
            1.5,
            {
                "ten_days_cpu_ms": ten[view].cpu_ms,
                "one_day_cpu_ms": one[view].cpu_ms,
                "ten_days_wall_ms": ten[view].wall_ms,
                "one_day_wall_ms": one[view].wall_ms,
                "num_rows": ten[view].num_rows,
            },
        )
        for view in _VIEWS
    ]
    sides: dict[str, float | str] = {
        "wall_ms": by_id.wall_ms,
        "num_spans": data.num_spans,
        "rows_a_trace": by_id.num_rows,
    }
    return [*bars, Bar("trace_by_id", by_id.cpu_ms, "cpu ms", "<=", 60, sides), *mix]


_VIEWS = {"calls": TTFT_CALLS, "spans": TTFT_SPANS}


def _cost(collector: Collector, sql: str, asked: Sequence[Params]) -> Cost:
    """Mean CPU time of the collector's process, median wall time; the first two do not count."""
    reader = RemoteReader(collector.url)
    for params in asked[:2]:
        reader.sql(sql, params)
    walls_ms, num_rows = [], 0
    cpu_s = collector.tree.cpu_s()
    for params in asked:
        begun = time.perf_counter()
        num_rows = reader.sql(sql, params).num_rows
        walls_ms.append((time.perf_counter() - begun) * 1e3)
    cpu_ms = (collector.tree.cpu_s() - cpu_s) * 1e3 / len(asked)
    reader.close()
    return Cost(cpu_ms, float(np.median(walls_ms)), num_rows)


def _some_traces(collector: Collector, first_ns: int) -> list[str]:
    """Trace ids spread over all days."""
    found = [
        row[0]
        for day in range(NUM_DAYS)
        for row in collector.query(
            "SELECT DISTINCT trace_id FROM spans "  # noqa: S608
            f"WHERE start_ns BETWEEN {first_ns + day * DAY_NS + DAY_NS // 3} "
            f"AND {first_ns + day * DAY_NS + DAY_NS // 2} LIMIT {_NUM_TRACES // NUM_DAYS}"
        )
    ]
    assert found
    return found


def _mixed(bench: Bench, collector: Collector, window: Params) -> list[Bar]:
    """The mix with nothing else to do, and while spans come in at half the maximum rate."""
    _, max_rate = rates(bench)
    num_rounds = max(5, int(_MIX_ROUNDS * min(1.0, bench.scale)))
    idle_ms = ask(collector, window, num_rounds)
    order = Order(
        f"{collector.url}/v1/traces",
        int(max_rate / 2 * 3600),
        seed=77,
        spans_per_s=max_rate / 2,
        limit_s=bench.seconds(60),
    )
    bench.loader.start(order)
    busy_ms: list[float] = []
    stop = Event()
    reader = Thread(target=lambda: busy_ms.extend(ask(collector, window, stop=stop)))
    reader.start()
    sent = bench.loader.result()
    stop.set()
    reader.join()
    p99 = [float(np.quantile(found, 0.99)) for found in (busy_ms, idle_ms)]
    sides: dict[str, float | str] = {
        "busy_p99_ms": p99[0],
        "idle_p99_ms": p99[1],
        "busy_p50_ms": float(np.median(busy_ms)),
        "idle_p50_ms": float(np.median(idle_ms)),
        "num_busy": len(busy_ms),
        "num_idle": len(idle_ms),
        "asked_spans_per_s": max_rate / 2,
        "achieved_spans_per_s": sent.num_spans / sent.wall_s,
    }
    return [Bar("query_busy", p99[0] / p99[1], "x", "<=", 3, sides)]
