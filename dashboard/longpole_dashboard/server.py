"""The dashboard's own server: Streamlit under uvicorn with every option set here.

``python -m longpole_dashboard.server --port 8501 --url http://127.0.0.1:4318`` serves one source
of data until SIGINT or SIGTERM. Nothing leaves the host: no usage statistics, no web fonts, and a
content security policy that makes the browser refuse any other origin.
"""

import argparse
import ctypes
import logging
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

import streamlit as st
import uvicorn
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route
from streamlit.web import bootstrap

from longpole.errors import LongpoleError, UsageError
from longpole_dashboard import assets, pages, processes
from longpole_dashboard.login import scope as login_scope
from longpole_dashboard.login import settings as login_settings
from longpole_dashboard.login.gate import (
    POLICY_VIOLATION,
    AsgiApp,
    Gate,
    Message,
    Receive,
    Scope,
    Send,
)
from longpole_dashboard.login.oidc import Provider
from longpole_dashboard.login.settings import Front, invitation
from longpole_dashboard.login.store import Logins, invite
from longpole_dashboard.source import Source, use
from longpole_dashboard.theme import STREAMLIT_THEME

log = logging.getLogger("longpole.dashboard.server")

_M_ARENA_MAX: Final = -8
"""Of mallopt(3)."""
SCRIPT = Path(__file__).parent / "script" / "main.py"
PAGES: Final = tuple(m.name for m in iter_modules(pages.__path__) if m.name != "base")

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
    # not no-referrer: browsers would hide from which page a form was sent (Origin: null)
    (b"referrer-policy", b"same-origin"),
)
_TOLD: Final = f"""<script>
window.__streamlit = {{ BACKEND_BASE_URL: window.location.origin }};
window.WebSocket = class extends WebSocket {{
  constructor(...given) {{
    super(...given);
    this.addEventListener("close", (end) => end.code === {POLICY_VIOLATION} && location.reload());
  }}
}};
addEventListener("vite:preloadError", async () => {{
  if ((await fetch("/_stcore/health")).status === 401) location.reload();
}});
</script>"""


class _PageName(Convertor[str]):
    """The address of a page, there or not; files and what Streamlit has of its own are none."""

    regex = "[A-Za-z0-9_-]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("page", _PageName())


def options(host: str, port: int) -> dict[str, Any]:
    """Every Streamlit option the dashboard depends on; they win over the user's own files.

    Args:
        host: address to bind.
        port: port to bind.
    """
    return {
        "global.developmentMode": False,
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.allowedHosts": ["*"],  # the gate in front has refused all names but ours
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.maxUploadSize": 20,
        # a page that comes back is drawn from its address; one kept for it holds megabytes
        "server.disconnectedSessionTTL": 20,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "client.disableDataExport": True,
        "runner.magicEnabled": False,
        **STREAMLIT_THEME,
    }


def index(told: str, *, is_asked: bool) -> Callable[[Request], HTMLResponse]:
    """Answers with Streamlit's page, the server's address and ``told`` in its head.

    ``is_asked``: what the page will ask is asked ahead of it.

    Without the address the script, opened at ``/trace``, looks for the server below ``/trace``
    first, which costs a second and leaves errors in the console. A page whose login has ended,
    here or in another tab, is loaded anew: that leads to the form.
    """
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    page = page.replace("<head>", f"<head>{_TOLD}", 1).replace("</head>", f"{told}</head>", 1)

    def answer(request: Request) -> HTMLResponse:
        if is_asked:
            # Not at import: it pulls in Streamlit's caches, which warn before the server runs.
            from longpole_dashboard import ahead

            ahead.begin(request.path_params.get("name", ""), request.url.query)
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    return answer


def home(request: Request) -> RedirectResponse:
    """The first page by its name: Streamlit gives its default page no address but the root."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/{query}", status_code=307)


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


def app(front: Front, logins: Logins | None = None, provider: Provider | None = None) -> st.App:
    """The ASGI application: Streamlit behind the gate, headers and compression.

    Args:
        front: who is let in.
        logins: those who may log in, where somebody has to.
        provider: who says who they are, where that is OpenID Connect.
    """
    files = assets.warmed(assets.static())
    # Where people log in, what is asked depends on who does.
    page = index(assets.head(files), is_asked=logins is None)
    return st.App(
        SCRIPT,
        routes=[Route("/", page), Route("/overview", home), Route("/{name:page}", page)],
        on_script_error=on_script_error,
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(Gate, front=front, logins=logins, provider=provider),
            Middleware(assets.Assets, static=files),
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5),
        ],
    )


def share_heaps() -> None:
    """Have all threads share two heaps, where the C library is glibc.

    It gives threads heaps of their own, and Streamlit starts a thread a session: each heap keeps
    the room of the largest run that it ever saw.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_M_ARENA_MAX, 2)


def serve(source: Source, host: str, port: int, front: Front, state: Path | None = None) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        source: where the data comes from.
        host: address to bind.
        port: port to bind; 0 lets the system choose; a taken one is an error.
        front: who is let in.
        state: folder of the logins, where somebody has to log in.

    Raises:
        UsageError: the port is taken, or the way to log in is not fully configured.
    """
    if port and processes.free_port(port, host) != port:
        raise UsageError(f"port {port} on {host} is taken: choose another with --port")
    logins = Logins(state) if front.login is not None and state is not None else None
    if logins is None:
        use(source, is_open=front.is_unguarded)
    else:
        use(source, seen=login_scope.Scoped(logins), viewer=login_scope.viewer)
    bootstrap.load_config_options(options(host, port))
    tls = login_settings.tls()
    config = uvicorn.Config(
        app(front, logins, login_settings.provider(front)),
        host=host,
        port=port,
        ws="websockets-sansio",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        proxy_headers=False,  # the gate believes those proxies that are listed
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
    )
    listener = config.bind_socket()
    port = listener.getsockname()[1]
    address = login_settings.address(host, port)
    sys.stderr.write(f"dashboard ready  {address}  {source.describe()}\n")
    if front.login == login_settings.PASSWORD and state is not None:
        token = invite(state, is_told=True)
        sys.stderr.write(f"{invitation(host, port, token)}\n" if token else "")
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn stops cleanly on these and then raises them again.
        signal.signal(number, lambda *_: sys.exit(0))
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; returns the exit code (2: wrong usage)."""
    parser = argparse.ArgumentParser(prog="longpole_dashboard.server", description=__doc__)
    parser.add_argument("--host", default=processes.LOOPBACK)
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument("--login", choices=login_settings.WAYS, help="how people log in")
    parser.add_argument("--insecure-no-auth", action="store_true")
    parser.add_argument("--state", type=Path, help="data folder with the logins (default --db)")
    parser.add_argument("--url", help="a running collector")
    parser.add_argument("--db", type=Path, help="a data folder")
    parser.add_argument("--project", help="project in --db, or the one that the key opens")
    parser.add_argument("files", nargs="*", type=Path, help="files of traces")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    share_heaps()
    try:
        told = given.project if given.url else None
        source = Source(url=given.url, db=given.db, files=tuple(given.files), project=told)
        source = source.narrowed(given.project)
        state = given.state or given.db
        front = login_settings.front(
            given.host, state, is_insecure=given.insecure_no_auth, login=given.login
        )
        serve(source, given.host, given.port, front, state)
    except LongpoleError as error:
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
