"""A box drawn on Explore's map of a million calls."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bars import Bar
from benchmarks.collector.bench import DAY_NS
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import EXPLORE, load, wait_ready, window
from playwright.sync_api import Page

NUM_CALLS = 1_000_000
BOXES = (
    *((0.05, 0.05, 0.95, 0.45), (0.5, 0.1, 0.9, 0.5), (0.1, 0.3, 0.6, 0.9), (0.3, 0.2, 0.7, 0.6)),
    *((0.55, 0.05, 0.98, 0.6), (0.02, 0.4, 0.4, 0.8), (0.4, 0.35, 0.6, 0.55)),
)
"""Left, top, right and bottom, as parts of the map; the first one is not counted."""


def brush(bench: Bench) -> list[Bar]:
    """Seconds from the mouse button's release until everything below the map is new."""
    with bench.large() as served, window(bench.browser) as page:
        first_ns, last_ns, num_held = map(
            int,
            served.collector.query("SELECT min(start_ns), max(start_ns), count(*) FROM calls")[0],
        )
        length_ns = (last_ns - first_ns) * bench.num(NUM_CALLS, 1_000) / num_held
        start_ns = max(first_ns, last_ns - int(length_ns))
        counted = f"SELECT count(*) FROM calls WHERE start_ns >= {start_ns}"  # noqa: S608 - a whole number
        num_calls = int(served.collector.query(counted)[0][0])
        range_ = f"from={_iso(start_ns)}&to={_iso(last_ns + DAY_NS // 86_400)}"
        first_load = load(page, f"{served.url}/explore?metric=ttft_ms&{range_}", EXPLORE)
        bench.say(f"{num_calls:,} calls, the page itself {first_load:.2f} s")
        _draw(page, BOXES[0])
        trees = (served.tree, served.collector.tree)
        before = [tree.cpu_s() for tree in trees]
        times = [_draw(page, box) for box in BOXES[1:]]
        spent = [tree.cpu_s() - cpu_s for tree, cpu_s in zip(trees, before, strict=True)]
    facts: dict[str, float | str] = {
        "num_calls": num_calls,
        "num_boxes": len(times),
        "fastest_s": min(times),
        "slowest_s": max(times),
        "page_itself_s": first_load,
        "dashboard_cpu_s_a_box": spent[0] / len(times),
        "collector_cpu_s_a_box": spent[1] / len(times),
    }
    return [Bar("brush", median(times), "s", "<", 1.0, facts)]


def _draw(page: Page, box: tuple[float, float, float, float]) -> float:
    """Draw a box; seconds until the number of those selected and all below it follow."""
    told = page.locator("p").filter(has_text="selected of")
    before = told.inner_text()
    area = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert area is not None
    x, y, width, height = (area[name] for name in ("x", "y", "width", "height"))
    left, top, right, bottom = box
    page.mouse.move(x + left * width, y + top * height)
    page.mouse.down()
    page.mouse.move(x + right * width, y + bottom * height, steps=8)
    begun = time.perf_counter()
    page.mouse.up()
    page.locator("p").filter(has_text="selected of").filter(has_not_text=before).wait_for()
    wait_ready(page, EXPLORE)
    return time.perf_counter() - begun


def _iso(ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ns // 1_000_000_000))
