"""The server's memory after many page loads."""

from __future__ import annotations

from benchmarks.bars import Bar
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import EXPLORE, OVERVIEW, TRACE, load, window

EARLY, LATE = 20, 200
"""Page loads between which memory is compared."""
PAGES = (("", OVERVIEW), ("explore?metric=e2e_ms", EXPLORE), ("trace", TRACE))
"""Loaded in turn, each by a browser that comes for the first time: a session of its own."""


def memory(bench: Bench) -> list[Bar]:
    """Resident memory of the dashboard after the last load over that after the first few."""
    early, late = bench.num(EARLY, 3), bench.num(LATE, 12)
    found: dict[int, float] = {}
    with bench.small() as served:
        idle = served.tree.rss_mib()
        for number in range(1, late + 1):
            path, parts = PAGES[number % len(PAGES)]
            with window(bench.browser) as page:
                load(page, f"{served.url}/{path}", parts)
            if number % early == 0 or number == late:
                found[number] = served.tree.rss_mib()
                bench.say(f"after {number} loads: {found[number]:.0f} MiB")
        peak = served.tree.peak_mib()
    facts: dict[str, float | str] = {
        "before_mib": idle,
        f"after_{early}_mib": found[early],
        f"after_{late}_mib": found[late],
        "peak_mib": peak,
    }
    return [Bar("memory", found[late] / found[early], "", "<=", 1.2, facts)]
