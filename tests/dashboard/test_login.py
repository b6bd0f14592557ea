"""The gate: nothing comes in before a login, from elsewhere, or by another's page."""

import stat
import time
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.gate import BASE, GOOD, Socket, browser, cheap, dashboard, log_in, two_logins

from longpole_dashboard.login import attempts as login_attempts
from longpole_dashboard.login import door as login_door
from longpole_dashboard.login import store as login_store
from longpole_dashboard.login.gate import VIEWER, Gate
from longpole_dashboard.login.settings import PASSWORD, Front
from longpole_dashboard.login.store import Logins, invite


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap(monkeypatch)


@pytest.fixture
def logins(tmp_path: Path, _cheap: None) -> Logins:
    return two_logins(tmp_path)


@pytest.fixture
def gate(logins: Logins) -> Gate:
    return Gate(dashboard, Front(login=PASSWORD), logins)


# --- without a login ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/", "/trace?trace=1", "/static/js/main.js", "/_stcore/health", "/media/x", "/nothing"]
)
async def test_nothing_is_shown_before_a_login(gate: Gate, path: str) -> None:
    async with browser(gate) as client:
        as_page = await client.get(path, headers={"accept": "text/html,*/*"})
        assert as_page.status_code == 303
        assert as_page.headers["location"].startswith("/login?next=%2F")
        assert (await client.get(path)).status_code == 401
        assert (await client.put(path)).status_code == 401
        assert (await client.get("/healthz")).text == "ok"
        form = await client.get("/login")
        assert form.status_code == 200
        assert 'type="password"' in form.text


async def test_only_the_gate_names_the_viewer(gate: Gate) -> None:
    async with browser(gate) as client:
        forged = {VIEWER: "ann", "X-Longpole-Viewer": "ann"}
        assert (await client.get("/", headers=forged)).status_code == 401
        assert (await log_in(client, "bob")).status_code == 303
        assert (await client.get("/", headers=forged)).text == "behind as bob by http"
    async with browser(Gate(dashboard, Front())) as client:
        assert (await client.get("/", headers=forged)).text == "behind as None by http"


# --- with a password ----------------------------------------------------------------------------
async def test_a_login_leads_on_lasts_and_ends_with_logout(gate: Gate) -> None:
    async with browser(gate) as client:
        answer = await log_in(client, "ann", "/trace?trace=7")
        assert answer.headers["location"] == "/trace?trace=7"
        cookie = answer.headers["set-cookie"].lower()
        assert {"httponly", "samesite=lax", "max-age=43200", "path=/"} <= set(cookie.split("; "))
        assert "secure" not in cookie
        assert (await client.get("/")).text == "behind as ann by http"
        kept = client.cookies["longpole_login"]
        assert "Log out" in (await client.get("/logout")).text
        assert (await client.get("/")).status_code == 200  # a look at that page is no logout
        assert "logged out" in (await client.post("/logout")).text
        assert (await client.get("/")).status_code == 401
        stolen = {"cookie": f"longpole_login={kept}"}
        assert (await client.get("/", headers=stolen)).status_code == 401


@pytest.mark.parametrize(
    "onward",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", "evil", ""],
)
async def test_a_login_never_leads_elsewhere(gate: Gate, onward: str) -> None:
    async with browser(gate) as client:
        assert (await log_in(client, "ann", onward)).headers["location"] == "/"


async def test_a_cookie_is_void_when_tampered_with_too_old_or_its_login_changes(
    gate: Gate, logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(gate) as client:
        await log_in(client, "ann")
        kept = client.cookies["longpole_login"]

        async def is_let_in(cookie: str) -> bool:
            header = {"cookie": f"longpole_login={cookie}"}
            return (await client.get("/", headers=header)).status_code == 200

        client.cookies.clear()
        assert await is_let_in(kept)
        payload, at, mark = kept.split(".")
        await log_in(client, "bob")
        others = client.cookies["longpole_login"].split(".")
        client.cookies.clear()
        for forged in (
            ".".join((others[0], at, mark)),
            ".".join((payload, others[1][::-1], mark)),
            f"{payload}.{at}.{mark[:-1]}",
            f"{payload}..",
            "",
            "ann",
        ):
            assert not await is_let_in(forged)
        with monkeypatch.context() as patch:
            patch.setattr(login_door, "LIFETIME_S", -1)
            assert not await is_let_in(kept)
        assert await is_let_in(kept)
        logins.set_password(logins.new_link("ann"), GOOD + "ann")
        assert not await is_let_in(kept)
        await log_in(client, "bob")
        assert (await client.get("/")).status_code == 200
        logins.remove("bob")
        assert (await client.get("/")).status_code == 401


async def test_wrong_names_and_passwords_are_told_alike_and_slowed_down(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(gate) as client, browser(gate, "10.9.9.9") as elsewhere:
        pages = []
        for name in ("ann", "nobody"):
            answer = await client.post("/login", data={"name": name, "password": "wrong"})
            assert answer.status_code == 401
            assert GOOD not in answer.text
            pages.append(answer.text.replace(name, "NAME"))
        assert pages[0] == pages[1]
        for _ in range(login_attempts.MAX_FAILED - 2):
            await client.post("/login", data={"name": "x", "password": "wrong"})
        late = await log_in(client, "ann")
        assert late.status_code == 429
        assert int(late.headers["retry-after"]) > 0
        assert (await log_in(elsewhere, "ann")).status_code == 303
        for i in range(login_attempts.MAX_FAILED):
            async with browser(gate, f"10.1.0.{i}") as one:
                await one.post("/login", data={"name": "bob", "password": "wrong"})
        async with browser(gate, "10.2.0.1") as one:
            assert (await log_in(one, "bob")).status_code == 429
        monkeypatch.setattr(login_attempts, "WINDOW_S", 0.0)
        assert (await log_in(client, "ann")).status_code == 303


async def test_oversized_and_broken_forms_are_refused(gate: Gate) -> None:
    async with browser(gate) as client:
        for body in (b"name=ann&password=" + b"x" * 100_000, b"\xff\x00", b"", b"{}"):
            assert (await client.post("/login", content=body)).status_code == 401
        assert (await client.post("/login/set", content=b"token=")).status_code == 410


async def test_a_link_sets_a_password_once(tmp_path: Path, logins: Logins, gate: Gate) -> None:
    logins.add("<b>eve</b>")
    token = logins.new_link("<b>eve</b>")
    async with browser(gate) as client:
        page = await client.get("/login/set", params={"token": token})
        assert "<b>eve</b>" not in page.text
        assert "&lt;b&gt;eve&lt;/b&gt;" in page.text
        assert page.headers["cache-control"] == "no-store"
        for form, says in (
            ({"password": GOOD, "again": "other"}, "not the same"),
            ({"password": "short", "again": "short"}, "12 to 1024 characters"),
        ):
            answer = await client.post("/login/set", data={"token": token, **form})
            assert answer.status_code == 400
            assert says in answer.text
        form = {"token": token, "password": GOOD, "again": GOOD}
        assert (await client.post("/login/set", data=form)).status_code == 303
        assert (await client.get("/")).text == "behind as <b>eve</b> by http"
        assert (await client.post("/login/set", data=form)).status_code == 410
        assert (await client.get("/login/set", params={"token": token})).status_code == 410
    kept = kept_in(tmp_path)
    assert len(kept) == 3
    assert not any(GOOD in text or token in text for text in kept)


def kept_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.rglob("*.json")]


def test_a_link_ends_by_itself_and_with_the_next_one(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = logins.new_link("ann"), logins.new_link("ann")
    assert logins.by_link(first) is None
    assert logins.by_link("") is None
    assert logins.by_link(second) == logins.find("ann")
    now_s = time.time()
    monkeypatch.setattr(login_store.time, "time", lambda: now_s + login_store.LINK_S + 1)
    assert logins.by_link(second) is None


def test_the_first_start_invites_until_somebody_has_a_password(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = invite(folder)
    assert first
    assert invite(folder, is_told=True) is None
    second = invite(folder)
    assert second
    logins = Logins(folder)
    assert logins.set_password(first, GOOD) is None
    assert logins.set_password(second, GOOD)
    assert invite(folder) is None
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_hash_is_salted_costly_and_survives_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_store, "_LOG_N", 15)
    hashed = login_store.hash_password(GOOD)
    assert hashed.startswith("scrypt$15$8$3$")
    assert login_store.is_password(GOOD, hashed)
    monkeypatch.setattr(login_store, "_LOG_N", 4)
    assert login_store.hash_password(GOOD) != login_store.hash_password(GOOD)
    for damaged in ("", "scrypt$4$8$3$zz$zz", "plain$4$8$3$00$00", hashed[:-9]):
        assert not login_store.is_password(GOOD, damaged)


# --- where from ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "local", "beyond"),
    [
        ("127.0.0.1:8501", 200, 200),
        ("LOCALHOST", 200, 200),
        ("[::1]:8501", 200, 200),
        ("dash.example:443", 200, 200),
        ("192.168.7.7:8501", 400, 200),
        ("evil.example", 400, 400),
        ("dash.example.evil.example", 400, 400),
        ("127.0.0.1@evil.example", 400, 400),
        ("127.0.0.1:x", 400, 400),
        ("", 400, 400),
    ],
)
async def test_only_our_names_are_answered_to(host: str, local: int, beyond: int) -> None:
    for is_open, status in ((False, local), (True, beyond)):
        known = Front(is_open=is_open, hosts=frozenset({"dash.example"}))
        async with browser(Gate(dashboard, known)) as client:
            answer = await client.get("/", headers={"host": host})
            assert answer.status_code == status
            assert status == 200 or "[dashboard] allowed_hosts" in answer.text


async def test_another_sites_page_can_post_nothing(gate: Gate) -> None:
    async with browser(gate) as client:
        await log_in(client, "ann")
        for origin in ("https://evil.example", "http://127.0.0.1:9999", "null"):
            for path in ("/logout", "/login", "/_stcore/upload_file/1"):
                answer = await client.post(path, headers={"origin": origin})
                assert answer.status_code == 403
        assert (await client.post("/logout", headers={"origin": BASE})).status_code == 200


async def test_the_websocket_needs_a_login_and_our_origin(gate: Gate, logins: Logins) -> None:
    async with browser(gate) as client:
        await log_in(client, "ann")
        cookie = f"longpole_login={client.cookies['longpole_login']}"
    assert await Socket(gate, "hi").run() == ["close"]
    assert await Socket(gate, "hi", **{VIEWER: "ann"}).run() == ["close"]
    assert await Socket(gate, "hi", cookie=cookie).run() == ["accept", "send"]
    assert await Socket(gate, "hi", cookie=cookie, origin=BASE).run() == ["accept", "send"]
    for origin in ("http://evil.example", "http://127.0.0.1:9", "null"):
        assert await Socket(gate, "hi", cookie=cookie, origin=origin).run() == ["close"]
    assert await Socket(gate, "hi", cookie=cookie, host="evil.example").run() == ["close"]


async def test_an_open_websocket_closes_when_its_login_ends(gate: Gate, logins: Logins) -> None:
    async with browser(gate) as client:
        await log_in(client, "ann")
        socket = Socket(gate, "1", "2", cookie=f"longpole_login={client.cookies['longpole_login']}")
    was_asked = socket.receive

    async def receive() -> dict[str, Any]:
        message = await was_asked()
        if message.get("text") == "2":
            logins.remove("ann")
        return message

    socket.receive = receive  # type: ignore[method-assign]
    assert await socket.run() == ["accept", "send", "close"]


async def test_nobody_takes_up_anothers_session(logins: Logins) -> None:
    seen: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            seen.append((scope["subprotocols"], dict(scope["headers"])[b"sec-websocket-protocol"]))

    gate = Gate(behind, Front(login=PASSWORD), logins)
    async with browser(Gate(dashboard, Front(login=PASSWORD), logins)) as client:
        await log_in(client, "ann")
        cookie = f"longpole_login={client.cookies['longpole_login']}"
    words = {"sec-websocket-protocol": "streamlit, token, session-of-bob"}
    await Socket(gate, cookie=cookie, **words).run()
    assert seen == [(["streamlit", "token"], b"streamlit, token")]
