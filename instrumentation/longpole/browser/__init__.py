"""The browser beacon: one JavaScript file that tells when an answer was on the page.

    @app.get("/longpole.js")
    def beacon() -> FileResponse:
        return FileResponse(longpole.browser.PATH)

and in the page :func:`script_tag`. The file has no dependency and is served as it is. Its spans go
straight from the browser to the collector, which must list the page's origin
(``LONGPOLE_COLLECTOR_BEACON_ORIGINS``).
"""

from html import escape
from pathlib import Path
from typing import Final

from longpole.context import context_headers

PATH: Final = Path(__file__).with_name("beacon.js")
"""The file to serve."""


def text() -> str:
    """The script itself, to put into a page or a bundle."""
    return PATH.read_text(encoding="utf-8")


def script_tag(
    src: str, *, collector: str, service: str | None = None, key: str | None = None
) -> str:
    """The HTML element that loads the beacon and says where its spans go.

    Args:
        src: where the page finds the script.
        collector: base URL of the collector, as the browser reaches it.
        service: ``service.name`` of the page; default is ``browser``.
        key: an ingest key; whoever reads the page reads it too.
    """
    facts = {"src": src, "data-collector": collector, "data-service": service, "data-key": key}
    given = (f'{name}="{escape(value)}"' for name, value in facts.items() if value is not None)
    return f"<script {' '.join(given)}></script>"


def meta_tag() -> str:
    """The HTML element by which a page joins the current trace; empty outside any span."""
    traceparent = context_headers().get("traceparent")
    return f'<meta name="traceparent" content="{traceparent}">' if traceparent else ""


def server_timing() -> str:
    """The same as the value of a ``Server-Timing`` header; empty outside any span."""
    traceparent = context_headers().get("traceparent")
    return f'traceparent;desc="{traceparent}"' if traceparent else ""
