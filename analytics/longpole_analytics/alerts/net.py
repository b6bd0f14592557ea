"""The way out to the sinks: to public addresses only, unless a place is listed; no redirects.

A name is looked up once for each connection, every address it has is checked, and the connection
goes to the very address that was checked, so a name that changes its mind in between gains
nothing. An answer is read to a small bound, and for a short time.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import httpcore
import httpx

TIMEOUT_S: Final = 5.0
DEADLINE_S: Final = 15.0
"""For one whole exchange, however its bytes trickle in."""
MAX_ANSWER_BYTES: Final = 64 << 10
_NAT64: Final = ip_network("64:ff9b::/96")
_AGAIN: Final = frozenset({408, 425, 429})
_TROUBLE: Final = (
    *(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError),
    *(httpcore.ConnectionNotAvailable, httpx.InvalidURL, OSError, ValueError),
)
Address = IPv4Address | IPv6Address


class Later(Exception):
    """It did not arrive; it may when it is sent again, ``after_s`` at the earliest."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Never(Exception):
    """It will not arrive, however often it is sent."""


class Answer(NamedTuple):
    """What a sink said."""

    status: int
    text: str


class Gate:
    """Decides what may be reached, and goes there."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """``allowed`` are names, addresses and networks that may be private."""
        self._names: set[str] = set()
        self._networks = []
        for each in allowed:
            try:
                self._networks.append(ip_network(each, strict=False))
            except ValueError:
                self._names.add(each.lower().rstrip("."))

    def resolve(self, host: str, port: int) -> str:
        """An address of a host that may be connected to.

        Raises:
            Later: the name is not known now.
            Never: one of its addresses is private and not listed.
        """
        name = host.strip("[]").lower().rstrip(".")
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Later(f"{name}: the name is not known") from error
        addresses = list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))
        for address in addresses:
            if not self._may_reach(name, ip_address(address)):
                raise Never(
                    f"{name} is a private address: list it in [alerts] allow_hosts if that is meant"
                )
        return addresses[0]

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, accept: Iterable[int] = ()
    ) -> Answer:
        """Send one body; returns the answer if it is a success.

        Args:
            url: where to.
            body: what.
            headers: with its content type.
            accept: the statuses that are a success; empty is any 2xx.

        Raises:
            Later: it may arrive later.
            Never: it is refused: by us, or by the sink, or by a redirect.
        """
        host = urlsplit(url).hostname or ""
        if urlsplit(url).scheme not in ("http", "https") or not host:
            raise Never("the address is not http://HOST or https://HOST")
        try:
            with _Way(self) as way:
                answer = way.exchange(httpx.URL(url), body, headers)
        except _TROUBLE as error:
            # the text of an error may hold the address, and that a secret
            raise Later(f"{host}: {type(error).__name__}") from None
        wanted = set(accept)
        if answer.status in wanted or (not wanted and 200 <= answer.status < 300):
            return Answer(answer.status, answer.text)
        if 300 <= answer.status < 400:
            raise Never(f"{host} answered {answer.status}: redirects are not followed")
        said = f"{host} answered {answer.status}"
        if answer.status >= 500 or answer.status in _AGAIN or answer.status < 300:
            raise Later(said, answer.after_s)
        raise Never(said)

    def _may_reach(self, name: str, address: Address) -> bool:
        if name in self._names or any(address in network for network in self._networks):
            return True
        return all(
            each.is_global and not each.is_multicast and not each.is_reserved
            for each in _meanings(address)
        )


def _meanings(address: Address) -> list[Address]:
    """The address, and the one that it is a wrapping of."""
    found: list[Address] = [address]
    if isinstance(address, IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
        wrapped = [each for each in inner if each is not None]
        if wrapped:
            return wrapped  # what a wrapping itself is called says nothing
    return found


class _Answered(NamedTuple):
    status: int
    text: str
    after_s: float | None


class _Way:
    """One exchange over a connection to a checked address; knows no proxy.

    httpcore, not httpx's client over it, which writes every address to its log.
    """

    def __init__(self, gate: Gate) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False), network_backend=_Backend(gate)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def exchange(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> _Answered:
        """Send and read, within the bounds."""
        deadline = time.monotonic() + DEADLINE_S
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        request = httpx.Request("POST", url, content=body, headers=dict(headers))
        limits = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
        with self._pool.stream(
            "POST",
            target,
            headers=request.headers.raw,
            content=body,
            extensions={"timeout": limits},
        ) as answer:
            parts, num = [], 0
            for part in answer.iter_stream():
                parts.append(part)
                num += len(part)
                if num > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                    break
        text = b"".join(parts)[:MAX_ANSWER_BYTES].decode("utf-8", "replace")
        asked = httpx.Headers(answer.headers).get("retry-after")
        return _Answered(answer.status, text, _after_s(asked))


class _Backend(httpcore.SyncBackend):
    """Connects to the address that was checked; TLS and ``Host`` keep the name."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def connect_tcp(self, host: str, port: int, *args: Any, **how: Any) -> httpcore.NetworkStream:
        """As the original, after a look at the address."""
        return super().connect_tcp(self._gate.resolve(host, port), port, *args, **how)

    def connect_unix_socket(self, *_args: Any, **_how: Any) -> httpcore.NetworkStream:
        """Refused.

        Raises:
            Never: always.
        """
        raise Never("a socket file is no sink")


def _after_s(text: str | None) -> float | None:
    """Seconds that ``Retry-After`` asks for, as a number or as a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    with suppress(ValueError, TypeError):
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
    return None
