"""A trace opened from the Overview: a usual one and a large one."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bars import Bar
from benchmarks.dashboard import spans
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import OVERVIEW, TRACE, load, wait_ready, window
from playwright.sync_api import Page


def trace(bench: Bench) -> list[Bar]:
    """Seconds from the click on a row until the trace is drawn and compared with its like.

    Each trace is opened once: the server has not seen it before.
    """
    with bench.small() as served, window(bench.browser) as page:
        short = [_open(page, served.url, spans.short_id(n)) for n in range(spans.NUM_EACH)][1:]
        long = [_open(page, served.url, spans.long_id(n)) for n in range(spans.NUM_EACH)][1:]
        counted = "SELECT count(*) FROM spans WHERE trace_id = '{:032x}'"
        num_short, num_long = (
            served.collector.query(counted.format(number))[0][0]
            for number in (spans.short_id(1), spans.long_id(1))
        )
    return [
        _bar("trace", short, 1.0, int(num_short)),
        _bar("trace, large", long, 3.0, int(num_long)),
    ]


def _bar(name: str, times: list[float], need: float, num_spans: int) -> Bar:
    facts: dict[str, float | str] = {
        "num_spans": num_spans,
        "num_traces": len(times),
        "slowest_s": max(times),
    }
    return Bar(name, median(times), "s", "<", need, facts)


def _open(page: Page, url: str, number: int) -> float:
    load(page, url, OVERVIEW)
    row = page.locator('table[aria-label="slowest workflows"] tbody tr').filter(
        has=page.locator(f'a[href$="trace={number:032x}"]')
    )
    begun = time.perf_counter()
    row.locator("td").nth(2).click()
    wait_ready(page, TRACE)
    return time.perf_counter() - begun
