"""Read-only SQL for every other process, and the collector's own state.

``POST /api/v1/query`` takes ``{"sql": ..., "params": ...}`` and answers with an Arrow stream or
JSON; ``/healthz``, ``/readyz`` and ``/metrics`` say how the collector does.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
from pydantic import BaseModel, TypeAdapter, ValidationError

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable
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
    to_json,
)
from longpole_collector.batch import Full
from longpole_collector.decode import TooLarge
from longpole_collector.documents import query_document
from longpole_collector.ingest import Ingest
from longpole_collector.stores.base import Reader, Value
from longpole_collector.stores.remote import ARROW, QUERY_PATH

_MAX_QUERY_BYTES: Final = 4 << 20
_MAX_WAITING: Final = 64
_STATUS_OF: Final[dict[type[LongpoleError], int]] = {
    StoreBusy: 503,
    Unreachable: 503,
    TooLarge: 413,
    TooSlow: 408,
    BadInput: 400,
}


class _Query(BaseModel):
    """The body of a query."""

    sql: str
    params: list[Value] | dict[str, Value] = []


_QUERY: Final = TypeAdapter(_Query)


class QueryHttp:
    """The ASGI door of everything that is not OTLP."""

    def __init__(self, reader: Reader, ingest: Ingest, *, body_timeout_s: float) -> None:
        self._reader = reader
        self._ingest = ingest
        self._body_timeout_s = body_timeout_s
        self._threads = ThreadPoolExecutor(8, "longpole-query")
        self._num_waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if scope["method"] != ("POST" if path == QUERY_PATH else "GET"):
            await respond_json(send, 405, {"error": f"{path} has no {scope['method']}"})
        elif path == QUERY_PATH:
            await self._query(scope, receive, send)
        elif path == "/healthz":
            await respond_json(send, 200, {"status": "ok"})
        elif path == "/readyz":
            is_ready = self._ingest.is_ready
            status = "ready" if is_ready else "not ready"
            await respond_json(send, 200 if is_ready else 503, {"status": status})
        elif path == "/metrics":
            text = self._ingest.health.prometheus().encode()
            await respond(send, 200, text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            await respond_json(send, 404, {"error": f"no such path: {path}"})

    def close(self) -> None:
        """End the query threads once their queries have ended."""
        self._threads.shutdown()

    async def _query(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if media_type(scope) != "application/json":
                raise BadInput("content type must be application/json")
            body = await read_body(
                scope,
                receive,
                limit_bytes=_MAX_QUERY_BYTES,
                timeout_s=self._body_timeout_s,
                budget=self._ingest.budget,
            )
            query = _QUERY.validate_json(body)
            answer, content_type = await self._run(query, ARROW in header(scope, b"accept"))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            await respond_json(send, 400, {"error": f"{where}: {first['msg']}".lstrip(": ")})
        except LongpoleError as error:
            status = next(_STATUS_OF[kind] for kind in _STATUS_OF if isinstance(error, kind))
            await respond_json(send, status, {"error": str(error)})
        except Gone:
            return
        else:
            await respond(send, 200, answer, content_type)

    async def _run(self, query: _Query, is_arrow: bool) -> tuple[bytes, str]:
        if self._num_waiting >= _MAX_WAITING:
            raise Full(f"{_MAX_WAITING} queries are waiting: try again")
        self._num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._answer, query, is_arrow)
        finally:
            self._num_waiting -= 1

    def _answer(self, query: _Query, is_arrow: bool) -> tuple[bytes, str]:
        table = self._reader.sql(query.sql, query.params)
        if is_arrow:
            return arrow_bytes(table), ARROW
        return to_json(query_document(table)), "application/json"


def arrow_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
