"""The dashboard's own server: Streamlit under uvicorn with every option set here.

``python -m longpole_dashboard.server --port 8501 --url http://127.0.0.1:4318`` serves one source
of data until SIGINT or SIGTERM. Nothing leaves the host: no usage statistics, no web fonts, and a
content security policy that makes the browser refuse any other origin.
"""

import argparse
import logging
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from streamlit.web import bootstrap

from longpole.errors import LongpoleError, UsageError
from longpole_dashboard import pages, processes
from longpole_dashboard.source import Source, use
from longpole_dashboard.theme import STREAMLIT_THEME

log = logging.getLogger("longpole.dashboard.server")

SCRIPT = Path(__file__).parent / "script" / "main.py"
PAGES: Final = tuple(m.name for m in iter_modules(pages.__path__) if m.name != "base")
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]", "::1")

_POLICY: Final = (
    "default-src 'self'; "
    # Streamlit builds some scripts and styles at run time, its components from blobs.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def options(host: str, port: int, *, is_open: bool) -> dict[str, Any]:
    """Every Streamlit option the dashboard depends on; they win over the user's own files.

    Args:
        host: address to bind.
        port: port to bind.
        is_open: bound beyond this machine, so any host name is accepted.
    """
    return {
        "global.developmentMode": False,
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.allowedHosts": ["*"] if is_open else list(LOCAL_NAMES),
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.maxUploadSize": 20,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "client.disableDataExport": True,
        "runner.magicEnabled": False,
        **STREAMLIT_THEME,
    }


def index(request: Request) -> HTMLResponse:
    """Streamlit's page with the server's address in it.

    Without it the script, opened at ``/trace``, looks for the server below ``/trace`` first, which
    costs a second and leaves errors in the console.
    """
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    told = "<script>window.__streamlit = { BACKEND_BASE_URL: window.location.origin }</script>"
    return HTMLResponse(
        page.replace("<head>", f"<head>{told}", 1), headers={"cache-control": "no-cache"}
    )


class SecurityHeaders:
    """Adds the content security policy and its companions to every HTTP answer."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with the headers added to the answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def on_script_error(error: Exception) -> bool:
    """What a page says when it fails: our own errors' sentence, else one with the log's id."""
    if isinstance(error, LongpoleError):
        # Not at import: it pulls in Streamlit's caches, which warn before the server runs.
        from longpole_dashboard.app import fail

        fail(error)
        return True
    number = uuid.uuid4().hex[:8]
    log.error("page failed, id %s", number, exc_info=error)
    st.error(f"This page failed (id {number}; the log has it). The other pages still work.")
    return True


def app(*, is_open: bool) -> st.App:
    """The ASGI application: Streamlit behind a host check, headers and compression."""
    hosts = ["*"] if is_open else list(LOCAL_NAMES)
    return st.App(
        SCRIPT,
        routes=[Route(f"/{name}", index) for name in ("", *PAGES)],
        on_script_error=on_script_error,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
            Middleware(SecurityHeaders),
            # Streamlit leaves its own scripts uncompressed; they are most of the first load.
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5),
        ],
    )


def serve(source: Source, host: str, port: int, *, is_open: bool) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        source: where the data comes from.
        host: address to bind.
        port: port to bind; 0 lets the system choose; a taken one is an error.
        is_open: what :func:`processes.check_bind` said.

    Raises:
        UsageError: the port is taken.
    """
    if port and processes.free_port(port, host) != port:
        raise UsageError(f"port {port} on {host} is taken: choose another with --port")
    use(source, is_open=is_open)
    bootstrap.load_config_options(options(host, port, is_open=is_open))
    config = uvicorn.Config(
        app(is_open=is_open),
        host=host,
        port=port,
        ws="websockets-sansio",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    listener = config.bind_socket()
    address = f"http://{host}:{listener.getsockname()[1]}"
    sys.stderr.write(f"dashboard ready  {address}  {source.describe()}\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn stops cleanly on these and then raises them again.
        signal.signal(number, lambda *_: sys.exit(0))
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; returns the exit code (2: wrong usage)."""
    parser = argparse.ArgumentParser(prog="longpole_dashboard.server", description=__doc__)
    parser.add_argument("--host", default=processes.LOOPBACK)
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument("--insecure-no-auth", action="store_true")
    parser.add_argument("--url", help="a running collector")
    parser.add_argument("--db", type=Path, help="a data folder")
    parser.add_argument("files", nargs="*", type=Path, help="files of traces")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    try:
        source = Source(url=given.url, db=given.db, files=tuple(given.files))
        is_open = processes.check_bind(given.host, is_insecure=given.insecure_no_auth)
        serve(source, given.host, given.port, is_open=is_open)
    except LongpoleError as error:
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
