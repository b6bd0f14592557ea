"""From the Overview to the slowest trace, in a real browser, on a real collector."""

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect
from tests.dashboard.sample import MS, Builder, agent_trace

from longpole.vocab import Stage
from longpole_collector.stores import open_reader
from longpole_dashboard import data
from longpole_dashboard.processes import Child, Group

from . import feed
from .conftest import Running, Watched, start

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
NUM_TRACES = 24
BIG = f"{900:032x}"
Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Group() as group:
        found = start(group, tmp_path_factory.mktemp("browser"))
        begin = time.time_ns() - 1_200 * 1_000 * MS
        for i in range(1, NUM_TRACES + 1):
            name = HOSTILE if i == NUM_TRACES else ""
            turns = 5 if i == NUM_TRACES else 1 + i % 3
            feed.send(found.collector, agent_trace(i, begin + i * 30_000 * MS, turns, name))
        big = Builder(900, begin)
        root = big.span("invoke_workflow big", 0, 2_600, operation="invoke_workflow", route="big")
        for i in range(2_400):
            big.span(f"execute_tool {i}", i, i + 1, root, stage=Stage.TOOL)
        feed.send(found.collector, big.spans)
        found.wait_for_traces(NUM_TRACES + 1)
        yield found


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Group() as group:
        yield start(group, tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(("scheme", "width"), [("light", 1_280), ("dark", 1_920)])
def test_one_click_leads_from_the_overview_to_the_slowest_trace(
    running: Running, open_page: Open, scheme: str, width: int
) -> None:
    watched = open_page(running.dashboard, scheme, width)
    page = watched.page
    page.get_by_text("Slowest workflows").wait_for()
    row = page.locator('table[aria-label="slowest workflows"] tbody tr').first
    href = row.locator("a").get_attribute("href")
    row.locator("td").nth(2).click()
    page.locator(".waterfall .strip").wait_for()
    trace_id = f"{NUM_TRACES:032x}"
    assert href == f"trace?trace={trace_id}"
    expect(page).to_have_url(re.compile(rf"/trace\?trace={trace_id}$"))
    said = page.locator(".waterfall .sum").inner_text()
    reader = open_reader(url=running.collector)
    query = "SELECT wall_ms FROM traces WHERE trace_id = $trace"
    wall_ms = reader.sql(query, {"trace": trace_id}).to_pylist()[0]["wall_ms"]
    reader.close()
    assert said == f"stages sum to {wall_ms:,.3f} ms = wall time {wall_ms:,.3f} ms"
    assert page.locator(".piece").count() >= 10
    expect(page.locator("[role=treeitem] .text").filter(has_text=HOSTILE)).to_have_count(5)
    assert page.locator(".waterfall img").count() == 0
    watched.assert_clean(running.dashboard)


def test_the_same_address_shows_the_same_trace_in_a_fresh_browser(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={3:032x}")
    watched.page.locator(".waterfall .strip").wait_for()
    expect(watched.page.get_by_text(f"{3:032x}")).to_be_visible()
    watched.assert_clean(running.dashboard)


def test_the_path_toggle_hides_what_is_beside_it(running: Running, open_page: Open) -> None:
    page = open_page(f"{running.dashboard}/trace?trace={3:032x}").page
    beside = page.locator("[role=treeitem] .text").filter(has_text="execute_tool fetch")
    expect(beside).to_have_count(1)
    page.locator(".path-only").check()
    expect(beside).to_have_count(0)
    assert page.locator(".off-path").count() == 0
    page.locator(".path-only").uncheck()
    expect(beside).to_have_count(1)


def test_the_keyboard_moves_selects_and_folds(running: Running, open_page: Open) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={3:032x}")
    page = watched.page
    page.locator("[role=treeitem]").first.click()
    page.locator("[role=tree]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".row.selected .text")).to_have_text("retrieval docs")
    expect(page.locator(".panel h3")).to_have_text("retrieval docs")
    expect(page.locator(".panel h4")).to_have_text("Attributes")
    num_rows = page.locator("[role=treeitem]").count()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=treeitem]")).not_to_have_count(num_rows)
    page.keyboard.press("ArrowRight")
    expect(page.locator("[role=treeitem]")).to_have_count(num_rows)
    watched.assert_clean(running.dashboard)


def test_a_click_shows_what_is_stored_and_hostile_text_is_inert(
    running: Running, open_page: Open
) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={NUM_TRACES:032x}")
    page = watched.page
    page.locator("[role=treeitem]").filter(has_text=HOSTILE).first.click()
    expect(page.locator(".panel h3")).to_have_text(HOSTILE)
    expect(page.locator(".panel dd").filter(has_text="agent.research")).to_be_visible()
    assert page.locator(".panel img").count() == 0
    watched.assert_clean(running.dashboard)


def test_a_huge_trace_is_capped_and_shows_more(running: Running, open_page: Open) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace={BIG}")
    rows = watched.page.locator("[role=treeitem]")
    expect(rows).to_have_count(2_000)
    watched.page.locator(".more").click()
    expect(rows).to_have_count(2_401)
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


def test_an_unknown_trace_is_said(running: Running, open_page: Open) -> None:
    watched = open_page(f"{running.dashboard}/trace?trace=<b>nowhere</b>")
    expect(watched.page.get_by_text("No span of trace <b>nowhere</b> is stored")).to_be_visible()
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


def test_a_collector_out_of_reach_is_one_sentence_until_it_is_back(
    open_page: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Group() as group:
        found = start(group, tmp_path_factory.mktemp("gone"))
        feed.send(found.collector, agent_trace(1, time.time_ns() - 20_000 * MS))
        found.wait_for_traces(1)
        page = open_page(found.dashboard).page
        page.get_by_text("Slowest workflows").wait_for()
        collector = group.children[0]
        collector.stop()
        time.sleep(data.TTL_S)
        page.reload()
        page.get_by_text(f"no collector answers at {found.collector}").wait_for()
        assert page.get_by_text("Traceback").count() == 0
        again = Child("collector", collector.command, log=collector.log)
        group.start(again).wait_ready(f"{found.collector}/readyz", 60)
        page.reload()
        page.get_by_text("Slowest workflows").wait_for()


def test_an_empty_store_waits_and_then_shows_the_first_trace(
    empty: Running, open_page: Open
) -> None:
    watched = open_page(empty.dashboard)
    page = watched.page
    page.get_by_text("Waiting for the first span").wait_for()
    expect(page.get_by_text("longpole.wrap(openai.OpenAI())")).to_be_visible()
    feed.send(empty.collector, agent_trace(1, time.time_ns() - 20_000 * MS))
    page.get_by_role("heading", name="Overview").wait_for()
    watched.assert_clean(empty.dashboard)
