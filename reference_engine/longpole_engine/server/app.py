"""The HTTP doors: OpenAI's chat and completion calls, models, health."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longpole_engine.server import texts
from longpole_engine.server.errors import ApiError
from longpole_engine.server.generation import answer
from longpole_engine.server.protocol import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    TokenizeRequest,
    parse,
)
from longpole_engine.server.service import Service
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.telemetry.prom import CONTENT_TYPE

_RECORD = "longpole.record"
_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"
_BODY_WAIT_S = 30.0


def create_app(service: Service, max_body_bytes: int) -> FastAPI:
    """The application; the model starts loading with it and stops with it.

    Args:
        service: the model being served.
        max_body_bytes: larger request bodies are refused.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Door, service=service)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _http_error)

    async def chat(request: Request) -> Response:
        serving = service.serving()
        call = parse(ChatRequest, await _body(request, max_body_bytes))
        return await answer(request, request.scope[_RECORD], service, serving, call)

    async def completion(request: Request) -> Response:
        serving = service.serving()
        call = parse(CompletionRequest, await _body(request, max_body_bytes))
        return await answer(request, request.scope[_RECORD], service, serving, call)

    async def embeddings(request: Request) -> JSONResponse:
        serving = service.serving()
        call = parse(EmbeddingRequest, await _body(request, max_body_bytes))
        return JSONResponse(await texts.embeddings(service, serving, call))

    async def tokenize(request: Request) -> JSONResponse:
        serving = service.serving()
        call = parse(TokenizeRequest, await _body(request, max_body_bytes))
        return JSONResponse(await texts.tokenize(service, serving, call))

    async def models() -> dict[str, Any]:
        card = {
            "id": service.name,
            "object": "model",
            "created": service.started_s,
            "owned_by": "longpole",
        }
        return {"object": "list", "data": [card]}

    async def health() -> JSONResponse:
        status = "ok" if service.is_ready else "loading"
        content = {"status": status, "model": service.name}
        return JSONResponse(content, 200 if service.is_ready else 503)

    async def metrics() -> Response:
        return Response(service.reporter.metrics.text(), media_type=CONTENT_TYPE)

    async def timeline(answer_id: str) -> Response:
        found = await asyncio.to_thread(service.reporter.timeline, answer_id)
        if found is None:
            raise ApiError(404, f"no answer '{answer_id}' among the latest")
        return JSONResponse(found)

    app.get("/metrics", response_model=None)(metrics)
    app.get("/v1/requests/{answer_id}/timeline", response_model=None)(timeline)
    app.post(_CHAT, response_model=None)(chat)
    app.post(_COMPLETION, response_model=None)(completion)
    app.post("/v1/embeddings", response_model=None)(embeddings)
    app.post("/tokenize", response_model=None)(tokenize)
    app.get("/v1/models")(models)
    app.get("/health", response_model=None)(health)
    return app


class Door:
    """Stamps a generating request on arrival and closes its record when its response ends.

    However it ends: sent, refused, failed or left by its caller.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] not in (_CHAT, _COMPLETION):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        record = RequestRecord(Timeline(now_ns()), headers)
        record.operation = "chat" if scope["path"] == _CHAT else "text_completion"
        scope[_RECORD] = record
        is_sent = False

        async def watched(message: Message) -> None:
            nonlocal is_sent
            await send(message)
            if message["type"] == "http.response.start":
                record.http_status = message["status"]
            elif not message.get("more_body"):
                is_sent = True

        try:
            await self._app(scope, receive, watched)
        except Exception:
            record.error_type = record.error_type or "internal_error"
            raise
        finally:
            self._service.finish(record, is_sent=is_sent)


async def _body(request: Request, max_bytes: int) -> bytes:
    """The body, bounded in size and time.

    Raises:
        ApiError: 413 or 408.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WAIT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise ApiError(413, f"the body is larger than {max_bytes} bytes")
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {_BODY_WAIT_S:.0f} s") from error
    return bytes(body)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for this type only
    record: RequestRecord | None = request.scope.get(_RECORD)
    if record is not None:
        record.error_type = record.error_type or error.code or error.type
    return JSONResponse(error.body(), error.status, headers=error.headers())


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown path or method, in the same shape."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    return await _refused(request, ApiError(error.status_code, str(error.detail)))
