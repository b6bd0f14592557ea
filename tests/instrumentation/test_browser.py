"""The browser beacon in a real browser, on a page whose times are known, to a real collector."""

import gzip
import re
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.conftest import browser  # noqa: F401 - a fixture

import longpole
from longpole import browser as beacon
from longpole.testing import capture_spans
from longpole.vocab import keys
from longpole_collector.app import Collector, background
from longpole_collector.settings import Settings

pytestmark = pytest.mark.browser

TRACE, PARENT = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
WAIT_MS = 150
STREAMED = f"""
    const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
    const say = (text) => document.getElementById("answer").append(text);
    window.answer = async (r) => {{
        await sleep({WAIT_MS}); say("a"); r.content();
        await sleep({WAIT_MS}); say("b"); r.content();
        r.end();
    }};
"""
Rows = Callable[..., list[dict[str, Any]]]


def test_it_is_small_and_alone() -> None:
    assert len(gzip.compress(beacon.PATH.read_bytes(), 9)) < 3_000
    assert beacon.text() == beacon.PATH.read_text("utf-8")
    assert "import" not in beacon.text()


def test_its_words_are_the_vocabulary_s() -> None:
    known = {value for value in vars(keys).values() if isinstance(value, str)}
    used = set(re.findall(r'"((?:longpole|http|error|service)\.[a-z_.]+)"', beacon.text()))
    assert used - known <= {"service.name", "service.instance.id"}
    pages = {value for name, value in vars(keys).items() if name.startswith("RENDER_")}
    assert len(pages) == 9
    assert pages < used


def test_its_element_is_safe_html() -> None:
    tag = beacon.script_tag("/longpole.js", collector='http://x/"><b>', service="a&b")
    assert tag == (
        '<script src="/longpole.js" data-collector="http://x/&quot;&gt;&lt;b&gt;"'
        ' data-service="a&amp;b"></script>'
    )


def test_a_page_can_be_told_the_current_trace() -> None:
    assert (beacon.meta_tag(), beacon.server_timing()) == ("", "")
    with capture_spans(), longpole.workflow("page"):
        traceparent = longpole.context_headers()["traceparent"]
        assert beacon.meta_tag() == f'<meta name="traceparent" content="{traceparent}">'
        assert beacon.server_timing() == f'traceparent;desc="{traceparent}"'


# --- in Chromium --------------------------------------------------------------------------------
class Site:
    """A web server with pages put into it."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, dict[str, str]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, self.headers.get("traceparent")))
                text, headers = site.pages.get(self.path, ("", {}))
                body = text.encode()
                self.send_response(200 if self.path in site.pages else 404)
                kind = "text/javascript" if self.path.endswith(".js") else "text/html"
                for name, value in {
                    "content-type": f"{kind}; charset=utf-8",
                    "content-length": str(len(body)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.pages["/longpole.js"] = (beacon.text(), {})
        Thread(target=self._server.serve_forever, daemon=True).start()

    def page(self, collector: str, head: str = "", **headers: str) -> str:
        tag = beacon.script_tag("/longpole.js", collector=collector, service="test-page")
        body = f'<!doctype html>{head}{tag}<p id="answer"></p><script>{STREAMED}</script>'
        self.pages["/"] = (body, headers)
        return f"{self.origin}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    yield found
    found.close()


@pytest.fixture
def collector(site: Site, tmp_path: Path) -> Iterator[Collector]:
    settings = Settings(
        db=tmp_path / "db", http="127.0.0.1:0", grpc="127.0.0.1:0", beacon_origins=site.origin
    )
    with background(settings) as running:
        deadline = time.monotonic() + 20
        while not running.ingest.is_ready:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield running


@pytest.fixture
def rows(collector: Collector) -> Rows:
    """The browser's spans by name, once there are so many."""

    def wait(num: int = 1) -> list[dict[str, Any]]:
        query = f"SELECT * FROM spans WHERE scope = '{keys.SCOPE_BROWSER}' ORDER BY name DESC"
        deadline = time.monotonic() + 20
        while len(found := collector.store.sql(query).to_pylist()) < num:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        for row in found:
            row["attributes"] = dict(row["attributes"])
        return found

    return wait


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:  # noqa: F811 - the fixture
    context = browser.new_context()
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


def seconds(row: dict[str, Any], key: str) -> float:
    return float(row["attributes"][key])


def check_times(row: dict[str, Any]) -> None:
    """What the page did is what the span says, and nothing was painted before it was there."""
    first, last = (
        seconds(row, key) for key in (keys.RENDER_FIRST_CONTENT, keys.RENDER_LAST_CONTENT)
    )
    assert first >= WAIT_MS / 1e3 - 0.005
    assert last >= 2 * WAIT_MS / 1e3 - 0.01
    assert seconds(row, keys.RENDER_FIRST_PAINT) > first
    assert seconds(row, keys.RENDER_LAST_PAINT) > last
    assert seconds(row, keys.RENDER_ACKNOWLEDGED) > 0
    assert row["attributes"][keys.RENDER_NUM_UPDATES] == "2"
    wall_s = (row["end_ns"] - row["start_ns"]) / 1e9
    assert wall_s == pytest.approx(seconds(row, keys.RENDER_LAST_PAINT), abs=1e-4)
    assert abs(row["received_ns"] - row["end_ns"]) < 20e9
    assert (row["stage"], row["stream_state"]) == ("render", "completed")
    assert (row["service"], row["dialect"]) == ("test-page", "longpole")
    assert seconds(row, keys.RENDER_HIDDEN) == 0
    assert row["attributes"][keys.RENDER_NUM_VISIBILITY_CHANGES] == "0"


META = f'<meta name="traceparent" content="{TRACEPARENT}">'
TIMING = {"Server-Timing": f'db;dur=1, traceparent;desc="{TRACEPARENT}"'}


@pytest.mark.parametrize(
    ("head", "headers", "source"),
    [
        (META, {}, ""),
        ("", TIMING, ""),
        ("", {}, f'"{TRACEPARENT}"'),
        ("", TIMING, 'await fetch("/")'),
    ],
    ids=["meta tag", "navigation", "argument", "response"],
)
def test_a_page_joins_the_server_s_trace(
    site: Site, collector: Collector, rows: Rows, page: Page, head: str, headers: Any, source: str
) -> None:
    page.goto(site.page(collector.url, head, **headers))
    page.evaluate(f"async () => answer(longpole.render({source or 'null'}, 'chat'))")
    (row,) = rows()
    assert (row["trace_id"], row["parent_id"]) == (TRACE, PARENT)
    assert (row["name"], row["kind"], row["is_detached"]) == ("render chat", "internal", True)
    check_times(row)


def test_a_trace_can_begin_on_the_page(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url))
    site.pages["/data"] = ("x", {})
    page.evaluate(
        "async () => { const r = longpole.begin('chat'); await r.fetch('/data?q=1#x');"
        " await r.fetch('/data'); return answer(r); }"
    )
    root, fetched = rows(2)
    assert (root["name"], root["parent_id"], root["is_detached"]) == ("page chat", None, False)
    assert (fetched["name"], fetched["kind"]) == ("fetch chat", "client")
    assert (fetched["trace_id"], fetched["parent_id"]) == (root["trace_id"], root["span_id"])
    assert (fetched["stage"], fetched["instance_id"]) == ("network", root["instance_id"])
    assert root["start_ns"] <= fetched["start_ns"] <= fetched["end_ns"] <= root["end_ns"]
    told = [(path, trace) for path, trace in site.asked if path == "/data"]
    assert told == [("/data", f"00-{root['trace_id']}-{fetched['span_id']}-01")]
    check_times(root)


def test_what_changes_in_an_element_is_content(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url, META))
    page.evaluate(
        "async () => { const r = longpole.render().observe(document.getElementById('answer'));"
        f" await sleep({WAIT_MS}); say('a'); await sleep({WAIT_MS}); say('b'); r.end(); }}"
    )
    check_times(rows()[0])


def test_a_failed_request_is_told_and_thrown_on(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url))
    page.evaluate("async () => { const r = longpole.begin(); await r.fetch('/no'); r.end(); }")
    _, fetched = rows(2)
    assert (fetched["error_type"], fetched["status"]) == ("404", "error")
    name = page.evaluate(
        "async () => { const r = longpole.begin();"
        " try { await r.fetch('http://127.0.0.1:1/'); } catch (e) { return e.name; }"
        " finally { r.end(); } }"
    )
    assert name == "TypeError"
    assert "TypeError" in {row["error_type"] for row in rows(4)}


def test_a_page_that_is_left_tells_what_it_had(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url, META))
    page.evaluate(f"() => {{ window.r = longpole.render(); setTimeout(r.content, {WAIT_MS}); }}")
    page.wait_for_timeout(3 * WAIT_MS)
    page.goto("about:blank")
    (row,) = rows()
    assert row["stream_state"] == "closed_early"
    assert seconds(row, keys.RENDER_FIRST_PAINT) > WAIT_MS / 1e3 - 0.005


def test_a_hidden_page_says_for_how_long_and_invents_no_paint(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url, META))
    # a headless browser never hides a page, so the page is told so as the browser would tell it
    page.evaluate(
        "async () => { window.r = longpole.render(); for (const hidden of [true, false]) {"
        " Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange'));"
        f" await sleep({WAIT_MS}); }} }}"
    )
    page.evaluate("() => r.end()")
    (row,) = rows()
    assert seconds(row, keys.RENDER_HIDDEN) >= WAIT_MS / 1e3 - 0.005
    assert row["attributes"][keys.RENDER_NUM_VISIBILITY_CHANGES] == "2"
    assert keys.RENDER_FIRST_PAINT not in row["attributes"]


def test_a_slow_reaction_to_the_user_is_measured(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url, META))
    page.evaluate(
        "() => { window.r = longpole.render(); const p = document.getElementById('answer');"
        " p.textContent = 'press'; p.onclick = () => {"
        f" const until = performance.now() + {WAIT_MS}; while (performance.now() < until); }} }}"
    )
    page.locator("#answer").click()
    page.evaluate("async () => { await sleep(100); r.end(); }")
    (row,) = rows()
    assert seconds(row, keys.RENDER_INP) >= WAIT_MS / 1e3 - 0.01


def test_what_must_not_be_sent_is_not(
    site: Site, collector: Collector, rows: Rows, page: Page
) -> None:
    page.goto(site.page(collector.url))
    page.evaluate(
        "() => { const r = longpole.render('00-' + 'a'.repeat(32) + '-' + 'b'.repeat(16) + '-00');"
        " r.content(); r.end(); r.end(); delete longpole.config.collector;"
        " longpole.begin().end(); }"
    )
    page.wait_for_timeout(200)
    assert rows(0) == []
    assert page.evaluate("() => longpole.stats") == {"sent": 0, "failed": 0}


def test_a_page_that_is_not_listed_is_not_hurt(site: Site, tmp_path: Path, page: Page) -> None:
    settings = Settings(db=tmp_path / "db", http="127.0.0.1:0", grpc="127.0.0.1:0")
    with background(settings) as other:
        page.goto(site.page(other.url, META))
        page.evaluate("() => longpole.render().end()")
        page.wait_for_function("() => longpole.stats.failed === 1")
        assert other.store.sql("SELECT * FROM spans").num_rows == 0


def test_the_page_s_key_is_shown(site: Site, collector: Collector, rows: Rows, page: Page) -> None:
    page.goto(site.page(collector.url, META))
    page.evaluate("() => { longpole.config.key = 'lp_unknown'; longpole.render().end(); }")
    page.wait_for_function("() => longpole.stats.failed === 1")
    page.evaluate("() => { delete longpole.config.key; longpole.render().end(); }")
    page.wait_for_function("() => longpole.stats.sent === 1")
    assert len(rows()) == 1
