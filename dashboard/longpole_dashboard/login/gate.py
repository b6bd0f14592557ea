"""The gate in front of the dashboard: what may come in, from where, and as whom.

It stands before everything that the server has, static files, ``/_stcore/*`` and the websocket
alike. Whoever passes is named to the pages in a header of our own (:data:`VIEWER`), which is taken
off whatever comes from outside. A websocket is asked again at each message, so a logout, a removed
login and the end of twelve hours close it.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response

from longpole_dashboard.login.door import IS_PROXIED, Door
from longpole_dashboard.login.oidc import Provider
from longpole_dashboard.login.settings import Front, hostname
from longpole_dashboard.login.store import Logins

VIEWER: Final = "x-longpole-viewer"
"""The header that tells the pages who looks; only the gate sets it."""
READY: Final = "/healthz"
"""Answers 200 to everybody once the server serves."""
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
POLICY_VIOLATION: Final = 1008
"""How a websocket is closed whose login has ended (RFC 6455, 7.4.1)."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gate:
    """ASGI middleware; ``logins`` is needed where somebody has to log in."""

    def __init__(
        self,
        app: AsgiApp,
        front: Front,
        logins: Logins | None = None,
        provider: Provider | None = None,
    ) -> None:
        self.app = app
        self._front = front
        self._door = None
        if front.login is not None and logins is not None:
            self._door = Door(front, logins, provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may come in; answer the rest."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope = _as_told(scope, self._front)
        conn = HTTPConnection(scope)
        wrong = self._foreign(conn)
        if wrong is not None:
            await _answer(wrong, scope, receive, send)
        elif scope["path"] == READY and scope["type"] == "http":
            await _answer(PlainTextResponse("ok"), scope, receive, send)
        elif self._door is None:
            await self.app(scope, receive, send)
        else:
            await self._by_login(self._door, conn, scope, receive, send)

    def _foreign(self, conn: HTTPConnection) -> Response | None:
        """What is answered to a name that is not ours and to another site's page."""
        host = conn.headers.get("host", "")
        if not self._front.is_name(host):
            said = f"host '{host[:200]}' is not let in: add it to [dashboard] allowed_hosts"
            return PlainTextResponse(said, 400)
        origin = conn.headers.get("origin")
        is_safe = conn.scope["type"] == "http" and conn.scope["method"] in _SAFE
        if origin is None or is_safe:
            return None
        theirs = urlsplit(origin)
        if theirs.netloc == host or hostname(theirs.netloc) in self._front.hosts:
            # Streamlit would ask an outside service for our address to compare it with.
            ours = f"{theirs.scheme}://{host}".encode("latin-1")
            others = [pair for pair in conn.scope["headers"] if pair[0] != b"origin"]
            conn.scope["headers"] = [*others, (b"origin", ours)]
            return None
        return PlainTextResponse("a page of another site may not do this", 403)

    async def _by_login(
        self, door: Door, conn: HTTPConnection, scope: Scope, receive: Receive, send: Send
    ) -> None:
        name = door.viewer(conn)
        if scope["type"] == "websocket":
            if name is None:
                await _answer(PlainTextResponse("", 403), scope, receive, send)
                return
            guard = _Guard(lambda: door.viewer(conn) == name, receive, send)
            await self.app(_seen_as(name, scope), guard.receive, guard.send)
            return
        response = await door.answer(Request(scope, receive), name)
        if response is not None:
            await _answer(response, scope, receive, send)
        elif name is not None:
            await self.app(_seen_as(name, scope), receive, send)


class _Guard:
    """A websocket's two directions; closed at the first message after its login has ended."""

    def __init__(self, is_valid: Callable[[], bool], receive: Receive, send: Send) -> None:
        self._is_valid = is_valid
        self._receive = receive
        self._send = send
        self._is_closed = False

    async def receive(self) -> Message:
        """The next message, or the end."""
        message = await self._receive()
        if message["type"] == "websocket.receive" and not self._is_valid():
            self._is_closed = True
            await self._send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        return message

    async def send(self, message: Message) -> None:
        """Send, unless it is closed."""
        if not self._is_closed:
            await self._send(message)


def _as_told(scope: Scope, front: Front) -> Scope:
    """The request without what only we may say, and with what a proxy we trust says of it."""
    headers = [pair for pair in scope["headers"] if pair[0].lower() != VIEWER.encode()]
    client = scope.get("client")
    is_proxied = front.is_proxy(client[0] if client else None)
    told = {**scope, "headers": headers, IS_PROXIED: is_proxied}
    if is_proxied:
        conn = HTTPConnection(told)
        if "x-forwarded-for" in conn.headers:
            told["client"] = (conn.headers["x-forwarded-for"].rpartition(",")[2].strip(), 0)
        if conn.headers.get("x-forwarded-proto", "").lower() == "https":
            told["scheme"] = "wss" if scope["type"] == "websocket" else "https"
    return told


def _seen_as(name: str, scope: Scope) -> Scope:
    """The request with the viewer's name.

    A websocket loses the number of an earlier session: whoever comes back begins a new one, so
    that nobody can take up another's.
    """
    headers = [*scope["headers"], (VIEWER.encode(), quote(name).encode())]
    if scope["type"] != "websocket":
        return {**scope, "headers": headers}
    words = list(scope.get("subprotocols", ()))[:2]
    kept = [pair for pair in headers if pair[0] != b"sec-websocket-protocol"]
    if words:
        kept.append((b"sec-websocket-protocol", ", ".join(words).encode("latin-1")))
    return {**scope, "headers": kept, "subprotocols": words}


def viewer_in(headers: Mapping[str, str]) -> str | None:
    """The name that the gate has put into a request's headers; ``None`` without one."""
    return unquote(headers.get(VIEWER, "")) or None


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    await response(scope, receive, send)
