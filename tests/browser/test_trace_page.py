"""The Trace page in a real browser: a large trace, the keyboard, the window, hostile names."""

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.dashboard.sample import MS, Builder, agent_trace

from longpole.vocab import Stage, keys
from longpole_dashboard.processes import Group

from . import feed
from .conftest import Running, Watched, start

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
BIG, AGENT = f"{900:032x}", f"{1:032x}"
NUM_TOOLS, NUM_STEPS = 9_000, 991
MAX_ROWS = 80
"""Rows in the page at once: those in sight, and a few above and below."""
WAIT_MS = 60_000
"""For what a server answers, however busy the machine."""
Open = Callable[..., Watched]


def big_trace(begin: int) -> Builder:
    """10,000 spans: tools that fold, and steps whose names are all different and do not."""
    made = Builder(900, begin)
    root = made.span("invoke_workflow big", 0, 20_000, operation="invoke_workflow", route="big")
    for i in range(NUM_TOOLS):
        made.span(f"execute_tool {i}", i, i + 1, root, stage=Stage.TOOL)
    stem = made.span("stem", 9_000, 19_900, root)
    for i in range(NUM_STEPS):
        letters = "".join(chr(97 + (i // 26**k) % 26) for k in range(3))
        made.span(f"step {letters}", 9_000 + 10 * i, 9_008 + 10 * i, stem)
    for i in range(7):
        made.span(f"orphan {i}", 9_100, 9_200, root._replace(span_id="f" * 16))
    return made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Group() as group:
        found = start(group, tmp_path_factory.mktemp("trace"))
        begin = time.time_ns() - 600 * 1_000 * MS
        told = {keys.CHUNK_OFFSETS_US: "[304000, 308000, 500000]"}
        for i in (1, 2):
            spans = agent_trace(i, begin + i * 1_000 * MS, 1 + i, HOSTILE)
            feed.send(
                found.collector,
                [s._replace(attributes=told) if s.name.startswith("chat") else s for s in spans],
            )
        big = big_trace(begin).spans
        for at in range(0, len(big), 5_000):
            feed.send(found.collector, big[at : at + 5_000])
        found.wait_for_traces(3)
        yield found


def active(page: Page) -> str:
    return page.locator(".row.active .text").inner_text()


def press(page: Page, *names: str) -> None:
    for name in names:
        page.keyboard.press(name)


def test_a_trace_of_ten_thousand_spans_keeps_few_rows_in_the_page(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={BIG}")
    page = watched.page
    rows = page.locator("[role=treeitem]")
    folded = rows.filter(has_text=f"execute_tool # \u00d7 {NUM_TOOLS:,}")
    folded.wait_for()
    expect(rows.filter(has_text="7 spans without parent, shown apart")).to_have_count(0)
    assert rows.count() <= MAX_ROWS
    folded.locator(".fold").click()
    expect(rows.filter(has_text="execute_tool 5").first).to_be_visible()
    assert rows.count() <= MAX_ROWS
    page.locator("[role=tree]").focus()
    press(page, "End")
    expect(page.locator(".row.active .text")).to_have_text("orphan 6")
    assert rows.count() <= MAX_ROWS
    press(page, "ArrowLeft")
    assert active(page) == "7 spans without parent, shown apart"
    press(page, "ArrowLeft", "End")
    assert active(page) == "7 spans without parent, shown apart"
    assert rows.count() <= MAX_ROWS
    watched.assert_clean(running.dashboard)


def test_the_keyboard_walks_folds_and_selects_and_the_address_says_it(
    running: Running, open_page: Open
) -> None:
    call = next(s.span_id for s in agent_trace(1) if s.name == "chat smollm2")
    watched = open_page(f"{running.dashboard}/trace?trace={AGENT}&span={call}")
    page = watched.page
    rows = page.locator("[role=treeitem]")
    expect(page.locator(".panel h3")).to_have_text("chat smollm2", timeout=WAIT_MS)
    assert active(page) == "chat smollm2"
    page.locator("[role=tree]").focus()
    press(page, "Home", "ArrowRight")
    assert active(page) == "turn 1"
    num_rows = rows.count()
    press(page, "ArrowLeft")
    assert rows.count() < num_rows
    press(page, "ArrowLeft")
    assert active(page) == "invoke_workflow agent.research"
    press(page, "ArrowDown", "ArrowRight", "ArrowRight", "Enter")
    assert rows.count() == num_rows
    expect(page.locator(".panel h3")).to_have_text("retrieval docs", timeout=WAIT_MS)
    press(page, "ArrowDown", "Enter")
    expect(page.locator(".panel h3")).to_have_text("chat smollm2", timeout=WAIT_MS)
    expect(page).to_have_url(re.compile(rf"span={call}"), timeout=WAIT_MS)
    expect(page.locator(".panel .rug")).to_be_visible()
    expect(page.locator(".panel")).to_contain_text("3 chunks; gap p50 4.00 ms, longest 192 ms")
    expect(page.locator(".panel")).to_contain_text("No percentile")
    watched.assert_clean(running.dashboard)


def test_path_window_slider_and_the_way_to_the_next_one(running: Running, open_page: Open) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={2:032x}", "dark", 1_920)
    page = watched.page
    rows = page.locator("[role=treeitem]")
    rows.first.wait_for()
    beside = rows.filter(has_text="execute_tool fetch").first
    expect(beside).to_be_visible()
    assert float(beside.locator(".part").first.evaluate("e => getComputedStyle(e).opacity")) == 0.45
    assert beside.locator(".on-path").count() == 0
    page.locator(".path-only").check()
    expect(beside).to_have_count(0)
    assert page.locator(".off-path").count() == 0
    page.locator(".path-only").uncheck()
    # A hostile name is text, in the row and in the panel.
    rows.filter(has_text=HOSTILE).first.click()
    expect(page.locator(".panel h3")).to_have_text(HOSTILE, timeout=WAIT_MS)
    assert page.locator(".waterfall img, .panel img").count() == 0
    # Dragging on the minimap zooms, its edges move by keys, a double click shows all.
    ticks = page.locator(".axis .tick")
    whole = ticks.all_inner_texts()
    box = page.locator(".minimap").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 10, steps=4)
    page.mouse.up()
    zoomed = ticks.all_inner_texts()
    assert zoomed != whole
    assert "0 s" not in zoomed
    page.locator(".grip").nth(1).focus()
    press(page, "ArrowRight")
    assert ticks.all_inner_texts() != zoomed
    page.mouse.dblclick(box["x"] + 5, box["y"] + 10)
    assert ticks.all_inner_texts() == whole
    # The slider says the saving at once, as explain has it.
    row = page.locator(".stages tr").filter(has_text="prefill").last
    row.locator("input").fill("10")
    said = row.locator("output").inner_text()
    assert said == "50 %: \u2212300 ms, then 4,200 ms in all"
    page.get_by_role("button", name="Next slow one like this").click()
    expect(page).to_have_url(re.compile(rf"trace={AGENT}"), timeout=WAIT_MS)
    expect(page.get_by_text("no. 2 of 2 like it")).to_be_visible(timeout=WAIT_MS)
    watched.assert_clean(running.dashboard)
