"""OTLP over HTTP: ``POST /v1/traces`` and, to be polite, ``/v1/logs`` and ``/v1/metrics``.

No logic but the protocol's: content types, status codes, partial success (OTLP specification
1.x, "OTLP/HTTP"). 429 and 503 carry ``Retry-After``; every other error means: don't send it
again.

A web page may send spans only where its origin is listed, only as JSON and only to ``/v1/traces``
(the browser beacon); that is the one place with CORS. Any other request that names an origin
comes from a page of somebody else's and is refused.
"""

from math import ceil
from time import perf_counter
from typing import Final

from google.rpc.status_pb2 import Status

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable
from longpole_collector.asgi import (
    Gone,
    Message,
    Receive,
    Scope,
    Send,
    TooSlow,
    header,
    media_type,
    read_body,
    respond,
    respond_json,
)
from longpole_collector.batch import Full, LogFull
from longpole_collector.decode import Compression, Format, TooLarge
from longpole_collector.doors import Door, Visit
from longpole_collector.health import Health
from longpole_collector.keys import NoKey, TooFast, WrongScope
from longpole_collector.keys import Scope as KeyScope
from longpole_collector.signals import LOGS, METRICS, TRACES, Export, take

_SIGNALS: Final = {"/v1/traces": TRACES, "/v1/logs": LOGS, "/v1/metrics": METRICS}
PATHS: Final = frozenset(_SIGNALS)
BEACON_PATH: Final = "/v1/traces"
RETRY_AFTER: Final = (b"retry-after", b"1")
_TYPES: Final = {"application/x-protobuf": Format.PROTOBUF, "application/json": Format.JSON}
_TYPE_NAMES: Final = {form: name for name, form in _TYPES.items()}
_ENCODINGS: Final = {
    "": Compression.IDENTITY,
    "identity": Compression.IDENTITY,
    "gzip": Compression.GZIP,
    "deflate": Compression.DEFLATE,
}
# google.rpc codes of the Status a failed request gets
_INVALID_ARGUMENT, _PERMISSION_DENIED, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 7, 8, 14
_UNAUTHENTICATED = 16
_STATUS_OF: Final[dict[type[LongpoleError], tuple[int, int, str]]] = {
    NoKey: (401, _UNAUTHENTICATED, "no_key"),
    WrongScope: (403, _PERMISSION_DENIED, "wrong_scope"),
    TooFast: (429, _RESOURCE_EXHAUSTED, "too_fast"),
    LogFull: (503, _RESOURCE_EXHAUSTED, "log_full"),
    Full: (429, _RESOURCE_EXHAUSTED, "full"),
    Unreachable: (503, _UNAVAILABLE, "not_ready"),
    TooLarge: (413, _INVALID_ARGUMENT, "too_large"),
    TooSlow: (408, _INVALID_ARGUMENT, "too_slow"),
    BadInput: (400, _INVALID_ARGUMENT, "bad_input"),
}
_NO_BEACON: Final = (
    f"a web page may send JSON to {BEACON_PATH} only, and only where its origin is listed: "
    "name it in [collector] beacon_origins"
)
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"content-type, authorization"),
    (b"access-control-max-age", b"7200"),
)
Headers = tuple[tuple[bytes, bytes], ...]


class OtlpHttp:
    """The ASGI door of the three OTLP paths."""

    def __init__(
        self,
        door: Door,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        """``origins`` are those whose pages may send spans, lower case."""
        self._door = door
        self._origins = origins
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if origin := header(scope, b"origin"):
            is_preflight = scope["method"] == "OPTIONS"
            if not self._is_beacon(scope, origin, is_preflight):
                self._door.projects.default.ingest.health.add("requests_refused", "origin")
                await respond_json(send, 403, {"code": _PERMISSION_DENIED, "message": _NO_BEACON})
                return
            shared = ((b"access-control-allow-origin", origin.encode()), (b"vary", b"origin"))
            if is_preflight:
                await respond_json(send, 200, {}, (*shared, *_PREFLIGHT))
                return
            send = _adding(send, shared)
        await self._take(scope, receive, send)

    def _is_beacon(self, scope: Scope, origin: str, is_preflight: bool) -> bool:
        is_json = is_preflight or _TYPES.get(media_type(scope)) is Format.JSON
        return origin in self._origins and scope["path"] == BEACON_PATH and is_json

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await respond_json(send, 405, {"message": "only POST"}, ((b"allow", b"POST"),))
            return
        health = self._door.projects.default.ingest.health
        form = _TYPES.get(media_type(scope))
        try:
            visit = await self._door.admit(header(scope, b"authorization"), KeyScope.INGEST)
            health = visit.health
            if form is None:
                health.add("requests_refused", "content_type")
                message = "content type must be application/x-protobuf or application/json"
                await respond_json(send, 415, {"code": _INVALID_ARGUMENT, "message": message})
                return
            answer = await self._answer(scope, receive, form, visit)
        except Gone:
            health.add("requests_refused", "sender_gone")
        except LongpoleError as error:
            await self._refuse(send, Format.JSON if form is None else form, error, health)
        else:
            await respond(send, 200, answer, _TYPE_NAMES[form])

    async def _answer(self, scope: Scope, receive: Receive, form: Format, visit: Visit) -> bytes:
        since_s = perf_counter()
        compression = _ENCODINGS.get(header(scope, b"content-encoding"))
        if compression is None:
            raise BadInput("content encoding must be gzip, deflate or identity")
        ingest = visit.project.ingest
        body = await read_body(
            scope,
            receive,
            limit_bytes=self._max_body_bytes,
            timeout_s=self._body_timeout_s,
            budget=ingest.budget,
        )
        self._door.access.spend(visit.grant, len(body))
        export = Export(_SIGNALS[scope["path"]], body, form, compression, "http", since_s)
        return await take(export, ingest, self._max_body_bytes)

    async def _refuse(self, send: Send, form: Format, error: LongpoleError, health: Health) -> None:
        kind = next(kind for kind in _STATUS_OF if isinstance(error, kind))
        status, code, cause = _STATUS_OF[kind]
        health.add("requests_refused", cause)
        headers = refusal_headers(error)
        if form is Format.JSON:
            await respond_json(send, status, {"code": code, "message": str(error)}, headers)
        else:
            body = Status(code=code, message=str(error)).SerializeToString()
            await respond(send, status, body, _TYPE_NAMES[form], headers)


def _adding(send: Send, headers: Headers) -> Send:
    """``send`` with more headers on the response."""

    async def more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return more


def refusal_headers(error: LongpoleError) -> Headers:
    """What a refusal says besides its body: when to come again, or how to show a key."""
    if isinstance(error, NoKey):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, TooFast):
        return ((b"retry-after", str(ceil(error.wait_s)).encode()),)
    return (RETRY_AFTER,) if isinstance(error, StoreBusy) else ()
