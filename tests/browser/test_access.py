"""Who may see what, in a real browser; and what one sees when something breaks."""

import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.dashboard.sample import agent_trace

from longpole.vocab import Span
from longpole_collector.keys import Scope, create
from longpole_dashboard.login.store import Logins
from longpole_dashboard.processes import Child, Group, free_port, longpole_command

from . import feed
from .conftest import Watched

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)  # a busy machine draws its first page slowly
Open = Callable[..., Watched]
PASSWORD = "correct horse battery"
TRACES = {"ann": f"{1:032x}", "bob": f"{2:032x}"}
SERVE = "from longpole_dashboard.server import main; sys.exit(main(sys.argv[1:]))"
BAD_PAGE = """
from longpole_dashboard.pages.base import Page

def draw(selected, held):
    raise RuntimeError("a secret of the plug-in")

PAGE = Page("Bad", ":material/bug_report:", 95, draw)
"""


def send(url: str, key: str, spans: list[Span]) -> None:
    call = urllib.request.Request(
        f"{url}/v1/traces",
        data=feed.request(spans).SerializeToString(),
        headers={"content-type": "application/x-protobuf", "authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(call, timeout=30) as answer:
        assert answer.status == 200


class Guarded:
    """A collector with two projects and a dashboard that asks for a login; one page is bad."""

    def __init__(self, group: Group, folder: Path) -> None:
        self._group = group
        http, grpc, port = free_port(0), free_port(0), free_port(0)
        self.collector = f"http://127.0.0.1:{http}"
        self.dashboard = f"http://127.0.0.1:{port}"
        db = folder / "db"
        collect = ("collect", "--db", str(db), "--http", f"127.0.0.1:{http}")
        command = longpole_command(*collect, "--grpc", f"127.0.0.1:{grpc}")
        (folder / "pages").mkdir()
        (folder / "pages" / "bad.py").write_text(BAD_PAGE)
        extended = (
            "import sys, longpole_dashboard.pages as pages;"
            f"pages.__path__.append({str(folder / 'pages')!r}); {SERVE}"
        )
        page = [sys.executable, "-c", extended, "--port", str(port), "--url", self.collector]
        page += ["--state", str(db), "--login", "password"]
        logins = Logins(db)
        keys = {name: create(db, f"of-{name}", Scope.INGEST)[1] for name in TRACES}
        for name in TRACES:
            project = f"of-{name}"
            logins.add(name, project, create(db, project, Scope.READ)[1])
            logins.set_password(logins.new_link(name), PASSWORD)
        self.log = folder / "dashboard.log"
        group.start(Child("collector", command, log=folder / "collector.log"))
        self._page = page
        self.child = self.start()
        group.children[0].wait_ready(f"{self.collector}/readyz", 90)
        for number, name in enumerate(TRACES, 1):
            spans = [
                span._replace(route=f"route-of-{name}" if span.route else None)
                for span in agent_trace(number)
            ]
            send(self.collector, keys[name], spans)
        self.child.wait_ready(f"{self.dashboard}/healthz", 90)

    def start(self) -> Child:
        """Start the dashboard once more, at the same address."""
        return self._group.start(Child("dashboard", self._page, log=self.log))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Group() as group:
        yield Guarded(group, tmp_path_factory.mktemp("access"))


def assert_at_home(watched: Watched, guarded: Guarded) -> None:
    own = (guarded.dashboard, guarded.dashboard.replace("http", "ws", 1), "data:", "blob:")
    assert [url for url in watched.requests if not url.startswith(own)] == []


def log_in(watched: Watched, name: str, password: str = PASSWORD) -> None:
    page = watched.page
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_each_sees_their_own_project_after_a_login(guarded: Guarded, open_page: Open) -> None:
    watched = open_page(f"{guarded.dashboard}/trace?trace={TRACES['ann']}")
    page = watched.page
    expect(page).to_have_url(re.compile(r"/login\?next="))
    assert watched.requests == [f"{guarded.dashboard}/trace?trace={TRACES['ann']}", page.url]
    log_in(watched, "bob", "not the password")
    expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
    log_in(watched, "bob")
    expect(page.get_by_text(f"No span of trace {TRACES['ann']} is stored")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_text("route-of-bob").first).to_be_visible()
    expect(page.get_by_text("route-of-ann")).to_have_count(0)
    assert_at_home(watched, guarded)
    expect(page.get_by_text("bob · Log out")).to_be_visible()
    page.get_by_role("link", name="Log out").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("You are logged out.")).to_be_visible()
    page.goto(f"{guarded.dashboard}/overview")
    expect(page.get_by_label("Password")).to_be_visible()
    assert_at_home(watched, guarded)


def test_what_breaks_is_one_sentence_and_the_rest_works(guarded: Guarded, open_page: Open) -> None:
    watched = open_page(f"{guarded.dashboard}/nothing-of-that-name")
    page = watched.page
    log_in(watched, "ann")
    expect(page.get_by_text("does not seem to exist")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("route-of-ann").first).to_be_visible()
    expect(page.get_by_text("route-of-bob")).to_have_count(0)
    page.get_by_role("link", name="Bad").click()
    said = page.get_by_text(re.compile(r"This page failed \(id [0-9a-f]{8}; the log has it\)"))
    number = re.search(r"id ([0-9a-f]{8})", said.inner_text())
    assert number
    told = guarded.log.read_text()
    assert f"page failed, id {number[1]}" in told
    assert "a secret of the plug-in" in told
    for hidden in ("a secret of the plug-in", "Traceback", "RuntimeError"):
        expect(page.get_by_text(hidden)).to_have_count(0)
    page.get_by_role("link", name="Overview").click()
    page.get_by_text("route-of-ann").first.wait_for()
    assert_at_home(watched, guarded)
    guarded.child.stop()
    guarded.child = guarded.start()
    guarded.child.wait_ready(f"{guarded.dashboard}/healthz", 90)
    page.get_by_role("link", name="Start").click()  # the login outlives the server
    expect(page.get_by_text("1 workflow received.")).to_be_visible()
    another = page.context.new_page()
    another.goto(f"{guarded.dashboard}/logout")
    another.get_by_role("button", name="Log out").click()
    another.get_by_text("You are logged out.").wait_for()
    expect(page.get_by_label("Password")).to_be_visible()  # Start asks every 2 s
