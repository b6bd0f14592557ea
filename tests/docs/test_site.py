"""The documentation builds as a site, strictly, and the site asks nobody for anything."""

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

mkdocs = pytest.importorskip("mkdocs", reason="pip install 'longpole[docs]'")
pytest.importorskip("material", reason="pip install 'longpole[docs]'")
_FETCHED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*>""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.filterwarnings("ignore")  # of the generator's own libraries
def test_it_builds_and_every_page_asks_only_for_what_lies_beside_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 40
    for page in pages:
        for match in _FETCHED.finditer(page.read_text("utf-8")):
            link = re.search(r'rel="([^"]+)" href="([^"]+)"|href="([^"]+)"', match[0])
            target = match[1] or (link[2] or link[3] if link else "")
            if not target or "canonical" in match[0] or target.startswith("data:"):
                continue
            assert "://" not in target, f"{page.name}: {target}"
            file = target.split("?")[0].split("#")[0]
            assert (page.parent / file).exists(), f"{page.name}: {target}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:", style.read_text("utf-8")), style
