"""OTLP over HTTP: ``POST /v1/traces`` and, to be polite, ``/v1/logs`` and ``/v1/metrics``.

No logic but the protocol's: content types, status codes, partial success (OTLP specification
1.x, "OTLP/HTTP"). 429 and 503 carry ``Retry-After``; every other error means: don't send it
again.
"""

import asyncio
from typing import Final

from google.rpc.status_pb2 import Status

from longpole.errors import BadInput, LongpoleError, StoreBusy
from longpole_collector.asgi import (
    Gone,
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
from longpole_collector.batch import Full
from longpole_collector.decode import Compression, Format, TooLarge, inflate
from longpole_collector.ingest import Ingest
from longpole_collector.signals import LOGS, METRICS, TRACES, Signal, count_records

_SIGNALS: Final = {"/v1/traces": TRACES, "/v1/logs": LOGS, "/v1/metrics": METRICS}
PATHS: Final = frozenset(_SIGNALS)
RETRY_AFTER: Final = (b"retry-after", b"1")
_TYPES: Final = {"application/x-protobuf": Format.PROTOBUF, "application/json": Format.JSON}
_ENCODINGS: Final = {
    "": Compression.IDENTITY,
    "identity": Compression.IDENTITY,
    "gzip": Compression.GZIP,
    "deflate": Compression.DEFLATE,
}
# google.rpc codes of the Status a failed request gets
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 8, 14
_STATUS_OF: Final[dict[type[LongpoleError], tuple[int, int, str]]] = {
    Full: (429, _RESOURCE_EXHAUSTED, "full"),
    StoreBusy: (503, _UNAVAILABLE, "not_ready"),
    TooLarge: (413, _INVALID_ARGUMENT, "too_large"),
    TooSlow: (408, _INVALID_ARGUMENT, "too_slow"),
    BadInput: (400, _INVALID_ARGUMENT, "bad_input"),
}


class OtlpHttp:
    """The ASGI door of the three OTLP paths."""

    def __init__(self, ingest: Ingest, *, max_body_bytes: int, body_timeout_s: float) -> None:
        self._ingest = ingest
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await respond_json(send, 405, {"message": "only POST"}, ((b"allow", b"POST"),))
            return
        form = _TYPES.get(media_type(scope))
        if form is None:
            self._refused("content_type")
            message = "content type must be application/x-protobuf or application/json"
            await respond_json(send, 415, {"code": _INVALID_ARGUMENT, "message": message})
            return
        try:
            answer = await self._answer(scope, receive, form)
        except Gone:
            self._refused("sender_gone")
        except LongpoleError as error:
            await self._refuse(send, form, error)
        else:
            await respond(send, 200, answer, _type_name(form))

    async def _answer(self, scope: Scope, receive: Receive, form: Format) -> bytes:
        compression = _ENCODINGS.get(header(scope, b"content-encoding"))
        if compression is None:
            raise BadInput("content encoding must be gzip, deflate or identity")
        body = await read_body(
            scope,
            receive,
            limit_bytes=self._max_body_bytes,
            timeout_s=self._body_timeout_s,
            budget=self._ingest.budget,
        )
        signal = _SIGNALS[scope["path"]]
        if signal is TRACES:
            receipt = await self._ingest.accept(body, form, compression)
            return signal.answer(form, receipt.num_rejected, receipt.reason)
        num = await asyncio.to_thread(self._count, body, form, compression, signal)
        self._ingest.health.add("signals_dropped", signal.name, num)
        return signal.refusal(form, num)

    def _count(self, body: bytes, form: Format, compression: Compression, signal: Signal) -> int:
        return count_records(inflate(body, compression, self._max_body_bytes), form, signal)

    async def _refuse(self, send: Send, form: Format, error: LongpoleError) -> None:
        kind = next(kind for kind in _STATUS_OF if isinstance(error, kind))
        status, code, cause = _STATUS_OF[kind]
        self._refused(cause)
        headers = (RETRY_AFTER,) if isinstance(error, StoreBusy) else ()
        if form is Format.JSON:
            await respond_json(send, status, {"code": code, "message": str(error)}, headers)
        else:
            body = Status(code=code, message=str(error)).SerializeToString()
            await respond(send, status, body, _type_name(form), headers)

    def _refused(self, cause: str) -> None:
        self._ingest.health.add("requests_refused", cause)


def _type_name(form: Format) -> str:
    return next(name for name, known in _TYPES.items() if known is form)
