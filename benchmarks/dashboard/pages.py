"""Every page over all that the large store holds: nothing wrong, nothing asked of another host."""

from __future__ import annotations

import re
from typing import Final, Literal

from benchmarks.bars import Bar
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import load, window
from playwright.sync_api import Page

from longpole_dashboard.server import PAGES

LOOKS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = ((1_280, "light"), (1_920, "dark"))
_HEADING: Final = ("h1",)
_DRAWN_MS: Final = 500
"""Charts are still drawn when the script has ended."""
_WRONG: Final = re.compile(r"Traceback|This page failed|\w+Error\b|\bNaN\b|Page not found")
_NARROW: Final = re.compile(r"took longer than|Narrow the range")
_WIDER: Final = "e => e.scrollWidth > e.clientWidth"


def pages(bench: Bench) -> list[Bar]:
    """What is wrong on any page, in both themes and widths, and the page that takes longest.

    Wrong is a word of a failure, what the browser complains of, a request to another host, and a
    page wider than its window. A page that asks for a narrower range, or shows the newest alone and
    says so, does what it should; it is named.
    """
    times: dict[str, float] = {}
    wrong: list[str] = []
    narrowed: set[str] = set()
    with bench.large() as served:
        (num_traces,) = map(int, served.collector.query("SELECT count(*) FROM traces")[0])
        for width, scheme in LOOKS:
            with window(bench.browser, width, scheme) as page:
                heard = _listen(page, served.url)
                for name in PAGES:
                    seconds = load(page, f"{served.url}/{name}?range=all", _HEADING)
                    times.setdefault(name, seconds)  # the later ones find answers kept
                    bench.say(f"{name}, {width} px, {scheme}: {seconds:.2f} s")
                    page.wait_for_timeout(_DRAWN_MS)
                    said = page.locator("body").inner_text()
                    found = [f"says '{match[0]}'" for match in _WRONG.finditer(said)]
                    if page.get_by_test_id("stMain").evaluate(_WIDER):
                        found.append("is wider than the window")
                    wrong += [f"{name}, {width} px, {scheme}: {each}" for each in found + heard]
                    heard.clear()
                    if _NARROW.search(said):
                        narrowed.add(name)
    for line in wrong:
        bench.say(line)
    slowest = max(times, key=lambda name: times[name])
    facts: dict[str, float | str] = {
        "num_traces": num_traces,
        "num_pages": len(times),
        "slowest": slowest,
        "slowest_s": times[slowest],
        "asks_for_a_narrower_range": ", ".join(sorted(narrowed)) or "none",
    }
    return [Bar("pages, wrong", len(wrong), "", "==", 0, facts)]


def _listen(page: Page, url: str) -> list[str]:
    """What the page complains of, and what it asks of others, from now on."""
    heard: list[str] = []
    own = ("data:", "blob:", url, url.replace("http", "ws", 1))

    def asked(of: str) -> None:
        if not of.startswith(own):
            heard.append(f"asks {of}")

    page.on("request", lambda request: asked(request.url))
    page.on("websocket", lambda socket: asked(socket.url))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda line: heard.append(line.text) if line.type == "error" else None)
    return heard
