"""Streamlit's own scripts, styles and fonts: compressed once, sent from memory, fetched early.

Streamlit reads each file anew and leaves it uncompressed; a first load takes over a hundred of
them. What a page needs is also told in its head, so that a browser fetches it while it starts
instead of when the first element of its kind is to be drawn.
"""

import hashlib
import json
import logging
import mimetypes
import re
import zlib
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

import streamlit as st
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

from longpole_dashboard.lighter import lighter
from longpole_dashboard.login.gate import AsgiApp, Receive, Scope, Send

log = logging.getLogger("longpole.dashboard.assets")

_PREFIX: Final = "/static/"
_ELEMENTS: Final = (
    *("Html", "Metric", "Button", "ButtonGroup", "Selectbox", "BidiComponent", "PlotlyChart"),
)
"""What pages are made of, by the names of Streamlit's source files."""
_CHART: Final = "PlotlyChart"
_COMPRESSED: Final = (".js", ".css", ".json", ".svg", ".html")
_LEAST_BYTES: Final = 1_024
_LEVEL: Final = 6
_FOREVER: Final = "public, immutable, max-age=31536000"
"""Names of Streamlit's files change with what is in them."""
_ASKED: Final = "no-cache"
"""For what may change under one name: asked each time whether it is still so."""


class _File(NamedTuple):
    """What is sent of a file."""

    plain: bytes
    packed: bytes | None
    headers: dict[str, str]


class Static:
    """The files in Streamlit's folder, by their addresses.

    Args:
        folder: Streamlit's folder of what it serves.
        is_whole: charts may be of any kind: their script stays as it is.
    """

    def __init__(self, folder: Path, *, is_whole: bool) -> None:
        self._folder = folder
        self._is_whole = is_whole
        below = folder / "static"
        self._paths = {
            _PREFIX + path.relative_to(below).as_posix(): path
            for path in below.rglob("*")
            if path.is_file()
        }
        self._files: dict[str, _File] = {}
        self._locks = {address: Lock() for address in self._paths}

    def __contains__(self, address: str) -> bool:
        """Whether there is such a file."""
        return address in self._paths

    def get(self, address: str) -> _File:
        """The file; read, and compressed, the first time."""
        with self._locks[address]:
            found = self._files.get(address)
            if found is None:
                found = self._files[address] = self._read(address)
        return found

    def warm(self) -> None:
        """Read what every page needs, so that the first one need not wait for it."""
        for address in self.early:
            self.get(address)

    @cached_property
    def early(self) -> tuple[str, ...]:
        """The scripts to fetch early, from Streamlit's manifest; empty without one."""
        return tuple(a for a in _scripts(self._manifest, _ELEMENTS) if a in self)

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        path = self._folder / "manifest.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.info("no manifest of Streamlit's scripts: none is fetched early (%s)", error)
            return {}
        return found if isinstance(found, dict) else {}

    def _read(self, address: str) -> _File:
        path = self._paths[address]
        body, cached = path.read_bytes(), _FOREVER
        if not self._is_whole and address == self._chart:
            less = lighter(body.decode())
            if less is None:
                log.info("the script of charts is not as expected: all of it is served")
            else:
                body, cached = less.encode(), _ASKED
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        headers = {
            "content-type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
            "cache-control": cached,
            "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "vary": "accept-encoding",
        }
        is_packed = path.suffix in _COMPRESSED and len(body) >= _LEAST_BYTES
        return _File(body, _gzip(body) if is_packed else None, headers)

    @cached_property
    def _chart(self) -> str | None:
        return next((_address(entry) for entry in _named(self._manifest, _CHART)), None)


class Assets:
    """ASGI middleware: answers for Streamlit's files, passes on the rest."""

    def __init__(self, app: AsgiApp, static: Static) -> None:
        self.app = app
        self._static = static

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        is_asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not is_asked or scope["path"] not in self._static:
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        if "range" in request.headers:
            await self.app(scope, receive, send)
            return
        found = await run_sync(self._static.get, scope["path"])
        await _answer(found, request.headers)(scope, receive, send)


def static() -> Static:
    """Those of the Streamlit that is installed."""
    folder = Path(st.__file__).parent / "static"
    # A page that somebody else wrote may draw any kind of chart.
    return Static(folder, is_whole=bool(entry_points(group="longpole.page")))


def warmed(found: Static) -> Static:
    """The same; what every page needs is being read."""
    Thread(target=found.warm, name="longpole-assets", daemon=True).start()
    return found


def head(found: Static) -> str:
    """HTML for a page's head that has its scripts fetched."""
    links = (f'<link rel="modulepreload" crossorigin href=".{each}">' for each in found.early)
    return "".join(links)


def _answer(found: _File, asked: Mapping[str, str]) -> Response:
    if asked.get("if-none-match") == found.headers["etag"]:
        return Response(status_code=304, headers=found.headers)
    accepted = re.split(r"[\s,;]+", asked.get("accept-encoding", ""))
    if found.packed is None or "gzip" not in accepted:
        return Response(found.plain, headers=found.headers)
    return Response(found.packed, headers={**found.headers, "content-encoding": "gzip"})


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=31)
    return packer.compress(body) + packer.flush()


def _named(manifest: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The manifest's entries of the source file with this name."""
    return [entry for key, entry in manifest.items() if key.endswith(f"/{name}/{name}.tsx")]


def _scripts(manifest: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The scripts of these elements and what they import, without what the page itself names."""
    first = [entry for entry in manifest.values() if entry.get("isEntry")]
    known = _closure(manifest, first)
    wanted = [entry for name in names for entry in _named(manifest, name)]
    return tuple(each for each in _closure(manifest, wanted) if each not in known)


def _closure(manifest: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, None]:
    """Addresses of entries and of all that they import, in order."""
    found: dict[str, None] = {}
    todo = entries[::-1]
    while todo:
        entry = todo.pop()
        if _address(entry) not in found:
            found[_address(entry)] = None
            todo += [manifest[name] for name in entry.get("imports", ()) if name in manifest]
    return found


def _address(entry: dict[str, Any]) -> str:
    return f"/{entry.get('file', '')}"
