"""From the click to the paint: browser, application and engine in one trace, and it adds up."""

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.examples.running import Stack, stack

from longpole.vocab import keys
from longpole_dashboard.processes import longpole_command

pytestmark = pytest.mark.browser

NUM_SPANS = 17
"""The page's 2, FastAPI's 3, the application's 4, the engine's 8."""
NUM_CLICKS = 5
ROOTS = f"SELECT trace_id FROM spans WHERE scope = '{keys.SCOPE_BROWSER}' AND parent_id IS NULL"
SETTLED = f"trace_id = '{{}}' AND num_spans >= {NUM_SPANS}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("joined")) as found:
        found.serve_chat()
        yield found


@pytest.fixture(scope="module")
def trace_id(running: Stack, browser: Browser) -> str:  # noqa: F811 - the fixture
    """The trace of one click.

    A busy host may wake the application so late that its span ends past the page's, which reads
    as two clocks that disagree: then another click is made.
    """
    for _ in range(NUM_CLICKS):
        found = _click(running, browser)
        (trace,) = running.rows(f"SELECT flags FROM traces WHERE {SETTLED.format(found)}")
        if "clock_skew" not in trace["flags"]:
            break
    return found


def _click(running: Stack, browser: Browser) -> str:  # noqa: F811 - the fixture's name
    known = {row["trace_id"] for row in running.rows(ROOTS, 0)}
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(running.page)
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#form[data-state=done]")).to_be_visible(timeout=60_000)
    page.wait_for_function("() => longpole.stats.sent === 1")
    text = page.locator("#answer").inner_text()
    page.close()
    assert errors == []
    assert text.strip()
    assert not text.startswith("No answer")
    rows = running.rows(ROOTS, len(known) + 1)
    (root,) = {row["trace_id"] for row in rows} - known
    return str(root)


@pytest.fixture(scope="module")
def spans(running: Stack, trace_id: str) -> dict[str, dict[str, Any]]:
    """Its spans by name, once all of them are there."""
    rows = running.rows(f"SELECT * FROM spans WHERE trace_id = '{trace_id}'", NUM_SPANS)
    for row in rows:
        row["attributes"] = dict(row["attributes"])
    return {row["name"]: row for row in rows}


def test_each_part_hangs_under_the_one_that_waited_for_it(spans: dict[str, Any]) -> None:
    chain = {
        "page chat": "chat-page",
        "fetch chat": "chat-page",
        "POST /chat": "chat-app",
        "invoke_workflow chat": "chat-app",
        "chat tiny": "chat-app",
        "llm_request": "longpole-engine",
    }
    assert spans["page chat"]["parent_id"] is None
    for above, below in pairwise(chain):
        assert spans[below]["parent_id"] == spans[above]["span_id"], below
    assert {name: spans[name]["service"] for name in chain} == chain


def test_the_page_paints_after_the_server_has_content(spans: dict[str, Any]) -> None:
    page, call = spans["page chat"], spans["chat tiny"]
    at_server_ns = call["start_ns"] + call["ttft_ns"]
    painted_s = float(page["attributes"][keys.RENDER_FIRST_PAINT])
    seen_s = float(page["attributes"][keys.RENDER_FIRST_CONTENT])
    assert page["start_ns"] + seen_s * 1e9 >= at_server_ns
    assert painted_s > seen_s
    assert float(page["attributes"][keys.RENDER_LAST_PAINT]) > painted_s
    assert float(page["attributes"][keys.RENDER_ACKNOWLEDGED]) > 0
    assert float(page["attributes"].get(keys.RENDER_INP, 0)) >= 0  # absent below 16 ms
    assert page["attributes"][keys.RENDER_HIDDEN] in ("0", "0.0")


def test_the_stages_add_up_to_the_page_s_wall_time(running: Stack, spans: dict[str, Any]) -> None:
    page = spans["page chat"]
    trace_id = page["trace_id"]
    (trace,) = running.rows(f"SELECT * FROM traces WHERE trace_id = '{trace_id}'")
    rows = running.rows(f"SELECT * FROM trace_stages WHERE trace_id = '{trace_id}'")
    stages = {row["stage"]: row["critical_ns"] for row in rows}
    assert trace["root_name"] == "page chat"
    assert trace["wall_ns"] == page["end_ns"] - page["start_ns"] == sum(stages.values())
    assert {"render", "network", "prefill", "later_decode"} <= set(stages)
    assert (trace["outcome"], trace["route"], trace["num_calls"]) == ("accepted", "chat.sse", 1)
    assert not trace["flags"]
    before_ms = (spans["invoke_workflow chat"]["start_ns"] - page["start_ns"]) / 1e6
    assert trace["wall_ms"] > trace["time_to_accepted_ms"] > trace["time_to_useful_ms"] > before_ms


def test_explain_tells_it_from_the_page_to_the_engine(
    running: Stack, spans: dict[str, Any]
) -> None:
    trace_id = spans["page chat"]["trace_id"]
    command = longpole_command("explain", trace_id, "--url", running.collector, "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    total_ms = sum(stage["critical_ms"] for stage in document["stages"])
    assert total_ms == pytest.approx(document["wall_ms"], abs=1e-6)
    path = document["critical_path"]
    assert {"page chat", "fetch chat", "chat tiny"} <= {step["name"] for step in path}
    ends = sorted((step["start_ms"], step["end_ms"]) for step in path)
    assert all(a[1] == pytest.approx(b[0], abs=1e-6) for a, b in pairwise(ends))
