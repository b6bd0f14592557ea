"""Chromium, a fresh profile a visit, and when a page counts as ready."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
_TIMEOUT_MS = 60_000

OVERVIEW = (".js-plotly-plot .main-svg >> nth=0", 'table[aria-label="slowest workflows"] tbody tr')
"""The Overview's last sections."""
EXPLORE = (
    *(".js-plotly-plot .main-svg >> nth=0", "text=Extra time per stage"),
    'table[aria-label="workflows in the selection"] tbody tr',
)
"""Explore's last sections, with enough in the box to compare."""
TRACE = (
    *(".waterfall .strip", "[role=treeitem]", ".panel h3"),
    *("text=Each stage against its route", ".stages tr"),
)
"""The Trace page's parts, of which the last come when the trace is compared with its like."""


@contextmanager
def running() -> Iterator[Browser]:
    """A browser that has shown a page before."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        with window(found) as page:
            page.goto("data:text/html,<h1>first</h1>")
        yield found
        found.close()


@contextmanager
def window(
    browser: Browser, width: int = 1_280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """A page of a fresh profile: nothing is in its cache."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(_TIMEOUT_MS)
    yield context.new_page()
    context.close()


def load(page: Page, url: str, parts: tuple[str, ...]) -> float:
    """Seconds from asking for an address until the page is ready."""
    begun = time.perf_counter()
    page.goto(url, wait_until="commit")
    wait_ready(page, parts)
    return time.perf_counter() - begun


def wait_ready(page: Page, parts: tuple[str, ...]) -> None:
    """Until all parts are seen, the last one last, and Streamlit's script has ended."""
    for part in parts:
        page.locator(part).first.wait_for()
    page.locator(_IDLE).wait_for()
