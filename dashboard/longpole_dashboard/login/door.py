"""The door of the dashboard: who somebody is, and the pages on which they say so."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from longpole.errors import UsageError
from longpole_dashboard.login import pages as login_pages
from longpole_dashboard.login.attempts import Attempts, network_of
from longpole_dashboard.login.oidc import Provider, Refused
from longpole_dashboard.login.settings import OIDC, PASSWORD, PROXY, Front
from longpole_dashboard.login.store import ANYONE, Login, Logins

log = logging.getLogger("longpole.dashboard.login")

LIFETIME_S: Final = 12 * 3_600
IS_PROXIED: Final = "longpole.is_proxied"
"""In a request's scope: whether it comes from a proxy that is believed."""
_COOKIE: Final = "longpole_login"
_ON_ITS_WAY: Final = "longpole_oidc"
_ON_ITS_WAY_S: Final = 600
_MAX_FORM_BYTES: Final = 8_192
_MAX_CHECKING: Final = 16
"""Passwords checked or waiting for it; each takes 32 MiB for a moment."""
_USED: Final = "This link was used, or is too old: ask for another (longpole users link NAME)."
_NOT_BEGUN: Final = "This login was not begun here, or is too old."


class Door:
    """Who somebody is, and the pages on which they say so."""

    def __init__(self, front: Front, logins: Logins, provider: Provider | None) -> None:
        self._front = front
        self._logins = logins
        self._provider = provider
        self._attempts = Attempts()
        self._num_checking = 0
        self._checking = asyncio.Semaphore(2)
        self._signer = URLSafeTimedSerializer(logins.secret(), salt=_COOKIE)
        self._on_its_way = URLSafeTimedSerializer(logins.secret(), salt=_ON_ITS_WAY)
        self._pages: dict[tuple[str, str], Callable[[Request, str | None], Awaitable[Response]]] = {
            ("GET", "/login"): self._login,
            ("GET", "/logout"): self._ask_logout,
            ("POST", "/logout"): self._logout,
        }
        if front.login == PASSWORD:
            self._pages |= {
                ("POST", "/login"): self._take_login,
                ("GET", "/login/set"): self._set,
                ("POST", "/login/set"): self._take_set,
            }
        if front.login == OIDC:
            self._pages[("GET", "/login/callback")] = self._come_back

    def viewer(self, conn: HTTPConnection) -> str | None:
        """Who that is; ``None`` if they have not said so, or not so that it counts."""
        if self._front.login == PROXY:
            if not conn.scope[IS_PROXIED]:
                return None
            name = conn.headers.get(self._front.user_header, "")
            return name if name and self._login_of(name) else None
        found = self._cookie(conn)
        return found[0] if found else None

    async def answer(self, request: Request, name: str | None) -> Response | None:
        """What is answered here; ``None`` if the dashboard may."""
        page = self._pages.get((request.method, request.url.path))
        if page is not None:
            return await page(request, name)
        if name is not None:
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            onward = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?{urlencode({'next': onward})}", 303)
        return PlainTextResponse("log in first, at /login", 401)

    # --- who it is ------------------------------------------------------------------------------
    def _login_of(self, name: str) -> Login | None:
        """A login that may be used now; one for anyone only where somebody else vouches."""
        found = self._logins.find(name)
        if found is None and self._front.login != PASSWORD:
            found = self._logins.find(ANYONE)
        return found

    def _cookie(self, conn: HTTPConnection) -> tuple[str, str] | None:
        """Name and number of a cookie that is good."""
        try:
            name, number, stamp = self._signer.loads(
                conn.cookies.get(_COOKIE, ""), max_age=LIFETIME_S
            )
        except (BadData, ValueError, TypeError):
            return None
        login = self._login_of(name)
        if login is None or login.stamp != stamp or self._logins.is_ended(number):
            return None
        return name, number

    def _let_in(self, request: Request, name: str, login: Login, onward: str) -> Response:
        response = RedirectResponse(_local(onward), 303)
        value = self._signer.dumps([name, secrets.token_hex(16), login.stamp])
        _set_cookie(response, request, _COOKIE, value, LIFETIME_S)
        return response

    # --- pages ----------------------------------------------------------------------------------
    async def _login(self, request: Request, name: str | None) -> Response:
        onward = request.query_params.get("next", "/")
        if name is not None:
            return RedirectResponse(_local(onward), 303)
        if self._provider is not None:
            return await self._send_away(request, self._provider, onward)
        if self._front.login == PROXY:
            who = request.headers.get(self._front.user_header, "")
            is_told = bool(who) and request.scope[IS_PROXIED]
            reason = (
                f"'{who}' has no login here" if is_told else "The proxy does not say who you are"
            )
            return login_pages.said(f"{reason}: see `longpole users`.", 403)
        return login_pages.login(onward)

    async def _take_login(self, request: Request, name: str | None) -> Response:
        form = await _form(request)
        given, onward = form.get("name", ""), form.get("next", "/")
        peer = request.client.host if request.client else ""
        whose = (f"address {network_of(peer)}", f"name {given[:200]}")
        wait_s = self._attempts.wait_s(*whose)
        if wait_s or self._num_checking >= _MAX_CHECKING:
            said = "Too many tries: wait a while, then try again."
            page = login_pages.login(onward, given, said, 429)
            page.headers["retry-after"] = str(int(wait_s) + 1)
            return page
        self._attempts.begin(*whose)
        self._num_checking += 1
        try:
            async with self._checking:
                login = await asyncio.to_thread(self._logins.check, given, form.get("password", ""))
        finally:
            self._num_checking -= 1
        if login is None:
            log.warning("a login failed, from %s", peer)
            return login_pages.login(onward, given, "Name or password is wrong.", 401)
        self._attempts.succeeded(*whose)
        return self._let_in(request, login.name, login, onward)

    async def _set(self, request: Request, name: str | None) -> Response:
        token = request.query_params.get("token", "")
        login = self._logins.by_link(token)
        if login is None:
            return login_pages.said(_USED, 410)
        return login_pages.set_password(login.name, token)

    async def _take_set(self, request: Request, name: str | None) -> Response:
        form = await _form(request)
        token, password = form.get("token", ""), form.get("password", "")
        known = self._logins.by_link(token)
        if known is None:
            return login_pages.said(_USED, 410)
        if password != form.get("again", ""):
            return login_pages.set_password(known.name, token, "The two are not the same.", 400)
        try:
            async with self._checking:
                login = await asyncio.to_thread(self._logins.set_password, token, password)
        except UsageError as error:
            return login_pages.set_password(known.name, token, str(error), 400)
        if login is None:
            return login_pages.said(_USED, 410)
        return self._let_in(request, login.name, login, "/")

    async def _ask_logout(self, request: Request, name: str | None) -> Response:
        return RedirectResponse("/login", 303) if name is None else login_pages.leave(name)

    async def _logout(self, request: Request, name: str | None) -> Response:
        if found := self._cookie(request):
            self._logins.end(found[1], LIFETIME_S)
        response = login_pages.said("You are logged out.", 200)
        response.delete_cookie(_COOKIE)
        return response

    # --- an identity provider -------------------------------------------------------------------
    async def _send_away(self, request: Request, provider: Provider, onward: str) -> Response:
        try:
            begun = await provider.begin(_callback(request))
        except Refused as error:
            log.warning("login by OIDC: %s", error)
            return login_pages.said(f"Login failed: {error}.", 502)
        response = RedirectResponse(begun.url, 303)
        kept = self._on_its_way.dumps([begun.state, begun.nonce, begun.verifier, _local(onward)])
        _set_cookie(response, request, _ON_ITS_WAY, kept, _ON_ITS_WAY_S)
        return response

    async def _come_back(self, request: Request, name: str | None) -> Response:
        try:
            state, nonce, verifier, onward = self._on_its_way.loads(
                request.cookies.get(_ON_ITS_WAY, ""), max_age=_ON_ITS_WAY_S
            )
        except (BadData, ValueError, TypeError):
            return login_pages.said(_NOT_BEGUN, 400)
        if not secrets.compare_digest(
            request.query_params.get("state", "").encode(), state.encode()
        ):
            return login_pages.said(_NOT_BEGUN, 400)
        try:
            if self._provider is None or "code" not in request.query_params:
                raise Refused("the provider let nobody in")
            code = request.query_params["code"]
            who = await self._provider.finish(code, _callback(request), nonce, verifier)
        except Refused as error:
            log.warning("login by OIDC: %s", error)
            return login_pages.said(f"Login failed: {error}.", 403)
        login = self._login_of(who)
        if login is None:
            return login_pages.said(f"'{who}' has no login here: see `longpole users`.", 403)
        response = self._let_in(request, who, login, onward)
        response.delete_cookie(_ON_ITS_WAY)
        return response


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; empty if it is none or too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _set_cookie(response: Response, request: Request, name: str, value: str, age_s: int) -> None:
    response.set_cookie(
        name,
        value,
        max_age=age_s,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def _callback(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers['host']}/login/callback"


def _local(onward: str) -> str:
    """A path of this server; the first page in place of anything else."""
    parts = urlsplit(onward)
    is_path = onward.startswith("/") and not onward.startswith(("//", "/\\"))
    is_plain = onward.isprintable() and not parts.scheme and not parts.netloc
    return onward if is_path and is_plain and not parts.path.startswith("/log") else "/"
