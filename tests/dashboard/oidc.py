"""A provider that speaks OpenID Connect on a port of this machine: code flow with PKCE."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

SECRET = "the client's secret"


class FakeProvider:
    """Lets everybody in as whom ``claims`` say; ``more`` is what its userinfo endpoint adds."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.claims: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        self._asked: dict[str, dict[str, str]] = {}
        self._tokens: set[str] = set()

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator[Self]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self.answer({name: values[0] for name, values in parse_qs(body).items()})

            def answer(self, form: dict[str, str]) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                told = self.headers.get("authorization", "")
                status, headers, found = provider.respond(parts.path, query, form, told)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            provider = cls(f"http://127.0.0.1:{server.server_address[1]}")
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield provider
            finally:
                server.shutdown()
                thread.join()

    def respond(
        self, path: str, query: dict[str, str], form: dict[str, str], told: str
    ) -> tuple[int, dict[str, str], Any]:
        match path:
            case "/.well-known/openid-configuration":
                names = ("authorization", "token", "userinfo")
                return (
                    200,
                    {},
                    {
                        "issuer": self.url,
                        **{f"{name}_endpoint": f"{self.url}/{name}" for name in names},
                    },
                )
            case "/authorization":
                return self._authorize(query)
            case "/token":
                return self._token(form, told)
            case "/userinfo" if told.removeprefix("Bearer ") in self._tokens:
                return 200, {}, {"sub": "7", **self.more}
        return 400, {}, {"error": "invalid_request"}

    def _authorize(self, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        is_whole = (
            query["response_type"] == "code"
            and query["client_id"] == "longpole"
            and "openid" in query["scope"].split()
            and query["code_challenge_method"] == "S256"
            and urlsplit(query["redirect_uri"]).path == "/login/callback"
        )
        if not is_whole:
            return 400, {}, {"error": "invalid_request"}
        code = secrets.token_urlsafe()
        self._asked[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        return 302, {"location": f"{query['redirect_uri']}?{back}"}, None

    def _token(self, form: dict[str, str], told: str) -> tuple[int, dict[str, str], Any]:
        asked = self._asked.pop(form.get("code", ""), None)
        known = base64.b64encode(f"longpole:{SECRET}".encode()).decode()
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        is_right = (
            asked is not None
            and told == f"Basic {known}"
            and form["grant_type"] == "authorization_code"
            and form["redirect_uri"] == asked["redirect_uri"]
            and base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        )
        if not is_right or asked is None:
            return 400, {}, {"error": "invalid_grant"}
        claims = {
            "iss": self.url,
            "aud": "longpole",
            "sub": "7",
            "nonce": asked["nonce"],
            "exp": time.time() + 300,
            **self.claims,
        }
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
        access = secrets.token_urlsafe()
        self._tokens.add(access)
        return 200, {}, {"id_token": f"{token}.x", "access_token": access, "token_type": "Bearer"}
