"""Who is let in to the dashboard, as flags and ``[dashboard]`` say it."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from longpole import config
from longpole.errors import UsageError
from longpole_dashboard import processes
from longpole_dashboard.login.oidc import Provider
from longpole_dashboard.login.store import FIRST_NAME, LINK_S, has_logins
from longpole_dashboard.settings import DEFAULTS

PASSWORD: Final = "password"  # noqa: S105 - a way to log in
PROXY: Final = "proxy"
OIDC: Final = "oidc"
NONE: Final = "none"
WAYS: Final = (PASSWORD, PROXY, OIDC, NONE)
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]", "::1")

Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Front:
    """Who is let in.

    Attributes:
        is_open: bound to an address that other machines reach.
        login: one of :data:`WAYS` but ``none``, or ``None``.
        hosts: names besides this machine's that requests may be addressed to, lower case.
        proxies: from where the ``X-Forwarded-*`` headers and the user's name are believed.
        user_header: the header in which a proxy names the user, lower case.
    """

    is_open: bool = False
    login: str | None = None
    hosts: frozenset[str] = frozenset()
    proxies: tuple[Network, ...] = ()
    user_header: str = "x-forwarded-user"

    @property
    def is_unguarded(self) -> bool:
        """Other machines reach it, and nobody has to log in."""
        return self.is_open and self.login is None

    def is_name(self, host: str) -> bool:
        """Whether a ``Host`` header is one that this server is called by.

        An address may be any where other machines reach the server: a page of somebody else's
        can make a name point here, never an address.
        """
        name = hostname(host)
        if name is None:
            return False
        return name in LOCAL_NAMES or name in self.hosts or (self.is_open and _is_address(name))

    def is_proxy(self, address: str | None) -> bool:
        """Whether what comes from this address is believed."""
        try:
            found = ip_address(address or "")
        except ValueError:
            return False
        return any(found in network for network in self.proxies)


def front(
    host: str, state: Path | None, *, is_insecure: bool = False, login: str | None = None
) -> Front:
    """The flags and the configuration together.

    Args:
        host: address to bind.
        state: folder of the logins; ``None`` if there is none.
        is_insecure: the flag ``--insecure-no-auth``.
        login: the flag ``--login``; without it the configuration decides, and without that a
            password is asked for where other machines reach the server and there are logins.

    Raises:
        UsageError: others reach the server, nobody has to log in, and nobody said that is
            wanted; or a value that cannot be.
    """
    found = {key: setting.value for key, setting in config.settings("dashboard", DEFAULTS).items()}
    way = login or found["login"]
    if way is not None and way not in WAYS:
        raise UsageError(f"[dashboard] login '{way}': it is one of {', '.join(WAYS)}")
    is_open = processes.is_beyond(host)
    if way is None and not is_insecure and is_open and state is not None and has_logins(state):
        way = PASSWORD
    way = None if way == NONE else str(way) if way else None
    processes.check_bind(host, is_insecure=is_insecure, has_login=way is not None)
    if way is not None and state is None:
        raise UsageError(f"--login {way} needs a folder for the logins: add --state DIR")
    proxies = tuple(_network(word) for word in _words(found["trusted_proxies"]))
    if way == PROXY and not proxies:
        raise UsageError("--login proxy needs the proxy's address: [dashboard] trusted_proxies")
    return Front(
        is_open=is_open,
        login=way,
        hosts=frozenset(word.lower() for word in _words(found["allowed_hosts"])),
        proxies=proxies,
        user_header=str(found["user_header"]).lower(),
    )


class Tls(NamedTuple):
    """The server's own certificate and its key, both files in PEM."""

    certificate: str
    key: str


def tls() -> Tls | None:
    """What TLS is served with; ``None`` for plain HTTP.

    Raises:
        UsageError: only one of the two is named, or one is no file.
    """
    found = config.settings("dashboard", DEFAULTS)
    names = [str(found[key].value or "") for key in ("tls_certificate", "tls_key_file")]
    if not any(names):
        return None
    for name in names:
        if not Path(name).is_file():
            said = f"'{name}' is no file" if name else "name both"
            raise UsageError(f"[dashboard] tls_certificate and tls_key_file: {said}")
    return Tls(*names)


def provider(front: Front) -> Provider | None:
    """The identity provider, where that is how people log in.

    Raises:
        UsageError: it is not fully configured.
    """
    if front.login != OIDC:
        return None
    found = config.settings("dashboard", DEFAULTS)
    secret = found["oidc_client_secret"].value
    return Provider(
        issuer=str(found["oidc_issuer"].value),
        client_id=str(found["oidc_client_id"].value),
        client_secret=str(secret) if secret else None,
        claim=str(found["oidc_claim"].value),
    )


def invitation(host: str, port: int, token: str) -> str:
    """The line that says where the first password is set."""
    link = set_link(host, port, token)
    return f"set the password of '{FIRST_NAME}', once, within {LINK_S / 3_600:.0f} h  {link}"


def set_link(host: str, port: int, token: str) -> str:
    """The address where a password is set by a link's token, as this machine reaches it."""
    where = processes.LOOPBACK if host in ("0.0.0.0", "::") else host  # noqa: S104 - no bind
    return f"{address(where, port)}/login/set?token={token}"


def address(host: str, port: int) -> str:
    """The server's address, with or without TLS."""
    return f"{'https' if tls() else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def hostname(host: str) -> str | None:
    """The name in ``NAME`` or ``NAME:PORT``, lower case; ``None`` if it is neither."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    is_plain = parts.netloc == host and parts.username is None and not host.endswith(":")
    return name.rstrip(".") if name and is_plain else None


def _words(text: object) -> Iterable[str]:
    return filter(None, (word.strip() for word in str(text or "").split(",")))


def _network(word: str) -> Network:
    try:
        return ip_network(word)
    except ValueError as error:
        raise UsageError(f"[dashboard] trusted_proxies: '{word}' is no address") from error


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
