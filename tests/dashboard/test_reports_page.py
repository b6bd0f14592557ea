"""Reports: the past weeks, and one of them as a page that can do nothing."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from longpole_analytics.report import telling
from longpole_dashboard import source
from longpole_dashboard.model import reports
from longpole_dashboard.source import Source

from .conftest import MemoryStore
from .page_run import run, texts

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    source._source = None


def document(week: str, num: int, project: str = "default", **more: Any) -> dict[str, Any]:
    """A report's document with the sections that need nothing."""
    window = {
        "week": week,
        "since": "2026-09-07T00:00:00Z",
        "until": f"2026-09-{13 + int(week[-1])}T00:00:00Z",
        "num_traces": num,
        "text": "from to",
    }
    return {
        "schema": "longpole.report/1",
        "project": project,
        "title": f"Latency report, {week} {HOSTILE}",
        "window": window,
        "sections": [],
        "summary": {"lines": [f"{num} requests {HOSTILE}", "more"]},
        **more,
    }


def put(folder: Path, name: str, said: object) -> None:
    (folder / name).mkdir(parents=True)
    text = said if isinstance(said, str) else json.dumps(said)
    (folder / name / "report.json").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with three weeks of reports and some that are none."""
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "data" / "reports"
    for number, num in ((5, 1_200), (6, 0), (7, 40)):
        put(found, f"2026-W3{number}", document(f"2026-W3{number}", num))
    put(found, "2026-W38", document("2026-W38", 9, project="shop"))
    put(found, "broken", "{")
    put(found, "other", {"schema": "longpole.top/1"})
    put(found, "list", "[1]")
    put(tmp_path, "outside", document("2026-W39", 1))
    (found / "2026-W39").symlink_to(tmp_path / "outside")
    return tmp_path / "data"


def test_the_weeks_are_listed_the_latest_first_and_what_is_none_is_left_out(
    folder: Path, store: MemoryStore
) -> None:
    found = reports.reports(str(folder), None, store)
    assert [each.name for each in found.reports] == ["2026-W37", "2026-W36", "2026-W35"]
    assert [each.num_traces for each in found.reports] == [40, 0, 1_200]
    assert found.reports[0].lines[0] == f"40 requests {HOSTILE}"
    assert [r.name for r in reports.reports(str(folder), "shop", store).reports] == ["2026-W38"]
    assert reports.reports(str(folder.parent / "none"), None, store).missing.startswith("No report")
    assert "no folder named" in reports.reports(None, None, store).missing


@pytest.mark.parametrize(
    "name", ["broken", "other", "../reports/2026-W37", "2026-W39", "2026-W38", "..", "", "no\0ne"]
)
def test_nothing_but_a_report_of_the_project_is_opened(
    folder: Path, store: MemoryStore, name: str
) -> None:
    assert reports.report(name, str(folder), None, store) is None


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""


def test_a_report_is_made_html_anew_and_holds_no_script(folder: Path, store: MemoryStore) -> None:
    html = reports.report("2026-W37", str(folder), None, store)
    assert html is not None
    tags = _Tags()
    tags.feed(html)
    assert not {"script", "img", "iframe", "object", "link"} & set(tags.found)
    assert tags.policy.startswith("default-src 'none'")
    assert "&lt;script&gt;" in html
    assert '<base target="_blank">' in html


def test_the_configured_folder_is_read_and_a_large_file_is_not(
    folder: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder.parent / "kept", "2026-W37", document("2026-W37", 3))
    (folder.parent / "longpole.toml").write_text('[report]\nfolder = "kept"\n')
    assert [r.num_traces for r in reports.reports(str(folder), None, store).reports] == [3]
    monkeypatch.setattr(telling, "MAX_BYTES", 10)
    assert not reports.reports(str(folder), None, store).reports


def test_weeks_are_those_of_the_schedules_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sunday = datetime(2026, 1, 4, 23, 30, tzinfo=UTC)
    assert reports.weeks(sunday) == reports.Weeks("2025-W52", "2026-W01", "UTC")
    (tmp_path / "longpole.toml").write_text('[report]\nschedule = "mon 07:00 Europe/Berlin"\n')
    assert reports.weeks(sunday) == reports.Weeks("2026-W01", "2026-W02", "Europe/Berlin")


def test_the_page_lists_opens_and_tells_what_to_type(
    folder: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.use(Source(files=(Path("x.parquet"),)))
    monkeypatch.setattr(Source, "open", lambda self: store)
    assert "A file has no weekly reports" in texts(run("reports"))
    source.use(Source(db=folder))
    said = texts(run("reports"))
    assert "longpole report --week" in said
    assert "2026-W37 (40 requests): 40 requests &lt;img" in said
    assert "There is no report &#x27;nope&#x27;" in texts(run("reports", report="nope"))
    assert "All reports" in [button.label for button in run("reports", report="2026-W37").button]
