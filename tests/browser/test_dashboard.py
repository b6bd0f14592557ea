"""From the Overview to the slowest trace, in a real browser, on a real collector."""

import re
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect
from tests.dashboard.sample import MS, T0, Builder, agent_trace, workflow

from longpole.vocab import Span, Stage
from longpole_collector.stores import open_reader
from longpole_dashboard import data
from longpole_dashboard.model.box import read_box
from longpole_dashboard.processes import Child, Group

from . import feed
from .conftest import Running, Watched, start

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
NUM_TRACES = 24
OBJECTIVE_MS = 1_000
MAX_TABS = 400
FOCUSED = """() => {
  let found = document.activeElement;
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found?.getAttribute("href");
}"""
"""Where the link leads that has the focus."""
Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Group() as group, pytest.MonkeyPatch.context() as patched:
        patched.setenv("LONGPOLE_DASHBOARD_TTFT_OBJECTIVE_MS", str(OBJECTIVE_MS))
        found = start(group, tmp_path_factory.mktemp("browser"))
        begin = time.time_ns() - 1_200 * 1_000 * MS
        for i in range(1, NUM_TRACES + 1):
            name = HOSTILE if i == NUM_TRACES else ""
            turns = 5 if i == NUM_TRACES else 1 + i % 3
            feed.send(found.collector, agent_trace(i, begin + i * 30_000 * MS, turns, name))
        big = Builder(900, begin)
        root = big.span("invoke_workflow big", 0, 2_600, operation="invoke_workflow", route="big")
        big.span("execute_tool", 0, 2_400, root, stage=Stage.TOOL)
        feed.send(found.collector, [*big.spans, *planted(begin)])
        found.wait_for_traces(NUM_TRACES + 181)
        yield found


def planted(begin_ns: int) -> list[Span]:
    """180 workflows of a route; the 40 slow ones are of a prompt version with a hostile name."""
    spans: list[Span] = []
    for i in range(180):
        is_slow = i >= 100 and i % 2 == 0
        spans += workflow(
            1_000 + i,
            at_s=(begin_ns - T0) / 1e9 + 4 * i,
            ttft_ms=3_000.0 + i if is_slow else 100.0 + i,
            prompt_version=HOSTILE if is_slow else "v1",
        )
    return spans


def reach(page: Page, href: str) -> None:
    """Press Tab until the link has the focus."""
    for _ in range(MAX_TABS):
        if page.evaluate(FOCUSED) == href:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{MAX_TABS} times Tab do not reach {href}")


@pytest.mark.parametrize(
    ("scheme", "width", "has_mouse"), [("light", 1_280, True), ("dark", 1_920, False)]
)
def test_one_click_leads_from_the_overview_to_the_slowest_trace_and_so_do_keys(
    running: Running, open_page: Open, scheme: str, width: int, has_mouse: bool
) -> None:
    watched = open_page(running.dashboard, scheme, width)
    page = watched.page
    page.get_by_text("Slowest workflows").wait_for()
    row = page.locator('table[aria-label="slowest workflows"] tbody tr').first
    href = row.locator("a").get_attribute("href")
    trace_id = f"{NUM_TRACES:032x}"
    assert href == f"trace?trace={trace_id}"
    if has_mouse:
        row.locator("td").nth(2).click()
    else:
        reach(page, href)
        page.keyboard.press("Enter")
    page.locator(".waterfall .strip").wait_for()
    expect(page).to_have_url(re.compile(rf"/trace\?trace={trace_id}$"))
    said = page.locator(".waterfall .sum").inner_text()
    reader = open_reader(url=running.collector)
    query = "SELECT wall_ms FROM traces WHERE trace_id = $trace"
    wall_ms = reader.sql(query, {"trace": trace_id}).to_pylist()[0]["wall_ms"]
    reader.close()
    assert said == f"stages sum to {wall_ms:,.3f} ms = wall time {wall_ms:,.3f} ms"
    assert page.locator(".piece").count() >= 10
    expect(page.locator("[role=treeitem] .text").filter(has_text=HOSTILE).first).to_be_visible()
    assert page.locator(".waterfall img").count() == 0
    watched.assert_clean(running.dashboard)


def test_the_same_address_shows_the_same_trace_in_a_fresh_browser(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={3:032x}")
    watched.page.locator(".waterfall .strip").wait_for()
    expect(watched.page.get_by_text(f"{3:032x}").first).to_be_visible()
    watched.assert_clean(running.dashboard)


def test_two_clicks_lead_to_a_trace_of_the_planted_slice_which_the_overview_names(
    running: Running, open_page: Open
) -> None:
    watched = open_page(running.dashboard)
    page = watched.page
    verdict = page.locator(".lp-note.worse").first
    verdict.wait_for()
    for named in (
        "rag.search",
        "opaque TTFT",
        f"prompt_version={HOSTILE}",
        "objective of 1,000 ms",
    ):
        expect(verdict).to_contain_text(named)
    page.get_by_role("button", name="Explore the slow ones").first.click()
    page.get_by_text("40 workflows selected of 180").wait_for()
    expect(page.get_by_text("40 selected against 140 others of the same routes")).to_be_visible()
    expect(page.locator(".js-plotly-plot").nth(1)).to_contain_text("prompt_version=<img src")
    page.locator('table[aria-label="workflows in the selection"] tbody tr').first.click()
    page.locator(".waterfall .strip").wait_for()
    trace_id = page.url.rpartition("trace=")[2]
    asked = "SELECT prompt_version, wall_ms FROM traces WHERE trace_id = $trace"
    reader = open_reader(url=running.collector)
    assert reader.sql(asked, {"trace": trace_id})["prompt_version"].to_pylist() == [HOSTILE]
    reader.close()
    assert page.locator("img[src=x]").count() == 0
    watched.assert_clean(running.dashboard)


def test_a_box_on_the_map_counts_what_sql_counts_and_its_address_shows_the_same(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/explore?metric=ttft_ms")
    page = watched.page
    told = page.locator("p").filter(has_text="selected of")
    told.wait_for()
    area = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert area is not None
    left, top, width, height = (area[name] for name in ("x", "y", "width", "height"))
    chart = page.locator('[class*="st-key-explore-map"] .js-plotly-plot')
    frame = '.shapelayer path[style*="fill: rgb(209, 73, 91)"]'
    expect(chart.locator(frame)).to_be_visible()
    chart.evaluate("node => { node.isOld = true }")
    page.mouse.move(left + 0.95 * width, top + 0.05 * height)
    page.mouse.down()
    page.mouse.move(left + 0.6 * width, top + 0.3 * height, steps=5)
    page.mouse.move(left + 0.02 * width, top + 0.95 * height, steps=5)
    page.mouse.up()
    page.wait_for_url("**box=**")
    page.get_by_role("button", name="Zoom to box").wait_for()
    said = told.inner_text()
    box, complaint = read_box(parse_qs(urlsplit(page.url).query)["box"][0])
    assert box is not None
    assert complaint is None
    reader = open_reader(url=running.collector)
    query = (
        "SELECT count(*) AS n FROM traces JOIN (SELECT trace_id, max(ttft_ms) AS v FROM calls "
        "GROUP BY trace_id) USING (trace_id) WHERE start_ns >= ? AND start_ns < ? "
        "AND v > ? AND v <= ?"
    )
    bounds = [box.start_ns or 0, box.end_ns or 0, box.low or 0, box.high or 0]
    num = reader.sql(query, bounds)["n"].to_pylist()[0]
    reader.close()
    assert num > 30
    assert said.startswith(f"{num} workflows selected")
    # the map is the one that was drawn on, and has one box: the new one
    assert chart.evaluate("node => node.isOld")
    expect(chart.locator(frame)).to_be_hidden()
    expect(chart.locator(".selectionlayer path").first).to_be_visible()
    other = open_page(page.url)
    other.page.locator("p").filter(has_text="selected of").wait_for()
    expect(other.page.locator(frame)).to_be_visible()
    assert other.page.locator("p").filter(has_text="selected of").inner_text() == said
    other.assert_clean(running.dashboard)
    watched.assert_clean(running.dashboard)


def test_filters_stand_in_the_address_and_survive_a_change_of_page(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/?range=6+h&route=big")
    page = watched.page
    page.get_by_text("UTC · 1 workflow · newest").wait_for()
    page.get_by_role("link", name="Start").click()
    page.get_by_role("heading", name="Start").wait_for()
    page.get_by_role("link", name="Overview").click()
    page.get_by_text("UTC · 1 workflow · newest").wait_for()
    expect(page).to_have_url(re.compile(r"range=6\+h"))
    expect(page).to_have_url(re.compile(r"route=big"))
    watched.assert_clean(running.dashboard)


def test_the_first_load_is_under_4_mb_on_the_wire(running: Running, open_page: Open) -> None:
    watched = open_page("about:blank")
    page = watched.page
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(running.dashboard)
    page.get_by_text("Slowest workflows").wait_for()
    page.locator(".js-plotly-plot").wait_for()
    assert 100_000 < sum(sizes) < 4_000_000


def test_an_empty_store_waits_for_the_first_trace_and_a_lost_collector_is_one_sentence(
    open_page: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Group() as group:
        found = start(group, tmp_path_factory.mktemp("empty"))
        watched = open_page(found.dashboard)
        page = watched.page
        page.get_by_text("Waiting for the first span").wait_for()
        expect(page.get_by_text("longpole.wrap(openai.OpenAI())")).to_be_visible()
        feed.send(found.collector, agent_trace(1, time.time_ns() - 20_000 * MS))
        page.get_by_text("Slowest workflows").wait_for()
        watched.assert_clean(found.dashboard)
        collector = group.children[0]
        collector.stop()
        time.sleep(data.MAX_STALE_S)
        page.reload()
        page.get_by_text(f"no collector answers at {found.collector}").wait_for()
        assert page.get_by_text("Traceback").count() == 0
        again = Child("collector", collector.command, log=collector.log)
        group.start(again).wait_ready(f"{found.collector}/readyz", 60)
        page.reload()
        page.get_by_text("Slowest workflows").wait_for()
