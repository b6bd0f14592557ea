"""The weekly report in a real browser: nothing asked for, nothing run, light, dark and on paper."""

import json

import pytest
from click.testing import CliRunner
from tests.analytics import week_of_spans

from longpole.cli import main

BACK = "getComputedStyle(document.body).backgroundColor"
TEXT = "getComputedStyle(document.querySelector('.chart text')).fill"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    spans = week_of_spans.write(folder / "spans.parquet", per_week=(300, 300), hostile=True)
    words = ["report", str(spans), "--week", "2026-W37", "--out", str(folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.browser
def test_the_page_is_whole_asks_for_nothing_and_runs_nothing(report, open_page):
    url = (report / "report.html").as_uri()
    document = json.loads((report / "report.json").read_text())
    seen = {}
    for scheme in ("light", "dark"):
        watched = open_page(url, scheme)
        page = watched.page
        assert watched.requests == [url]
        assert watched.complaints == []
        assert page.locator("h2").all_inner_texts() == [s["title"] for s in document["sections"]]
        assert page.locator("img, script, link, iframe").count() == 0
        assert page.locator("#example svg.chart rect").count() >= 3
        seen[scheme] = page.evaluate(BACK), page.evaluate(TEXT)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
    assert seen["light"] != seen["dark"]
    assert seen["light"][0] == "rgb(255, 255, 255)"

    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(BACK) == "rgb(255, 255, 255)"
    assert page.evaluate(TEXT) == "rgb(0, 0, 0)"
    assert page.pdf()[:5] == b"%PDF-"
    assert watched.requests == [url]

    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": 400, "height": 800})  # a phone
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
