"""Where an alert's links lead: pages of the dashboard, by parameters that these read."""

import shlex
from importlib import import_module
from urllib.parse import parse_qsl, urlsplit

import pytest

from longpole.cli import main
from longpole_dashboard.model.box import Box, read_box
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.heatmap import METRICS
from longpole_dashboard.model.selection import CUSTOM, Known, read
from longpole_dashboard.model.window import Bounds

from .harness import START, slo
from .test_alert_watch import burn


def led(url):
    """The page's module and what the address says to it."""
    parts = urlsplit(url)
    assert f"{parts.scheme}://{parts.netloc}" == "http://127.0.0.1:8501"
    page = import_module(f"longpole_dashboard.pages{parts.path.replace('/', '.')}")
    return page, dict(parse_qsl(parts.query, strict_parsing=True))


@pytest.mark.parametrize("where", ["route = 'search'", "prompt_version <> 'v0'"])
def test_explore_opens_with_what_is_bad_boxed(scene, where):
    it = scene(**{"search-ttft": slo(where=where)})
    burn(it)
    page, asked = led(it.got[0]["links"]["explore"])
    assert page.PAGE.title == "Explore"
    known = Known(Bounds(START * 60 * 10**9, None, 1, ("search",)), "1 h")
    found, said = read({name: [value] for name, value in asked.items()}, known, UTC_CLOCK)
    assert said == ()
    assert found.choice == CUSTOM
    assert found.to_ns - found.from_ns == 3600 * 10**9
    assert found.route == ("search" if where.startswith("route") else None)
    assert asked[page.METRIC] == "ttft_ms"
    assert asked[page.METRIC] in METRICS
    assert read_box(asked[page.BOX]) == (Box(low=2000.0), None)


def test_what_is_bad_by_outcome_has_no_box(scene):
    given = slo(metric="availability")
    del given["threshold"]
    it = scene(a=given)
    it.fill(30, good=1)
    row = {"is_bad": False, "route": "search", "outcome": "failed"}
    it.store.add_rows([row | {"start_ns": int(it.now_s * 1e9)}] * 6)
    it.look(it.now_s + 1)
    _, asked = led(it.got[0]["links"]["explore"])
    assert set(asked) == {"from", "to", "route"}


def test_the_objective_and_the_traces_have_pages_and_the_silence_is_a_command(scene):
    it = scene()
    burn(it)
    links = it.got[0]["links"]
    page, asked = led(links["slo"])
    assert page.PAGE.title == "SLOs"
    assert asked == {page.PARAM: "search-ttft"}
    for each in links["traces"]:
        page, asked = led(each)
        assert set(asked) == {"trace"}
    program, *words = shlex.split(links["silence"])
    assert program == "longpole"
    command = main.get_command(None, words[0]).get_command(None, words[1])
    assert command.make_context(words[1], words[2:]).params["slo"] == "search-ttft"
