"""The Overview over ten million calls, beside a bare page."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bars import Bar
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import OVERVIEW, load, window
from benchmarks.dashboard.serve import bare

ROUNDS = 4
OUTDATED_S = 11.0
"""The server keeps no answer so long (``longpole_dashboard.data.MAX_STALE_S`` is 10 s)."""
_HELLO = ('h1:has-text("Hello")',)


def overview(bench: Bench) -> list[Bar]:
    """Seconds until all of it is drawn, a fresh profile each time, the queries run anew."""
    with bench.large() as served, bare(bench.folder) as hello:
        num_calls = int(served.collector.query("SELECT count(*) FROM calls")[0][0])
        sides = [
            (f"{served.url}/?range=all", OVERVIEW, OUTDATED_S),
            (f"{served.url}/?range=all", OVERVIEW, 0.0),
            (hello, _HELLO, 0.0),
        ]
        times: list[list[float]] = [[] for _ in sides]
        for number in range(ROUNDS + 1):
            for found, (url, parts, pause_s) in zip(times, sides, strict=True):
                time.sleep(pause_s)
                with window(bench.browser) as page:
                    seconds = load(page, url, parts)
                bench.say(f"{url}: {seconds:.2f} s")
                if number:  # the first round warms the servers
                    found.append(seconds)
    own, kept, base = map(median, times)
    facts: dict[str, float | str] = {
        "num_calls": num_calls,
        "median_s": own,
        "slowest_s": max(times[0]),
        "with_answers_kept_s": kept,
        "bare_page_s": base,
    }
    return [
        Bar("overview", own, "s", "<", 3.0, facts),
        Bar("overview / bare page", own / base, "", "<=", 2.5, facts),
    ]
