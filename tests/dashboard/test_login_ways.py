"""Ways to log in: through a proxy, by OpenID Connect; settings, and the command for users."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.dashboard.gate import GOOD, browser, cheap, dashboard, two_logins
from tests.dashboard.oidc import SECRET, FakeProvider

from longpole.cli import main
from longpole.errors import UsageError
from longpole_collector.keys import listed
from longpole_dashboard import server, settings
from longpole_dashboard.login import attempts as login_attempts
from longpole_dashboard.login import settings as login_settings
from longpole_dashboard.login import store as login_store
from longpole_dashboard.login.gate import Gate
from longpole_dashboard.login.oidc import Provider
from longpole_dashboard.login.settings import OIDC, PASSWORD, PROXY, Front, front
from longpole_dashboard.login.store import ANYONE, Logins
from longpole_dashboard.model import selection

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "dashboard.md"
PROXY_ADDRESS = "10.0.0.5"


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap(monkeypatch)


@pytest.fixture
def logins(tmp_path: Path, _cheap: None) -> Logins:
    return two_logins(tmp_path)


# --- behind a proxy -----------------------------------------------------------------------------
@asynccontextmanager
async def through(logins: Logins, peer: str) -> AsyncIterator[httpx.AsyncClient]:
    known = Front(
        is_open=True,
        login=PROXY,
        hosts=frozenset({"dash.example"}),
        proxies=(login_settings._network(PROXY_ADDRESS),),
    )
    base = "http://dash.example"
    async with browser(Gate(dashboard, known, logins), peer, base) as client:
        yield client


async def test_a_name_is_believed_from_the_listed_proxy_alone(logins: Logins) -> None:
    told = {"x-forwarded-user": "ann"}
    async with through(logins, PROXY_ADDRESS) as client:
        assert (await client.get("/", headers=told)).text == "behind as ann by http"
        secure = {**told, "x-forwarded-proto": "https", "x-forwarded-for": "1.2.3.4, 10.8.8.8"}
        assert (await client.get("/", headers=secure)).text == "behind as ann by https"
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers={"x-forwarded-user": "eve"})).status_code == 401
        refused = await client.get("/login", headers={"x-forwarded-user": "eve"})
        assert (refused.status_code, "&#x27;eve&#x27; has no login" in refused.text) == (403, True)
        logins.add(ANYONE)
        assert (await client.get("/", headers={"x-forwarded-user": "eve"})).status_code == 200
    async with through(logins, "10.0.0.6") as client:
        forged = {**told, "x-forwarded-for": PROXY_ADDRESS, "forwarded": f"for={PROXY_ADDRESS}"}
        assert (await client.get("/", headers=forged)).status_code == 401


async def test_a_password_behind_tls_gets_a_secure_cookie(logins: Logins) -> None:
    proxies = (login_settings._network(PROXY_ADDRESS),)
    gate = Gate(dashboard, Front(login=PASSWORD, proxies=proxies), logins)
    async with browser(gate, PROXY_ADDRESS) as client:
        form = {"name": "ann", "password": GOOD + "ann"}
        answer = await client.post("/login", data=form, headers={"x-forwarded-proto": "https"})
        assert "; secure" in answer.headers["set-cookie"].lower()


# --- by OpenID Connect --------------------------------------------------------------------------
@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider.serving() as found:
        yield found


def oidc(fake: FakeProvider, logins: Logins, **options: Any) -> Gate:
    given = {"issuer": fake.url, "client_id": "longpole", "client_secret": SECRET, **options}
    return Gate(dashboard, Front(login=OIDC), logins, Provider(**given))


async def arrive(client: httpx.AsyncClient, fake: FakeProvider) -> httpx.Response:
    """From the first page to the provider and back, as a browser goes."""
    first = await client.get("/trace?trace=3", headers={"accept": "text/html"})
    away = await client.get(first.headers["location"])
    assert away.status_code == 303
    async with httpx.AsyncClient() as outside:
        back = await outside.get(away.headers["location"])
    assert back.status_code == 302, back.text
    return await client.get(back.headers["location"])


async def test_who_the_provider_names_is_let_in(provider: FakeProvider, logins: Logins) -> None:
    logins.add("carl@shop.example")
    provider.claims = {"email": "carl@shop.example", "email_verified": True}
    async with browser(oidc(provider, logins)) as client:
        done = await arrive(client, provider)
        assert done.headers["location"] == "/trace?trace=3"
        assert (await client.get("/")).text == "behind as carl@shop.example by http"
        await client.post("/logout")
        assert (await client.get("/")).status_code == 401
    provider.claims = {"email": "eve@shop.example", "email_verified": True}
    async with browser(oidc(provider, logins)) as client:
        refused = await arrive(client, provider)
        assert (refused.status_code, "has no login here" in refused.text) == (403, True)
        assert (await client.get("/")).status_code == 401


async def test_claims_that_the_token_lacks_are_asked_for(
    provider: FakeProvider, logins: Logins
) -> None:
    logins.add("carl")
    provider.claims, provider.more = {}, {"preferred_username": "carl"}
    async with browser(oidc(provider, logins, claim="preferred_username")) as client:
        assert (await arrive(client, provider)).status_code == 303
    provider.more = {"preferred_username": "carl", "sub": "another"}
    async with browser(oidc(provider, logins, claim="preferred_username")) as client:
        assert "somebody else" in (await arrive(client, provider)).text
    provider.more = {}


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"email_verified": False}, "has not verified"),
        ({"email": None}, "tells no &#x27;email&#x27;"),
        ({"nonce": "another"}, "of another login"),
        ({"aud": "another"}, "not for this dashboard"),
        ({"aud": ["longpole", "another"], "azp": "another"}, "not for this dashboard"),
        ({"iss": "https://evil.example"}, "not for this dashboard"),
        ({"exp": 1}, "too old"),
        ({"exp": None}, "too old"),
    ],
)
async def test_a_token_that_does_not_fit_is_refused(
    provider: FakeProvider, logins: Logins, claims: dict[str, Any], says: str
) -> None:
    provider.claims = {"email": "ann", "email_verified": True, **claims}
    async with browser(oidc(provider, logins)) as client:
        refused = await arrive(client, provider)
        assert (refused.status_code, says in refused.text) == (403, True)
        assert (await client.get("/")).status_code == 401


async def test_an_answer_that_nobody_asked_for_is_refused(
    provider: FakeProvider, logins: Logins
) -> None:
    provider.claims = {"email": "ann", "email_verified": True}
    async with browser(oidc(provider, logins)) as client:
        away = await client.get("/login")
        async with httpx.AsyncClient() as outside:
            back = (await outside.get(away.headers["location"])).headers["location"]
        async with browser(oidc(provider, logins)) as another:
            assert (await another.get(back)).status_code == 400
        assert (await client.get(f"{back}x")).status_code == 400  # another state
        assert (await client.get("/login/callback?error=access_denied")).status_code == 400
        assert (await client.get(back)).status_code == 303
        assert (await client.get(back)).status_code == 400  # and once only


def test_a_provider_is_https_or_on_this_machine() -> None:
    for issuer in ("http://id.example", "ftp://127.0.0.1", "", "id.example"):
        with pytest.raises(UsageError, match="oidc_issuer"):
            Provider(issuer, "longpole")
    assert SECRET not in repr(Provider("https://id.example", "longpole", SECRET))


# --- settings and commands ----------------------------------------------------------------------
@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_beyond_this_machine_nobody_comes_in_without_a_login(configured: Path) -> None:
    for state in (None, configured):
        with pytest.raises(UsageError, match=r"no login.*--login password.*--insecure-no-auth"):
            front("0.0.0.0", state)
    assert front("127.0.0.1", configured) == Front()
    assert front("0.0.0.0", None, is_insecure=True) == Front(is_open=True)
    assert front("0.0.0.0", None, is_insecure=True).is_unguarded
    asked = front("0.0.0.0", configured, login=PASSWORD)
    assert (asked.login, asked.is_unguarded) == (PASSWORD, False)
    with pytest.raises(UsageError, match="--state"):
        front("0.0.0.0", None, login=PASSWORD)
    Logins(configured).add("ann")
    assert front("::", configured).login == PASSWORD
    assert front("127.0.0.1", configured).login is None
    with pytest.raises(UsageError, match="no login"):
        front("0.0.0.0", configured, login="none")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('login = "pasword"', "one of password, proxy, oidc, none"),
        ('login = "proxy"', "trusted_proxies"),
        ('login = "proxy"\ntrusted_proxies = "the proxy"', "is no address"),
        ('allowed_host = "a"', "did you mean 'allowed_hosts'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(configured: Path, lines: str, says: str) -> None:
    (configured / "longpole.toml").write_text(f"[dashboard]\n{lines}\n")
    with pytest.raises(UsageError, match=says):
        front("127.0.0.1", configured)


def test_settings_are_lists_of_names_and_networks(configured: Path) -> None:
    (configured / "longpole.toml").write_text(
        '[dashboard]\nlogin = "proxy"\nallowed_hosts = "Dash.Example, b"\n'
        'trusted_proxies = "10.0.0.0/8,::1"\nuser_header = "Remote-User"\n'
    )
    found = front("127.0.0.1", configured)
    assert found.hosts == {"dash.example", "b"}
    assert found.user_header == "remote-user"
    assert [found.is_proxy(peer) for peer in ("10.1.2.3", "::1", "11.0.0.1", "x", None)] == [
        *(True, True),
        *(False, False, False),
    ]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_users_are_added_listed_and_removed_with_their_keys(configured: Path) -> None:
    done = run("users", "add", "ann", "--project", "shop", "--db", "data")
    assert done.exit_code == 0
    token = done.stdout.strip().partition("/login/set?token=")[2]
    logins = Logins(Path("data"))
    assert logins.by_link(token) == logins.find("ann")
    (key,) = listed(Path("data"))
    assert (key.project, key.scope) == ("shop", "read")
    again = run("users", "link", "ann", "--db", "data", "--json")
    assert json.loads(again.stdout)["link"].startswith("http://127.0.0.1:8501/login/set?token=")
    assert logins.by_link(token) is None
    Path("key").write_text("lp_12345678_remote\n")
    assert run("users", "add", "bob", "--key-file", "key", "--db", "data").exit_code == 0
    shown = run("users", "list", "--db", "data", "--json")
    assert json.loads(shown.stdout) == {
        "schema": "longpole.users/1",
        "users": [
            {"name": "ann", "project": "shop", "has_password": False},
            {"name": "bob", "project": None, "has_password": False},
        ],
    }
    for secret in ("lp_", token):
        assert secret not in shown.stdout
    for name in ("ann", "bob"):
        assert run("users", "remove", name, "--db", "data").exit_code == 0
    assert listed(Path("data")) == []
    for wrong in (("remove", "ann"), ("link", "ann"), ("add", "x", "--project", "Sh/op")):
        done = run("users", *wrong, "--db", "data")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_the_documentation_names_pages_settings_and_parameters_that_exist() -> None:
    told = DOCUMENTATION.read_text("utf-8")
    pages = told.split("## Pages")[1].split("An address is a view")[0]
    assert set(re.findall(r"`/([a-z]+)", pages)) == set(server.PAGES)
    named = set(re.findall(r"^([a-z_]+) = ", told, re.MULTILINE))
    assert named <= set(settings.DEFAULTS)
    assert {key for key in settings.DEFAULTS if key.startswith(("oidc", "tls"))} <= named
    bar = told.split("| parameter | values |")[1].split("\n\n")[0]
    assert all(f"`{name}`" in bar for name in selection.NAMES)
    assert f"{login_store.MIN_CHARACTERS} characters" in told
    assert f"{login_attempts.MAX_FAILED} failed ones" in told
