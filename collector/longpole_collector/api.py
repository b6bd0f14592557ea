"""Everything that is not OTLP: queries, status, health and metrics, described by OpenAPI.

No page of documentation is served: those load scripts from elsewhere. ``/openapi.json`` is here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Annotated, Any, Final

import duckdb
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from longpole.errors import BadInput, LongpoleError, Unreachable
from longpole_collector.asgi import TooSlow, media_type, read_body
from longpole_collector.batch import Full
from longpole_collector.decode import TooLarge
from longpole_collector.doors import Door, Visit
from longpole_collector.keys import NoKey, Scope, WrongScope
from longpole_collector.otlp_http import refusal_headers
from longpole_collector.query_http import ArrowResponse, Queries, Query
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.remote import ARROW, QUERY_PATH

_MAX_QUERY_BYTES: Final = 4 << 20
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_STATUS_OF: Final[dict[type[LongpoleError], int]] = {
    NoKey: 401,
    WrongScope: 403,
    Full: 429,
    Unreachable: 503,
    TooLarge: 413,
    TooSlow: 408,
    BadInput: 400,
}
_MEANINGS: Final = {
    400: "not such a request, or a statement that cannot be answered",
    401: "a key is needed, or this one is not known",
    403: "the key is for something else, or the Host header is not known",
    404: "nothing of that name",
    408: "the body did not arrive in time",
    413: "the body is too large",
    429: "too much is going on: come again",
    503: "not ready, or the project cannot be opened: come again",
}


class Refusal(BaseModel):
    """Why a request was not answered."""

    error: str


class State(BaseModel):
    """How the collector does; ``store`` says what is wrong with a ClickHouse store."""

    status: str
    store: str | None = None


class Status(BaseModel):
    """A project, and what runs."""

    project: str
    is_ready: bool
    num_spans: int | None
    store: str | None
    problem: str | None
    log_bytes: int
    num_files: int
    num_bytes: int
    broken: dict[str, str]
    queue_bytes: int
    num_queries: int
    versions: dict[str, str]


def create_api(door: Door, queries: Queries, *, body_timeout_s: float) -> FastAPI:
    """The application.

    Args:
        door: says who may read.
        queries: runs their statements.
        body_timeout_s: how long a body may take to arrive.
    """
    app = FastAPI(
        title="longpole collector",
        version=version("longpole"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
    )
    app.add_exception_handler(LongpoleError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    reading = Annotated[Visit, Depends(admit(door, Scope.READ))]

    async def query(request: Request, visit: reading) -> Response:
        """Run one read-only statement over the views; the answer is Arrow if that is accepted."""
        asked = await _read_query(request, visit, body_timeout_s)
        if ARROW in request.headers.get("accept", "").lower():
            return ArrowResponse(queries, visit.project.store, asked)
        return await queries.json(visit.project.store, asked)

    async def status(visit: reading) -> Status:
        """What the key's project holds."""
        return await _status(visit, queries)

    async def metrics(visit: reading) -> Response:
        """The key's project's counters as Prometheus text."""
        text = await asyncio.to_thread(visit.health.prometheus)
        return PlainTextResponse(text, headers={"content-type": _METRICS_TYPE})

    async def healthz() -> State:
        """Alive; bodies are taken although the store does not answer, while the log has room."""
        problem = door.projects.default.problem
        return State(status="degraded" if problem else "ok", store=problem)

    async def readyz() -> Response:
        """Whether bodies are taken: 503 while the log is read back and while stopping."""
        is_ready = door.projects.default.ingest.is_ready
        status = "ready" if is_ready else "not ready"
        return JSONResponse({"status": status}, 200 if is_ready else 503)

    app.post(QUERY_PATH, responses=_QUERY_RESPONSES, openapi_extra=_QUERY_BODY)(query)
    app.get("/api/v1/status", responses=refusals(401, 403, 429, 503))(status)
    app.get("/metrics", responses=refusals(401, 403, 503), response_class=PlainTextResponse)(
        metrics
    )
    app.get("/healthz", responses=refusals(403), response_model_exclude_none=True)(healthz)
    app.get("/readyz", response_model=State, responses=refusals(403) | {503: {"model": State}})(
        readyz
    )
    return app


def admit(door: Door, scope: Scope) -> Callable[[Request], Awaitable[Visit]]:
    """A dependency that gives who asks, if the key they show is for that."""

    async def admit(request: Request) -> Visit:
        return await door.admit(request.headers.get("authorization", ""), scope)

    return admit


async def _read_query(request: Request, visit: Visit, timeout_s: float) -> Query:
    if media_type(request.scope) != "application/json":
        raise BadInput("content type must be application/json")
    body = await read_body(
        request.scope,
        request.receive,
        limit_bytes=_MAX_QUERY_BYTES,
        timeout_s=timeout_s,
        budget=visit.project.ingest.budget,
    )
    try:
        return Query.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{where}: {first['msg']}".lstrip(": ")) from error


async def _status(visit: Visit, queries: Queries) -> Status:
    project = visit.project

    days = project.store.days if isinstance(project.store, DuckStore) else None

    def look() -> tuple[int | None, list[int]]:
        num_spans: int | None = None
        if project.problem is None:
            num_spans = project.store.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py()
        return num_spans, [day.num_bytes() for day in days or ()]

    num_spans, sizes = await queries.in_thread(look)
    return Status(
        project=project.name,
        is_ready=project.ingest.is_ready,
        num_spans=num_spans,
        store=None if isinstance(project.store, DuckStore) else str(project.store.address),
        problem=project.problem,
        log_bytes=project.ingest.num_log_bytes(),
        num_files=len(sizes),
        num_bytes=sum(sizes),
        broken=dict(days.broken if days is not None else {}),
        queue_bytes=project.ingest.budget.used_bytes(),
        num_queries=queries.num_running,
        versions={"longpole": version("longpole"), "duckdb": duckdb.__version__},
    )


async def _refused(request: Request, error: Exception) -> Response:
    status = next(_STATUS_OF[kind] for kind in _STATUS_OF if isinstance(error, kind))
    answer = JSONResponse({"error": str(error)}, status)
    if isinstance(error, LongpoleError):
        answer.raw_headers.extend(refusal_headers(error))
    return answer


async def _not_found(request: Request, error: Exception) -> Response:
    path, status = request.url.path, error.status_code if isinstance(error, HTTPException) else 500
    message = f"{path} has no {request.method}" if status == 405 else f"no such path: {path}"
    headers = error.headers if isinstance(error, HTTPException) else None
    return JSONResponse({"error": message}, status, headers)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How these refusals are described."""
    return {status: {"model": Refusal, "description": _MEANINGS[status]} for status in statuses}


_QUERY_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Query.model_json_schema()}},
    }
}
_QUERY_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "the rows",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["schema", "columns", "rows"],
                    "properties": {
                        "schema": {"const": "longpole.query/1"},
                        "columns": {"type": "array", "items": {"type": "string"}},
                        "rows": {"type": "array", "items": {"type": "array"}},
                    },
                }
            },
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    **refusals(400, 401, 403, 408, 413, 429, 503),
}
