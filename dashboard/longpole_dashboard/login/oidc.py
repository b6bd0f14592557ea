"""Login by OpenID Connect: the authorization code flow with PKCE (OIDC Core 3.1, RFC 7636).

The ID token comes straight from the provider's token endpoint over TLS, which Core 3.1.3.7 takes
in place of its signature; issuer, audience, nonce and times are checked. Addresses that are not
HTTPS are refused unless they are this machine's.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx

from longpole.errors import LongpoleError, UsageError

_TIMEOUT_S: Final = 10.0
_LEEWAY_S: Final = 60.0
_SCOPE: Final = "openid email profile"
_EMAIL: Final = "email"


class Refused(LongpoleError):
    """The provider did not say who it is, or not in a way that can be believed."""


class Begun(NamedTuple):
    """A login on its way: what the browser keeps until it is back, and where it goes."""

    state: str
    nonce: str
    verifier: str
    url: str


@dataclass
class Provider:
    """An identity provider and what it knows this dashboard as.

    ``claim`` is the claim that is taken for the name of the login; for ``email`` the provider has
    to say that it has verified the address.

    Raises:
        UsageError: the issuer or the client is not named, or the issuer is not HTTPS.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    claim: str = _EMAIL
    _found: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.issuer or not self.client_id:
            raise UsageError("login by OIDC needs [dashboard] oidc_issuer and oidc_client_id")
        if not _is_private(self.issuer):
            raise UsageError(f"[dashboard] oidc_issuer '{self.issuer}' is not https://...")

    async def begin(self, redirect_uri: str) -> Begun:
        """Where to send the browser.

        Raises:
            Refused: the provider cannot be reached or does not describe itself.
        """
        endpoint = await self._endpoint("authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": _SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoint).query else "?"
        return Begun(state, nonce, verifier, f"{endpoint}{joint}{urlencode(asked)}")

    async def finish(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> str:
        """The name of who logged in there.

        Raises:
            Refused: the provider takes the code for nothing, or its token is not for us.
        """
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
            "code_verifier": verifier,
        }
        auth = (self.client_id, self.client_secret) if self.client_secret else None
        endpoint = await self._endpoint("token_endpoint")
        tokens = await _json("POST", endpoint, data=given, auth=auth)
        claims = _claims(str(tokens.get("id_token", "")))
        self._check(claims, nonce)
        if self.claim not in claims and "userinfo_endpoint" in self._found:
            bearer = {"authorization": f"Bearer {tokens.get('access_token', '')}"}
            endpoint = await self._endpoint("userinfo_endpoint")
            more = await _json("GET", endpoint, headers=bearer)
            if more.get("sub") != claims.get("sub"):
                raise Refused("the provider told about somebody else")
            claims = {**more, **claims}
        return self._name(claims)

    def _check(self, claims: Mapping[str, Any], nonce: str) -> None:
        """OIDC Core 3.1.3.7, without the signature."""
        audience = claims.get("aud")
        everyone = audience if isinstance(audience, list) else [audience]
        now_s = time.time()
        is_ours = self.client_id in everyone and claims.get("azp", self.client_id) == self.client_id
        if claims.get("iss") != self._found["issuer"] or not is_ours:
            raise Refused("the provider's token is not for this dashboard")
        if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Refused("the provider's token is of another login")
        expires_s = claims.get("exp")
        if not isinstance(expires_s, int | float) or expires_s < now_s - _LEEWAY_S:
            raise Refused("the provider's token is too old: do the clocks agree?")

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.claim)
        if not isinstance(name, str) or not name:
            raise Refused(f"the provider tells no '{self.claim}': see [dashboard] oidc_claim")
        if self.claim == _EMAIL and claims.get("email_verified") is not True:
            raise Refused("the provider has not verified this mail address")
        return name

    async def _endpoint(self, name: str) -> str:
        """An address from the provider's description (OIDC Discovery 4), asked for once."""
        if not self._found:
            address = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await _json("GET", address)
            if str(found.get("issuer", "")).rstrip("/") != self.issuer.rstrip("/"):
                raise Refused(f"{address} describes another issuer")
            self._found = found
        endpoint = self._found.get(name)
        if not isinstance(endpoint, str) or not _is_private(endpoint):
            raise Refused(f"the provider names no {name} with https://")
        return endpoint


async def _json(method: str, url: str, **options: Any) -> dict[str, Any]:
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
            answer = await client.request(method, url, **options)
            found = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # never the address's query or the answer: they may hold secrets
        raise Refused(f"the provider gives no answer ({type(error).__name__})") from error
    if answer.status_code != httpx.codes.OK or not isinstance(found, dict):
        raise Refused(f"the provider refused ({answer.status_code})")
    return found


def _claims(token: str) -> dict[str, Any]:
    """The payload of a JSON Web Token (RFC 7519)."""
    try:
        payload = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError) as error:
        raise Refused("the provider sent no ID token") from error
    if not isinstance(found, dict):
        raise Refused("the provider sent no ID token")
    return found


def _is_private(address: str) -> bool:
    """HTTPS, or to this machine."""
    parts = urlsplit(address)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return bool(parts.hostname)
    try:
        return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
