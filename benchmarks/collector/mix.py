"""The five questions of a dashboard that looks at one stretch of time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event

from benchmarks.collector.process import Collector

from longpole_collector.stores.remote import RemoteReader

Params = Sequence[int | str]
_IN = "start_ns >= ? AND start_ns < ?"
MIX = (
    f"SELECT count(*) AS n, quantile_disc(ttft_ms, 0.99) AS p99 FROM calls WHERE {_IN}",  # noqa: S608
    f"SELECT route, prompt_version, count(*) AS n, quantile_disc(ttft_ms, [0.5, 0.99]) AS ttft "  # noqa: S608
    f"FROM calls WHERE {_IN} GROUP BY ALL",
    f"SELECT start_ns // 600000000000 AS bin, stage, avg(critical_ms) AS ms FROM trace_stages "  # noqa: S608
    f"JOIN traces USING (trace_id) WHERE {_IN} GROUP BY ALL",
    f"SELECT * FROM traces WHERE {_IN} ORDER BY wall_ms DESC LIMIT 50",  # noqa: S608
    f"SELECT name, count(*) AS n, avg(end_ns - start_ns) AS ns FROM spans WHERE {_IN} "  # noqa: S608
    "GROUP BY name ORDER BY n DESC LIMIT 20",
)
"""What a dashboard asks: a card, slices, stages over time, the slowest traces, span names."""


def ask(
    collector: Collector,
    window: Params,
    num_rounds: int = 1_000_000,
    stop: Event | None = None,
    pause_s: float = 0.0,
) -> list[float]:
    """Ask the mix round after round; wall milliseconds of every answer."""
    walls_ms: list[float] = []
    reader = RemoteReader(collector.url)
    for _ in range(num_rounds):
        for sql in MIX:
            if stop is not None and stop.is_set():
                reader.close()
                return walls_ms
            begun = time.perf_counter()
            reader.sql(sql, window)
            walls_ms.append((time.perf_counter() - begun) * 1e3)
            time.sleep(pause_s)
    reader.close()
    return walls_ms
