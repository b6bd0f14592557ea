"""Streamlit's files as the dashboard sends them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from longpole_dashboard import assets
from longpole_dashboard.assets import Assets, Static, head

CHART = "static/js/PlotlyChart.x.js"
FILES = {
    "index.html": "<head></head>",
    "static/js/index.a.js": "index();" * 400,
    "static/js/shared.b.js": "shared();" * 400,
    "static/js/Html.c.js": "html();" * 400,
    "static/js/only.d.js": "only();" * 400,
    CHART: "chart();" * 400,
    "static/media/font.woff2": "font" * 400,
}
MANIFEST = {
    "index.html": {"file": "static/js/index.a.js", "isEntry": True, "imports": ["_shared"]},
    "_shared": {"file": "static/js/shared.b.js"},
    "_only": {"file": "static/js/only.d.js", "imports": ["_shared", "_gone"]},
    "lib/Html/Html.tsx": {"file": "static/js/Html.c.js", "imports": ["_only", "_shared"]},
    "lib/PlotlyChart/PlotlyChart.tsx": {"file": CHART, "imports": ["_only"]},
    "lib/Metric/Metric.tsx": {"file": "static/js/gone.js"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {**FILES, "manifest.json": json.dumps(MANIFEST)}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    files = Static(folder, is_whole=False)
    app = Starlette(middleware=[Middleware(Assets, static=files)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_what_every_page_needs_and_its_first_script_does_not_import_is_told_once(
    folder: Path,
) -> None:
    early = Static(folder, is_whole=False).early
    assert early == ("/static/js/Html.c.js", "/static/js/only.d.js", f"/{CHART}")
    assert head(Static(folder, is_whole=False)).count("modulepreload") == 3


@pytest.mark.parametrize("text", [None, "", "[]", "{"])
def test_without_a_manifest_nothing_is_told(folder: Path, text: str | None) -> None:
    path = folder / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    files = Static(folder, is_whole=False)
    assert (files.early, head(files)) == ((), "")
    assert files.get(f"/{CHART}").plain == FILES[CHART].encode()


def test_files_go_compressed_to_whoever_takes_it_and_say_how_long_they_hold(
    client: TestClient,
) -> None:
    name = "/static/js/Html.c.js"
    for accepted, encoding in (("br, gzip;q=1", "gzip"), ("identity", None)):
        answer = client.get(name, headers={"accept-encoding": accepted})
        assert answer.headers.get("content-encoding") == encoding
        assert answer.text == FILES["static/js/Html.c.js"]
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["vary"] == "accept-encoding"
    font = client.get("/static/media/font.woff2")
    assert (font.headers["content-type"], "content-encoding" in font.headers) == (
        "font/woff2",
        False,
    )
    known = client.get(name, headers={"if-none-match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_other_addresses_and_parts_of_files_are_passed_on(client: TestClient) -> None:
    for path in ("/static/js/none.js", "/static/../manifest.json", "/static/%2e%2e/manifest.json"):
        assert client.get(path).status_code == 404
    assert client.post("/static/js/Html.c.js").status_code in (404, 405)
    assert client.get("/static/js/Html.c.js", headers={"range": "bytes=0-3"}).status_code == 404
    assert client.head("/static/js/Html.c.js").content == b""


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_script_of_charts_that_was_made_lighter_is_asked_for_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    monkeypatch.setattr(assets, "lighter", lambda script: script[:1200])
    found = Static(folder, is_whole=is_whole).get(f"/{CHART}")
    assert found.plain == FILES[CHART][: None if is_whole else 1200].encode()
    assert found.packed is not None
    assert gzip.decompress(found.packed) == found.plain
    assert (found.headers["cache-control"] == "no-cache") is not is_whole
