"""Every page, with data and without, in both themes: no complaint, no leak, nothing unreadable."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.dashboard.sample import MS, agent_trace

from longpole_dashboard.processes import Child, Group, free_port
from longpole_dashboard.server import PAGES

from . import feed
from .conftest import Running, Watched, start

pytestmark = pytest.mark.browser

DEMO = Path(__file__).parents[2] / "sample_data" / "demo.parquet"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
Open = Callable[..., Watched]
NUM_LOOKS = 4
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
TITLES = {
    "overview": "Overview",
    "explore": "Explore",
    "trace": "Trace",
    "stages": "Stages & slices",
    "compare": "Compare",
    "slo": "SLOs",
    "cache": "Cache",
    "advisor": "Advisor",
    "engine": "Engine",
    "matrix": "Matrix",
    "lab": "Lab",
    "reports": "Reports",
    "settings": "Settings",
    "start": "Start",
}
"""What each page is headed."""
UNJUDGED = ("start",)
"""Pages without a sentence on top."""
BROKEN = re.compile(r"Traceback|This page failed|\w+Error\b|\bNaN\b|undefined|Page not found")
UNDESCRIBED = '.stPlotlyChart:not([role="figure"][aria-label])'
# WCAG 1.4.3 asks nothing of what is disabled, but axe does not see whose label this is.
DISABLED = '[data-testid="stButtonGroup"]:has(button:disabled)'
SERIOUS = """async (left_out) => {
  const found = await axe.run({ exclude: [left_out] }, {
    resultTypes: ["violations"],
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
  });
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) =>
      `${each.id}: ${node.target.join(" ")}: ${node.failureSummary}`));
}"""
"""Serious and critical violations of WCAG 2.1 A and AA, one line for each element."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """Two dashboards: on a recorded run, and on a collector that holds nothing."""
    folder = tmp_path_factory.mktemp("stores")
    port = free_port(0)
    command = [sys.executable, "-m", "longpole_dashboard.server", "--port", str(port), str(DEMO)]
    with Group() as group:
        full = group.start(Child("dashboard", command, log=folder / "full.log"))
        empty = start(group, folder / "empty")
        full.wait_ready(f"http://127.0.0.1:{port}/healthz", 90)
        yield {"full": Running("", f"http://127.0.0.1:{port}"), "empty": empty}


def faults(page: Page, where: str, *, is_whole: bool = True) -> list[str]:
    """What is wrong with the page and stays so: colours on their way to others are no fault."""
    for _ in range(NUM_LOOKS):
        page.locator(IDLE).wait_for()
        found = look(page, is_whole=is_whole)
        if not found:
            break
        page.wait_for_timeout(500)
    return [f"{where}: {each}" for each in found]


def look(page: Page, *, is_whole: bool = True) -> list[str]:
    """Words of a failure, overflow, charts without words; faults of accessibility are the rest."""
    said = page.locator("body").inner_text()
    wrong = [f"says '{match[0]}'" for match in BROKEN.finditer(said)]
    main = page.get_by_test_id("stMain")
    if main.evaluate("e => e.scrollWidth > e.clientWidth"):
        wrong.append("is wider than the window")
    wrong += ["has a chart that nothing describes"] * page.locator(UNDESCRIBED).count()
    if not is_whole:
        return wrong
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text())
    return wrong + page.evaluate(SERIOUS, DISABLED)


def turn(page: Page, scheme: str) -> None:
    """Change the browser's preference, and wait until the page follows."""
    before = page.locator(IDLE).evaluate("e => getComputedStyle(e).backgroundColor")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # "light" or "dark"
    page.wait_for_function(
        "([idle, before]) => { const e = document.querySelector(idle);"
        " return e && getComputedStyle(e).backgroundColor !== before; }",
        arg=[IDLE, before],
    )


@pytest.mark.parametrize("store", ["full", "empty"])
def test_every_page_is_clean_in_both_themes_and_widths_with_data_and_without(
    stores: dict[str, Running], open_page: Open, store: str
) -> None:
    assert set(PAGES) == set(TITLES)
    url = stores[store].dashboard
    watched = open_page("about:blank")
    page = watched.page
    schemes = ["light", "dark"]
    wrong: list[str] = []
    for name, title in TITLES.items():
        if store == "empty" and name == "engine":
            continue  # not in the menu where no engine is
        heading = "Start" if store == "empty" and name == "overview" else title
        page.goto(f"{url}/{name}")
        page.get_by_role("heading", level=1).filter(has_text=heading).wait_for()
        wrong += faults(page, f"{name}, {schemes[0]}")
        turn(page, schemes[1])
        wrong += faults(page, f"{name}, {schemes[1]}")
        schemes.reverse()
        if store == "full":
            if name not in UNJUDGED:
                page.locator(".lp-note").first.wait_for()
            page.set_viewport_size({"width": 1_920, "height": 900})
            wrong += faults(page, f"{name}, 1,920 px", is_whole=name == "overview")
            page.set_viewport_size({"width": 1_280, "height": 900})
        wrong += [f"{name}: {each}" for each in watched.complaints]
        watched.complaints.clear()
    if store == "empty":
        wrong += with_one_workflow(stores[store], watched)
    assert not wrong, "\n".join(wrong)
    watched.assert_clean(url)


def with_one_workflow(running: Running, watched: Watched) -> list[str]:
    """What is wrong with the pages once the empty store holds a single workflow."""
    feed.send(running.collector, agent_trace(1, time.time_ns() - 20_000 * MS))
    running.wait_for_traces(1)
    page, wrong = watched.page, []
    page.goto(f"{running.dashboard}/start")
    page.get_by_text("1 workflow received.").wait_for()  # what is kept of before has run out
    for name, title in TITLES.items():
        link = page.get_by_test_id("stSidebarNavLink").filter(has_text=title)
        if link.count():
            link.click()
        else:  # not in the menu where there is nothing to show
            page.goto(f"{running.dashboard}/{name}")
        page.get_by_role("heading", level=1).filter(has_text=title).wait_for()
        wrong += faults(page, f"{name}, one workflow", is_whole=False)
    return wrong
